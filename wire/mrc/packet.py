"""A whole MRC packet, and what trimming leaves of one. OCP MRC 1.0, section 7 (as cited).

Between the UDP header and the end, as in RoCE v2:

    BTH 12 | headers by opcode | payload | pad 0 to 3 | ICRC 4
"""

from typing import NamedTuple, Protocol, Self

from wire.codec import FieldError, ReadBuffer, TruncatedError, WriteBuffer, check_room
from wire.mrc.bth import MrcBth
from wire.mrc.endpoint import EETH, ERTH, Eeth, Erth
from wire.mrc.eths import METH, TSETH, Meth, Tseth
from wire.mrc.opcodes import WRITES, MrcOpcode
from wire.mrc.options import DEFAULTS, WireOptions
from wire.mrc.reliability import NETH, PETH, SETH, Neth, Peth, Seth
from wire.roce.bth import BTH
from wire.roce.eths import AETH, IMMDT, RETH, Aeth, ImmDt, Reth


class Header(Protocol):
    """What stands behind the BTH."""

    @property
    def size(self) -> int: ...

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None: ...


class MrcPacket(NamedTuple):
    """One packet from BTH to payload; the headers that it does not have are None.

    The fields stand in wire order. `payload` of an unpacked packet is a view into the buffer,
    without the pad. A TSETH is there exactly when a WRITE's BTH says so.
    """

    bth: MrcBth
    meth: Meth | None = None
    tseth: Tseth | None = None
    reth: Reth | None = None
    immdt: ImmDt | None = None
    aeth: Aeth | None = None
    seth: Seth | None = None
    neth: Neth | None = None
    peth: Peth | None = None
    erth: Erth | None = None
    eeth: Eeth | None = None
    payload: ReadBuffer = b""

    @property
    def headers(self) -> tuple[Header, ...]:
        """Return the headers behind the BTH that are there, in wire order."""
        return tuple(header for header in self[1:11] if header is not None)

    @property
    def size(self) -> int:
        """Return the bytes from the BTH through the pad: ICRC not included."""
        return (
            BTH.size
            + sum(header.size for header in self.headers)
            + len(self.payload)
            + self.bth.pad_count
        )

    @classmethod
    def make(cls, bth: MrcBth, *headers: Header, payload: ReadBuffer = b"") -> Self:
        """Return a packet of `headers` in any order; PadCnt and ts become what they must be."""
        fields: list[Header | None] = [None] * len(_SLOTS)
        for header in headers:
            fields[_SLOTS[type(header)]] = header
        ts = fields[_SLOTS[Tseth]] is not None
        return cls._make((bth._replace(pad_count=-len(payload) % 4, ts=ts), *fields, payload))

    @classmethod
    def unpack(cls, buf: ReadBuffer, options: WireOptions = DEFAULTS) -> Self:
        """Return the packet in `buf`: first byte of the BTH to last byte before the ICRC.

        Lengths are checked against the buffer only: what the path MTU, DMALen or an opcode
        forbids is for the transport to refuse. Pad bytes are ignored.
        """
        bth = MrcBth.unpack_from(buf, 0, options)
        if bth.opcode not in _HEADERS:
            raise FieldError("BTH.OpCode", bth.opcode, "that of an MRC packet")
        fields: list[Header | None] = [None] * len(_SLOTS)
        offset = BTH.size
        for header in headers_of(bth):
            if header is Eeth:
                value: Header = Eeth.unpack_from(buf, offset, options)
            else:
                value = header.unpack_from(buf, offset)
            fields[_SLOTS[header]] = value
            offset += _SIZES[header]
        stop = len(buf) - bth.pad_count
        if stop < offset:
            raise TruncatedError("pad", offset + bth.pad_count, len(buf))
        return cls._make((bth, *fields, memoryview(buf)[offset:stop]))

    def has_reserved_bits(self, buf: ReadBuffer, options: WireOptions = DEFAULTS) -> bool:
        """Say whether `buf`, which this was unpacked from, has a reserved bit set in a header.

        Such bits are sent as zero and ignored on receipt, but tell of a peer that reads the
        tables otherwise: whatever packing does not give back is one.
        """
        head = self._replace(bth=self.bth._replace(pad_count=0), payload=b"").pack(options)
        head[1] |= self.bth.pad_count << 4
        return memoryview(buf)[: len(head)] != head

    def pack(self, options: WireOptions = DEFAULTS) -> bytearray:
        """Return the bytes from the BTH through the pad."""
        buf = bytearray(self.size)
        self.pack_into(buf, 0, options)
        return buf

    def pack_into(
        self, buf: WriteBuffer, offset: int = 0, options: WireOptions = DEFAULTS
    ) -> None:
        """Write the bytes from the BTH through the pad, which is zero.

        Raise ValueError for an opcode that is none of MRC or headers that are not its own.
        """
        headers = self.headers
        if self.bth.opcode not in _HEADERS or headers_of(self.bth) != tuple(map(type, headers)):
            raise ValueError(f"opcode {self.bth.opcode:#x} does not have headers {headers}")
        check_room(buf, offset, self.size)
        self.bth.pack_into(buf, offset, options)
        offset += BTH.size
        for header in headers:
            if isinstance(header, Eeth):
                header.pack_into(buf, offset, options)
            else:
                header.pack_into(buf, offset)
            offset += header.size
        stop = offset + len(self.payload)
        buf[offset:stop] = self.payload
        buf[stop : stop + self.bth.pad_count] = bytes(self.bth.pad_count)


class TrimmedWrite(NamedTuple):
    """What a switch left of a WRITE: enough to ask for it again. The ICRC is gone."""

    bth: MrcBth
    meth: Meth | None = None  # None: cut away
    tseth: Tseth | None = None

    @classmethod
    def unpack(cls, buf: ReadBuffer, options: WireOptions = DEFAULTS) -> Self:
        """Return what begins at the BTH's first byte; raise DecodeError without its PSN."""
        bth = MrcBth.unpack_from(buf, 0, options)
        if bth.opcode not in WRITES:
            raise FieldError("BTH.OpCode", bth.opcode, "that of a WRITE, since it is trimmed")
        meth = tseth = None
        if len(buf) >= BTH.size + METH.size:
            meth = Meth.unpack_from(buf, BTH.size)
        if bth.ts and len(buf) >= BTH.size + METH.size + TSETH.size:
            tseth = Tseth.unpack_from(buf, BTH.size + METH.size)
        return cls(bth, meth, tseth)


_SLOTS: dict[type, int] = {
    header: slot
    for slot, header in enumerate(
        (Meth, Tseth, Reth, ImmDt, Aeth, Seth, Neth, Peth, Erth, Eeth)
    )
}
_SIZES: dict[type, int] = {
    Meth: METH.size, Tseth: TSETH.size, Reth: RETH.size, ImmDt: IMMDT.size, Aeth: AETH.size,
    Seth: SETH.size, Neth: NETH.size, Peth: PETH.size, Erth: ERTH.size, Eeth: EETH.size,
}  # fmt: skip

_HeaderType = (
    type[Meth] | type[Tseth] | type[Reth] | type[ImmDt] | type[Aeth] | type[Seth] | type[Neth]
    | type[Peth] | type[Erth] | type[Eeth]
)  # fmt: skip
_WRITE: tuple[_HeaderType, ...] = (Meth, Reth)
_WRITE_IMM: tuple[_HeaderType, ...] = (Meth, Reth, ImmDt)
_HEADERS: dict[int, tuple[_HeaderType, ...]] = {
    MrcOpcode.WRITE_FIRST: _WRITE,
    MrcOpcode.WRITE_MIDDLE: _WRITE,
    MrcOpcode.WRITE_LAST: _WRITE,
    MrcOpcode.WRITE_LAST_IMM: _WRITE_IMM,
    MrcOpcode.WRITE_ONLY: _WRITE,
    MrcOpcode.WRITE_ONLY_IMM: _WRITE_IMM,
    MrcOpcode.ACKNOWLEDGE: (Aeth,),
    MrcOpcode.ENDPOINT_REQUEST: (Erth,),
    MrcOpcode.ENDPOINT_RESPONSE: (Eeth,),
    MrcOpcode.SACK: (Seth,),
    MrcOpcode.NACK: (Neth,),
    MrcOpcode.PROBE: (Peth,),
}


def headers_of(bth: MrcBth) -> tuple[_HeaderType, ...]:
    """Return the headers that stand behind `bth`, whose opcode is one of MRC, in wire order."""
    headers = _HEADERS[bth.opcode]
    if bth.ts and bth.opcode in WRITES:
        return (Meth, Tseth, *headers[1:])
    return headers


def headers_size(bth: MrcBth) -> int:
    """Return the bytes of those headers."""
    return sum(_SIZES[header] for header in headers_of(bth))
