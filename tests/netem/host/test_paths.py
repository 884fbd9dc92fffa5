"""Paths of the lab file on the wire: what leaves a host first."""

from ipaddress import ip_address

import pytest

from netem.host.host import Host
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab
from wire.ethernet import Ethernet
from wire.ipv6 import Ipv6
from wire.srh import Srh

GATEWAY = "02:ff:00:00:00:00"
LAB = """
name: led
fabric: {kind: line, switches: 3}
transports: {rc: {mtu: 256}}
"""


def ip(text):
    return ip_address(text).packed


def first_frame(item):
    plan = plan_lab(load_lab(f"{LAB}workload: [{item}]"))
    host = Host(plan, "h0")
    host.start(0)
    _, frame, _ = next(iter(host.transmit(0)))
    return memoryview(frame)


def test_a_packet_to_a_host_behind_a_router_goes_to_the_router_s_mac():
    frame = first_frame("{op: write, from: h0, to: h1, size: 8B}")
    ethernet = Ethernet.unpack_from(frame)
    assert ethernet.dst.hex(":") == GATEWAY
    assert Ipv6.unpack_from(frame, 14).dst == ip("fd00::2")


def test_six_usids_need_no_srh():
    """mrc.md 12.5: T0s and the downlink of the last one, in the destination alone."""
    path = "[t0-p0-0, t0-p0-1, t0-p0-2]"
    frame = first_frame(f"{{op: write, from: h0, to: h1, size: 8B, path: {path}}}")
    outer, inner = Ipv6.unpack_from(frame, 14), Ipv6.unpack_from(frame, 54)
    assert (outer.next_header, outer.src) == (41, ip("fd00::1"))
    assert outer.dst == ip("fcbb:bb00:100:101:102:800::")
    assert (inner.dst, inner.hop_limit, outer.hop_limit) == (ip("fd00::2"), 64, 64)


@pytest.mark.parametrize(("encaps", "listed"), [("h_encaps", 3), ("h_encaps_red", 2)])
def test_segments_are_listed_last_to_first(encaps, listed):
    """S01 and S02: the first one is the destination, and none is left out."""
    item = "{op: write, from: h0, to: h1, size: 8B, path: [t0-p0-1, t0-p0-2], encaps: %s}"
    frame = first_frame(item % encaps)
    outer, srh = Ipv6.unpack_from(frame, 14), Srh.unpack_from(frame, 54)
    way = [ip("fc00:ffff:0:2::e"), ip("fc00:ffff:0:3::e"), ip("fc00:0:2::d6")]
    assert (outer.dst, srh.segments_left) == (way[0], 2)
    assert list(srh.segment_list) == way[::-1][:listed]


def test_more_than_six_usids_take_another_container():
    text = """
    fabric: {kind: line, switches: 8}
    workload: [{op: write, from: h0, to: h1, size: 8B, path: [t0-p0-0, t0-p0-1, t0-p0-2,
      t0-p0-3, t0-p0-4, t0-p0-5, t0-p0-6, t0-p0-7]}]
    """
    (qp,) = plan_lab(load_lab(text)).node("h0").qps
    assert qp.source_route.segments == (
        "fcbb:bb00:100:101:102:103:104:105", "fcbb:bb00:106:107:800::",
    )  # fmt: skip
