"""ICMP errors, judged byte by byte by scapy, and when there is none."""

import pytest
from scapy.layers.inet import IP, IPerror
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6PacketTooBig,
    ICMPv6ParamProblem,
    ICMPv6TimeExceeded,
    IPerror6,
    IPv6,
)
from scapy.layers.l2 import Ether

from netem.switch.forward.errors import BURST, INTERVAL
from tests.netem.switch.forward.rig import (
    SWITCH4,
    SWITCH6,
    Bench,
    frame,
    ip4,
    ip6,
    other,
    own,
    packed,
    route,
    sid,
    udp,
)
from wire import icmp, icmpv6

NETS = (route("fd00::/16", 1), route("198.18.0.0/15", 1))
BACK = (route("fd00::1/128", 2), route("198.18.0.1/32", 2))  # to the sender


def bench(*routes, **plan):
    return Bench(*NETS, *BACK, *routes, **plan)


def told(rig, packet, **options):
    """Return the reason of a drop and the one error, by scapy, about it."""
    reason, answers = rig.drops(frame(packet), **options)
    ((port, out),) = answers
    assert port == 2
    assert out[:12] == other(2) + own(2)
    seen, again = Ether(out), Ether(out)
    ip = again[IP] if IP in again else again[IPv6]
    for layer, field in ((ip, "len"), (ip, "plen"), (ip, "chksum")):
        layer.fields.pop(field, None)
    ip.payload.fields.pop("cksum", None)  # ICMPv6 by scapy
    ip.payload.fields.pop("chksum", None)  # ICMP
    assert bytes(again) == out  # lengths and checksums are what scapy makes them
    return reason, seen, (seen[IP] if IP in seen else seen[IPv6]).payload


def is_quoted(seen, packet, most):
    head = 14 + (28 if IP in seen else 48)  # Ethernet, IP, ICMP
    assert seen.original[head:] == packet[:most]


def test_time_exceeded():
    """RFC 4443, section 3.3: from the switch's address, with the packet as it came in."""
    packet = ip6(hop_limit=1)
    reason, seen, message = told(bench(), packet)
    assert reason == "ttl"
    assert (seen[IPv6].src, seen[IPv6].dst, seen[IPv6].hlim) == (SWITCH6, "fd00::1", 64)
    assert isinstance(message, ICMPv6TimeExceeded)
    assert message.code == 0
    is_quoted(seen, packet, 1232)


def test_time_exceeded_over_ipv4():
    packet = ip4(ttl=1)
    reason, seen, message = told(bench(), packet)
    assert reason == "ttl"
    assert (seen[IP].src, seen[IP].dst, seen[IP].tos) == (SWITCH4, "198.18.0.1", 0xC0)
    assert (message.type, message.code) == (11, 0)
    is_quoted(seen, packet, 548)


def test_no_route():
    packet = ip6("2001:db8::1")
    reason, seen, message = told(bench(), packet)
    assert reason == "no_route"
    assert isinstance(message, ICMPv6DestUnreach)
    assert message.code == 0
    is_quoted(seen, packet, 1232)


def test_no_route_over_ipv4():
    reason, _, message = told(bench(), ip4("10.0.0.1"))
    assert (reason, message.type, message.code) == ("no_route", 3, 0)


def test_packet_too_big():
    packet = ip6(payload=udp(payload=bytes(2000)))
    reason, seen, message = told(bench(mtu={1: 1500}), packet)
    assert reason == "too_big"
    assert isinstance(message, ICMPv6PacketTooBig)
    assert (message.code, message.mtu) == (0, 1500)
    assert len(bytes(seen[IPv6])) == 1280  # RFC 4443, section 2.4 (c): no more than that
    is_quoted(seen, packet, 1232)


@pytest.mark.parametrize("dont_fragment", [True, False])
def test_fragmentation_needed(dont_fragment):
    """RFC 1191; we never fragment, whatever the packet allows."""
    packet = ip4(payload=udp(payload=bytes(2000)), dont_fragment=dont_fragment)
    reason, seen, message = told(bench(mtu={1: 1500}), packet)
    assert (reason, message.type, message.code, message.nexthopmtu) == ("too_big", 3, 4, 1500)
    assert len(bytes(seen[IP])) == 576
    is_quoted(seen, packet, 548)


def test_a_hop_limit_of_one_to_nowhere_is_no_route():
    assert told(bench(), ip6("2001:db8::1", hop_limit=1))[0] == "no_route"


def test_the_quotation_of_a_short_packet_is_whole():
    _, seen, _ = told(bench(), ip6(hop_limit=1, payload=b""))
    assert bytes(seen[IPerror6]) == ip6(hop_limit=1, payload=b"")
    _, seen, _ = told(bench(), ip4(ttl=1, payload=b""))
    assert bytes(seen[IPerror]) == ip4(ttl=1, payload=b"")


def test_parameter_problem_of_an_srh_where_the_lab_wants_it():
    """RFC 8986, section 4.1, S08: segments left beyond the list; Linux says nothing."""
    srh = bytes((59, 2, 4, 7, 0, 0, 0, 0)) + packed("fc00:2::")
    packet = ip6("fc00:1::", srh, next_header=43)
    sids = (sid("fc00:1::/64", "End"),)
    assert bench(sids=sids).drops(frame(packet)) == ("srv6_segments_left", [])
    reason, _, message = told(bench(sids=sids, srv6_errors=True), packet)
    assert reason == "srv6_segments_left"
    assert isinstance(message, ICMPv6ParamProblem)
    assert (message.code, message.ptr) == (0, 43)


def test_time_exceeded_at_a_sid():
    rig = bench(route("fcbb:bb00:2::/48", 1), sids=(sid("fcbb:bb00:1::/48", "uN"),))
    packet = ip6("fcbb:bb00:1:2::", b"", next_header=59, hop_limit=1)
    reason, seen, message = told(rig, packet)
    assert reason == "srv6_hop_limit"
    assert isinstance(message, ICMPv6TimeExceeded)
    is_quoted(seen, packet, 1232)


# -- when there is none --------------------------------------------------------------------


def icmpv6_message(message, src="fd00::1", dst="fd00::2"):
    buf = bytearray(message.size)
    message.pack_into(buf, packed(src), packed(dst))
    return bytes(buf)


def icmp_message(message):
    buf = bytearray(message.size)
    message.pack_into(buf)
    return bytes(buf)


def dying6(payload, next_header):
    return ip6(payload=payload, next_header=next_header, hop_limit=1)


def dying4(payload):
    return ip4(payload=payload, protocol=1, ttl=1)


ERROR6 = icmpv6_message(icmpv6.TimeExceeded(0, ip6()))
ERROR4 = icmp_message(icmp.TimeExceeded(0, ip4()))
ECHO6, ECHO4 = icmpv6_message(icmpv6.Echo(1, 2)), icmp_message(icmp.Echo(1, 2))
REDIRECT = bytes((137,)) + bytes(39)
LATER_PART = bytes((17, 0, 0, 8, 0, 0, 0, 1))
FIRST_PART = bytes((17, 0, 0, 1, 0, 0, 0, 1))


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(dying6(ERROR6, 58), id="an error"),
        pytest.param(dying6(REDIRECT, 58), id="a redirect"),
        pytest.param(dying6(b"", 58), id="ICMPv6 without a type"),
        pytest.param(dying6(LATER_PART + bytes(8), 44), id="a later part"),
        pytest.param(dying6(b"", 0), id="a chain without an end"),
        pytest.param(dying4(ERROR4), id="an IPv4 error"),
        pytest.param(ip4(ttl=1, fragment_offset=1), id="a later IPv4 part"),
    ],
)
def test_there_is_no_error_about(packet):
    """RFC 4443, section 2.4 (e); RFC 1122, section 3.2.2."""
    rig = bench()
    assert rig.drops(frame(packet)) == ("ttl", [])
    assert rig.count("icmp_errors_withheld") == 1


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(ip6("ff0e::1", hop_limit=1), id="a group"),
        pytest.param(ip6(src="ff0e::1", hop_limit=1), id="from a group"),
        pytest.param(ip6(src="::", hop_limit=1), id="from nobody"),
        pytest.param(ip4("224.1.2.3", ttl=1), id="an IPv4 group"),
        pytest.param(ip4(src="255.255.255.255", ttl=1), id="from broadcast"),
    ],
)
def test_there_is_no_error_to_or_about_groups(packet):
    reason, answers = bench().drops(frame(packet))
    assert reason in {"multicast", "source"}
    assert answers == []


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(dying6(ECHO6, 58), id="echo"),
        pytest.param(dying4(ECHO4), id="IPv4 echo"),
        pytest.param(dying6(FIRST_PART + udp(), 44), id="a first part"),
    ],
)
def test_there_is_an_error_about(packet):
    assert told(bench(), packet)[0] == "ttl"


def test_a_switch_without_an_address_is_silent():
    rig = bench(address=None)
    rig2 = bench(address_v4=None)
    assert rig.drops(frame(ip6(hop_limit=1))) == ("ttl", [])
    assert rig2.drops(frame(ip4(ttl=1))) == ("ttl", [])


def test_an_error_that_has_no_way_back_is_counted():
    rig = Bench(route("fd00:2::/32", 1))
    assert rig.drops(frame(ip6("fd00:2::1", hop_limit=1, src="fd00:1::1"))) == ("ttl", [])
    assert rig.count("answers_lost") == 1


def test_errors_are_limited():
    """RFC 4443, section 2.4 (f): a burst, then so many per second, and a burst again later."""
    rig = bench()
    sent = [bool(rig.drops(frame(ip6(hop_limit=1)), now=0)[1]) for _ in range(BURST + 10)]
    assert sent == [True] * BURST + [False] * 10
    assert rig.count("icmp_errors_limited") == 10
    later = [bool(rig.drops(frame(ip6(hop_limit=1)), now=INTERVAL * 3)[1]) for _ in range(5)]
    assert later == [True] * 3 + [False] * 2
    much = INTERVAL * 1000
    assert sum(bool(rig.drops(frame(ip4(ttl=1)), now=much)[1]) for _ in range(90)) == BURST
