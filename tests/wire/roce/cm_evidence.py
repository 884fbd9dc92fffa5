"""MADs of communication managers that others wrote, found in captures beside the checkout."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.wire.roce.evidence import RXE, SHARED, captures, frames
from wire import pcap
from wire.roce.mad import MAD_SIZE

ENDACE = (
    SHARED / "captures" / "ib_erf_endace_2008.pcap"
)  # real adapters, IPoIB over connections
CLIENT, SERVER = b"\x0a\0\0\x01", b"\x0a\0\0\x02"
CLIENT6, SERVER6 = (bytes.fromhex("fd00" + "00" * 13 + end) for end in ("01", "02"))


class Seen(NamedTuple):
    """One MAD on the wire."""

    source: bytes  # IP addresses
    destination: bytes
    mad: bytes


def mads(path: Path) -> Iterator[Seen]:
    """Yield what went to queue pair 1 in a capture of RoCE v2, found by the bytes alone."""
    for frame in frames(path):
        is_v4 = frame[14] >> 4 == 4
        bth = 42 if is_v4 else 62
        if frame[bth] == 0x64 and frame[bth + 5 : bth + 8] == b"\0\0\1":
            ip = (26, 30, 34) if is_v4 else (22, 38, 54)
            yield Seen(frame[ip[0] : ip[1]], frame[ip[1] : ip[2]], frame[bth + 20 : -4])


def mads_of(name: str) -> list[Seen]:
    """Return the MADs of the capture `name`."""
    return [*mads(RXE / f"{name}.pcap")]


def hardware_mads() -> list[bytes]:
    """Return the MADs of class 7 among the InfiniBand packets of the ERF capture."""
    found = []
    for record in pcap.read(ENDACE.read_bytes()).records:
        at = record.data.find(b"\x01\x07\x02\x03")
        if at > 0:
            found.append(record.data[at : at + MAD_SIZE])
    return found


def all_mads() -> list[Seen]:
    return [seen for path in captures() for seen in mads(path)]
