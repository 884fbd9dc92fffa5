"""Reading captures fast, and as far as they can be read: pcapng and pcap, also damaged ones.

The codecs `wire.pcapng` and `wire.pcap` are the definition; this reads the same in less time,
since `check` looks at every packet of large files, and it does not give up with the file: where
the bytes stop making sense, `problem` says why, and all before that has been handed out. A test
holds both together.
"""

import re
from collections.abc import Callable, Iterator
from struct import Struct
from typing import BinaryIO, NamedTuple, TypeAlias

from transports.clock import Ns
from wire import pcap, pcapng

CHUNK = 1 << 20  # bytes read at a time; with the largest block, all that a reader holds

# Number from 1 as Wireshark counts, Unix time, index in `interfaces`, the frame, its bytes on
# the wire, comments ("" without), epb_packetid.
Record: TypeAlias = tuple[int, Ns, int, bytes, int, str, int | None]

_EPB_LIKE = 20  # bytes of an enhanced packet's fields in front of its data
_PACKET = 2  # the block that the enhanced packet replaced
_COMMENT, _NAME, _DESCRIPTION, _TSRESOL, _TSOFFSET, _IFRECV, _IFDROP = 1, 2, 3, 9, 14, 4, 5
# As netem.capture.merge describes: "link a:p0--b:p0, frames (passed on) from a:p0 to b:p0".
_OURS = re.compile(rb"^link .*, frames (passed on )?from .* to (.+)$")
_FLAGS, _PACKET_ID = 2, 5
_LEAST_BLOCK = 12
_MOST_SECRETS = 1 << 22  # Ours: bytes of key logs, some twenty thousand handshakes
_MOST_LOGS = 1 << 12  # Ours: blocks of them; ours have one for each gateway
_NS = 1_000_000_000
_ENHANCED, _SECTION = pcapng.ENHANCED_PACKET, pcapng.SECTION_HEADER  # looked up once
_PLAIN = Struct("<IIIQ")  # flags and packet id with their heads, nothing else
_FLAGS_HEAD, _ID_HEAD = 4 << 16 | _FLAGS, 8 << 16 | _PACKET_ID


class NoCaptureError(Exception):
    """The file is no capture; the message is one line."""


class Interface(NamedTuple):
    """Where packets were seen."""

    name: str
    link_type: int
    ticks_per_s: int = 1_000_000_000
    offset: Ns = 0
    leads_to: str = ""  # our captures: the port at the other end of the link
    forwards: bool = False  # our captures: its node passes on what others have sent

    @property
    def node(self) -> str:
        """Return the part of the name before the colon: ours are called NODE:PORT."""
        return self.name.partition(":")[0]


class _Order(NamedTuple):
    """The structs of one byte order."""

    edge: Struct
    u32: Struct
    packet: Struct
    option: Struct
    short: Struct
    u64: Struct
    i64: Struct

    @classmethod
    def of(cls, sign: str) -> "_Order":
        layouts = ("II", "I", "IIIII", "HH", "HHI", "Q", "q")
        return cls(*(Struct(sign + layout) for layout in layouts))


_LITTLE, _BIG = _Order.of("<"), _Order.of(">")


class CaptureReader:
    """One pass over a capture file.

    `problem` is empty unless the file ends otherwise than a capture should; `skipped` counts
    packets that cannot be read although the file goes on. Both are known when `records` ended.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.interfaces: list[Interface] = []
        self.secrets: list[bytes] = []  # key logs of WireGuard
        self.problem = ""
        self.skipped = 0
        self.dropped = 0  # packets that the capture says it lost
        # By interface: how many packets it says were there, and when it said so.
        self.received: dict[int, tuple[int, Ns]] = {}
        self.consumed = 0  # bytes so far
        self.sections: list[int] = []  # the first interface of each
        self._first = 0  # interface of the section that is read
        self._held = 0  # bytes of `secrets`
        self._file = file
        self._rest = b""

    def records(self) -> Iterator[Record]:
        """Yield the packets in the order of the file. Raise NoCaptureError for another file."""
        self._rest = head = self._file.read(CHUNK)
        if not head:
            return iter(())
        magic = head[:4]
        if magic == b"\x0a\x0d\x0d\x0a":
            return self._pcapng()
        for order, sign in ((_LITTLE, "little"), (_BIG, "big")):
            number = int.from_bytes(magic, sign)  # type: ignore[arg-type]  # one of the two
            if number in {pcap.MAGIC_US, pcap.MAGIC_NS}:
                return self._pcap(order, 1 if number == pcap.MAGIC_NS else 1000)
        raise NoCaptureError(_what_it_is(magic))

    def _more(self, pos: int) -> tuple[bytes, bool]:
        """Return what is left from `pos` on with more behind it, and whether there was more."""
        more = self._file.read(CHUNK)
        self.consumed += pos
        return self._rest[pos:] + more, bool(more)

    # pcapng.

    def _pcapng(self) -> Iterator[Record]:  # noqa: C901, PLR0912, PLR0915 - `bench check`
        buf, pos, number = self._rest, 0, 0
        order, first = _LITTLE, 0
        handlers: dict[int, Callable[[_Order, bytes], None]] = {
            pcapng.INTERFACE_DESCRIPTION: self._interface,
            pcapng.INTERFACE_STATISTICS: self._statistics,
            pcapng.DECRYPTION_SECRETS: self._secrets,
        }
        edge, packet = order.edge.unpack_from, order.packet.unpack_from
        interfaces, plain, options = self.interfaces, _PLAIN.unpack_from, _options_of_packet
        enhanced, section, limit = _ENHANCED, _SECTION, pcapng.MAX_BLOCK
        in_ns: list[bool] = []  # of each interface: its times are what they should be
        while True:
            end = len(buf)
            while end - pos >= _LEAST_BLOCK:
                kind, size = edge(buf, pos)
                if kind == section:
                    magic = buf[pos + 8 : pos + 12]
                    if magic not in _BYTE_ORDERS:
                        self._stop(pos, "a section header without a byte order")
                        return
                    order = _BYTE_ORDERS[magic]
                    edge, packet = order.edge.unpack_from, order.packet.unpack_from
                    kind, size = edge(buf, pos)
                    first = self._first = len(interfaces)
                    if len(self.sections) < pcapng.MAX_INTERFACES:
                        self.sections.append(first)
                stop = pos + size
                if size & 3 or not _LEAST_BLOCK <= size <= limit:
                    self._stop(pos, f"a block of {size} bytes, which cannot be")
                    return
                if stop > end:
                    break
                if kind == enhanced and size >= 32:
                    which, high, low, captured, original = packet(buf, pos + 8)
                    number += 1
                    which += first
                    at = pos + 28
                    tail = at + captured + (-captured & 3)
                    if which >= len(interfaces) or tail > stop - 4:
                        self.skipped += 1
                        pos = stop
                        continue
                    if which >= len(in_ns):
                        in_ns = [
                            one.ticks_per_s == _NS and not one.offset for one in interfaces
                        ]
                    ts = high << 32 | low
                    if not in_ns[which]:
                        one = interfaces[which]
                        ts = ts * _NS // one.ticks_per_s + one.offset
                    comment, packet_id = "", None
                    if stop - tail == 28 and order is _LITTLE:  # as most of ours
                        head, _, id_head, packet_id = plain(buf, tail)
                        if head != _FLAGS_HEAD or id_head != _ID_HEAD:
                            comment, packet_id = options(order, buf, tail, stop - 4)
                    elif tail < stop - 4:
                        comment, packet_id = options(order, buf, tail, stop - 4)
                    yield (
                        number, ts, which, buf[at : at + captured], original, comment, packet_id
                    )  # fmt: skip
                elif kind in {pcapng.SIMPLE_PACKET, _PACKET}:
                    number += 1
                    found = self._old_packet(kind, order, buf[pos + 8 : stop - 4], first)
                    if found is None:
                        self.skipped += 1
                    else:
                        ts, which, frame, original = found
                        yield number, ts, which, frame, original, "", None
                elif kind in handlers:
                    handlers[kind](order, buf[pos + 8 : stop - 4])
                pos = stop
            self._rest = buf
            buf, is_more = self._more(pos)
            pos = 0
            if not is_more:
                if buf:
                    self._stop(
                        0, f"in the middle of a block, with {len(buf)} bytes of it there"
                    )
                return

    def _stop(self, pos: int, why: str) -> None:
        self.problem = f"the file ends at byte {self.consumed + pos}: {why}"

    def _interface(self, order: _Order, body: bytes) -> None:
        if len(body) < 8 or len(self.interfaces) >= pcapng.MAX_INTERFACES:
            return
        link_type, _, _ = order.short.unpack_from(body)
        name, leads_to, forwards, ticks, offset = "", "", False, 1_000_000, 0
        for code, value in _options(order, body, 8, len(body)):
            if code == _NAME:
                name = value.decode(errors="replace").rstrip("\0")
            elif code == _DESCRIPTION and (found := _OURS.search(value)):
                leads_to, forwards = found[2].decode(errors="replace"), bool(found[1])
            elif code == _TSRESOL and value:
                exponent = value[0] & 0x7F
                ticks = 1 << exponent if value[0] & 0x80 else 10 ** min(exponent, 38)
            elif code == _TSOFFSET and len(value) == 8:
                offset = order.i64.unpack(value)[0] * 1_000_000_000
        self.interfaces.append(Interface(name, link_type, ticks, offset, leads_to, forwards))

    def _statistics(self, order: _Order, body: bytes) -> None:
        if len(body) < 12:
            return
        which = self._first + order.u32.unpack_from(body)[0]
        for code, value in _options(order, body, 12, len(body)):
            if code == _IFDROP and len(value) == 8:
                self.dropped += order.u64.unpack(value)[0]
            elif code == _IFRECV and len(value) == 8 and which < len(self.interfaces):
                _, high, low, *_ = order.packet.unpack_from(body.ljust(20, b"\0"))
                one = self.interfaces[which]
                at = (high << 32 | low) * _NS // one.ticks_per_s + one.offset
                self.received[which] = order.u64.unpack(value)[0], at

    def _secrets(self, order: _Order, body: bytes) -> None:
        if len(body) >= 8:
            kind, size = order.edge.unpack_from(body)
            log = body[8 : 8 + size]
            has_room = self._held + len(log) <= _MOST_SECRETS and len(self.secrets) < _MOST_LOGS
            if kind == pcapng.SECRETS_WIREGUARD and log and has_room:
                self.secrets.append(log)
                self._held += len(log)

    def _old_packet(
        self, kind: int, order: _Order, body: bytes, first: int
    ) -> tuple[Ns, int, bytes, int] | None:
        """Return a simple packet, which has no time, or one of the obsolete kind."""
        if first >= len(self.interfaces) or len(body) < 4:
            return None
        if kind == pcapng.SIMPLE_PACKET:
            (original,) = order.u32.unpack_from(body)
            return 0, first, body[4 : 4 + original], original
        if len(body) < _EPB_LIKE:
            return None
        which = first + order.option.unpack_from(body)[0]
        _, high, low, captured, original = order.packet.unpack_from(body)
        if which >= len(self.interfaces) or _EPB_LIKE + captured > len(body):
            return None
        one = self.interfaces[which]
        at = (high << 32 | low) * 1_000_000_000 // one.ticks_per_s + one.offset
        return at, which, body[_EPB_LIKE : _EPB_LIKE + captured], original

    # pcap.

    def _pcap(self, order: _Order, unit: int) -> Iterator[Record]:
        buf, pos, number = self._rest, 24, 0
        if len(buf) < pos:
            self._stop(0, f"{len(buf)} bytes of a header of 24")
            return
        (link,) = order.u32.unpack_from(buf, 20)
        self.interfaces.append(Interface("", link & 0x0FFFFFFF))
        head = Struct(order.edge.format + "II")
        while True:
            end = len(buf)
            while end - pos >= 16:
                seconds, fraction, captured, original = head.unpack_from(buf, pos)
                if captured > pcap.MAX_CAPTURED:
                    self._stop(pos, f"a packet of {captured} bytes, which cannot be")
                    return
                at = pos + 16
                stop = at + captured
                if stop > end:
                    break
                number += 1
                ts = seconds * 1_000_000_000 + fraction * unit
                yield number, ts, 0, buf[at:stop], original, "", None
                pos = stop
            self._rest = buf
            buf, is_more = self._more(pos)
            pos = 0
            if not is_more:
                if buf:
                    self._stop(0, f"in the middle of a packet, with {len(buf)} bytes there")
                return


_BYTE_ORDERS = {
    pcapng.BYTE_ORDER_MAGIC.to_bytes(4, "little"): _LITTLE,
    pcapng.BYTE_ORDER_MAGIC.to_bytes(4, "big"): _BIG,
}


def _options(order: _Order, buf: bytes, pos: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """Yield code and value of what lies between `pos` and `stop`, as far as it makes sense."""
    while stop - pos >= 4:
        code, size = order.option.unpack_from(buf, pos)
        if code == 0 or pos + 4 + size > stop:
            return
        yield code, buf[pos + 4 : pos + 4 + size]
        pos += 4 + size + (-size & 3)


def _options_of_packet(
    order: _Order, buf: bytes, pos: int, stop: int
) -> tuple[str, int | None]:
    """Return comments, joined as ours are, and packet id."""
    comment, packet_id = "", None
    unpack = order.option.unpack_from
    while stop - pos >= 4:
        code, size = unpack(buf, pos)
        if code == _FLAGS:
            pos += 8
            continue
        if code == 0 or pos + 4 + size > stop:
            break
        if code == _PACKET_ID and size == 8:
            (packet_id,) = order.u64.unpack_from(buf, pos + 4)
        elif code == _COMMENT:
            text = buf[pos + 4 : pos + 4 + size].decode(errors="replace")
            comment = f"{comment}; {text}" if comment else text
        pos += 4 + size + (-size & 3)
    return comment, packet_id


def _what_it_is(magic: bytes) -> str:
    if magic[:2] == b"\x1f\x8b":
        return "it is compressed: gunzip it first"
    return f"it begins with {magic.hex(' ')}, which neither pcapng nor pcap does"
