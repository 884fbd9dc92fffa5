"""Where messages lie: no two in flight share memory, and both ends say the same."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from netem.host.layout import MAX_DEPTH, Layout, LayoutError, Messages
from netem.topology.plan import WorkPlan

WRITE = "{op: write, from: h0, to: h1, size: 1000B, count: 600}"


def taken(layout, works, most=10_000):
    messages = Messages(layout, works)
    found = []
    while len(found) < most and (message := messages.take()) is not None:
        found.append(message)
    return found


def mixed(requester, responder, *works, size=1 << 16, recv_size=100, recv_count=9):
    """Return both ends with these works and regions of `size`."""
    region = replace(requester.region, size=size)
    remote = replace(responder.region, size=size)
    return (
        replace(requester, work=works, region=region, remote=remote),
        replace(
            responder, region=remote, remote=region, recv_size=recv_size, recv_count=recv_count
        ),
    )


@pytest.mark.parametrize(
    "item",
    [
        pytest.param("{op: write, from: h0, to: h1, size: 1000B, count: 600}", id="write"),
        pytest.param("{op: read, from: h0, to: h1, size: 1B, count: 600}", id="read of 1 byte"),
        pytest.param("{op: write_imm, from: h0, to: h1, size: 0B, count: 600}", id="empty"),
        pytest.param("{op: write, from: h0, to: h1, size: 1MiB, count: 9}", id="large"),
    ],
)
def test_messages_in_flight_never_share_memory(make_ends, item):
    requester, responder = make_ends(item)
    layout = Layout(requester, responder)
    messages = taken(layout, requester.work)
    for first in range(0, len(messages), 97):
        flight = messages[first : first + layout.depth]
        size = requester.work[0].size
        for places, region in (
            ([m.remote for m in flight], responder.region.size),
            ([layout.local(m.number) for m in flight], requester.region.size),
        ):
            spans = sorted((place, place + size) for place in places)
            assert all(stop <= start for (_, stop), (start, _) in pairwise(spans))
            assert spans[-1][1] <= region
            assert all(place % 8 == 0 for place in places)


def test_depth_is_bounded_however_large_the_region(make_ends):
    requester, responder = make_ends(WRITE)
    layout = Layout(*mixed(requester, responder, *requester.work, size=1 << 24))
    assert layout.depth == MAX_DEPTH


def test_kinds_of_work_have_places_of_their_own(make_ends):
    works = (
        WorkPlan(0, "write", 100, 20),
        WorkPlan(0, "read", 60, 20),
        WorkPlan(0, "send", 100, 20),
        WorkPlan(0, "fetch_add", 8, 20),
    )
    layout = Layout(*mixed(*make_ends(WRITE), *works))
    messages = taken(layout, works)
    places = {op: {m.remote for m in messages if m.work.op == op} for op in ("write", "read")}
    spans = {
        "write": (min(places["write"]), max(places["write"]) + 100),
        "read": (min(places["read"]), max(places["read"]) + 60),
        "receive": (layout.receive(0), layout.receive(19) + 100),
        "atomic": (0, 8),
    }
    ordered = sorted(spans.values())
    assert all(stop <= start for (_, stop), (start, _) in pairwise(ordered))
    assert {m.remote for m in messages if m.work.op == "fetch_add"} == {0}
    offset, size = layout.readable
    assert offset <= spans["read"][0] < spans["read"][1] <= offset + size


def test_a_message_takes_the_next_words_of_the_stream_and_the_next_receive(make_ends):
    works = (
        WorkPlan(0, "send", 9, 2),
        WorkPlan(0, "write", 3, 1),
        WorkPlan(0, "write_imm", 0, 2),
    )
    layout = Layout(*mixed(*make_ends(WRITE), *works))
    messages = taken(layout, works)
    start = messages[0].position
    assert [m.position - start for m in messages] == [0, 16, 32, 40, 40]
    assert [m.receive for m in messages] == [0, 1, None, 2, 3]
    assert [m.is_last for m in messages] == [False, True, True, False, True]


def test_a_list_of_works_may_grow_after_it_was_walked(make_ends):
    requester, responder = make_ends(WRITE)
    works = [WorkPlan(0, "write", 8)]
    messages = Messages(Layout(requester, responder), works)
    assert messages.take().number == 0
    assert messages.take() is None
    works.append(WorkPlan(1, "write", 8))
    assert messages.take().number == 1


def test_an_offset_that_leads_out_of_the_region_does(make_ends):
    requester, responder = make_ends(
        "{op: write, from: h0, to: h1, size: 64B, remote_offset: 1B}"
    )
    (message,) = taken(Layout(requester, responder), requester.work)
    assert message.remote + 64 > responder.region.size


def test_an_offset_inside_the_region_stays_inside(make_ends):
    requester, responder = make_ends(
        "{op: write, from: h0, to: h1, size: 64B, count: 9, remote_offset: 16B, region: 1KiB}"
    )
    layout = Layout(requester, responder)
    for message in taken(layout, requester.work):
        assert 16 <= message.remote <= responder.region.size - 64


def test_a_target_too_small_is_there_to_fail_a_source_too_small_is_a_mistake(make_ends):
    requester, responder = make_ends(WRITE)
    small = replace(responder, region=replace(responder.region, size=8))
    (first, *_) = taken(Layout(requester, small), requester.work)
    assert first.remote + 1000 > 8
    with pytest.raises(LayoutError, match="holds no message"):
        Layout(replace(requester, region=replace(requester.region, size=8)), responder)


@pytest.mark.parametrize(
    ("work", "why"),
    [
        pytest.param(WorkPlan(1, "write", 2000), "at most 1000 bytes", id="too long"),
        pytest.param(WorkPlan(1, "read", 8), "0 bytes per read", id="a kind without places"),
        pytest.param(WorkPlan(1, "fetch_add", 8), "no word for atomics", id="an atomic"),
    ],
)
def test_work_that_the_plan_left_no_room_for_is_refused(make_ends, work, why):
    with pytest.raises(LayoutError, match=why):
        Layout(*make_ends(WRITE)).check(work)
