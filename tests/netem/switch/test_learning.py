"""The learning bridge: IEEE 802.1D-2004, clauses 7.7 to 7.9."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.switch.learning import AGEING_TIME, LearningBridge

A, B = b"\x02\0\0\0\0\1", b"\x02\0\0\0\0\2"
GROUP = b"\x33\x33\0\0\0\1"


def frame(dst, src):
    return dst + src + b"\x86\xdd" + bytes(46)


@pytest.fixture
def bridge():
    return LearningBridge(["e0", "e1", "e2"])


def test_an_unknown_destination_is_flooded_but_not_back(bridge):
    assert bridge.forward("e1", frame(B, A), 0) == ("e0", "e2")


def test_an_address_is_learned_from_what_it_sends(bridge):
    bridge.forward("e0", frame(B, A), 0)
    assert bridge.forward("e2", frame(A, B), 1) == ("e0",)


def test_a_frame_for_its_own_side_is_filtered(bridge):
    bridge.forward("e0", frame(B, A), 0)
    assert bridge.forward("e0", frame(A, B), 1) == ()


def test_an_address_that_moves_is_found_at_its_new_port(bridge):
    bridge.forward("e0", frame(B, A), 0)
    bridge.forward("e1", frame(B, A), 1)
    assert bridge.forward("e2", frame(A, B), 2) == ("e1",)


def test_a_silent_address_ages_out(bridge):
    bridge.forward("e0", frame(B, A), 0)
    assert bridge.forward("e2", frame(A, B), AGEING_TIME) == ("e0",)
    assert bridge.forward("e2", frame(A, B), AGEING_TIME + 1) == ("e0", "e1")


def test_group_addresses_are_flooded(bridge):
    assert bridge.forward("e0", frame(GROUP, A), 0) == ("e1", "e2")
    assert bridge.forward("e0", frame(b"\xff" * 6, A), 0) == ("e1", "e2")


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(frame(b"\x01\x80\xc2\0\0\x0e", A), id="reserved group address"),
        pytest.param(frame(B, GROUP), id="group address as source"),
        pytest.param(b"", id="empty"),
        pytest.param(frame(B, A)[:13], id="cut in the EtherType"),
    ],
)
def test_what_must_not_be_forwarded_is_refused_and_teaches_nothing(bridge, bad):
    assert bridge.forward("e0", bad, 0) == ()
    assert (bridge.refused, len(bridge)) == (1, 0)


def test_the_table_is_bounded_and_the_oldest_makes_room():
    bridge = LearningBridge(["e0", "e1", "e2"], max_addresses=2)
    sources = [bytes([2, 0, 0, 0, 9, n]) for n in range(3)]
    for at, src in enumerate(sources):
        bridge.forward("e0", frame(B, src), at)
    assert len(bridge) == 2
    assert bridge.forward("e1", frame(sources[2], B), 3) == ("e0",)
    assert bridge.forward("e1", frame(sources[0], B), 4) == ("e0", "e2")


@given(st.lists(st.tuples(st.sampled_from(["e0", "e1"]), st.binary(max_size=40)), max_size=30))
def test_any_frame_is_survived(frames):
    bridge = LearningBridge(["e0", "e1"], max_addresses=8)
    for at, (port, data) in enumerate(frames):
        assert port not in bridge.forward(port, data, at)
    assert len(bridge) <= 8
