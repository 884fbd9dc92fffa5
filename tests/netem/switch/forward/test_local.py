"""A switch as a host: pings are answered, the rest is refused, neighbours are told its MAC."""

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    ICMPv6ParamProblem,
    IPv6,
)
from scapy.layers.l2 import ARP, Ether

from netem.switch.forward.router import RoutingForwarder, forwarder_of
from netem.switch.forwarder import LearningForwarder
from tests.netem.switch.forward.rig import (
    SENDER,
    SWITCH4,
    SWITCH6,
    Bench,
    frame,
    ip4,
    ip6,
    node,
    other,
    own,
    packed,
    route,
    sid,
    udp,
)

TO6 = {"src": "fd00::1", "dst": SWITCH6}
TO4 = {"src": "198.18.0.1", "dst": SWITCH4}
BACK = (route("fd00::/16", 2), route("198.18.0.0/15", 2))


def sent(packet):
    return frame(bytes(packet))


def test_a_ping_is_answered_by_the_routes():
    bench = Bench(*BACK)
    request = IPv6(**TO6, tc=0x20, hlim=1) / ICMPv6EchoRequest(id=7, seq=3, data=b"how are you")
    ((port, out),) = bench.answers(sent(request))
    want = IPv6(src=SWITCH6, dst="fd00::1", tc=0x20) / ICMPv6EchoReply(
        id=7, seq=3, data=b"how are you"
    )
    assert (port, out) == (2, other(2) + own(2) + b"\x86\xdd" + bytes(want))
    assert bench.count("echo_answers") == 1


def test_a_ping_over_ipv4_is_answered():
    request = IP(**TO4, tos=4, flags="DF") / ICMP(id=7, seq=3) / b"hello"
    want = IP(src=SWITCH4, dst="198.18.0.1", tos=4, flags="DF", id=0) / ICMP(
        type=0, id=7, seq=3
    )
    ((_, out),) = Bench(*BACK).answers(sent(request))
    assert out[14:] == bytes(want / b"hello")


def test_a_ping_behind_a_used_up_srh_is_answered():
    """RFC 8754, section 4.3.2: no segments left, go on with the next header."""
    echo = bytes(IPv6(**TO6) / ICMPv6EchoRequest())[40:]
    srh = bytes((58, 2, 4, 0, 0, 0, 0, 0)) + packed(SWITCH6)
    bench = Bench(*BACK)
    assert len(bench.answers(frame(ip6(SWITCH6, srh + echo, next_header=43)))) == 1
    left = srh[:3] + b"\1" + srh[4:]
    reason, answers = bench.drops(frame(ip6(SWITCH6, left + echo, next_header=43)))
    assert (reason, answers) == ("srv6_segments_left_at_end", [])


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(IPv6(**TO6) / ICMPv6EchoRequest(cksum=1), id="wrong checksum"),
        pytest.param(IPv6(**TO6, nh=58) / b"\x80\0", id="cut short"),
        pytest.param(IP(**TO4) / ICMP(chksum=1), id="IPv4 checksum"),
        pytest.param(IP(**TO4, proto=1) / b"\x08", id="IPv4 cut short"),
    ],
)
def test_a_malformed_ping_is_counted(packet):
    assert Bench(*BACK).drops(sent(packet)) == ("malformed", [])


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(IPv6(**TO6) / ICMPv6EchoReply(), id="echo reply"),
        pytest.param(IP(**TO4) / ICMP(type=0), id="IPv4 echo reply"),
        pytest.param(IPv6(**TO6, nh=6) / bytes(20), id="TCP"),
        pytest.param(IPv6(**TO6, nh=59), id="nothing"),
        pytest.param(
            IPv6(**TO6, nh=44) / bytes((58, 0, 0, 1, 0, 0, 0, 9)) / bytes(8),
            id="a fragment",
        ),
        pytest.param(IP(**TO4, flags="MF", proto=1) / bytes(8), id="part"),
    ],
)
def test_the_switch_has_nobody_for(packet):
    assert Bench(*BACK).drops(sent(packet)) == ("not_for_a_switch", [])


def test_a_udp_port_is_unreachable_which_ends_a_traceroute():
    packet = ip6(SWITCH6, udp(dport=33434), hop_limit=1)
    reason, ((_, out),) = Bench(*BACK).drops(frame(packet))
    assert reason == "not_for_a_switch"
    message = Ether(out)[ICMPv6DestUnreach]
    assert (message.code, out[62:]) == (4, packet)
    _, ((_, out),) = Bench(*BACK).drops(frame(ip4(SWITCH4, udp(dport=33434), ttl=1)))
    assert (Ether(out)[ICMP].type, Ether(out)[ICMP].code) == (3, 3)


def test_a_tunnel_to_a_plain_address_is_an_unknown_next_header():
    """As Linux says it: code 1, pointing at the Next Header field."""
    _, ((_, out),) = Bench(*BACK).drops(frame(ip6(SWITCH6, ip6(), next_header=41)))
    message = Ether(out)[ICMPv6ParamProblem]
    assert (message.code, message.ptr) == (1, 6)


def test_the_pointer_is_behind_extension_headers_where_there_are_some():
    _, ((_, out),) = Bench(*BACK).drops(
        frame(ip6(SWITCH6, bytes((41, 0, 1, 4, 0, 0, 0, 0)) + ip6(), next_header=60))
    )
    assert Ether(out)[ICMPv6ParamProblem].ptr == 40


def test_an_unknown_ipv4_protocol_is_unreachable():
    _, ((_, out),) = Bench(*BACK).drops(frame(ip4(SWITCH4, bytes(8), protocol=200)))
    assert (Ether(out)[ICMP].type, Ether(out)[ICMP].code) == (3, 2)


def test_a_sid_is_no_address():
    """srv6.md 8: a ping of a SID is dropped in silence, as by Linux."""
    bench = Bench(*BACK, sids=(sid("fcbb:bb00:1::/48", "uN"),))
    request = IPv6(src="fd00::1", dst="fcbb:bb00:1::") / ICMPv6EchoRequest()
    assert bench.drops(sent(request)) == ("srv6_upper_layer", [])


def test_answers_go_into_the_path_that_the_switch_steers_into():
    from netem.topology.switch_plan import SteerPlan  # noqa: PLC0415

    bench = Bench(
        route("fcbb:bb00::/32", 3),
        steer=(SteerPlan("fd00::/16", ("fcbb:bb00:1:2::",), SWITCH6),),
    )
    request = IPv6(**TO6) / ICMPv6EchoRequest()
    ((port, out),) = bench.answers(sent(request))
    outer = Ether(out)[IPv6]
    assert (port, outer.dst, outer.hlim, outer[1].dst) == (3, "fcbb:bb00:1:2::", 64, "fd00::1")


# -- neighbours ----------------------------------------------------------------------------


def test_who_asks_for_an_address_of_the_switch_is_told_the_mac_of_the_port():
    bench = Bench(*BACK)
    ns = (
        Ether(src=SENDER.hex(":"), dst="33:33:ff:00:00:01")
        / IPv6(src="fd00::1", dst="ff02::1:ff00:1")
        / ICMPv6ND_NS(tgt=SWITCH6)
        / ICMPv6NDOptSrcLLAddr(lladdr=SENDER.hex(":"))
    )
    ((port, out),) = bench.answers(bytes(ns), port=3)
    seen = Ether(out)
    assert port == 3
    assert (seen.dst, seen[ICMPv6ND_NA].tgt) == (SENDER.hex(":"), SWITCH6)
    assert seen[ICMPv6NDOptDstLLAddr].lladdr == own(3).hex(":")


def test_arp_is_answered():
    request = Ether(src=SENDER.hex(":"), dst="ff:ff:ff:ff:ff:ff") / ARP(
        hwsrc=SENDER.hex(":"), psrc="198.18.0.1", pdst=SWITCH4
    )
    ((port, out),) = Bench(*BACK).answers(bytes(request), port=1)
    seen = Ether(out)[ARP]
    assert (port, seen.op, seen.hwsrc, seen.psrc) == (1, 2, own(1).hex(":"), SWITCH4)


def test_questions_for_others_are_bridged():
    request = Ether(src=SENDER.hex(":"), dst="ff:ff:ff:ff:ff:ff") / ARP(
        hwsrc=SENDER.hex(":"), psrc="198.18.0.1", pdst="198.18.0.2"
    )
    assert Bench(*BACK).floods(bytes(request)) == ("e1", "e2", "e3", "e4", "e5")


# -- what forwards -------------------------------------------------------------------------


def test_a_switch_without_addresses_and_routes_is_a_learning_bridge():
    bare = node(address=None, address_v4=None)
    assert isinstance(forwarder_of(bare, len), LearningForwarder)
    assert isinstance(forwarder_of(node(), len), RoutingForwarder)
    bare = node(address=None, address_v4=None, learning=False)
    assert isinstance(forwarder_of(bare, len), RoutingForwarder)
