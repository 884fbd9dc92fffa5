"""Against wireguard-go and the clock of the wall: renewals, keepalives, silence.

Everything here is on a virtual clock in tests/transports/overlay/test_timers.py. What is played
in CI began with the first test of this folder (conftest.py) and is only asked for its end.
"""

from itertools import pairwise

import pytest

from transports.clock import S

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.needs("netns", "tap", "wireguard_go", "wg", "ping"),
]
soak = pytest.mark.soak


def times(told, way, kind):
    return [at for at, *what in told["log"] if what[:2] == [way, kind]]


def gaps(times):
    return [later - earlier for earlier, later in pairwise(times)]


@pytest.mark.parametrize("story", ["keepalives"])
def test_keepalives_of_both_answer_for_data_after_ten_seconds(told):
    (theirs,) = [at for at, way, _, size in told["log"] if (way, size) == ("in", 32)]
    assert 9.9 * S < theirs - told["first"] < 11 * S
    (ours,) = [at for at, way, _, size in told["log"] if (way, size) == ("out", 32)]
    (data,) = [at for at, way, *_ in told["log"] if way == "in" and at > told["second"]]
    assert 9.9 * S < ours - data < 11 * S
    assert told["roles"] == ["INITIATOR"]


@pytest.mark.parametrize(
    ("story", "role", "way"),
    [("they_renew", "RESPONDER", "in"), ("we_renew", "INITIATOR", "out")],
)
def test_trap_69_a_session_is_renewed_after_two_minutes_without_loss(told, role, way):
    assert told["loss"]
    assert told["roles"] == [role] * 2
    (gap,) = gaps(times(told, way, "initiation"))
    assert 119.9 * S < gap < 122 * S
    assert told["refused"] == {}


@soak
@pytest.mark.parametrize("story", ["silence"])
def test_who_is_not_answered_begins_anew_twenty_times(told):
    begun = [at for at in times(told, "in", "initiation") if at > told["deaf"]]
    assert len(begun) == 20
    assert 10 * S < begun[0] - told["deaf"] < 17 * S
    assert all(4.9 * S < gap < 5.6 * S for gap in gaps(begun))


@soak
@pytest.mark.parametrize("story", ["idleness"])
def test_after_a_long_silence_the_next_packet_makes_a_session(told):
    assert told["answered"] == [True] * 3
    assert told["roles"] == ["INITIATOR", "INITIATOR", "RESPONDER"]
