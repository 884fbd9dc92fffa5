"""TCP in pieces: cut what the kernel hands over whole, join what it may take whole.

With offloads a TUN's kernel sends runs of up to 64 KiB of TCP with one header, to be cut into
packets with headers and checksums of their own (RFC 9293; virtio 1.2, section 5.1.6.2). The
other way a run costs the kernel as much as one packet does.

**A packet is only joined if its checksums are right**, since a run gets new ones: what was
corrupt before it came into the tunnel must stay so (trap 42). Nor is it if anything in its
header differs from the one before it but for what a cut changes: then the pieces are as before.

Sums are modulo 0xFFFF, where 2^16 is 1: so a long integer is the sum of its own words, a
sequence number that of its halves, and 32-bit words add up to what 16-bit ones do. Those of
many packets at once are numpy's business: five microseconds each otherwise. It is imported here
and nowhere else, since it costs a process 20 MiB.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

import numpy as np

from netem.sockets.tun import GSO_ECN, GSO_TCPV4, GSO_TCPV6, NEEDS_CSUM, VNET_HDR, Outbound
from wire.codec import ReadBuffer
from wire.ipv4 import IPV4, Protocol
from wire.ipv6 import IPV6

_TCP_HEADER = 20
_OFFSET, _CSUM = 12, 16  # of the TCP header
_FIN, _PSH, _ACK, _CWR = 0x01, 0x08, 0x10, 0x80
_FEW = 1024  # bytes: for less, numpy's own cost is the larger one
_WORD = 4

_Head = tuple[bytes, int, int, bytes, int, bytes, int, bytes, int, bytes, int, bytes]


class Piece(NamedTuple):
    """What the kernel is to receive by one call."""

    parts: Sequence[ReadBuffer]
    header: bytes | None = None  # virtio_net_hdr; None: a packet as it is
    packets: Sequence[bytes] = ()  # that are joined in it


@lru_cache(maxsize=64)
def _layout(tcp: int, head: int, *, is_v4: bool) -> Struct:
    """Return how an IP and TCP header is read, `head` bytes of which TCP begins at `tcp`.

    What a cut changes stands alone: length, identification and checksum of IPv4 (of IPv6 the
    latter two are no bytes), sequence, flags and checksum of TCP.
    """
    start = "2sHH4sH" if is_v4 else "4sH0H2s0H"
    before = tcp + 4 - (IPV4.size - 8 if is_v4 else 8)
    return Struct(f"!{start}{before}sI5sB2sH{head - tcp - 18}s")


def cut(outbound: Outbound) -> list[bytes] | None:
    """Return the packets of a run of TCP, all of one size but the last; None: it is none."""
    kind, whole = outbound.gso_type & ~GSO_ECN, outbound.packet
    mss, tcp = outbound.gso_size, outbound.csum_start
    is_v4 = kind == GSO_TCPV4
    least = IPV4.size if is_v4 else IPV6.size
    if kind not in {GSO_TCPV4, GSO_TCPV6} or not mss or tcp < least or tcp % _WORD:
        return None
    if len(whole) < tcp + _TCP_HEADER:
        return None
    head = tcp + (whole[tcp + _OFFSET] >> 4) * _WORD
    payload = whole[head:]
    if head < tcp + _TCP_HEADER or not payload:
        return None
    layout = _layout(tcp, head, is_v4=is_v4)
    fields = _read(layout, whole, is_v4=is_v4)
    a, _, ident, b, _, c, seq, d, flags, window, _, rest = fields
    base = _sum(c[-4:] + d + b"\0" + window + rest) + _pseudo(whole, is_v4=is_v4)
    of_ip = _sum(a) + _sum(b) + _sum(c[:-4])
    sums = _payload_sums(payload, mss)
    last = len(sums) - 1
    middle = flags & ~(_FIN | _PSH)
    first_only = 0xFF & ~_CWR
    packets = []
    pack = layout.pack
    for number, sum_ in enumerate(sums):  # bench: overlay
        piece = payload[number * mss : (number + 1) * mss]
        mark = (flags if number == last else middle) & (first_only if number else 0xFF)
        size = head + len(piece)
        checksum = -(base + seq + mark + size - tcp + sum_) % 0xFFFF
        if is_v4:
            of_header = -(of_ip + size + ident) % 0xFFFF
            header = pack(a, size, ident, b, of_header, c, seq, d, mark, window, checksum, rest)
            ident = ident + 1 & 0xFFFF
        else:
            header = pack(a, size - IPV6.size, b, c, seq, d, mark, window, checksum, rest)
        packets.append(b"".join((header, piece)))
        seq = seq + mss & 0xFFFFFFFF
    return packets


def joined(packets: Sequence[bytes]) -> Iterator[Piece]:
    """Yield packets for the kernel, runs of TCP in one piece each, in their order."""
    plan = _joinable(packets)
    if plan is None:
        for packet in packets:
            yield Piece((packet,))
        return
    tcp, head, breaks = plan
    begin = 0
    for end in (*breaks, len(packets)):
        if end - begin == 1:
            yield Piece((packets[begin],))
        else:
            yield _run(packets[begin:end], tcp, head)
        begin = end


def _run(packets: Sequence[bytes], tcp: int, head: int) -> Piece:
    """Return packets that continue each other as one."""
    first, last = packets[0], packets[-1]
    is_v4 = first[0] >> 4 == 4
    size = sum(map(len, packets)) - head * (len(packets) - 1)
    layout = _layout(tcp, head, is_v4=is_v4)
    a, _, ident, b, _, c, seq, d, _, window, _, rest = _read(layout, first, is_v4=is_v4)
    flags = last[tcp + _OFFSET + 1]
    partial = (_pseudo(first, is_v4=is_v4) + size - tcp) % 0xFFFF
    if is_v4:
        of_header = -(_sum(a) + _sum(b) + _sum(c[:-4]) + size + ident) % 0xFFFF
        header = layout.pack(
            a, size, ident, b, of_header, c, seq, d, flags, window, partial, rest
        )
    else:
        header = layout.pack(a, size - IPV6.size, b, c, seq, d, flags, window, partial, rest)
    kind = GSO_TCPV4 if is_v4 else GSO_TCPV6
    vnet = VNET_HDR.pack(NEEDS_CSUM, kind, head, len(first) - head, tcp, _CSUM)
    return Piece([header, *[memoryview(packet)[head:] for packet in packets]], vnet, packets)


def _joinable(packets: Sequence[bytes]) -> tuple[int, int, list[int]] | None:
    """Return where TCP and its payload begin, and where a packet does not continue the last.

    None where that is not worth asking.
    """
    first = packets[0]
    is_v4 = first[0] == 0x45
    tcp = IPV4.size if is_v4 else IPV6.size
    if len(packets) < 2 or len(first) <= tcp + _TCP_HEADER:
        return None
    protocol = first[9] if is_v4 else first[6]
    head = tcp + (first[tcp + _OFFSET] >> 4) * _WORD
    if protocol != Protocol.TCP or not tcp + _TCP_HEADER <= head < len(first):
        return None
    if min(map(len, packets)) <= head:
        return None
    layout = _layout(tcp, head, is_v4=is_v4)
    version, offset = 0xFF if is_v4 else 0xF0, (head - tcp) // _WORD
    addresses = first[12:20] if is_v4 else first[8:40]
    base = 0xFFFF - _pseudo(first, is_v4=is_v4) % 0xFFFF
    breaks: list[int] = []
    before: _Head | None = None
    following = ident = largest = 0
    for number, (packet, sum_) in enumerate(
        zip(packets, _sums(packets, 0 if is_v4 else tcp), strict=True)
    ):  # bench: overlay
        fields = _read(layout, packet, is_v4=is_v4)
        a, length, own, b, _, c, seq, d, flags, window, _, rest = fields
        size = len(packet)
        # Good is what is TCP as the first is, whole, between the same two, and right.
        good = (
            (sum_ + size - tcp) % 0xFFFF == base % 0xFFFF
            and packet[0] & version == (0x45 if is_v4 else 0x60)
            and b[-1 if is_v4 else 0] == Protocol.TCP
            and d[-1] >> 4 == offset
            and c[:-4] == addresses
            and not (is_v4 and (b[0] & 0x3F or b[1] or _sum(packet[: IPV4.size])))
            and length == (size if is_v4 else size - IPV6.size)
            and flags & ~_PSH == _ACK
        )
        if before is not None and not (
            good
            and seq == following
            and size <= largest
            and a == before[0]
            and b == before[3]
            and c == before[5]
            and d == before[7]
            and window == before[9]
            and rest == before[11]
            and (own == ident or not is_v4)
        ):
            before = None
        if before is None:
            if number:
                breaks.append(number)
            largest = size
        # A run ends with what is shorter or pushed; and what is not good begins none.
        ends = not good or flags & _PSH or size < largest
        before = None if ends else fields
        following, ident = seq + size - head & 0xFFFFFFFF, own + 1 & 0xFFFF
    return tcp, head, breaks


def _read(layout: Struct, packet: ReadBuffer, *, is_v4: bool) -> _Head:
    """Return the fields of a header, those that IPv6 has not as zero."""
    fields = layout.unpack_from(packet)
    if is_v4:
        return fields
    a, length, b, *others = fields
    return (a, length, 0, b, 0, *others)


def _pseudo(packet: ReadBuffer, *, is_v4: bool) -> int:
    """Return the sum of the pseudo-header of TCP without its length."""
    return _sum(packet[12:20] if is_v4 else packet[8:40]) + Protocol.TCP


def _sum(data: ReadBuffer) -> int:
    """Return the sum of the 16-bit words of a buffer of whole words."""
    return int.from_bytes(data, "big") % 0xFFFF


def _payload_sums(payload: memoryview, mss: int) -> list[int]:
    """Return the sum of each `mss` bytes, of which the last may be less."""
    count = -(-len(payload) // mss)
    whole = 0 if len(payload) < _FEW or mss % _WORD else len(payload) // mss
    sums = _row_sums(payload[: whole * mss], mss, 0) if whole else []
    for number in range(whole, count):
        piece = payload[number * mss : (number + 1) * mss]
        sums.append(_any_sum(piece))
    return sums


def _sums(packets: Sequence[bytes], start: int) -> list[int]:
    """Return the sum of each packet from `start` on; of a right IPv4 header it is zero."""
    size, whole = len(packets[0]), 0
    if size % _WORD == 0:
        whole = next((n for n, one in enumerate(packets) if len(one) != size), len(packets))
    if whole * size < _FEW:
        whole = 0
    sums = _row_sums(b"".join(packets[:whole]), size, start) if whole else []
    for packet in packets[whole:]:
        sums.append(_any_sum(memoryview(packet)[start:]))
    return sums


def _any_sum(data: memoryview) -> int:
    """Return the sum of a buffer of any size; of an odd one the last byte is a high half."""
    whole = len(data) // _WORD * _WORD if len(data) >= _FEW else 0
    rest = int.from_bytes(data[whole:], "big") * (1 + 255 * (len(data) & 1))
    return (rest + (_row_sums(data[:whole], whole, 0)[0] if whole else 0)) % 0xFFFF


def _row_sums(data: ReadBuffer, size: int, start: int) -> list[int]:
    """Return the sums of rows of `size` bytes, each from `start` on; both are whole words.

    A sum of words read the wrong way round is the sum with its own bytes the wrong way round:
    RFC 1071, section 2.
    """
    words = np.frombuffer(data, np.dtype("<u4")).reshape(-1, size // _WORD)
    swapped = words[:, start // _WORD :].sum(axis=1, dtype=np.uint64).tolist()
    found = [value % 0xFFFF for value in swapped]
    return [value >> 8 | (value & 0xFF) << 8 for value in found]
