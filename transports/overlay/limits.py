"""Every timer and limit, in one value that tests and labs may change. Paper, section 6.1."""

from dataclasses import dataclass

from transports.clock import MS, Ns, S

# From the paper and, where it is silent, from the Linux module.
REKEY_AFTER_MESSAGES = 1 << 60
REJECT_AFTER_MESSAGES = (1 << 64) - (1 << 13) - 1
REKEY_AFTER_TIME: Ns = 120 * S
REJECT_AFTER_TIME: Ns = 180 * S
REKEY_ATTEMPT_TIME: Ns = 90 * S
REKEY_TIMEOUT: Ns = 5 * S
KEEPALIVE_TIMEOUT: Ns = 10 * S
MAX_JITTER: Ns = 334 * MS  # added to REKEY_TIMEOUT, so that two peers do not stay in step
COOKIE_SECRET_MAX_AGE: Ns = 120 * S
COOKIE_LATENCY: Ns = 5 * S  # a cookie is used no longer than its maker knows it, less this
INITIATIONS_PER_SECOND = 50  # of one peer
REPLAY_WINDOW = 8128
MAX_STAGED_PACKETS = 128
PADDING_MULTIPLE = 16

# Ours.
MAX_PEERS = 1 << 16  # wireguard-go's
MAX_ALLOWED_IPS = (
    1 << 16
)  # prefixes of one interface; a routing table of the Internet is not meant
LOAD_THRESHOLD = 128  # handshake messages waiting, wireguard-go's
LOAD_MEMORY: Ns = 1 * S  # how long one stays under load after the last sign of it
# What a handshake costs in CPU time, 0.3 ms, allows for three thousand and nothing else.
HANDSHAKES_PER_SECOND = 1000
MAX_WAITING = 1024  # handshakes worked off at that rate; what is beyond is dropped
MAX_OUTGOING = 1024  # cookie replies and the like that nobody has fetched
MAX_EVENTS = 1024  # that nobody has fetched; a packet may be 64 KiB
SOURCE_PACKETS_PER_SECOND = 20  # handshake messages of one address, under load
SOURCE_BURST = 5
MAX_SOURCES = 1 << 14  # addresses whose rate is known; each has shown a valid mac2


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tunnel keeps to. Times in nanoseconds."""

    rekey_after_messages: int = REKEY_AFTER_MESSAGES
    reject_after_messages: int = REJECT_AFTER_MESSAGES
    rekey_after_time: Ns = REKEY_AFTER_TIME
    reject_after_time: Ns = REJECT_AFTER_TIME
    rekey_attempt_time: Ns = REKEY_ATTEMPT_TIME
    rekey_timeout: Ns = REKEY_TIMEOUT
    keepalive_timeout: Ns = KEEPALIVE_TIMEOUT
    max_jitter: Ns = MAX_JITTER
    cookie_secret_time: Ns = COOKIE_SECRET_MAX_AGE
    cookie_use_time: Ns = COOKIE_SECRET_MAX_AGE - COOKIE_LATENCY
    initiation_gap: Ns = S // INITIATIONS_PER_SECOND
    replay_window: int = REPLAY_WINDOW
    max_staged_packets: int = MAX_STAGED_PACKETS
    max_peers: int = MAX_PEERS
    max_allowed_ips: int = MAX_ALLOWED_IPS
    load_threshold: int = LOAD_THRESHOLD
    load_memory: Ns = LOAD_MEMORY
    handshakes_per_second: int = HANDSHAKES_PER_SECOND
    max_waiting: int = MAX_WAITING
    max_outgoing: int = MAX_OUTGOING
    max_events: int = MAX_EVENTS
    source_packets_per_second: int = SOURCE_PACKETS_PER_SECOND
    source_burst: int = SOURCE_BURST
    max_sources: int = MAX_SOURCES

    def __post_init__(self) -> None:
        """Raise ValueError for limits with which no session could live."""
        for name in self.__slots__:
            if getattr(self, name) < (0 if name == "max_jitter" else 1):
                raise ValueError(f"{name} is {getattr(self, name)}, legal is 1 or more")
        if self.reject_after_messages > REJECT_AFTER_MESSAGES:
            # The counter is the nonce: beyond it would wrap, or leave the window no room.
            raise ValueError(
                f"reject_after_messages is {self.reject_after_messages}, "
                f"legal is up to {REJECT_AFTER_MESSAGES}"
            )
        if self.reject_after_time <= self.keepalive_timeout + self.rekey_timeout:
            raise ValueError(
                "reject_after_time must exceed keepalive_timeout + rekey_timeout, "
                "or a session is renewed in the moment it begins"
            )

    @property
    def max_retries(self) -> int:
        """How often an initiation is sent again before we give up: one more than 90 s hold."""
        return self.rekey_attempt_time // self.rekey_timeout

    @property
    def last_minute(self) -> Ns:
        """Age at which an initiator renews a session because something *arrives* on it."""
        return self.reject_after_time - self.keepalive_timeout - self.rekey_timeout

    @property
    def wipe_time(self) -> Ns:
        """After which keys of a session that was not renewed are forgotten."""
        return 3 * self.reject_after_time
