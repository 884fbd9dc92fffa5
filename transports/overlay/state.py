"""What the parts of a tunnel share: its peers, its tables, what waits to be fetched."""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from transports.clock import Ns
from transports.overlay.allowed_ips import AllowedIps
from transports.overlay.cookies import CookieChecker
from transports.overlay.endpoint import Endpoint
from transports.overlay.events import EndpointMoved, Event, Refused
from transports.overlay.inner import Ecn
from transports.overlay.keys import PrivateKey
from transports.overlay.limits import Limits
from transports.overlay.peer import Peer
from transports.overlay.refusals import Refusal
from transports.overlay.session import Session
from transports.overlay.timers import Agenda

HANDSHAKE_TRAFFIC_CLASS = (
    0x88  # AF41: what the Linux module sends initiations and responses with
)

_KEEPALIVE = b""


@dataclass(frozen=True, slots=True)
class TunnelConfig:
    """What does not change while a tunnel lives."""

    mtu: int = 1420  # bytes of the inner packet; padding goes no further. 0: no limit
    limits: Limits = field(default_factory=Limits)
    ecn: Ecn = Ecn.KERNEL
    copy_dscp: bool = False  # from the inner header to the outer one; no implementation does
    handshake_traffic_class: int = HANDSHAKE_TRAFFIC_CLASS
    key_log: bool = False  # events with the secrets that a dissector needs: for captures only
    traces: bool = False  # each refused datagram makes an event, too

    def __post_init__(self) -> None:
        if not 0 <= self.mtu <= 0xFFFF:
            raise ValueError(f"mtu is {self.mtu}, legal is 0 to 65535")
        if not 0 <= self.handshake_traffic_class <= 0xFF:
            raise ValueError(
                f"handshake_traffic_class is {self.handshake_traffic_class:#x}, "
                "legal is 0 to 0xff"
            )


@dataclass(slots=True)
class TunnelStats:
    """What was sent, and what was received and not refused before it was opened.

    Data is counted apart from what the overlay needs for itself. A packet that is refused for
    what is inside is counted here and under its reason.
    """

    data_sent: int = 0
    data_received: int = 0
    keepalives_sent: int = 0
    keepalives_received: int = 0
    handshakes_sent: int = 0  # initiations, responses, cookie replies
    handshakes_received: int = 0


class Datagram(NamedTuple):
    """One UDP payload to send."""

    payload: bytes
    destination: Endpoint
    traffic_class: int  # of the outer header: DSCP and ECN
    local: bytes | None  # our address to send it from; None: let routing choose


class Arrival(NamedTuple):
    """How a message of a handshake came."""

    source: Endpoint
    local: bytes | None  # our address that it was sent to
    now: Ns


class State:
    """The tables of one tunnel, and the few things that all of its parts do to them."""

    def __init__(
        self,
        config: TunnelConfig,
        rng: random.Random,
        entropy: Callable[[int], bytes],
        epoch: Ns,
    ) -> None:
        self.config = config
        self.limits = config.limits
        self.entropy = entropy
        self.epoch = epoch  # time since 1970 at which `now` is 0
        self.private: PrivateKey | None = None
        self.checker: CookieChecker | None = None  # there is one if there is a private key
        self.peers: dict[bytes, Peer] = {}
        self.pending: dict[int, Peer] = {}  # by local index: initiations of ours
        self.sessions: dict[int, tuple[Session, Peer]] = {}  # by local index
        self.allowed: AllowedIps[Peer] = AllowedIps()
        self.agenda = Agenda()
        self.outgoing: deque[Datagram] = deque()  # messages of handshakes
        self.ready: deque[Peer] = deque()  # peers with something staged that may be sent
        self.events: deque[Event] = deque()
        self.refused: Counter[Refusal] = Counter()
        self.stats = TunnelStats()
        self.dropped_events = 0
        self._rng = rng

    def emit(self, event: Event) -> None:
        if len(self.events) >= self.limits.max_events:
            self.dropped_events += 1
        else:
            self.events.append(event)

    def refuse(self, reason: Refusal, source: Endpoint, peer: Peer | None = None) -> None:
        """Count a datagram that was dropped."""
        self.refused[reason] += 1
        if self.config.traces:
            self.emit(Refused(reason, source, peer.public if peer is not None else None))

    def refuse_replay(
        self, source: Endpoint, peer: Peer, session: Session, counter: int
    ) -> None:
        """Count a packet outside the window, or in it for the second time."""
        self.refused[Refusal.REPLAYED] += 1
        if self.config.traces:
            window = session.replay
            behind = window.newest - counter
            self.emit(
                Refused(Refusal.REPLAYED, source, peer.public, counter, behind, window.size)
            )

    def jitter(self) -> Ns:
        limit = self.limits.max_jitter
        return self._rng.randrange(limit) if limit else 0

    def new_index(self) -> int:
        """Draw an index that no handshake or session has: it says nothing about us."""
        while True:
            index = int.from_bytes(self.entropy(4), "little")
            if index not in self.pending and index not in self.sessions:
                return index

    def note_ready(self, peer: Peer) -> None:
        """Look at the peer when it is time to transmit."""
        if peer.staged and not peer.is_ready:
            peer.is_ready = True
            self.ready.append(peer)

    def stage_keepalive(self, peer: Peer) -> None:
        """Queue a keepalive, unless there is a packet that will do."""
        if not peer.staged:
            peer.staged.append(_KEEPALIVE)
        self.note_ready(peer)

    def move(self, peer: Peer, source: Endpoint, local: bytes | None) -> None:
        """Answer to where an authenticated packet came from, from where it came to."""
        peer.local = local
        if source == peer.endpoint or not source.port:
            return
        source = Endpoint.of(*source)
        if source == peer.endpoint:
            return
        before, peer.endpoint = peer.endpoint, source
        self.emit(EndpointMoved(peer.public, before, source))
        self.note_ready(peer)

    def drop_pending(self, peer: Peer) -> None:
        """Give up our own initiation: its index is free again."""
        if peer.pending is not None:
            del self.pending[peer.pending.local_index]
            peer.pending = None

    def forget(self, sessions: Iterable[Session]) -> None:
        for session in sessions:
            del self.sessions[session.local_index]

    def wipe(self, peer: Peer) -> None:
        """Forget the keys of all sessions and of a handshake under way."""
        self.drop_pending(peer)
        self.forget(peer.slots.wipe())
