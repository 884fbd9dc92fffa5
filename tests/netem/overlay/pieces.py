"""Pieces of TCP, and what they stand for: worked out one field after the other."""

from ipaddress import ip_address

from netem.sockets.tun import GSO_TCPV4, GSO_TCPV6, NEEDS_CSUM, Outbound
from wire.checksum import internet_checksum

ACK, PSH, FIN, CWR, ECE = 0x10, 0x08, 0x01, 0x80, 0x40
ENDS = {4: ("10.0.0.1", "10.0.0.2"), 6: ("fd77::1", "fd77::2")}


def tcp(
    payload,
    *,
    version=4,
    sequence=1000,
    identification=7,
    flags=ACK,
    ack=77,
    options=b"",
    ttl=64,
    tos=0,
    df=True,
    ports=(4000, 5001),
):
    """Return one packet, its checksums right."""
    source, destination = (ip_address(end).packed for end in ENDS[version])
    size = 20 + len(options)
    head = bytearray(size)
    head[0:4] = b"".join(port.to_bytes(2, "big") for port in ports)
    head[4:8] = (sequence & 0xFFFF_FFFF).to_bytes(4, "big")
    head[8:12] = ack.to_bytes(4, "big")
    head[12:14] = bytes((size // 4 << 4, flags))
    head[14:16] = b"\x01\xf4"
    head[20:] = options
    length = size + len(payload)
    pseudo = source + destination + bytes((0, 6)) + length.to_bytes(2, "big")
    head[16:18] = internet_checksum(pseudo + head + payload).to_bytes(2, "big")
    if version == 6:
        ip = bytearray(8)
        ip[0:2] = bytes((0x60 | tos >> 4, (tos & 15) << 4))
        ip[4:8] = length.to_bytes(2, "big") + bytes((6, ttl))
        return bytes(ip + source + destination + head + payload)
    ip = bytearray(20)
    ip[0:2] = bytes((0x45, tos))
    ip[2:4] = (20 + length).to_bytes(2, "big")
    ip[4:6] = (identification & 0xFFFF).to_bytes(2, "big")
    ip[6:10] = bytes((0x40 if df else 0, 0, ttl, 6))
    ip[12:] = source + destination
    ip[10:12] = internet_checksum(ip).to_bytes(2, "big")
    return bytes(ip + head + payload)


def flow(payload, size, *, sequence=1000, identification=7, flags=ACK, **fields):
    """Return the packets that a stack sends `payload` in, `size` bytes each."""
    parts = [payload[at : at + size] for at in range(0, len(payload), size)]
    last = len(parts) - 1
    return [
        tcp(
            part,
            sequence=sequence + number * size,
            identification=identification + number,
            flags=flags & ~(0 if number == last else FIN | PSH) & ~(CWR if number else 0),
            **fields,
        )
        for number, part in enumerate(parts)
    ]


def piece(payload, size, **fields):
    """Return the same as a kernel hands it over: one packet, its checksum to be finished."""
    whole = bytearray(tcp(payload, **fields))
    is_v4 = whole[0] >> 4 == 4
    start = 20 if is_v4 else 40
    addresses = whole[12:20] if is_v4 else whole[8:40]
    length = len(whole) - start
    partial = 0xFFFF - internet_checksum(bytes(addresses) + bytes((0, 6)), length)
    whole[start + 16 : start + 18] = partial.to_bytes(2, "big")
    kind = GSO_TCPV4 if is_v4 else GSO_TCPV6
    return Outbound(memoryview(whole), NEEDS_CSUM, kind, size, start, 16)
