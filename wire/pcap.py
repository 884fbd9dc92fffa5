"""Classic pcap, for reading. IETF draft-ietf-opsawg-pcap, sections 4 and 5.

Both byte orders; time stamps in microseconds or nanoseconds. We write pcapng only.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from wire.codec import FieldError, ReadBuffer
from wire.source import Readable, Source

MAGIC_US = 0xA1B2C3D4
MAGIC_NS = 0xA1B23C4D

_FILE = "IHHIIII"  # Magic | Major | Minor | Reserved1 | Reserved2 | SnapLen | FCS4 LinkType28
_RECORD = "IIII"  # Seconds | Fraction | Captured Length | Original Length

# Limit: 1 MiB, four times what any tool writes, so that junk cannot ask for 4 GiB.
MAX_CAPTURED = 1 << 20


class Record(NamedTuple):
    """One captured packet; `data` may be less than the `original_length` bytes of the wire."""

    ts_ns: int
    data: bytes
    original_length: int


class Capture(NamedTuple):
    """A capture file: its header, and its records as an iterator that can be used once."""

    link_type: int
    snap_length: int
    records: Iterator[Record]


def read(source: ReadBuffer | Readable) -> Capture:
    """Read the file header, and the records as they are asked for.

    Raise DecodeError for what is no pcap file; so does the iterator for a record that is cut or
    whose length cannot be.
    """
    reader = Source(source)
    head = reader.read("pcap header", Struct(_FILE).size)
    for order in "<>":
        magic, major, _, _, _, snap_length, link = Struct(order + _FILE).unpack(head)
        if magic in {MAGIC_US, MAGIC_NS}:
            break
    else:
        raise FieldError("pcap.Magic Number", int.from_bytes(head[:4], "big"))
    if major != 2:
        raise FieldError("pcap.Major Version", major, "0x2")
    record = Struct(order + _RECORD)
    unit = 1 if magic == MAGIC_NS else 1000
    return Capture(link & 0x0FFFFFFF, snap_length, _records(reader, record, unit))


def _records(reader: Source, layout: Struct, unit: int) -> Iterator[Record]:
    while (head := reader.read_or_end("pcap record", layout.size)) is not None:
        seconds, fraction, captured, original = layout.unpack(head)
        if captured > MAX_CAPTURED:
            raise FieldError("pcap.Captured Length", captured, f"up to {MAX_CAPTURED:#x}")
        data = reader.read("pcap packet data", captured)
        yield Record(seconds * 1_000_000_000 + fraction * unit, data, original)
