"""What holds for every RoCE packet of an endpoint, whatever a case is about.

The ICRC is computed here from the rule alone (IBTA vol. 1, section 7.8 and annex A17) with the
standard library's CRC, so that the codecs that may have made it do not judge themselves.
"""

import zlib
from collections.abc import Iterator

from wire.codec import DecodeError
from wire.roce.packet import locate

_V4_ONES = (1, 8, 10, 11, 26, 27, 32)  # TOS, TTL, header checksum, UDP checksum, BTH byte 4
_V6_ONES = (1, 2, 3, 7, 46, 47, 52)  # class and label, hop limit, UDP checksum, BTH byte 4


def broken(frame: bytes) -> Iterator[tuple[str, str]]:
    """Yield (clause, what is wrong) for each rule that a frame with a RoCE packet breaks."""
    try:
        place = locate(frame)
    except DecodeError as error:
        yield "roce/W14", f"no RoCE packet: {error}"
        return
    packet = frame[place.ip_offset :]
    end = place.icrc_offset - place.ip_offset
    if packet[end : end + 4] != zlib.crc32(_masked(packet[:end])).to_bytes(4, "little"):
        yield "roce/W1", f"ICRC is {packet[end : end + 4].hex()}, not what the bytes ask for"
    bth = place.bth_offset - place.ip_offset
    pad = packet[bth + 1] >> 4 & 3
    if (end - bth) % 4:
        yield "roce/W14", f"BTH to ICRC is {end - bth} bytes, no multiple of 4"
    if any(packet[end - pad : end]):
        yield "roce/W14", f"pad is {packet[end - pad : end].hex()}, not zero"
    if packet[bth + 1] & 0xF:
        yield "roce/W15", f"transport version is {packet[bth + 1] & 0xF}"
    if packet[0] >> 4 == 4 and packet[6:8] != b"\x40\x00":
        yield "roce/W12", f"IPv4 flags and offset are {packet[6:8].hex()}, not DF alone"


def _masked(packet: bytes) -> bytes:
    masked = bytearray(packet)
    if masked[0] >> 4 == 4:
        ones = _V4_ONES
    else:
        ones = _V6_ONES
        masked[0] |= 0x0F
    for at in ones:
        masked[at] = 0xFF
    return b"\xff" * 8 + masked
