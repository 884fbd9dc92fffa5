"""Pieces of TCP against packets that are worked out one field after the other."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from netem.overlay.segments import cut, joined
from netem.sockets.tun import VNET_HDR, Outbound
from tests.netem.overlay.pieces import ACK, CWR, ECE, FIN, PSH, flow, piece

BODY = random.Random(1).randbytes(70_000)
TIMES = b"\x01\x01\x08\x0a" + bytes(range(8))

fields = st.fixed_dictionaries(
    {
        "version": st.sampled_from([4, 6]),
        "sequence": st.one_of(st.integers(0, 2**32 - 1), st.just(2**32 - 1000)),
        "identification": st.one_of(st.integers(0, 0xFFFF), st.just(0xFFFE)),
        "flags": st.sampled_from([ACK, ACK | PSH, ACK | FIN | PSH, ACK | CWR, ACK | ECE]),
        "options": st.sampled_from([b"", TIMES, b"\x01" * 40]),
        "tos": st.integers(0, 255),
    }
)


@settings(max_examples=40)
@given(
    size=st.one_of(st.integers(1, 100), st.sampled_from([536, 1367, 1368, 4433, 8868])),
    count=st.integers(1, 40),
    rest=st.integers(0, 8868),
    fields=fields,
)
def test_packets_are_those_that_their_kernel_would_have_sent(size, count, rest, fields):
    payload = BODY[: min(size * (count - 1) + rest % size + 1, 65_000)]
    assert cut(piece(payload, size, **fields)) == flow(payload, size, **fields)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_what_is_joined_can_be_cut_to_the_same_packets_again(seed):
    """So a kernel that forwards a piece sends what came, and what came broken leaves broken."""
    rng = random.Random(seed)
    packets = []
    for _ in range(rng.randrange(1, 6)):
        size = rng.choice([1, 99, 100, 1368, 8868])
        packets += flow(
            BODY[: rng.randrange(1, min(9 * size, 65_000) + 1)],
            size,
            version=rng.choice([4, 4, 6]),
            sequence=rng.choice([1000, 2**32 - 150]),
            flags=rng.choice([ACK, ACK | PSH, ACK | FIN]),
            options=rng.choice([b"", TIMES]),
        )
    for _ in range(rng.randrange(4)):
        number = rng.randrange(len(packets))
        match rng.randrange(3):
            case 0:
                broken = bytearray(packets[number])
                broken[rng.choice([1, 8, *range(20, len(broken))])] ^= 1 << rng.randrange(8)
                packets[number] = bytes(broken)
            case 1:
                packets.insert(rng.randrange(len(packets) + 1), packets[number])
            case 2:
                packets.insert(number, packets.pop())
    for begin in range(
        0, len(packets), 7
    ):  # trains: pieces of one are no longer than IP allows
        train = packets[begin : begin + 7]
        again = [packet for one in joined(train) for packet in packets_of(one)]
        assert again == train


def packets_of(one):
    """Return what a kernel that forwards it makes of a piece."""
    packet = b"".join(one.parts)
    if one.header is None:
        return [packet]
    flags, kind, header, size, start, offset = VNET_HDR.unpack(one.header)
    assert header == start + (packet[start + 12] >> 4) * 4
    return cut(Outbound(memoryview(packet), flags, kind, size, start, offset))
