"""MTU sums: the largest packet of RC, part by part."""

import pytest

from netem.topology.load import load_lab
from netem.topology.mtu import mtu_sum, srv6_parts
from netem.topology.plan import SourceRoute


@pytest.mark.parametrize(
    ("path_mtu", "family", "tagged", "packet", "frame"),
    [
        (1024, "ipv6", False, 1108, 1122),
        (1024, "ipv4", False, 1088, 1102),
        (4096, "ipv6", False, 4180, 4194),
        (4096, "ipv6", True, 4180, 4198),  # a tag is no part of an interface's MTU
        (256, "ipv4", False, 320, 334),
    ],
)
def test_the_largest_packet_is_the_sum_of_its_headers(path_mtu, family, tagged, packet, frame):
    found = mtu_sum(path_mtu, family, tagged=tagged)
    assert (found.packet, found.frame) == (packet, frame)


def test_the_sum_is_shown_part_by_part():
    assert mtu_sum(1024, "ipv4", tagged=True).text == (
        "Ethernet 14 + 802.1Q 4 | IPv4 20 + UDP 8 + BTH 12 + RETH 16 + ImmDt 4 + payload 1024"
        " + ICRC 4 = 1088 (frame 1106)"
    )


@pytest.mark.parametrize("mtu", [4180, 9000])
def test_a_link_that_just_holds_the_largest_packet_is_enough(mtu):
    load_lab(
        f"""
        topology:
          nodes: {{h0: {{}}, h1: {{}}}}
          links: [{{endpoints: ["h0:p0", "h1:p0"], mtu: {mtu}}}]
        transports: {{rc: {{mtu: 4096}}}}
        workload: [{{op: write, from: h0, to: h1, size: 64KiB}}]
        """
    )


SRH_OF_ONE = SourceRoute(("fc00:1::e",), "fd00::1", "encaps")


@pytest.mark.parametrize(
    ("route", "parts"),
    [
        (SRH_OF_ONE, (("outer IPv6", 40), ("SRH", 24))),
        (SourceRoute(("fc00:1::e",), "fd00::1"), (("outer IPv6", 40),)),
        (SourceRoute(("a::", "b::", "c::"), "fd00::1"), (("outer IPv6", 40), ("SRH", 40))),
    ],
)
def test_a_reduced_list_leaves_the_first_segment_out(route, parts):
    """RFC 8986, sections 5.1 and 5.2."""
    assert srv6_parts(route) == parts


def test_all_headers_of_the_stack_are_added_up():
    """W07: RoCE 4096 + SRv6 (40 + 24) + overlay needs more than 4200."""
    found = mtu_sum(4096, "ipv6", around=srv6_parts(SRH_OF_ONE), overlay="ipv6")
    assert found.text == (
        "Ethernet 14 | outer IPv6 40 + SRH 24 + IPv6 40 + UDP 8 + WireGuard 32 + IPv6 40 +"
        " UDP 8 + BTH 12 + RETH 16 + ImmDt 4 + payload 4096 + ICRC 4 + padding 12 = 4336"
        " (frame 4350)"
    )
    assert (4180 + 12) % 16 == 0
