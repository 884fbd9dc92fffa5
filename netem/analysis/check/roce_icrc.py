"""The ICRC of RoCE v2 for a loop that looks at every packet: over integers, without copies.

The same as `wire.roce.icrc`, which is the definition; a test holds them together.
"""

from wire.roce.icrc import LRH_CRC, RESIDUE, crc32

LEAST = 8 + 12 + 4  # UDP, BTH, ICRC

# Ones where the ICRC does not look, up to DestQP.
_V4_HEAD, _V6_HEAD = 20 + 8 + 8, 40 + 8 + 8
_V4_ONES = int.from_bytes(
    b"\0\xff" + bytes(6) + b"\xff\0\xff\xff" + bytes(14) + b"\xff\xff" + bytes(4)
    + b"\xff\0\0\0", "big",
)  # fmt: skip
_V6_ONES = int.from_bytes(
    b"\x0f\xff\xff\xff" + bytes(3) + b"\xff" + bytes(38) + b"\xff\xff" + bytes(4)
    + b"\xff\0\0\0", "big",
)  # fmt: skip


def is_intact(data: bytes, ip: int, udp: int, end: int) -> bool:
    """Say whether the packet that ends before `end` has the ICRC of its bytes."""
    return bool(crc32(data[udp + 16 : end], prefix(data, ip, udp)) == RESIDUE)


def prefix(data: bytes, ip: int, udp: int) -> int:
    """Return the CRC of a packet up to the DestQP of its BTH."""
    return _v6_prefix(data, ip) if udp - ip == 40 else _v4_prefix(data, ip)


def _v6_prefix(data: bytes, ip: int) -> int:
    """Return the CRC of an IPv6 packet up to the DestQP of its BTH."""
    head = int.from_bytes(data[ip : ip + _V6_HEAD], "big") | _V6_ONES
    crc: int = crc32(head.to_bytes(_V6_HEAD, "big"), LRH_CRC)
    return crc


def _v4_prefix(data: bytes, ip: int) -> int:
    """Return the same of an IPv4 packet."""
    head = int.from_bytes(data[ip : ip + _V4_HEAD], "big") | _V4_ONES
    crc: int = crc32(head.to_bytes(_V4_HEAD, "big"), LRH_CRC)
    return crc
