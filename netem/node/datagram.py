"""The datagram driver: kernel UDP on one side, a machine over UDP payloads on the other.

A port has one socket that receives on 4791, with trains joined by the kernel, and one for each
source port that its queue pairs send from. Where a link does nothing to what this end sends,
trains go out as they are; otherwise each payload is wrapped in the headers it would have
(`wrapping`), passes the egress on its own, and what comes out of it is sent singly.

What the kernel sends is captured by the sniffer, which knows nothing of its story: a note in
the spool says that a frame is a retransmission, or what the egress did to it. What an egress
kills never gets to the kernel and is recorded here. Only what the machine sends is impaired:
what else the kernel of the node sends on the interface (ping) passes as it is.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from netem.impair.departure import Fate, FrameMeta, remark
from netem.impair.egress import Egress
from netem.impair.model import Impairment
from netem.impair.schedule import NOTHING, Agenda, End
from netem.node.driver import Driver, Tell, TimedMachine
from netem.node.link_end import LinkEnd
from netem.node.port import Recorder
from netem.node.turns import Turns
from netem.node.wrapping import HEADERS, Wrapping, finished, payload_of, traffic_class_of
from netem.sockets.udp import BATCH, Received
from transports.clock import Ns
from transports.roce.datagram import Datagram
from wire.codec import ReadBuffer
from wire.roce.bth import BTH
from wire.roce.packet import UDP_PORT

# Ours: what one turn takes and gives. 16 trains of 64 KiB are a megabyte and a millisecond.
TRAINS = 16
DATAGRAMS = 256
BYTES = 1 << 20
# Limit: sockets of a port; each has a source port of its own, of which RoCE uses 16,384.
MAX_ADDRESSES = 4096
# Ours: nanoseconds of wall time by which the sniffer's idea of our clock may be wrong.
CLOCKS_APART = 10_000
# Ours: nanoseconds of wall time that a frame may be on its way through the receiving kernel.
# The sniffer sees each frame of a train leave before the first of them reaches a socket, and a
# busy processor may do something else in between.
ON_THE_WAY = 10_000_000


class DatagramSocket(Protocol):
    """One UDP address and port: `netem.sockets.udp.UdpSocket`."""

    @property
    def send_drops(self) -> int: ...
    def receive_drops(self) -> int: ...
    def fileno(self) -> int: ...
    def receive(self) -> Received: ...
    def receive_batch(self) -> Sequence[Received]: ...
    def send(
        self, data: ReadBuffer, segment_size: int, address: str, port: int, traffic_class: int
    ) -> bool: ...


class Sockets(Protocol):
    """Where a port's sockets come from: the receiving one, and one per source port."""

    @property
    def receiver(self) -> DatagramSocket: ...
    def sender(self, src_port: int) -> DatagramSocket: ...
    def all(self) -> Iterable[DatagramSocket]: ...


class DatagramMachine(TimedMachine, Protocol):
    """A machine over the UDP payloads of all ports of a node."""

    def receive_datagram(  # noqa: PLR0917 - the machine's signature
        self,
        port: str,
        payload: ReadBuffer,
        src_ip: bytes,
        src_port: int,
        dst_ip: bytes,
        now: Ns,
        /,
    ) -> None: ...
    def receive_train(  # noqa: PLR0917 - the machine's signature
        self,
        port: str,
        buffer: ReadBuffer,
        segment_size: int,
        src_ip: bytes,
        src_port: int,
        dst_ip: bytes,
        now: Ns,
        /,
    ) -> None: ...
    def transmit_datagrams(self, now: Ns, /) -> Iterable[tuple[str, Datagram]]: ...


class NoteTaker(Recorder, Protocol):
    """Where notes go as well as frames: `netem.capture.spool.Spool`."""

    def note(
        self, at: Ns, port: int, payload: ReadBuffer, comment: str, lasting: Ns = ..., /
    ) -> None: ...


@dataclass(slots=True)
class _Parcel:
    """Something to hand to a socket."""

    socket: DatagramSocket
    data: ReadBuffer
    segment_size: int
    address: str
    traffic_class: int
    comment: str = ""  # what the capture is to say of each segment
    is_noted: bool = False  # it was told to the capture

    def segments(self) -> Iterator[memoryview]:
        """Yield what the kernel will make datagrams of."""
        view, size = memoryview(self.data), self.segment_size
        for start in range(0, len(view), size):
            yield view[start : start + size]


class _Route(NamedTuple):
    """Where a wrapped frame goes when it leaves the egress; the tag of its meta."""

    src_port: int
    address: str


class _Came(NamedTuple):
    """Whence and when a payload came that an ingress holds; the tag of its meta."""

    src_ip: bytes
    src_port: int
    frame: ReadBuffer  # as it came
    since: Ns
    until: Ns


class DatagramEnd(LinkEnd):
    """What the driver keeps for each of its ports."""

    def __init__(
        self,
        key: str,
        name: str,
        peer: str,
        sockets: Sockets,
        egress: Egress,
        *,
        wrapping: Wrapping,
        own_ip: bytes,
        ingress: Egress | None = None,
        recorder: NoteTaker | None = None,
        index: int = 0,
        peer_index: int = 0,
    ) -> None:
        """`index` is the port's place in the recorder's header, `peer_index` its peer's."""
        super().__init__(name, egress, ingress=ingress, peer=peer)
        self.key = key
        self.sockets = sockets
        self.own_ip = own_ip
        self.outgoing: deque[_Parcel] = deque()
        self.empty_at: Ns = 0  # when nothing was left to receive
        self._wrapping = wrapping
        self._recorder = recorder
        self._index = index
        self._peer_index = peer_index
        for direction in (egress, ingress):
            if direction is not None:
                direction.change(_on_payload(direction.impairment), 0)
        self.review()

    def change(self, name: str, impairment: Impairment, now: Ns) -> None:
        super().change(name, _on_payload(impairment), now)

    def socket_counters(self) -> dict[str, int]:
        receive_drops = self.sockets.receiver.receive_drops()
        total: Counter[str] = Counter(receive_drops=receive_drops, send_drops=0)
        for socket in self.sockets.all():
            total["send_drops"] += socket.send_drops
        return dict(total)

    def offer(self, datagram: Datagram, address: str, now: Ns) -> None:
        """Take a datagram or a train to be sent to `address`; it is ours to keep."""
        dst_ip, src_port, payload, size, count, traffic, qp_num, psn, times, why = datagram
        if self.bypasses:
            self.egress.bypassed(len(payload) + HEADERS * count, count)
            socket = self.sockets.sender(src_port)
            comment = remark(FrameMeta(transmission=times, why=why)) if times > 1 else ""
            # At once, while its bytes are in the cache, and the receiver need not wait either;
            # but what there is something to say of is said first.
            if (
                self.outgoing
                or comment
                or not socket.send(payload, size, address, UDP_PORT, traffic)
            ):
                self.outgoing.append(_Parcel(socket, payload, size, address, traffic, comment))
            return
        view = memoryview(payload)
        route = _Route(src_port, address)
        for number in range(count):
            frame = self._wrapping.sent(
                view[number * size : (number + 1) * size], src_port, dst_ip, traffic
            )
            meta = FrameMeta(qp_num, psn + number & 0xFFFFFF, times, why, tag=route)
            self.egress.send(frame, now, meta)

    def depart(self, now: Ns) -> None:
        """Let go what has passed the egress by now, and record what died there."""
        for at, frame, fate, comment, meta in self.egress.due(now):
            if fate is Fate.DROPPED:
                if self._recorder is not None:
                    why = f"{comment}; reconstructed"
                    self._recorder.append(at, self._index, finished(frame), why, True)
                continue
            route = meta.tag
            assert isinstance(route, _Route)
            payload = payload_of(frame)
            self.outgoing.append(
                _Parcel(
                    self.sockets.sender(route.src_port),
                    payload,
                    len(payload),
                    route.address,
                    traffic_class_of(frame),
                    comment,
                )
            )
        self.review()

    def announce(self, at: Ns) -> None:
        """Leave notes on what is about to be handed to the kernel, after `at` on the wire.

        Of packets that may have equal bytes (their BTH says so) all are noted, in the order in
        which they leave: that tells a packet from its duplicate.
        """
        if self._recorder is None:
            return
        waiting = [parcel for parcel in self.outgoing if not parcel.is_noted]
        headers = {
            bytes(segment[: BTH.size])
            for parcel in waiting
            if parcel.comment
            for segment in parcel.segments()
        }
        for parcel in waiting if headers else ():
            for segment in parcel.segments():
                if bytes(segment[: BTH.size]) in headers:
                    parcel.is_noted = True
                    self._recorder.note(at, self._index, segment, parcel.comment)

    def flush(self) -> DatagramSocket | None:
        """Hand `outgoing` to the kernel; return the socket that takes no more, if one does."""
        outgoing = self.outgoing
        while outgoing:
            if not _hand_over(outgoing[0]):
                self.counters["send_buffer_full"] += 1
                return outgoing[0].socket
            outgoing.popleft()
        return None

    def hold(self, received: Received, src_ip: bytes, now: Ns, came_by: Ns) -> None:
        """Let what a kernel end sent pass what that end's link does to it.

        It came after the socket was last empty, and by `came_by`.
        """
        assert self.ingress is not None
        for start in range(0, len(received.data), received.segment_size):
            payload = received.data[start : start + received.segment_size]
            frame = self._wrapping.received(payload, received.source_port, src_ip)
            came = _Came(src_ip, received.source_port, frame, self.empty_at, came_by)
            self.ingress.send(frame, now, FrameMeta(tag=came))

    def release(self, now: Ns, slack: Ns, on_the_way: Ns) -> Iterator[tuple[_Came, memoryview]]:
        """Yield what has passed a kernel end's impairment by now, and note what it did.

        The sniffer's clock may be wrong by `slack`, and what came after the socket was last
        empty may have been sent `on_the_way` earlier.
        """
        assert self.ingress is not None
        noted: list[tuple[_Came, list[str]]] = []
        for _, frame, fate, comment, meta in self.ingress.due(now):
            came = meta.tag
            assert isinstance(came, _Came)
            if comment:
                phrases = [f"{phrase} on arrival" for phrase in comment.split("; ")]
                if noted and noted[-1][0] is came:  # its duplicate: one frame for the sniffer
                    noted[-1][1].extend(phrases)
                else:
                    noted.append((came, phrases))
            if fate is Fate.SENT:
                yield came, payload_of(frame)
        if self._recorder is not None:
            for came, phrases in noted:
                since = came.since - on_the_way - slack
                self._recorder.note(
                    since,
                    self._peer_index,
                    payload_of(came.frame),
                    "; ".join(dict.fromkeys(phrases)),
                    came.until + slack - since,
                )


def _hand_over(parcel: _Parcel) -> bool:
    """Send; False where the socket takes no more for now."""
    return parcel.socket.send(
        parcel.data, parcel.segment_size, parcel.address, UDP_PORT, parcel.traffic_class
    )


def _on_payload(impairment: Impairment) -> Impairment:
    """Keep corruption away from the headers: they are the kernel's to make."""
    first = max(HEADERS, impairment.corrupt_from or 0)
    return replace(impairment, corrupt_from=first) if impairment.corrupt else impairment


class DatagramDriver(Driver):
    """Runs one machine on its UDP sockets."""

    def __init__(
        self,
        machine: DatagramMachine,
        ends: Sequence[DatagramEnd],
        turns: Turns,
        *,
        recorder: Recorder | None = None,
        agenda: Agenda = NOTHING,
        tell: Tell,
    ) -> None:
        super().__init__(machine, ends, turns, agenda, tell)
        self._datagrams = machine
        self._ports = tuple(ends)
        self._by_key = {end.key: end for end in ends}
        self._by_fd = {end.sockets.receiver.fileno(): end for end in ends}
        self._recorder = recorder
        self._ready: list[DatagramEnd] = []
        self._blocked: set[int] = set()  # descriptors that are waited for to be writable
        self._packed: dict[str, bytes] = {}
        self._text: dict[bytes, str] = {}

    def peer_drops(self) -> dict[str, int]:
        """Return none: what a peer sends is recorded before it gets here."""
        return {}

    def set_carrier(self, end: End, is_up: bool) -> None:
        """Do nothing: queue pairs wait for answers, and a kernel's host keeps its one way."""

    def _watch(self, turns: Turns) -> None:
        for fd in self._by_fd:
            turns.watch(fd)

    def _take(self, ready: Sequence[int]) -> None:
        # A socket's buffer holds one train: it is taken when it is received.
        self._ready = [self._by_fd[fd] for fd in ready if fd in self._by_fd]

    def _receive(self, now: Ns) -> None:
        share = max(TRAINS // max(len(self._ready), 1), 2)
        for end in self._ready:
            self._drain(end, share, now)
        self._ready = []
        for end in self._ports:
            if not end.bypasses:
                end.depart(now)
            if end.ingress is not None and end.ingress.deadline is not None:
                self._release(end, now)

    def _drain(self, end: DatagramEnd, share: int, now: Ns) -> None:
        if end.ingress is not None:
            self._drain_held(end, share, now)
            return
        machine, key, own_ip = self._datagrams, end.key, end.own_ip
        receive = end.sockets.receiver.receive_batch
        for _ in range(0, share, BATCH):
            batch = receive()
            for data, size, source, src_port, _ in batch:
                src_ip = self._packed.get(source) or self._pack(source)
                if len(data) <= size:
                    machine.receive_datagram(key, data, src_ip, src_port, own_ip, now)
                else:
                    machine.receive_train(key, data, size, src_ip, src_port, own_ip, now)
            if not batch:
                break

    def _drain_held(self, end: DatagramEnd, share: int, now: Ns) -> None:
        """Give what comes from a kernel end to the ingress, with the time by which it came."""
        assert self.clock is not None
        clock, receive = self.clock.now, end.sockets.receiver.receive
        before = clock()
        try:
            for _ in range(share):
                received = receive()
                before = clock()
                source = received.source
                src_ip = self._packed.get(source) or self._pack(source)
                end.hold(received, src_ip, now, before)
        except BlockingIOError:
            end.empty_at = before  # whatever comes next comes later

    def _release(self, end: DatagramEnd, now: Ns) -> None:
        """Let the machine have what has passed a kernel end's impairment by now."""
        assert self.clock is not None
        on_the_way = ON_THE_WAY // self.clock.dilation
        for came, payload in end.release(now, self._slack(), on_the_way):
            self._datagrams.receive_datagram(
                end.key, payload, came.src_ip, came.src_port, end.own_ip, now
            )

    def _slack(self) -> Ns:
        """Return the emulated time by which the sniffer may be wrong."""
        assert self.clock is not None
        return CLOCKS_APART // self.clock.dilation + 1

    def _transmit(self, now: Ns) -> bool:
        if self._blocked:
            self._flush()
        datagrams = size = 0
        if not self._blocked:
            for key, datagram in self._datagrams.transmit_datagrams(now):
                address = self._text.get(datagram.dst_ip) or self._name(datagram.dst_ip)
                self._by_key[key].offer(datagram, address, now)
                datagrams += 1
                size += len(datagram.payload)
                if datagrams >= DATAGRAMS or size >= BYTES:
                    break
        for end in self._ports:
            if not end.bypasses:
                end.depart(now)
            if end.outgoing:
                end.announce(now - self._slack())
        if self._recorder is not None:
            self._recorder.flush()
        self._flush()
        return (datagrams >= DATAGRAMS or size >= BYTES) and not self._blocked

    def _flush(self) -> None:
        """Hand all that waits to the kernel; watch the sockets that take no more for now."""
        full = {socket.fileno() for end in self._ports if (socket := end.flush()) is not None}
        for fd in full - self._blocked:
            self._turns.watch(fd, readable=False, writable=True)
        for fd in self._blocked - full:
            self._turns.forget(fd)
        self._blocked = full

    def _pack(self, source: str) -> bytes:
        """Return an address as bytes, and remember it."""
        if len(self._packed) >= MAX_ADDRESSES:
            self._packed.clear()
        packed = self._packed[source] = ip_address(source).packed
        return packed

    def _name(self, address: bytes) -> str:
        """Return an address as text, and remember it."""
        if len(self._text) >= MAX_ADDRESSES:
            self._text.clear()
        text = self._text[address] = str(ip_address(address))
        return text
