"""Host to host: which ports are up, and probes of an EV. OCP MRC 1.0, 7.5.6 (as cited); 12.11.

Best effort: nothing is sent again for want of an answer. A change of a local port is told to
each peer three times, a round trip apart and on different planes, and all states every 5 ms.
The newest message by arrival counts.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from transports.clock import MS, Ns
from transports.mrc.events import EvProbed, PeerPorts
from transports.mrc.frames import Frame
from transports.mrc.refusals import RefusalReason
from transports.mrc.serials import stamp
from wire.mrc.bth import MrcBth
from wire.mrc.endpoint import Eeth, EndpointOp, Erth
from wire.mrc.opcodes import ENDPOINT_QP, MrcOpcode
from wire.mrc.packet import MrcPacket

PROBE_TIMEOUT: Ns = 2 * MS
REPEATS = 3
MAX_PROBES = 1024  # unanswered ones
Addresses = tuple[bytes | None, ...]


class EndpointOut(NamedTuple):
    """One endpoint packet to send to `peer`."""

    packet: MrcPacket
    peer: Addresses
    ev: int
    plane: int
    is_control: bool
    udp_dport: int
    why: str


class _Asked(NamedTuple):
    ev: int
    plane: int
    sent_at: Ns
    for_qp: int | None  # that looks for a way back; None: the owner asked


class User(Protocol):
    """A queue pair, which knows ways to its peer."""

    def way_on(self, plane: int, turn: int) -> int | None:
        """Return an EV of a plane that should work, another one each turn; None: no EV."""


@dataclass(slots=True)
class EndpointPeer:
    """One host that queue pairs talk to, by the addresses that they know of it."""

    addresses: Addresses
    udp_dport: int
    base_rtt: Ns
    mask: int  # of its ports, as it said last
    users: list[User] = field(default_factory=list)
    repeats: int = 0  # messages about a change that are still to be sent
    next_at: Ns = 0
    turn: int = 0  # plane and EV

    @property
    def planes(self) -> int:
        """Mask of the planes that it has."""
        return sum(1 << plane for plane, ip in enumerate(self.addresses) if ip is not None)


class Endpoint:
    """The endpoint of one device: QP 2."""

    def __init__(self, interval: Ns | None, mask_base: int) -> None:
        self.ports = 0  # mask of ours that are up
        self._interval = interval
        self._mask_base = mask_base
        self._peers: dict[Addresses, EndpointPeer] = {}
        # Queue pairs may know one host by more planes or fewer: a peer each
        self._by_address: dict[bytes, list[EndpointPeer]] = {}
        self._tell_at: Ns | None = None  # when the next peer is told, at the earliest
        self._next_id = 1
        self._asked: dict[int, _Asked] = {}
        # Limit: a driver fetches after each packet; the oldest is lost, as on the way it may be
        self._out: deque[EndpointOut] = deque(maxlen=4096)
        self.events: deque[PeerPorts | EvProbed] = deque()

    # -- peers ------------------------------------------------------------------------------

    def meet(
        self, addresses: Addresses, user: User, udp_dport: int, base_rtt: Ns, now: Ns
    ) -> EndpointPeer:
        """Know a peer, and tell it our ports, for one more queue pair."""
        peer = self._peers.get(addresses)
        if peer is None:
            peer = EndpointPeer(addresses, udp_dport, base_rtt, 0, next_at=now)
            peer.mask = peer.planes
            peer.repeats = 1
            self._peers[addresses] = peer
            for ip in filter(None, addresses):
                self._by_address.setdefault(ip, []).append(peer)
            self._look()
        peer.users.append(user)
        return peer

    def planes_of(self, source: bytes) -> int:
        """Return how many planes the peer with an address has."""
        return max((len(peer.addresses) for peer in self._of_host(source)), default=0)

    def _of_host(self, source: bytes) -> list[EndpointPeer]:
        """Return all that is known of the host with an address: peers that share addresses."""
        near = self._by_address.get(source, ())
        found = {
            other.addresses: other
            for peer in near
            for ip in filter(None, peer.addresses)
            for other in self._by_address[ip]
        }
        return list(found.values())

    def part(self, peer: EndpointPeer, user: User) -> None:
        """Forget a user of a peer, and a peer that no queue pair uses any more."""
        peer.users.remove(user)
        if peer.users:
            return
        del self._peers[peer.addresses]
        for ip in filter(None, peer.addresses):
            known = self._by_address[ip] = [
                other for other in self._by_address[ip] if other is not peer
            ]
            if not known:
                del self._by_address[ip]
        self._look()

    def set_ports(self, mask: int, now: Ns) -> None:
        """Take note of which of our ports are up, and tell everybody."""
        self.ports = mask
        for peer in self._peers.values():
            peer.repeats, peer.next_at = REPEATS, now
        self._look()

    # -- probes -----------------------------------------------------------------------------

    def probe(  # noqa: PLR0917 - that is what a probe is
        self,
        peer: Addresses,
        ev: int,
        plane: int,
        udp_dport: int,
        now: Ns,
        for_qp: int | None = None,
    ) -> int | None:
        """Probe an EV to a host; return the id, or None with too many unanswered.

        Of one for a queue pair that looks for a way back, only an answer is told, as a pair of
        its number and the EV.
        """
        if len(self._asked) >= MAX_PROBES:
            return None
        while self._next_id in self._asked:
            self._next_id = self._next_id + 1 & 0xFFFF
        probe_id = self._next_id
        self._next_id = probe_id + 1 & 0xFFFF
        self._asked[probe_id] = _Asked(ev, plane, now, for_qp)
        bth = MrcBth(MrcOpcode.ENDPOINT_REQUEST, ENDPOINT_QP, probe_id)
        packet = MrcPacket.make(bth, Erth(EndpointOp.EV_PROBE, tx_timestamp=stamp(now)))
        self._out.append(EndpointOut(packet, peer, ev, plane, False, udp_dport, "EV probe"))
        return probe_id

    # -- packets ----------------------------------------------------------------------------

    def receive_request(
        self, psn: int, erth: Erth, frame: Frame, plane: int, now: Ns
    ) -> RefusalReason | list[PeerPorts]:
        """Take an endpoint request, which came on `plane`; return what it changed."""
        source = frame.source
        if erth.op == EndpointOp.EV_PROBE:
            bth = MrcBth(MrcOpcode.ENDPOINT_RESPONSE, ENDPOINT_QP, psn & 0xFFFF)
            packet = MrcPacket.make(bth, Eeth(EndpointOp.EV_PROBE, erth.tx_timestamp))
            back = tuple(source if place == plane else None for place in range(plane + 1))
            self._out.append(
                EndpointOut(packet, back, frame.ev, plane, True, frame.udp_dport, "EV probe")
            )
            return []
        if erth.op != EndpointOp.PORT_STATUS_UPDATE:
            return RefusalReason.ENDPOINT_OP
        peers = self._of_host(source)
        if not peers:
            return RefusalReason.ENDPOINT_PEER
        mask = erth.port_status_mask
        if not mask:
            return RefusalReason.PORT_MASK_ZERO
        if mask >> self._mask_base << self._mask_base != mask or mask >> (
            self._mask_base + self.planes_of(source)
        ):
            return RefusalReason.PORT_MASK
        mask >>= self._mask_base
        changes = []
        for peer in peers:
            if mask != peer.mask:
                changes.append(PeerPorts(peer.addresses, peer.mask, mask, now))
                peer.mask = mask
        return changes

    def receive_response(
        self, psn: int, eeth: Eeth, now: Ns
    ) -> RefusalReason | EvProbed | tuple[int, int]:
        """Take an endpoint response."""
        asked = self._asked.get(psn & 0xFFFF)
        if asked is None or eeth.tx_timestamp != stamp(asked.sent_at):
            return RefusalReason.RESPONSE_UNKNOWN
        if eeth.op != EndpointOp.EV_PROBE:
            return RefusalReason.ENDPOINT_OP
        del self._asked[psn & 0xFFFF]
        if asked.for_qp is not None:
            return asked.for_qp, asked.ev
        return EvProbed(psn & 0xFFFF, asked.ev, asked.plane, now - asked.sent_at, now)

    # -- time -------------------------------------------------------------------------------

    @property
    def deadline(self) -> Ns | None:
        tell_at = self._tell_at
        if not self._asked:
            return tell_at
        give_up = next(iter(self._asked.values())).sent_at + PROBE_TIMEOUT
        return give_up if tell_at is None else min(tell_at, give_up)

    def _look(self) -> None:
        """Find out when the next peer is to be told: asked once a turn, changed rarely."""
        times = [peer.next_at for peer in self._peers.values() if self._is_telling(peer)]
        self._tell_at = min(times, default=None)

    def _is_telling(self, peer: EndpointPeer) -> bool:
        return peer.repeats > 0 or self._interval is not None

    def expire(self, now: Ns) -> None:
        """Give up probes without an answer."""
        while self._asked:
            probe_id, asked = next(iter(self._asked.items()))
            if asked.sent_at + PROBE_TIMEOUT > now:
                return
            del self._asked[probe_id]
            if asked.for_qp is None:
                self.events.append(EvProbed(probe_id, asked.ev, asked.plane, None, now))

    def next_out(self, now: Ns) -> EndpointOut | None:
        """Return what is to be sent now."""
        if self._out:
            return self._out.popleft()
        if self._tell_at is None or self._tell_at > now:
            return None
        for peer in self._peers.values():
            due = self._is_telling(peer) and peer.next_at <= now
            if due and (out := self._tell(peer, now)) is not None:
                return out
        return None

    def _tell(self, peer: EndpointPeer, now: Ns) -> EndpointOut | None:
        peer.repeats = max(0, peer.repeats - 1)
        later = peer.base_rtt if peer.repeats else self._interval
        peer.next_at = now + (later or 0)
        self._look()
        way = self._next_way(peer)
        if way is None:
            return None
        plane, ev = way
        probe_id = self._next_id
        self._next_id = probe_id + 1 & 0xFFFF
        bth = MrcBth(MrcOpcode.ENDPOINT_REQUEST, ENDPOINT_QP, probe_id)
        mask = self.ports << self._mask_base & 0xFFFFFFFF
        erth = Erth(EndpointOp.PORT_STATUS_UPDATE, mask, stamp(now))
        return EndpointOut(
            MrcPacket.make(bth, erth), peer.addresses, ev, plane,
            True, peer.udp_dport, "port status",
        )  # fmt: skip

    def _next_way(self, peer: EndpointPeer) -> tuple[int, int] | None:
        """Return the next plane to a peer that is up at both ends, and an EV of it."""
        live = self.ports & peer.mask & peer.planes
        planes = [plane for plane in range(live.bit_length()) if live >> plane & 1]
        for _ in planes:
            peer.turn += 1
            rounds, place = divmod(peer.turn, len(planes))
            turn, user = divmod(rounds, len(peer.users))
            ev = peer.users[user].way_on(planes[place], turn)
            if ev is not None:
                return planes[place], ev
        return None
