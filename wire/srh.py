"""Segment Routing Header (SRH), with its TLVs. RFC 8754, section 2.

A routing header of type 4. The list is in wire order, which is the path from its end: element
0 is the last segment, and `segments_left` is the index of the active one. A *reduced* list
leaves out the first segment, which is in the destination address already; `segments_left` then
starts one above the index of the last element.

    path S1, S2, S3     full:    list S3, S2, S1   last_entry 2   segments_left 2
                        reduced: list S3, S2       last_entry 1   segments_left 2

TLVs are opaque here, HMAC (section 2.1.2) among them, and all types are let through.
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, Self

from wire.codec import (
    FieldError,
    ReadBuffer,
    TruncatedError,
    WriteBuffer,
    check_room,
    check_size,
    check_uint,
)

# Next Header | Hdr Ext Len | Routing Type | Segments Left | Last Entry | Flags | Tag
SRH = Struct("!BBBBBBH")
ROUTING_TYPE = 4
SEGMENT_SIZE = 16
MAX_SEGMENTS = 127  # Hdr Ext Len counts units of 8 bytes in 8 bits, a segment is two units

# Offsets of fields that routers look at and change.
HDR_EXT_LEN_OFFSET = 1
ROUTING_TYPE_OFFSET = 2
SEGMENTS_LEFT_OFFSET = 3
LAST_ENTRY_OFFSET = 4


class TlvType(IntEnum):
    """Types of TLVs. RFC 8754, section 8.2. The top bit says that the value may change."""

    PAD1 = 0  # one byte, without length and value
    PADN = 4
    HMAC = 5


class Tlv(NamedTuple):
    """One TLV. Unknown types are as good as any."""

    kind: int
    value: bytes = b""

    @property
    def size(self) -> int:
        return 1 if self.kind == TlvType.PAD1 else 2 + len(self.value)

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        there = len(buf) - offset
        if there < 1:
            raise TruncatedError("SRH TLV", 1, there)
        kind = buf[offset]
        if kind == TlvType.PAD1:
            return cls(kind)
        size = 2 + buf[offset + 1] if there > 1 else 2
        if there < size:
            raise TruncatedError("SRH TLV", size, there)
        return cls(kind, bytes(buf[offset + 2 : offset + size]))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("kind", self.kind, 8)
        check_room(buf, offset, self.size)
        if self.kind == TlvType.PAD1:
            if self.value:
                raise ValueError(f"Pad1 has no value, but {len(self.value)} bytes are given")
            buf[offset] = 0
            return
        check_uint("length", len(self.value), 8)
        head = bytes((self.kind, len(self.value)))
        buf[offset : offset + self.size] = head + self.value


class Srh(NamedTuple):
    """One SRH. `of_path` makes one from a path in the order of travel."""

    next_header: int
    segment_list: tuple[bytes, ...]  # in wire order: the last segment of the path comes first
    segments_left: int
    flags: int = 0  # all unused in RFC 8754: sent as zero, kept and ignored on receipt
    tag: int = 0
    tlvs: tuple[Tlv, ...] = ()  # a multiple of 8 bytes in all

    @property
    def last_entry(self) -> int:
        return len(self.segment_list) - 1

    @property
    def size(self) -> int:
        tlvs = sum(tlv.size for tlv in self.tlvs)
        return SRH.size + SEGMENT_SIZE * len(self.segment_list) + tlvs

    @classmethod
    def of_path(
        cls,
        next_header: int,
        path: Sequence[bytes],
        *,
        reduced: bool = False,
        tlvs: Sequence[Tlv] = (),
        tag: int = 0,
    ) -> Self:
        """Return the SRH of a packet that is about to travel `path`, first segment first.

        The first segment is also the packet's destination address. TLVs are padded. A path of
        one segment is never reduced: RFC 8754, section 4.1.1, erratum 7081.
        """
        segment_list = tuple(path[::-1])
        if reduced and len(path) > 1:
            segment_list = segment_list[:-1]
        size = sum(tlv.size for tlv in tlvs)
        return cls(
            next_header, segment_list, len(path) - 1, tag=tag, tlvs=(*tlvs, *padding(size))
        )

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        """Raise TruncatedError, or FieldError for another routing type or a bound broken.

        The bounds are those of RFC 8986, section 4.1: Last Entry at most Hdr Ext Len / 2 - 1,
        Segments Left at most Last Entry + 1. A TLV that runs past the header is a bound too.
        """
        there = len(buf) - offset
        if there < SRH.size:
            raise TruncatedError("SRH", SRH.size, there)
        next_header, units, routing_type, left, last, flags, tag = SRH.unpack_from(buf, offset)
        if routing_type != ROUTING_TYPE:
            raise FieldError("SRH.Routing Type", routing_type, "0x4")
        size = SRH.size + 8 * units
        if there < size:
            raise TruncatedError("SRH", size, there)
        max_last = units // 2 - 1
        if last > max_last:
            legal = f"0x0 to {max_last:#x}" if max_last >= 0 else "none: it has no room"
            raise FieldError("SRH.Last Entry", last, legal)
        if left > last + 1:
            raise FieldError("SRH.Segments Left", left, f"0x0 to {last + 1:#x}")
        start, stop = offset + SRH.size, offset + size
        behind = start + SEGMENT_SIZE * (last + 1)
        segment_list = tuple(
            bytes(buf[at : at + SEGMENT_SIZE]) for at in range(start, behind, SEGMENT_SIZE)
        )
        tlvs = tuple(_tlvs(buf, behind, stop)) if behind < stop else ()
        return cls(next_header, segment_list, left, flags, tag, tlvs)

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        next_header, segment_list, left, flags, tag, tlvs = self
        if not 1 <= len(segment_list) <= MAX_SEGMENTS:
            raise ValueError(f"{len(segment_list)} segments, legal is 1 to {MAX_SEGMENTS}")
        last = len(segment_list) - 1
        if not 0 <= left <= last + 1:
            raise ValueError(f"segments_left is {left}, legal is 0 to {last + 1}")
        size = self.size
        if size % 8:
            raise ValueError(f"tlvs leave the SRH with {size} bytes, which is not 8 n")
        check_uint("next_header", next_header, 8)
        check_uint("hdr_ext_len", size // 8 - 1, 8)
        check_uint("flags", flags, 8)
        check_uint("tag", tag, 16)
        check_room(buf, offset, size)
        SRH.pack_into(
            buf, offset, next_header, size // 8 - 1, ROUTING_TYPE, left, last, flags, tag
        )
        offset += SRH.size
        for segment in segment_list:
            check_size("segment", segment, SEGMENT_SIZE)
            buf[offset : offset + SEGMENT_SIZE] = segment
            offset += SEGMENT_SIZE
        for tlv in tlvs:
            tlv.pack_into(buf, offset)
            offset += tlv.size


def padding(size: int) -> tuple[Tlv, ...]:
    """Return what fills `size` bytes of TLVs up to a multiple of 8: Pad1, PadN or nothing."""
    match -size % 8:
        case 0:
            return ()
        case 1:
            return (Tlv(TlvType.PAD1),)
        case missing:
            return (Tlv(TlvType.PADN, bytes(missing - 2)),)


def check_tlvs(buf: ReadBuffer, offset: int, stop: int) -> None:
    """Raise FieldError unless the TLVs from `offset` end exactly at `stop`; act on none."""
    while offset < stop:
        offset += _tlv_size(buf, offset, stop)


def _tlvs(buf: ReadBuffer, offset: int, stop: int) -> list[Tlv]:
    tlvs = []
    while offset < stop:
        _tlv_size(buf, offset, stop)
        tlvs.append(tlv := Tlv.unpack_from(buf, offset))
        offset += tlv.size
    return tlvs


def _tlv_size(buf: ReadBuffer, offset: int, stop: int) -> int:
    """Return the size of the TLV at `offset`; FieldError if it runs past `stop`."""
    if buf[offset] == TlvType.PAD1:
        return 1
    if stop - offset < 2:
        raise FieldError("SRH.TLV.Type", buf[offset], "0x0 in the last byte")
    length = buf[offset + 1]
    if length > stop - offset - 2:
        raise FieldError("SRH.TLV.Length", length, f"0x0 to {stop - offset - 2:#x}")
    return 2 + length
