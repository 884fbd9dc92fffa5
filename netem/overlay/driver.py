"""The driver of a tunnel: a TUN on one side, UDP sockets on the other, the machine between.

    kernel -- TUN --> packets, pieces of TCP --> Tunnel --> datagrams, trains --> UDP
    kernel <- TUN --- packets                <-- Tunnel <-- datagrams, trains <-- UDP

One turn takes up to 64 packets and four trains, a peer's queue being twice as long. What the
tunnel hands out for one peer leaves in trains (`UDP_SEGMENT`): datagrams of one size, traffic
class and pair of addresses, the last of them perhaps shorter.

Where the TUN has offloads, TCP comes in pieces of up to 64 KiB, which are cut here and leave in
a train or two; and a train that arrives is joined again for the kernel (`segments.py`).

**A full send buffer is waited for**: the TUN is read no more until there is room, so that TCP
inside sees a slow link and not a loss. Receiving goes on.

**What does not fit** the path is not sent: the sender inside is told how much does.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from operator import attrgetter
from types import ModuleType

from netem.host.tunnel import TunnelMachine
from netem.impair.schedule import Agenda, End
from netem.node.driver import Driver, Tell
from netem.node.turns import Turns
from netem.overlay.outer import Arrived, Outer, Sent, Train, fitting
from netem.overlay.paths import Paths
from netem.sockets.tun import BATCH, Outbound, Tun
from netem.switch.forward.errors import NO_ADDRESS, TOO_BIG, Errors
from netem.topology.overlay_plan import MovePlan
from transports.clock import Ns
from transports.overlay import inner
from transports.overlay.events import Delivered, KeyLog, Undeliverable
from transports.overlay.runs import SealedRun
from transports.srv6.outcome import Problem
from wire.codec import ReadBuffer
from wire.ipv4 import IPV4
from wire.ipv6 import IPV6

_LEAST_HEADER, _LEAST_HEADER_V6 = IPV4.size, IPV6.size
READS = 8  # of the TUN in one turn, each of up to 64 packets or a piece
_SMALLEST_IPV6 = 1280  # below it nobody may be told to stay. RFC 8200, section 5


def _continues(run: Sequence[ReadBuffer], packet: ReadBuffer) -> bool:
    """Say whether a packet is for where a run is, marked alike, and no larger."""
    first = run[0]
    size = len(first)
    if not size or len(packet) > size or len(run[-1]) != size or packet[:2] != first[:2]:
        return False
    if first[0] >> 4 == 4:
        return size >= _LEAST_HEADER <= len(packet) and packet[16:20] == first[16:20]
    return size >= _LEAST_HEADER_V6 <= len(packet) and packet[24:40] == first[24:40]


@cache
def segments() -> ModuleType:
    """Return what cuts and joins TCP: loaded when there is some, since that needs numpy."""
    return import_module("netem.overlay.segments")


class TunnelDriver(Driver):
    """Runs one tunnel. Sockets, TUN and timer are opened and closed by the owner."""

    def __init__(
        self,
        machine: TunnelMachine,
        tun: Tun,
        outer: Outer,
        turns: Turns,
        *,
        agenda: Agenda,
        tell: Tell,
        keep_secrets: Callable[[str], None] | None = None,
        moves: Sequence[MovePlan] = (),
    ) -> None:
        """`keep_secrets` gets the key log; `moves` are other ports at their times."""
        super().__init__(machine, (), turns, agenda, tell)
        self.tunnel = machine.tunnel
        self._node = machine
        self._tun = tun
        self._outer = outer
        self._errors = Errors(None, None)
        self._keep_secrets = keep_secrets
        self._moves = deque(sorted(moves, key=attrgetter("at")))
        self._paths = Paths(outer.path_mtu, machine.tunnel.config.mtu)
        self._is_readable = False  # the TUN may be read
        self._arrived: list[Arrived] = []
        self._waiting: deque[Train] = deque()  # the kernel takes no more for now
        self._is_blocked = False
        self._joins = True  # while the kernel takes what is joined
        self._uncut = 0
        self._loading: SealedRun | None = None
        self._too_big = 0
        self._told = 0

    # -- what `wg` may change ------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port that the sockets have."""
        return self._outer.port

    def rebind(self, port: int) -> None:
        """Take another port, 0: any. Raises OSError, and nothing is changed, if it is taken."""
        before = self._outer.filenos()
        self._outer.rebind(port)
        self.tunnel.set_listen_port(self._outer.port)
        if self.clock is not None and before != self._outer.filenos():
            for fd in self._outer.filenos():  # those that were closed have left by themselves
                self._turns.watch(fd)
        self._waiting.clear()

    @property
    def mark(self) -> int:
        """The mark of what the sockets send; 0: none."""
        return self._outer.mark

    def set_mark(self, mark: int) -> None:
        """Mark what is sent. Raises PermissionError without CAP_NET_ADMIN."""
        self._outer.set_mark(mark)
        self.tunnel.set_fwmark(mark)

    # -- a turn --------------------------------------------------------------------------------

    def set_carrier(self, end: End, is_up: bool) -> None:
        """Do nothing: links are the kernel's."""

    def counters(self) -> dict[str, int]:
        counted = {
            **self._outer.counters,
            "receive_drops": self._outer.receive_drops(),
            "tun_drops": self._tun.send_drops,
            "packets_too_big": self._too_big,
            "uncut": self._uncut,
            "senders_told": self._told,
        }
        return {f"overlay.{name}": count for name, count in counted.items() if count}

    def _watch(self, turns: Turns) -> None:
        for fd in (self._tun.fileno(), *self._outer.filenos()):
            turns.watch(fd)

    def _take(self, ready: Sequence[int]) -> None:
        for fd in ready:
            if fd == self._tun.fileno():
                self._is_readable = not self._waiting
            else:
                self._arrived += self._outer.receive(fd)

    def _next_deadline(self) -> Ns | None:
        deadline = super()._next_deadline()
        if not self._moves:
            return deadline
        return min(self._moves[0].at, self._moves[0].at if deadline is None else deadline)

    def _receive(self, now: Ns) -> None:
        while self._moves and self._moves[0].at <= now:
            self.rebind(self._moves.popleft().port)
        for arrived in self._arrived:
            self._open(arrived, now)
        self._arrived.clear()
        for _ in range(READS if self._is_readable else 0):
            # What was read leaves before more is read: so much stays in the cache.
            found = self._tun.receive()
            self._seal_all(found, now)
            if not found or self._waiting:
                break
        self._is_readable = False
        self._depart()

    def _seal_all(self, found: Sequence[Outbound], now: Ns) -> None:
        """Send what the kernel has sent, what belongs together together."""
        run: list[ReadBuffer] = []
        for outbound in found:
            packet: ReadBuffer = outbound.packet
            if outbound.flags and not outbound.gso_type:
                packet = outbound.finished()
            if run and (outbound.gso_type or not _continues(run, packet)):
                self._seal(run, now)
                run = []
            if outbound.gso_type:
                self._seal_pieces(outbound, now)
            else:
                run.append(packet)
        if run:
            self._seal(run, now, is_all=len(found) == 1)

    def _open(self, arrived: Arrived, now: Ns) -> None:
        """Give the tunnel what came, at once if it can be, and the kernel what was inside."""
        data, size, source, local, traffic_class = arrived
        tunnel = self.tunnel
        if size < len(data):
            packets = tunnel.receive_run(
                data, size, source, now, local=local, traffic_class=traffic_class
            )
            if packets is not None:
                self._deliver(packets)
                return
        for at in range(0, len(data), size) if data else (0,):
            tunnel.receive(
                data[at : at + size], source, now, local=local, traffic_class=traffic_class
            )
        self._tell_events(now)  # before anything that came later is delivered

    def _deliver(self, packets: list[bytes]) -> None:
        if not (self._joins and self._tun.has_offloads) or len(packets) < 2:
            for packet in packets:
                self._tun.send(packet)
            return
        for piece in segments().joined(packets):
            if piece.header is None:
                self._tun.send(*piece.parts)
            elif not self._tun.send(*piece.parts, header=piece.header):
                taken = [self._tun.send(packet) for packet in piece.packets]
                self._joins = not any(taken)  # some kernels take nothing joined (trap 47)

    def _seal_pieces(self, outbound: Outbound, now: Ns) -> None:
        """Cut a run of TCP and send it, at once if it can be."""
        packets = segments().cut(outbound)
        if packets is None:
            self._uncut += 1
            return
        self._seal(packets, now)

    def _seal(self, packets: Sequence[ReadBuffer], now: Ns, *, is_all: bool = False) -> None:
        """Send packets that belong together, at once if they can be.

        A single one is no run unless it is all there is: others of its peer may go with it.
        """
        run = None
        if len(packets) > 1 or (is_all and inner.length_of(bytes(packets[0])) is not None):
            limit = self._limit_for(bytes(packets[0][:_LEAST_HEADER_V6]), now)
            if limit is None or len(packets[0]) <= limit:
                run = self.tunnel.send_run(packets, now)
        if run is not None:
            self._load(run)
            return
        self._depart()  # what goes one by one goes behind
        for number, packet in enumerate(packets, 1):
            self._send(bytes(packet), now)
            if number % BATCH == 0:  # a peer's queue holds twice as many
                self._send_trains(now)
        self._send_trains(now)

    def _load(self, run: SealedRun) -> None:
        """Let a run leave in full trains; what is left over may go with the next run.

        A piece of 64 KiB is a little more than a train, and each costs both ends as much.
        """
        kind = run[1:]
        if self._loading is not None and self._loading[1:] != kind:
            self._depart()
        payloads = run.payloads if self._loading is None else self._loading[0] + run.payloads
        step = 2 * fitting(run.size)
        for at in range(0, len(payloads) - step + 1, step):
            self._put(Train(payloads[at : at + step], *kind))
        left = payloads[len(payloads) // step * step :]
        self._loading = SealedRun(left, *kind) if left else None
        if left and len(left[-1]) + len(left[-2]) < run.size:
            self._depart()  # nothing goes behind a shorter one

    def _depart(self) -> None:
        """Let go what waits for more of its kind."""
        if self._loading is not None:
            self._put(Train(*self._loading))
            self._loading = None

    def _send(self, packet: bytes, now: Ns) -> None:
        """Give one packet of the kernel's to the tunnel, if it fits where it goes."""
        limit = self._limit_for(packet, now)
        if limit is not None and len(packet) > limit:
            self._refuse_big(packet, limit, now)
        else:
            self.tunnel.send(packet)

    def _limit_for(self, packet: bytes, now: Ns) -> int | None:
        """Return how large a packet with this header may be; None: the tunnel decides."""
        if self._outer.fragments or not inner.has_header(packet):
            return None
        to = self.tunnel.endpoint_towards(inner.destination_of(packet))
        return None if to is None else self._paths.limit(to, now)

    def _refuse_big(self, packet: bytes, limit: int, now: Ns) -> None:
        """Tell the sender what fits; one of IPv6 that may not send less is not told."""
        self._too_big += 1
        is_ipv6 = packet[0] >> 4 == 6
        may_cut = not is_ipv6 and not packet[6] & 0x40
        if not may_cut and not (is_ipv6 and limit < _SMALLEST_IPV6):
            self._answer(packet, TOO_BIG, now, mtu=limit)

    def _answer(self, packet: bytes, problem: Problem, now: Ns, *, mtu: int = 0) -> None:
        """Tell the sender of a packet, in the name of the one it is for.

        The kernel takes nothing from outside that claims to come from itself.
        """
        source = inner.destination_of(packet)
        told = self._errors.about(packet, problem, now, mtu=mtu, source=source)
        if told is not None and self._tun.send(told):
            self._told += 1

    def _transmit(self, now: Ns) -> bool:
        while self._waiting:
            if not self._leaves(self._waiting[0]):
                break
            self._waiting.popleft()
        if not self._waiting:
            self._send_trains(now)
        self._await_room()
        self._tell_events(now)
        return False

    def _tell_events(self, now: Ns) -> None:
        for event in self.tunnel.events():
            match event:
                case Delivered(packet=packet):
                    self._tun.send(packet)
                case KeyLog(text=text):
                    if self._keep_secrets is not None:
                        self._keep_secrets(text)
                case Undeliverable(packet=packet):
                    self._answer(packet, NO_ADDRESS, now)
                case _:
                    self._node.note(event, now)

    def _send_trains(self, now: Ns) -> None:
        parts: list[bytes] = []
        train: Train | None = None
        room = left = 0
        for datagram in self.tunnel.transmit(now):
            payload, to, traffic_class, local = datagram
            size = len(payload)
            if (
                train is not None
                and size <= room
                and left
                and to is train.to
                and traffic_class == train.traffic_class
                and local == train.local
            ):
                parts.append(payload)
                left = left - 1 if size == room else 0
                continue
            if train is not None:
                self._put(train)
            parts = [payload]
            train = Train(parts, size, to, traffic_class, local)
            room, left = size, fitting(size) - 1
        if train is not None:
            self._put(train)

    def _put(self, train: Train) -> None:
        if self._waiting or not self._leaves(train):
            self._waiting.append(train)

    def _leaves(self, train: Train) -> bool:
        """Send a train; say whether it is gone."""
        sent = self._outer.send(train)
        if sent is Sent.TOO_BIG:
            self._paths.forget(train.to)
        return sent is not Sent.FULL

    def _await_room(self) -> None:
        """Be woken when there is room, and meanwhile not by the TUN."""
        is_blocked = bool(self._waiting)
        if is_blocked != self._is_blocked:
            self._is_blocked = is_blocked
            self._turns.want(self._tun.fileno(), readable=not is_blocked)
            for fd in self._outer.filenos():
                self._turns.want(fd, writable=is_blocked)
