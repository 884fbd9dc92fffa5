"""Dilation: the smallest round number at which the host can carry the packets."""

import pytest

from netem.topology.dilation import (
    Calibration,
    Course,
    Stream,
    dilation,
    packets_per_second,
    port_loads,
)
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab

HOST = Calibration(
    cores=2, frame_sent=10_000, frame_received=10_000, datagram_sent=1_000,
    datagram_received=1_000, bridge=1_000, wire=10_000,
)  # fmt: skip
LAB = """
topology:
  nodes: {h0: {}, h1: {}}
  links: [{endpoints: ["h0:p0", "h1:p0"]}]
workload: [{op: write, from: h0, to: h1, size: 64KiB}]
"""


@pytest.mark.parametrize(
    ("packets", "factor"),
    [
        (0, 1),
        (60_000, 1),  # 0.6 of a core at each end, 0.6 of the two cores
        (61_000, 2),
        (120_000, 2),
        (200_000, 5),
        (1e6, 20),
        (1e12, 1_000_000),  # the largest there is
    ],
)
def test_no_process_uses_more_than_its_share_of_a_core(packets, factor):
    streams = [Stream("a", "b", packets)]
    assert dilation(streams, {"a": "frame", "b": "frame"}, HOST) == factor


def test_all_processes_together_use_no_more_than_their_share_of_the_cores():
    kinds = dict.fromkeys("abcdefgh", "frame")
    streams = [Stream(one, other, 50_000) for one, other in ("ab", "cd", "ef", "gh")]
    assert dilation(streams, kinds, HOST) == 5  # four cores' worth of load on 1.2
    assert dilation(streams, kinds, HOST._replace(cores=8)) == 1


def test_datagrams_are_cheaper_and_a_bridge_is_no_process_of_ours():
    streams = [Stream("a", "br", 500_000), Stream("br", "b", 500_000)]
    kinds = {"a": "datagram", "br": "bridge", "b": "datagram"}
    assert dilation(streams, kinds, HOST._replace(cores=4)) == 1


def test_a_lab_without_rates_runs_in_real_time():
    assert plan_lab(load_lab(LAB)).dilation == 1


@pytest.mark.parametrize(
    ("rate", "factor"), [("100mbit", 1), ("1gbit", 2), ("100gbit", 200), ("400gbit", 1000)]
)
def test_a_rate_asks_for_its_dilation(rate, factor):
    """A frame of 1122 bytes, 10 us at each end: 100 gbit/s are 11 million a second."""
    lab = load_lab(LAB, overrides={"topology.links[0].rate": rate})
    assert plan_lab(lab, calibration=HOST).dilation == factor


def test_a_written_dilation_is_kept():
    lab = load_lab(LAB, overrides={"topology.links[0].rate": "400gbit", "dilation": 3})
    assert plan_lab(lab).dilation == 3


def test_packets_of_a_full_link_are_its_rate_by_their_bits():
    assert packets_per_second(10**9, 1250) == 100_000


def test_an_impaired_link_between_bridges_costs_a_process_more():
    text = """
    topology:
      nodes: {h0: {}, h1: {}, br0: {kind: bridge}, br1: {kind: bridge}}
      links:
        - {endpoints: ["h0:p0", "br0:e0"]}
        - {endpoints: ["br0:e1", "br1:e0"], rate: 1gbit}
        - {endpoints: ["br1:e1", "h1:p0"]}
    workload: [{op: write, from: h0, to: h1, size: 64KiB}]
    """
    lab = load_lab(text, overrides={"topology.links[1].rate": "800mbit"})
    four_cores = HOST._replace(cores=4, wire=20_000)
    assert plan_lab(lab, calibration=four_cores).dilation == 5
    assert plan_lab(lab, calibration=four_cores._replace(wire=0)).dilation == 2


RATES = {"a": 8_000_000, "b": 16_000_000, "c": None, "x": 8_000_000, "y": None}


@pytest.mark.parametrize(
    ("courses", "loads"),
    [
        ([Course(("c",), ("y",), 1000)], {}),
        ([Course(("a",), ("y",), 1000)], {"a": 1000, "y": 62.5}),
        ([Course(("c", "a", "b"), (), 1000)], {"c": 1000, "a": 1000, "b": 1000}),
        ([Course(("c", "a"), (), 1000)] * 4, {"c": 1000, "a": 1000}),
        (
            [Course(("a", "c", "b"), (), 1000), Course(("x", "c", "b"), (), 1000)],
            {"a": 1000, "x": 1000, "c": 2000, "b": 2000},
        ),
        (
            [Course(("a", "x"), (), 1000), Course(("b", "x"), (), 1000)],
            {"a": 1000, "b": 1000, "x": 1000},
        ),
    ],
    ids=["no rate", "acks", "the slowest link decides", "shared", "added", "incast"],
)
def test_a_flow_fills_the_slowest_link_of_its_way(courses, loads):
    whole = [Course(whole_of(c.data), whole_of(c.acks), c.frame) for c in courses]
    assert port_loads(whole, RATES) == loads


def whole_of(ports):
    return dict.fromkeys(ports, 1.0)


def test_a_flow_that_parts_fills_a_part_of_each_way():
    parted = Course({"a": 1.0, "b": 0.5, "x": 0.5}, {"y": 0.25}, 1000)
    assert port_loads([parted], RATES) == {"a": 1000, "b": 500, "x": 500, "y": 15.625}
    assert port_loads([parted] * 3, RATES)["x"] == 500  # they share what a carries
