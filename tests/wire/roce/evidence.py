"""RoCE packets that others made, where they lie beside the checkout, and an ICRC not ours."""

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from wire import pcap

SHARED = Path(__file__).parents[3] / ".." / "shared"
VECTORS = SHARED / "vectors" / "rocev2" / "icrc.json"
RXE = SHARED / "captures" / "rxe-6.1"

needs_vectors = pytest.mark.skipif(
    not VECTORS.exists(), reason="no vectors beside the checkout"
)
needs_captures = pytest.mark.skipif(not RXE.exists(), reason="no captures beside the checkout")


class Vector(NamedTuple):
    """One packet, IP header through ICRC."""

    name: str
    source: str
    packet: bytes


def vectors(kind: str = "roce_v2") -> list[Vector]:
    if not VECTORS.exists():
        return []
    rows = json.loads(VECTORS.read_text())[kind]
    return [Vector(row["name"], row["source"], bytes.fromhex(row["packet"])) for row in rows]


def captures() -> list[Path]:
    return sorted(RXE.glob("*.pcap"))


def frames(path: Path) -> Iterator[bytes]:
    """Yield the RoCE v2 frames of a capture, found by their bytes alone."""
    for record in pcap.read(path.read_bytes()).records:
        frame = record.data
        v4 = frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[36:38] == b"\x12\xb7"
        v6 = frame[12:14] == b"\x86\xdd" and frame[20] == 17 and frame[56:58] == b"\x12\xb7"
        if v4 or v6:
            yield frame


class Probe(NamedTuple):
    """One hand-made stimulus to a kernel responder, or one of its answers."""

    name: str
    is_stimulus: bool
    packet: bytes


def probes() -> list[Probe]:
    found = []
    for path in sorted(RXE.glob("probes-*.json")):
        for row in json.loads(path.read_text()):
            if "stimulus" in row:
                found.append(Probe(row["name"], True, bytes.fromhex(row["stimulus"])))
                found += [
                    Probe(f"{row['name']}: answer", False, bytes.fromhex(answer))
                    for answer in row["responses"]
                ]
    return found


def witness_icrc(ip: bytes) -> bytes:
    """Return the four bytes that belong behind `ip`, IP header to pad, by the text's own words.

    Eight bytes of ones; the IP header with TOS, TTL and checksum (or traffic class, flow label
    and hop limit), the UDP checksum and byte 4 of the BTH as ones; everything else as it is.
    """
    copy = bytearray(ip)
    if ip[0] >> 4 == 4:
        ones, udp = (1, 8, 10, 11), 20
    else:
        ones, udp = (1, 2, 3, 7), 40
        copy[0] |= 0x0F
    for offset in (*ones, udp + 6, udp + 7, udp + 8 + 4):
        copy[offset] = 0xFF
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + copy))
