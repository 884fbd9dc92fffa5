"""What `validate` shows: what would be built, with units, codes and sums."""

from netem.topology.load import load_lab
from netem.topology.planner import plan_lab
from netem.topology.summary import summary

TEXT = """
name: three
topology:
  nodes: {h0: {}, h1: {}, br0: {kind: bridge}}
  links:
    - {endpoints: ["h0:p0", "br0:e0"], delay: 1ms, rate: 10mbit}
    - {endpoints: ["br0:e1", "h1:p0"], mtu: 4500}
transports: {rc: {rnr_timer: 0.64ms, timeout: 14}}
workload: [{op: write, from: h0, to: h1, size: [1KiB, 3B], count: 4, qps: 2}]
faults:
  - {do: drop, on: h0->br0, where: {op: WRITE_LAST}}
  - {at: 5ms, on: br0->h0, set: {loss: 1%}}
expect: [all_complete, {metric: naks, above: 0}]
"""


def found():
    return summary(plan_lab(load_lab(TEXT)))


def test_a_port_says_who_does_what_to_what_it_sends():
    h0, _, br0 = found().nodes
    assert (h0.kind, h0.mode, h0.stack, h0.queue_pairs) == ("host", "frame", "none", 2)
    assert h0.ports[0].sends == "delay 1ms rate 10mbit (by h0)"
    assert (br0.kind, br0.mode, br0.stack, br0.queue_pairs) == ("bridge", "", "", 0)
    assert [port.sends for port in br0.ports] == ["delay 1ms rate 10mbit (by h0)", "none"]


def test_a_flow_shows_times_with_their_codes():
    flow = found().flows[0]
    assert (flow.flow, flow.source, flow.target) == ("0/h0->h1/0", "h0:p0", "h1:p0")
    assert flow.work == ("4 x write 1KiB", "4 x write 3B")
    assert (flow.timeout, flow.rnr_timer) == ("67.108864ms (code 14)", "0.64ms (code 12)")


def test_each_way_of_a_transport_is_summed_once():
    (path,) = found().paths
    assert path.links == ("h0:p0--br0:e0", "br0:e1--h1:p0")
    assert (path.packet, path.frame, path.mtu) == (1108, 1122, 1500)
    assert path.sum.endswith("payload 1024 + ICRC 4 = 1108 (frame 1122)")


def test_what_may_happen_is_told_in_words():
    told = found()
    assert told.faults == ("drop WRITE_LAST, match 0 on h0:p0",)
    assert told.changes == ("at 5ms br0:e0: delay 1ms loss 1% rate 10mbit",)
    assert told.expectations == ("all_complete", "naks > 0")
    assert told.captured == ("h0:p0--br0:e0", "br0:e1--h1:p0")
    assert told.memory == 4 * 8 * 1024
