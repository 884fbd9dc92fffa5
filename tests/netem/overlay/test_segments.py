"""TCP cut and joined: what comes out is what a network card would have made."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.overlay.segments import cut, joined
from netem.sockets.tun import GSO_ECN, NEEDS_CSUM, VNET_HDR, Outbound
from wire.checksum import internet_checksum, pseudo_header_sum
from wire.ipv4 import Ipv4
from wire.ipv6 import Ipv6

TCP, ACK, PSH, FIN, SYN, CWR, ECE = 6, 0x10, 8, 1, 2, 0x80, 0x40
ADDRESSES = {
    4: (bytes([10, 77, 0, 1]), bytes([10, 77, 0, 2])),
    6: (bytes.fromhex("fd77" + "00" * 13 + "01"), bytes.fromhex("fd77" + "00" * 13 + "02")),
}


def run(
    version, payload, mss, *, seq=0, flags=ACK, ident=7, options=b"\1\1" + bytes(10), kind=0
):
    """Return a run of TCP as a kernel hands it over."""
    source, destination = ADDRESSES[version]
    size = 20 + len(options)
    tcp = struct.pack(
        "!HHIIBBHHH", 5001, 40000, seq, 99, size // 4 << 4, flags, 512, 0, 0
    ) + options  # fmt: skip
    total = size + len(payload)
    if version == 4:
        header = bytearray(20)
        Ipv4(source, destination, TCP, 20 + total, identification=ident).pack_into(header)
    else:
        header = bytearray(40)
        Ipv6(source, destination, TCP, total & 0xFFFF).pack_into(header)
    whole = bytes(header) + tcp + payload
    gso = {4: 1, 6: 4}[version] | kind
    return Outbound(memoryview(whole), NEEDS_CSUM, gso, mss, len(header), 16)


def parts(packet):
    """Return version, IP header, TCP header and payload of a packet whose sums are right."""
    version = packet[0] >> 4
    start = 20 if version == 4 else 40
    if version == 4:
        assert internet_checksum(packet[:20]) == 0
        assert packet[2] << 8 | packet[3] == len(packet)
    else:
        assert packet[4] << 8 | packet[5] == len(packet) - 40
    source, destination = ADDRESSES[version]
    pseudo = pseudo_header_sum(source, destination, TCP, len(packet) - start)
    assert internet_checksum(packet[start:], pseudo) == 0
    head = start + (packet[start + 12] >> 4) * 4
    return version, packet[:start], packet[start:head], packet[head:]


PAYLOADS = st.integers(1, 9000).map(lambda size: random.Random(size).randbytes(size))


@given(
    st.sampled_from([4, 6]), PAYLOADS, st.integers(1, 2000), st.integers(0, 2**32 - 1),
    st.sampled_from([ACK, ACK | PSH, ACK | FIN | PSH, ACK | CWR | ECE]), st.integers(0, 0xFFFF),
    st.sampled_from([b"", b"\1" * 4, b"\1" * 12, b"\1" * 40]),
)  # fmt: skip
def test_every_piece_is_a_packet_with_right_sums(  # noqa: PLR0917 - all are drawn
    version, payload, mss, seq, flags, ident, options
):
    whole = run(version, payload, mss, seq=seq, flags=flags, ident=ident, options=options)
    packets = cut(whole)
    found = [parts(packet) for packet in packets]
    assert b"".join(body for *_, body in found) == payload
    assert [len(body) for *_, body in found[:-1]] == [mss] * (len(found) - 1)
    for number, (_, ip, tcp, _) in enumerate(found):
        assert int.from_bytes(tcp[4:8], "big") == (seq + number * mss) % 2**32
        last, first = number == len(found) - 1, number == 0
        kept = 0xFF if last else 0xFF & ~(FIN | PSH)
        assert tcp[13] == flags & kept & (0xFF if first else 0xFF & ~CWR)
        assert tcp[20:] == options
        if version == 4:
            assert int.from_bytes(ip[4:6], "big") == (ident + number) % 2**16


@given(
    st.sampled_from([4, 6]), PAYLOADS, st.integers(300, 2000), st.sampled_from([ACK, ACK | PSH])
)
def test_what_was_cut_is_joined_to_what_it_was(version, payload, mss, flags):
    whole = run(version, payload, mss, flags=flags)
    packets = cut(whole)
    (piece,) = joined(packets)
    if len(packets) == 1:
        assert piece.header is None
        return
    marks, gso, head, size, start, offset = VNET_HDR.unpack(piece.header)
    assert (marks, gso, size, start, offset) == (
        NEEDS_CSUM,
        whole.gso_type,
        mss,
        whole.csum_start,
        16,
    )
    again = Outbound(memoryview(b"".join(piece.parts)), marks, gso, size, start, offset)
    assert len(again.packet) == len(whole.packet)
    assert again.packet[head:] == payload
    assert cut(again) == packets
    # What is left to do is what a card does: the sum over TCP, with what the field has.
    assert parts(again.finished())[3] == payload


def flow(count=6, mss=1000, **more):
    return cut(run(4, random.Random(1).randbytes(count * mss), mss, **more))


def sizes(packets):
    """Return of how many packets each piece is, in order; all bytes are still there."""
    pieces = list(joined(packets))
    assert sum(len(piece.parts) - (piece.header is not None) for piece in pieces) == len(
        packets
    )
    return [len(piece.parts) - (piece.header is not None) for piece in pieces]


def changed(packet, at, value):
    """Return a packet with another byte, its sums made right."""
    raw = bytearray(packet)
    raw[at] = value
    raw[10:12] = raw[36:38] = bytes(2)
    raw[10:12] = internet_checksum(raw[:20]).to_bytes(2, "big")
    pseudo = pseudo_header_sum(raw[12:16], raw[16:20], TCP, len(raw) - 20)
    raw[36:38] = internet_checksum(raw[20:], pseudo).to_bytes(2, "big")
    return bytes(raw)


def test_trap_42_what_is_corrupt_stays_so_and_is_alone():
    packets = flow()
    bad = bytearray(packets[2])
    bad[500] ^= 1
    packets[2] = bytes(bad)
    assert sizes(packets) == [2, 1, 3]
    pieces = list(joined(packets))
    assert pieces[1].parts == (bytes(bad),)
    assert pieces[1].header is None


NO_TCP_ALONE = {
    "IPv4 with options": (0, 0x46),
    "more fragments follow": (6, 0x60),
    "a later fragment": (7, 1),
    "UDP": (9, 17),
    "TCP with options": (32, 0x60),
}


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("what", NO_TCP_ALONE)
def test_what_is_not_plain_tcp_is_not_joined_though_its_sums_are_right(what, first):
    """Nor is it behind packets that are."""
    at, value = NO_TCP_ALONE[what]
    packets = [
        changed(packet, at, value) if number >= first else packet
        for number, packet in enumerate(flow(options=b""))
    ]
    assert sizes(packets) == [first] * bool(first) + [1] * (len(packets) - first)


@pytest.mark.parametrize("at", range(20))
def test_trap_42_nor_is_an_error_healed_that_two_sums_hide(at):
    """A wrong byte of the IPv4 header; the TCP checksum is off by as much the other way."""
    packets = flow()
    raw = bytearray(packets[2])
    raw[at] ^= 0x10
    less = (raw[at] - packets[2][at]) << (8 if at % 2 == 0 else 0)
    sum_ = (int.from_bytes(raw[36:38], "big") - less) % 0xFFFF
    raw[36:38] = sum_.to_bytes(2, "big")
    packets[2] = bytes(raw)
    assert [piece.parts for piece in joined(packets)][1] == (bytes(raw),)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (1, 4), (1, 3), (5, 99), (6, 0), (8, 63), (19, 9), (21, 1), (23, 1), (27, 9), (31, 1),
        (33, ACK | ECE), (33, ACK | FIN), (33, ACK | 0x20), (34, 1), (41, 7),
    ],
)  # fmt: skip
def test_a_packet_that_differs_in_its_header_is_not_joined(at, value):
    packets = flow()
    packets[3] = changed(packets[3], at, value)
    assert 3 in sizes(packets)[:1]
    assert sizes(packets)[1] == 1


def test_what_is_pushed_or_short_ends_a_run():
    packets = flow()
    assert sizes(
        [changed(p, 33, ACK | PSH) if n == 2 else p for n, p in enumerate(packets)]
    ) == [3, 3]
    short = (
        flow(2) + cut(run(4, b"x" * 10, 1000, seq=2000, ident=9)) + flow(2, seq=2010, ident=10)
    )
    assert sizes(short) == [3, 2]


@pytest.mark.parametrize(
    "packets",
    [
        [b"\x45" + bytes(30)] * 3,
        [b"\x60" + bytes(60)] * 3,
        [bytes(1420)] * 3,
        flow(3, flags=ACK | SYN),
        [p[:40] for p in flow(3, options=b"")],
        [*flow(1), b"\x45" * 21, b"\x45"],
    ],
    ids=["short", "short ipv6", "no ip", "syn", "no payload", "of all lengths"],
)
def test_whatever_else_comes_passes_as_it_is(packets):
    assert [piece.parts for piece in joined(packets)] == [(packet,) for packet in packets]


@pytest.mark.parametrize(
    "change",
    [
        {"gso_type": 5}, {"gso_size": 0}, {"csum_start": 0}, {"csum_start": 21},
        {"csum_start": 60000}, {"packet": memoryview(b"\x45" * 30)}, {"gso_type": 3},
    ],
    ids=["kind", "no size", "start 0", "start 21", "start behind", "short", "two kinds"],
)  # fmt: skip
def test_what_is_no_run_of_tcp_is_not_cut(change):
    assert cut(run(4, bytes(3000), 1000)._replace(**change)) is None


def test_cwr_is_of_the_first_piece_alone():
    packets = cut(run(4, bytes(3000), 1000, flags=ACK | CWR, kind=GSO_ECN))
    assert [packet[33] for packet in packets] == [ACK | CWR, ACK, ACK]


@given(st.lists(st.binary(min_size=20, max_size=200), min_size=1, max_size=8))
def test_nothing_raises_whatever_was_inside(packets):
    flat = [part for piece in joined(packets) if piece.header is None for part in piece.parts]
    assert flat == packets
