"""Headroom: what a cable asks for, and how late those who obey may be."""

import pytest

from netem.topology.headroom import Cable, headroom, lossless_ports
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab
from transports.clock import US

STAR = """
fabric: {kind: star, hosts: 3}
defaults:
  link: {rate: 10gbit, delay: 1us, mtu: 1500}
  switch: {queues: {3: {pfc: {xoff: 24KiB, xon: 12KiB}}}}
workload: [{pattern: incast, op: write, to: h0, size: 64KiB}]
"""
FRAMES = 3 * (1500 + 14 + 4)


def planned(text=STAR, **overrides):
    return plan_lab(load_lab(text, overrides=overrides))


@pytest.mark.parametrize(
    ("cables", "size"),
    [
        ((), 0),
        ((Cable(None, 5 * US, 1500),), FRAMES),
        ((Cable(10**10, US, 1500),), FRAMES + 2500),
        ((Cable(10**10, US, 1500), Cable(10**11, US, 1500)), FRAMES + 25000),
    ],
    ids=["none", "no rate", "both ways", "the longest"],
)
def test_headroom_holds_what_is_under_way(cables, size):
    assert headroom(cables) == size


def test_auto_dilation_lets_processes_obey_in_time():
    """10 ms at 5 Mbit/s of wall time are 6250 bytes: less than the 7054 of headroom."""
    assert planned().dilation == 2000
    assert planned(**{"defaults.switch.queues.3.pfc.headroom": "128KiB"}).dilation == 200


def test_too_small_a_dilation_is_said_before_the_run():
    (line,) = planned(dilation=200).remarks
    assert line == (
        "dilation 200 is too small for this host: senders of class 3 to t0-p0-0 would have to"
        " obey a pause 8.9 times sooner than it can promise; auto takes 2000"
    )


@pytest.mark.parametrize(
    "overrides",
    [
        {"defaults.switch.queues.3.pfc.headroom": "4KiB"},
        {"defaults.switch.buffer": {"headroom": "4KiB"}},
        {"defaults.switch.queues": {3: {"weight": 2}}},
    ],
    ids=["too small for the cable", "shared and too small", "not lossless"],
)
def test_no_dilation_makes_a_class_lossless_that_is_not(overrides):
    plan = planned(**overrides)
    assert plan.dilation <= 200
    assert list(lossless_ports(plan)) == []


def test_a_port_is_lossless_where_its_peer_obeys():
    text = STAR.replace("star, hosts: 3", "line, switches: 2")
    found = {
        (f"{one.switch}:{one.port}", one.number, one.peer)
        for one in lossless_ports(planned(text, workload=[]))
    }
    assert found == {
        ("t0-p0-0:e0", 3, "h0"),
        ("t0-p0-0:e1", 3, "t0-p0-1"),
        ("t0-p0-1:e0", 3, "h1"),
        ("t0-p0-1:e1", 3, "t0-p0-0"),
    }
    assert list(lossless_ports(planned(**{"defaults.host.mode": "datagram"}))) == []
