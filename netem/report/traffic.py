"""What a capture says over time: payload that hosts sent, by plane."""

from collections.abc import Iterable
from pathlib import Path

from netem.analysis.check.link import IPV4, IPV6, UDP, layers, network
from netem.analysis.check.rows import MRC, ROWS
from netem.analysis.records import CaptureReader
from wire.codec import DecodeError
from wire.mrc.bth import MrcBth
from wire.mrc.opcodes import WRITES
from wire.mrc.options import PORTS
from wire.mrc.packet import headers_size
from wire.pcapng import LINKTYPE_ETHERNET

BINS = 120
_NOT_NEW = ("retransmission", "dropped", "duplicated")


def payload_of(frame: bytes) -> int:
    """Return the bytes of payload that a RoCE or MRC data packet carries, 0 for all else."""
    ethertype, start = network(LINKTYPE_ETHERNET, frame)
    found = list(layers(frame, ethertype, start)) if ethertype in {IPV4, IPV6} else []
    if not found or found[-1].protocol != UDP or len(frame) < found[-1].payload + 20:
        return 0
    udp = found[-1].payload
    length, opcode, pad = frame[udp + 4] << 8 | frame[udp + 5], frame[udp + 8], frame[udp + 9]
    row = ROWS[opcode]
    if frame[udp + 2] << 8 | frame[udp + 3] not in PORTS or not row.name:
        return 0
    headers = row.headers
    if row.kind == MRC:
        if opcode not in WRITES:
            return 0
        try:
            headers = headers_size(MrcBth.unpack_from(frame, udp + 8))
        except DecodeError:
            return 0
    return max(length - 24 - headers - (pad >> 4 & 3), 0)


def by_plane(capture: Path, hosts: Iterable[str]) -> tuple[dict[str, list[float]], float]:
    """Return Gbit/s of new payload that hosts sent, per port name and bin, and the end in us.

    What is sent again, and what a link dropped at once, does not count.
    """
    senders = set(hosts)
    found: list[tuple[int, str, int]] = []
    first = last = -1
    with capture.open("rb") as file:
        reader = CaptureReader(file)
        ports: list[str] = []
        for _, at, where, frame, _, comment, _ in reader.records():
            if where >= len(ports):
                ports = [
                    one.name.partition(":")[2] if one.node in senders else ""
                    for one in reader.interfaces
                ]
            first = at if first < 0 else first
            last = max(last, at)
            port = ports[where]
            if port and not (comment and comment.startswith(_NOT_NEW)):
                size = payload_of(frame)
                if size:
                    found.append((at, port, size))
    length = max(last - first, 1)
    sums: dict[str, list[float]] = {}
    for at, port, size in found:
        bins = sums.setdefault(port, [0.0] * BINS)
        bins[min((at - first) * BINS // length, BINS - 1)] += size
    scale = 8 * BINS / length  # bytes of a bin to Gbit/s: bits per nanosecond
    rates = {port: [one * scale for one in bins] for port, bins in sorted(sums.items())}
    return rates, length / 1000
