"""One peer: what is known of it, its sessions, and the rules of its timers.

The rules are those of the paper's section 6, and where it is silent those of the Linux module:

* Data sent, and nothing heard for KEEPALIVE_TIMEOUT + REKEY_TIMEOUT: a new handshake.
* Data heard, and nothing sent for KEEPALIVE_TIMEOUT: a keepalive, which is never answered.
* An initiation not answered is sent again after REKEY_TIMEOUT; after REKEY_ATTEMPT_TIME of that
  what waits is dropped, and the next packet begins anew.
* Anything authenticated, either way, starts the persistent keepalive's interval anew.
* No new session for three REJECT_AFTER_TIME: the keys are forgotten.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from transports.clock import Ns
from transports.overlay.allowed_ips import Prefix
from transports.overlay.cookies import Macs
from transports.overlay.endpoint import Endpoint
from transports.overlay.handshake import Initiated
from transports.overlay.keys import NO_PRESHARED_KEY, Secret
from transports.overlay.limits import Limits
from transports.overlay.session import NEVER, Slots
from transports.overlay.timers import Agenda, Timer, Timers

# Of every packet, and so as plain numbers.
_KEEPALIVE = int(Timer.KEEPALIVE)
_NEW_HANDSHAKE = int(Timer.NEW_HANDSHAKE)


class Pending(NamedTuple):
    """Our own initiation, under the index that its response will name."""

    local_index: int
    initiated: Initiated


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """What may be shown of a peer: `wg show`. Times in nanoseconds."""

    public_key: bytes
    preshared_key: Secret
    endpoint: Endpoint | None
    persistent_keepalive: Ns  # 0: off
    last_handshake: Ns | None  # since 1970
    rx_bytes: int  # of authenticated datagrams
    tx_bytes: int
    allowed_ips: tuple[Prefix, ...]


class Peer:
    """What a tunnel keeps for one peer."""

    def __init__(
        self,
        public: bytes,
        static_static: bytes | None,
        limits: Limits,
        timers: tuple[Agenda, int],
    ) -> None:
        """`static_static` is DH(our key, theirs); None if there is none: no handshake then."""
        agenda, number = timers
        self.public = public
        self.static_static = static_static
        self.limits = limits
        self.preshared_key = NO_PRESHARED_KEY
        self.macs = Macs(public, limits)
        self.endpoint: Endpoint | None = None
        self.local: bytes | None = None  # our address that the peer last spoke to
        self.slots = Slots()
        self.pending: Pending | None = None  # one slot: answering an initiation gives up ours
        self.greatest_timestamp = b""  # ever accepted; lives as long as this peer does
        self.initiation_at: Ns | None = None  # when one was last accepted
        self.handshake_sent_at: Ns | None = None  # initiation or response
        self.stamped: Ns | None = None  # time since 1970 of our last timestamp
        self.retries = 0
        self.staged: deque[bytes] = deque()  # waits for a session, or to be fetched
        self.is_ready = False  # among those that the tunnel looks at to transmit
        self.persistent_keepalive: Ns = 0
        self.last_handshake: Ns | None = None
        self.rx_bytes = 0
        self.tx_bytes = 0
        self.timers = Timers(agenda, self, number)
        self.last_minute_used = False  # one handshake for what arrives late

    # -- what happened, for the timers ------------------------------------------------------

    def data_sent(self, now: Ns, jitter: Callable[[], Ns]) -> None:
        """Note that something was sent which is not a keepalive."""
        if self.timers.at[_NEW_HANDSHAKE] == NEVER:
            wait = self.limits.keepalive_timeout + self.limits.rekey_timeout
            self.timers.start(Timer.NEW_HANDSHAKE, now + wait + jitter())

    def heard(self, now: Ns, *, is_data: bool) -> None:
        """Note that anything authenticated came; a cookie reply is not.

        Data, as against a keepalive or a message of a handshake, wants an answer.
        """
        at = self.timers.at
        at[_NEW_HANDSHAKE] = NEVER
        if self.persistent_keepalive:
            self.traversed(now)
        # Data while the timer runs needs no second keepalive: what is sent answers for both.
        if is_data and at[_KEEPALIVE] == NEVER:
            self.timers.start(Timer.KEEPALIVE, now + self.limits.keepalive_timeout)

    def authenticated_sent(self, now: Ns) -> None:
        """Note that anything authenticated was sent, messages of the handshake included."""
        self.timers.at[_KEEPALIVE] = NEVER
        if self.persistent_keepalive:
            self.traversed(now)

    def traversed(self, now: Ns) -> None:
        if self.persistent_keepalive:
            self.timers.start(Timer.PERSISTENT, now + self.persistent_keepalive)

    def initiation_sent(self, now: Ns, jitter: Ns) -> None:
        self.timers.start(Timer.RETRANSMIT, now + self.limits.rekey_timeout + jitter)

    def put_off_retry(self, jitter: Ns) -> None:
        """Try again when our last message of a handshake is REKEY_TIMEOUT old."""
        assert self.handshake_sent_at is not None, "or the retry had gone out"
        self.initiation_sent(self.handshake_sent_at, jitter)

    def session_made(self, now: Ns) -> None:
        """Note that there are new keys, proven or not."""
        self.timers.start(Timer.WIPE, now + self.limits.wipe_time)

    def handshake_complete(self, unix: Ns) -> None:
        """Note that both sides have proven that they have the keys."""
        self.timers.stop(Timer.RETRANSMIT)
        self.retries = 0
        self.last_minute_used = False
        self.last_handshake = unix

    # -- what is due ------------------------------------------------------------------------

    def may_send_handshake(self, now: Ns) -> bool:
        """Say whether REKEY_TIMEOUT has passed since our last message of a handshake."""
        sent_at = self.handshake_sent_at
        return sent_at is None or now - sent_at >= self.limits.rekey_timeout
