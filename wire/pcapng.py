"""pcapng blocks: bytes to bytes, no files. IETF draft-ietf-opsawg-pcapng, sections 3 and 4.

A file is a row of blocks: Type | Total Length | body | options | Total Length, in units of four
bytes. A section header begins a section and says its byte order; interface descriptions number
themselves from 0; packets and statistics refer to those numbers. The functions make one block
each, always little-endian with times in nanoseconds, so that equal captures are equal files.
`read_blocks` takes either byte order and any resolution.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple, TypeAlias

from wire.codec import (
    FieldError,
    ReadBuffer,
    TruncatedError,
    check_size,
    check_uint,
)
from wire.source import Readable, Source

SECTION_HEADER = 0x0A0D0D0A  # reads the same in both byte orders
INTERFACE_DESCRIPTION = 1
SIMPLE_PACKET = 3
INTERFACE_STATISTICS = 5
ENHANCED_PACKET = 6
DECRYPTION_SECRETS = 10

BYTE_ORDER_MAGIC = 0x1A2B3C4D
LINKTYPE_ETHERNET = 1
SECRETS_TLS = 0x544C534B
SECRETS_WIREGUARD = 0x57474B4C

# Ours: what tcpdump and Wireshark take as "no limit", so that files of both merge.
SNAP_LENGTH = 0x40000
# Limit: 16 MiB, far above any packet and its comments, so that junk cannot ask for 4 GiB.
MAX_BLOCK = 1 << 24
# Limit: 65,536 interfaces in a section, far above any lab, so that junk cannot fill memory.
MAX_INTERFACES = 1 << 16

# Options, by block.
_COMMENT = 1
_SHB_HARDWARE, _SHB_OS, _SHB_USERAPPL = 2, 3, 4
_IF_NAME, _IF_DESCRIPTION, _IF_MAC, _IF_TSRESOL, _IF_TSOFFSET = 2, 3, 6, 9, 14
_EPB_FLAGS, _EPB_DROPCOUNT, _EPB_PACKETID = 2, 4, 5
_ISB_STARTTIME, _ISB_ENDTIME, _ISB_IFRECV, _ISB_IFDROP = 2, 3, 4, 5

_INBOUND, _OUTBOUND = 1, 2  # the low two bits of epb_flags

_NS_PER_S = 1_000_000_000


# Writing.

_U8, _U32, _U64 = Struct("<B"), Struct("<I"), Struct("<Q")
_EDGE = Struct("<II")  # Type | Total Length
_OPTION = Struct("<HH")  # Code | Length
_SHB = Struct("<IHHq")  # Byte-Order Magic | Major | Minor | Section Length
_IDB = Struct("<HHI")  # LinkType | Reserved | SnapLen
_EPB = Struct("<IIIII")  # Interface | Timestamp high | low | Captured Length | Original Length
_ISB = Struct("<III")  # Interface | Timestamp high | low
_DSB = Struct("<II")  # Secrets Type | Secrets Length


def section_header(
    application: str = "fabriclab", *, hardware: str = "", system: str = "", comment: str = ""
) -> bytes:
    """Return the block a file begins with; its length is left open."""
    return _block(
        SECTION_HEADER,
        _SHB.pack(BYTE_ORDER_MAGIC, 1, 0, -1),
        _text(_COMMENT, comment),
        _text(_SHB_HARDWARE, hardware),
        _text(_SHB_OS, system),
        _text(_SHB_USERAPPL, application),
    )


def interface_block(
    name: str,
    description: str = "",
    *,
    link_type: int = LINKTYPE_ETHERNET,
    snap_length: int = SNAP_LENGTH,
    mac: bytes = b"",
    comment: str = "",
) -> bytes:
    """Return the block that gives `name` the next interface number; times are nanoseconds."""
    check_uint("link_type", link_type, 16)
    check_uint("snap_length", snap_length, 32)
    if mac:
        check_size("mac", mac, 6)
    return _block(
        INTERFACE_DESCRIPTION,
        _IDB.pack(link_type, 0, snap_length),
        _text(_COMMENT, comment),
        _text(_IF_NAME, name),
        _text(_IF_DESCRIPTION, description),
        _option(_IF_MAC, mac),
        _option(_IF_TSRESOL, _U8.pack(9)),
    )


def enhanced_packet(
    interface: int,
    ts_ns: int,
    data: ReadBuffer,
    *,
    original_length: int | None = None,
    comment: str = "",
    outbound: bool | None = None,
    packet_id: int | None = None,
    drop_count: int | None = None,
) -> bytes:
    """Return the block of one packet.

    `original_length` is what was on the wire, if `data` was cut by a capture. `outbound` says
    the direction if it is known. `drop_count` is the packets lost to the capture on this
    interface since the packet before; `packet_id` is the same for the same packet on several
    interfaces.
    """
    if original_length is None:
        original_length = len(data)
    check_uint("interface", interface, 32)
    check_uint("ts_ns", ts_ns, 64)
    check_uint("original_length", original_length, 32)
    head = _EPB.pack(interface, ts_ns >> 32, ts_ns & 0xFFFFFFFF, len(data), original_length)
    return _block(
        ENHANCED_PACKET,
        head + data + bytes(-len(data) % 4),
        _text(_COMMENT, comment),
        b"" if outbound is None else _option(_EPB_FLAGS, _U32.pack(_INBOUND + outbound)),
        _number("drop_count", _EPB_DROPCOUNT, drop_count),
        _number("packet_id", _EPB_PACKETID, packet_id),
    )


def interface_statistics(
    interface: int,
    ts_ns: int,
    *,
    received: int | None = None,
    dropped: int | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    comment: str = "",
) -> bytes:
    """Return the block that says how many packets the capture of `interface` got and lost."""
    check_uint("interface", interface, 32)
    check_uint("ts_ns", ts_ns, 64)
    return _block(
        INTERFACE_STATISTICS,
        _ISB.pack(interface, ts_ns >> 32, ts_ns & 0xFFFFFFFF),
        _text(_COMMENT, comment),
        _time("start_ns", _ISB_STARTTIME, start_ns),
        _time("end_ns", _ISB_ENDTIME, end_ns),
        _number("received", _ISB_IFRECV, received),
        _number("dropped", _ISB_IFDROP, dropped),
    )


def decryption_secrets(kind: int, secrets: ReadBuffer) -> bytes:
    """Return the block that holds keys, as the log file that Wireshark reads for `kind`.

    It stands before the packets that need it.
    """
    check_uint("kind", kind, 32)
    body = _DSB.pack(kind, len(secrets)) + secrets + bytes(-len(secrets) % 4)
    return _block(DECRYPTION_SECRETS, body)


def _block(kind: int, body: bytes, *options: bytes) -> bytes:
    """Return a block of `body` and those of `options` that are not empty."""
    tail = b"".join(options)
    if tail:
        tail += bytes(_OPTION.size)  # opt_endofopt
    size = _EDGE.size + len(body) + len(tail) + _U32.size
    return b"".join((_EDGE.pack(kind, size), body, tail, _U32.pack(size)))


def _option(code: int, value: bytes) -> bytes:
    """Return one option, or nothing for an empty value."""
    if not value:
        return b""
    check_uint("option length", len(value), 16)
    return _OPTION.pack(code, len(value)) + value + bytes(-len(value) % 4)


def _text(code: int, value: str) -> bytes:
    return _option(code, value.encode())


def _number(name: str, code: int, value: int | None) -> bytes:
    if value is None:
        return b""
    check_uint(name, value, 64)
    return _option(code, _U64.pack(value))


def _time(name: str, code: int, value: int | None) -> bytes:
    """Return an option that holds a time: the high half comes first, also in little-endian."""
    if value is None:
        return b""
    check_uint(name, value, 64)
    return _option(code, _EDGE.pack(value >> 32, value & 0xFFFFFFFF))


# Reading.


class SectionHeader(NamedTuple):
    """The beginning of a section; interfaces are numbered anew behind it."""

    application: str = ""
    hardware: str = ""
    system: str = ""
    comments: tuple[str, ...] = ()


class InterfaceDescription(NamedTuple):
    """One interface. Times in its packets count `ticks_per_s` from `epoch_offset_s`."""

    number: int  # in its section
    name: str = ""
    description: str = ""
    link_type: int = LINKTYPE_ETHERNET
    snap_length: int = 0  # 0: no limit
    ticks_per_s: int = 1_000_000
    epoch_offset_s: int = 0
    mac: bytes = b""
    comments: tuple[str, ...] = ()

    def to_ns(self, ticks: int) -> int:
        """Return a time stamp of this interface in nanoseconds since the epoch."""
        return ticks * _NS_PER_S // self.ticks_per_s + self.epoch_offset_s * _NS_PER_S


class EnhancedPacket(NamedTuple):
    """One packet, with the interface it was seen on."""

    interface: InterfaceDescription
    ts_ns: int
    data: bytes
    original_length: int  # on the wire
    flags: int | None = None  # epb_flags, the whole word
    packet_id: int | None = None
    drop_count: int | None = None
    comments: tuple[str, ...] = ()

    @property
    def outbound(self) -> bool | None:
        """Say the direction, None if it is not told."""
        return None if self.flags is None else _DIRECTIONS.get(self.flags & 3)


_DIRECTIONS = {_INBOUND: False, _OUTBOUND: True}


class SimplePacket(NamedTuple):
    """One packet of interface 0 without a time."""

    interface: InterfaceDescription
    data: bytes
    original_length: int


class InterfaceStatistics(NamedTuple):
    """What the capture of an interface got and lost; None is unknown, which is not zero."""

    interface: InterfaceDescription
    ts_ns: int
    received: int | None = None
    dropped: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    comments: tuple[str, ...] = ()


class DecryptionSecrets(NamedTuple):
    """Keys, in the form that `kind` says."""

    kind: int
    secrets: bytes


class UnknownBlock(NamedTuple):
    """A block of a type not read here: its body, options and all."""

    kind: int
    body: bytes


Block: TypeAlias = (
    SectionHeader
    | InterfaceDescription
    | EnhancedPacket
    | SimplePacket
    | InterfaceStatistics
    | DecryptionSecrets
    | UnknownBlock
)


def read_blocks(source: ReadBuffer | Readable) -> Iterator[Block]:
    """Yield the blocks of a capture in order; memory is bounded by the largest block.

    Raise DecodeError where the bytes stop making sense, after all blocks before that place: for
    a file that was cut, TruncatedError.
    """
    reader = Source(source)
    section: _Section | None = None
    while (head := reader.read_or_end("pcapng block", _EDGE.size)) is not None:
        if head[:4] == _U32.pack(SECTION_HEADER):
            magic = reader.read("pcapng section header", 4)
            section = _Section(_byte_order(magic))
            rest = magic
        elif section is None:
            raise FieldError("pcapng.Block Type", int.from_bytes(head[:4], "big"), "0xa0d0d0a")
        else:
            rest = b""
        kind, size = section.edge.unpack(head)
        if size % 4 or not _EDGE.size + _U32.size + len(rest) <= size <= MAX_BLOCK:
            raise FieldError("pcapng.Block Total Length", size, f"4 n up to {MAX_BLOCK:#x}")
        rest += reader.read("pcapng block", size - len(head) - len(rest))
        (again,) = section.u32.unpack_from(rest, len(rest) - 4)
        if again != size:
            raise FieldError("pcapng.Block Total Length", again, f"{size:#x} as before")
        yield section.block(kind, rest[:-4])


def read_packets(source: ReadBuffer | Readable) -> Iterator[EnhancedPacket]:
    """Yield only the enhanced packets of `read_blocks`."""
    for block in read_blocks(source):
        if isinstance(block, EnhancedPacket):
            yield block


def _byte_order(magic: bytes) -> str:
    for order in "<>":
        if magic == Struct(order + "I").pack(BYTE_ORDER_MAGIC):
            return order
    raise FieldError("pcapng.Byte-Order Magic", int.from_bytes(magic, "big"))


class _Section:
    """What must be remembered while reading a section: its byte order and its interfaces."""

    def __init__(self, order: str) -> None:
        self.edge = Struct(order + "II")
        self.u32 = Struct(order + "I")
        self.interfaces: list[InterfaceDescription] = []
        self._u64 = Struct(order + "Q")
        self._i64 = Struct(order + "q")
        self._option = Struct(order + "HH")
        self._shb = Struct(order + "IHHq")
        self._idb = Struct(order + "HHI")
        self._epb = Struct(order + "IIIII")
        self._isb = Struct(order + "III")
        self._readers: dict[int, Callable[[bytes], Block]] = {
            SECTION_HEADER: self._section_header,
            INTERFACE_DESCRIPTION: self._interface_description,
            ENHANCED_PACKET: self._enhanced_packet,
            SIMPLE_PACKET: self._simple_packet,
            INTERFACE_STATISTICS: self._interface_statistics,
            DECRYPTION_SECRETS: self._decryption_secrets,
        }

    def block(self, kind: int, body: bytes) -> Block:
        reader = self._readers.get(kind)
        return UnknownBlock(kind, body) if reader is None else reader(body)

    def _section_header(self, body: bytes) -> SectionHeader:
        _, major, _, _ = _unpack("pcapng section header", self._shb, body)
        if major != 1:
            raise FieldError("pcapng.Major Version", major, "0x1")
        options = self._options(body, self._shb.size)
        return SectionHeader(
            options.text(_SHB_USERAPPL),
            options.text(_SHB_HARDWARE),
            options.text(_SHB_OS),
            options.comments,
        )

    def _interface_description(self, body: bytes) -> InterfaceDescription:
        link_type, _, snap_length = _unpack("pcapng interface", self._idb, body)
        if len(self.interfaces) == MAX_INTERFACES:
            raise FieldError(
                "pcapng.Interface ID", MAX_INTERFACES, f"below {MAX_INTERFACES:#x}"
            )
        options = self._options(body, self._idb.size)
        resolution = options.fixed(_IF_TSRESOL, _U8, 6)
        ticks = 1 << (resolution & 0x7F) if resolution & 0x80 else 10**resolution
        interface = InterfaceDescription(
            len(self.interfaces),
            options.text(_IF_NAME),
            options.text(_IF_DESCRIPTION),
            link_type,
            snap_length,
            ticks,
            options.fixed(_IF_TSOFFSET, self._i64, 0),
            options.first.get(_IF_MAC, b""),
            options.comments,
        )
        self.interfaces.append(interface)
        return interface

    def _enhanced_packet(self, body: bytes) -> EnhancedPacket:
        layout = self._epb
        number, high, low, captured, original = _unpack("pcapng packet", layout, body)
        interface = self._interface(number)
        stop = layout.size + captured
        if stop > len(body):
            raise FieldError("pcapng.Captured Packet Length", captured)
        options = self._options(body, stop + -captured % 4)
        return EnhancedPacket(
            interface,
            interface.to_ns(high << 32 | low),
            body[layout.size : stop],
            original,
            options.number(_EPB_FLAGS, self.u32),
            options.number(_EPB_PACKETID, self._u64),
            options.number(_EPB_DROPCOUNT, self._u64),
            options.comments,
        )

    def _simple_packet(self, body: bytes) -> SimplePacket:
        (original,) = _unpack("pcapng simple packet", self.u32, body)
        interface = self._interface(0)
        captured = min(original, interface.snap_length or original)
        stop = self.u32.size + captured
        if stop > len(body):
            raise FieldError("pcapng.Original Packet Length", original)
        return SimplePacket(interface, body[self.u32.size : stop], original)

    def _interface_statistics(self, body: bytes) -> InterfaceStatistics:
        number, high, low = _unpack("pcapng statistics", self._isb, body)
        interface = self._interface(number)
        options = self._options(body, self._isb.size)
        return InterfaceStatistics(
            interface,
            interface.to_ns(high << 32 | low),
            options.number(_ISB_IFRECV, self._u64),
            options.number(_ISB_IFDROP, self._u64),
            self._time(interface, options, _ISB_STARTTIME),
            self._time(interface, options, _ISB_ENDTIME),
            options.comments,
        )

    def _decryption_secrets(self, body: bytes) -> DecryptionSecrets:
        kind, size = _unpack("pcapng secrets", self.edge, body)
        if self.edge.size + size > len(body):
            raise FieldError("pcapng.Secrets Length", size)
        return DecryptionSecrets(kind, body[self.edge.size : self.edge.size + size])

    def _interface(self, number: int) -> InterfaceDescription:
        if number >= len(self.interfaces):
            raise FieldError("pcapng.Interface ID", number, f"below {len(self.interfaces):#x}")
        return self.interfaces[number]

    def _time(
        self, interface: InterfaceDescription, options: "_Options", code: int
    ) -> int | None:
        value = options.first.get(code)
        if value is None:
            return None
        if len(value) != self.edge.size:
            raise FieldError("pcapng.option length", len(value), f"{self.edge.size:#x}")
        high, low = self.edge.unpack(value)
        return interface.to_ns(high << 32 | low)

    def _options(self, body: bytes, offset: int) -> "_Options":
        """Read the options from `offset` to their end mark, or to the end of the body."""
        options = _Options({}, [])
        while offset < len(body):
            if len(body) - offset < self._option.size:
                raise TruncatedError("pcapng option", self._option.size, len(body) - offset)
            code, size = self._option.unpack_from(body, offset)
            if code == 0:
                break
            offset += self._option.size
            if size > len(body) - offset:
                raise TruncatedError("pcapng option", size, len(body) - offset)
            value = body[offset : offset + size]
            options.first.setdefault(code, value)
            if code == _COMMENT:
                options.texts.append(value.decode(errors="replace"))
            offset += size + -size % 4
        return options


class _Options(NamedTuple):
    """The options of one block: the first of each code, and all comments."""

    first: dict[int, bytes]
    texts: list[str]

    @property
    def comments(self) -> tuple[str, ...]:
        return tuple(self.texts)

    def text(self, code: int) -> str:
        return self.first.get(code, b"").decode(errors="replace")

    def number(self, code: int, layout: Struct) -> int | None:
        value = self.first.get(code)
        if value is None:
            return None
        if len(value) != layout.size:
            raise FieldError("pcapng.option length", len(value), f"{layout.size:#x}")
        (number,) = layout.unpack(value)
        return int(number)

    def fixed(self, code: int, layout: Struct, default: int) -> int:
        number = self.number(code, layout)
        return default if number is None else number


def _unpack(what: str, layout: Struct, body: bytes) -> tuple[int, ...]:
    """Return the fixed part of a body."""
    if len(body) < layout.size:
        raise TruncatedError(what, layout.size, len(body))
    return layout.unpack_from(body)
