"""Windows that the receiving host can hold."""

from netem.node.windows import OVERHEAD, fitted
from tests.netem.node.lab import plan_of

THREE = """
name: three
topology:
  nodes: {h0: {}, h1: {}, h2: {}, b0: {kind: bridge}}
  links:
    - {endpoints: ["h0:p0", "b0:e0"]}
    - {endpoints: ["h1:p0", "b0:e1"]}
    - {endpoints: ["h2:p0", "b0:e2"]}
transports: {rc: {kind: rc, mtu: 1024, window: 128}}
workload:
  - {op: write, from: h0, to: h2, size: 1KiB, qps: 2}
  - {op: write, from: h1, to: h2, size: 1KiB, qps: 2}
"""


def windows(plan, name, held):
    return [qp.window for qp in fitted(plan, name, lambda _size: held).node(name).qps]


def test_a_large_buffer_leaves_windows_as_planned():
    assert windows(plan_of(THREE), "h0", 10_000) == [128, 128]


def test_queue_pairs_that_send_to_one_port_share_its_buffer():
    """Four at h2: an eighty-frame buffer holds twenty frames of each."""
    assert windows(plan_of(THREE), "h0", 80) == [20, 20]


def test_a_responder_has_its_requesters_port_for_itself():
    """What h2 sends (READ responses) goes to ports with two queue pairs each."""
    assert windows(plan_of(THREE), "h2", 80) == [40] * 4


def test_a_window_is_never_nothing():
    assert windows(plan_of(THREE), "h0", 1) == [1, 1]


def test_a_packet_counts_with_everything_around_its_payload():
    asked = []
    fitted(plan_of(THREE), "h0", lambda size: asked.append(size) or 1000)
    assert set(asked) == {1024 + OVERHEAD}


def test_other_nodes_are_left_alone():
    plan = plan_of(THREE)
    assert fitted(plan, "h0", lambda _size: 8).node("h1") is plan.node("h1")
