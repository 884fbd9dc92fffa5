"""Which items are complete on all their flows."""

from netem.host.coordinator import Coordinator

TWO_FLOWS = "{op: write, from: h0, to: h1, size: 8B, qps: 2}"


def test_an_item_is_released_when_its_last_flow_is_done_and_once(make_plan):
    coordinator = Coordinator(
        make_plan(TWO_FLOWS, "{op: read, from: h1, to: h0, size: 8B, after: 0}")
    )
    assert (coordinator.finished, coordinator.total, coordinator.done) == (0, 3, False)
    assert coordinator.item_done("0/h0->h1/0", 0) == []
    assert coordinator.item_done("0/h0->h1/0", 0) == []  # said twice
    assert coordinator.item_done("0/h0->h1/1", 0) == [0]
    assert coordinator.item_done("0/h0->h1/1", 0) == []
    assert coordinator.missing() == ["1/h1->h0/0"]
    assert coordinator.item_done("1/h1->h0/0", 1) == []
    assert (coordinator.finished, coordinator.done, coordinator.missing()) == (3, True, [])


def test_what_is_not_in_the_plan_counts_for_nothing(make_plan):
    coordinator = Coordinator(make_plan(TWO_FLOWS))
    assert coordinator.item_done("7/x->y/0", 0) == coordinator.item_done("0/h0->h1/0", 9) == []
    assert coordinator.finished == 0


def test_a_lab_without_work_is_done(make_plan):
    assert Coordinator(make_plan()).done
