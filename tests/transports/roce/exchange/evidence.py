"""What tools said to each other in captures beside the checkout: items in order, by side."""

from typing import NamedTuple

from tests.wire.roce.evidence import RXE, frames
from wire import pcap

PORT = 18515
CONTROL_SENDS = 0x04  # RC SEND Only


class Said(NamedTuple):
    """One item, as it was written."""

    by_client: bool
    data: bytes


def over_tcp(name):
    """Return what went over the TCP connection, segment by segment, resends left out."""
    said, seen = [], set()
    for record in pcap.read((RXE / f"{name}.pcap").read_bytes()).records:
        frame = record.data
        is_v4 = frame[14] >> 4 == 4
        if frame[23 if is_v4 else 20] != 6:
            continue
        at = 34 if is_v4 else 54
        length = int.from_bytes(frame[16:18] if is_v4 else frame[18:20], "big")
        end = 14 + length if is_v4 else 54 + length
        source = int.from_bytes(frame[at : at + 2], "big")
        key = source, frame[at + 4 : at + 8]
        data = frame[at + (frame[at + 12] >> 4) * 4 : end]
        if data and key not in seen:
            seen.add(key)
            said.append(Said(source != PORT, data))
    return said


def over_sends(name):
    """Return the messages of the control connection, the first that the CM made."""
    said, seen = [], set()
    control = None
    for frame in frames(RXE / f"{name}.pcap"):
        bth = 42 if frame[14] >> 4 == 4 else 62
        qpn = int.from_bytes(frame[bth + 5 : bth + 8], "big")
        if frame[bth] != CONTROL_SENDS:
            continue
        control = qpn if control is None else control
        key = frame[29], frame[bth + 9 : bth + 12]
        pad = frame[bth + 1] >> 4 & 3
        if qpn == control and key not in seen:
            seen.add(key)
            said.append(Said(frame[29] == 1, frame[bth + 12 : len(frame) - 4 - pad]))
    return said
