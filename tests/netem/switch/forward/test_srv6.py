"""SRv6 through the forwarding of a switch. The behaviours themselves: tests/transports/srv6."""

from itertools import pairwise

import pytest
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6PacketTooBig, IPv6
from scapy.layers.l2 import Ether

from netem.topology.switch_plan import SidPlan, SteerPlan
from tests.netem.switch.forward.rig import (
    SWITCH6,
    Bench,
    forwarded,
    frame,
    hops,
    ip4,
    ip6,
    packed,
    route,
    sid,
    udp,
)
from transports.srv6.headend import h_encaps
from wire.csid import views

BLOCK = "fcbb:bb00"
IPIP, IP4IP, ROUTING = 41, 4, 43
INNER = ip6("fd0b::1", src="fd0a::1", hop_limit=33)


def usid(destination, inner=INNER, **fields):
    """An SRv6 packet without SRH."""
    return ip6(destination, inner, next_header=IPIP, src="fd00::a", **fields)


def srh(segments, left, inner=INNER, next_header=IPIP):
    """An SRH of segments in wire order, the last one of the way first."""
    head = bytes((next_header, 2 * len(segments), 4, left, len(segments) - 1, 0, 0, 0))
    return head + b"".join(packed(segment) for segment in segments) + inner


def classic(destination, segments, left, **fields):
    return ip6(destination, srh(segments, left), next_header=ROUTING, src="fd00::a", **fields)


UN = sid("fcbb:bb00:101::/48", "uN")
NEXT = route("fcbb:bb00:201::/48", 2)


# -- uSIDs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_warm", [False, True])
def test_un_shifts_and_looks_the_next_one_up(is_warm):
    """mrc.md 5: 48 bits match, shift by 16, the new 48 bits in a static table."""
    bench = Bench(NEXT, sids=(UN,))
    before, after = f"{BLOCK}:101:201:b01::", f"{BLOCK}:201:b01::"
    if is_warm:
        bench.warm(frame(usid(before)))
    port, out = bench.out(frame(usid(before)))
    assert (port, out) == (2, forwarded(usid(after, hop_limit=63), 2))


def test_each_packet_of_a_sid_is_counted_once():
    bench = Bench(NEXT, sids=(UN,))
    packet = usid(f"{BLOCK}:101:201::")
    for _ in range(3):
        bench.way(frame(packet))
    bench.drops(frame(usid(f"{BLOCK}:101:201::", hop_limit=1)))
    assert bench.count("sid.fcbb:bb00:101::/48.packets") == 3
    assert bench.count("sid.fcbb:bb00:101::/48.bytes") == 3 * len(packet)
    assert bench.count("sid.fcbb:bb00:101::/48.errors") == 1


def test_s11_the_destinations_of_a_path_are_those_of_its_hops():
    """Field report S11: at each hop one uSID fewer, and the table says which hop sees which."""
    way = ["101", "201", "301", "b01"]
    container = packed(f"{BLOCK}:{':'.join(way)}::")
    seen, packet = [container], usid(f"{BLOCK}:{':'.join(way)}::")
    for here, there in pairwise(way):
        bench = Bench(
            route(f"{BLOCK}:{there}::/48", 1), sids=(sid(f"{BLOCK}:{here}::/48", "uN"),)
        )
        _, out = bench.out(frame(packet))
        packet = out[14:]
        seen.append(packet[24:40])
    assert tuple(seen) == views(container)


@pytest.mark.parametrize("is_warm", [False, True])
def test_an_adjacency_sid_needs_no_route(is_warm):
    bench = Bench(sids=(sid("fcbb:bb00:e001::/48", "uA", 3),))
    packet = frame(usid(f"{BLOCK}:e001:201::"))
    if is_warm:
        bench.warm(packet)
    assert bench.out(packet) == (3, forwarded(usid(f"{BLOCK}:201::", hop_limit=63), 3))


@pytest.mark.parametrize("is_warm", [False, True])
def test_node_and_adjacency_in_one_sid_use_up_both(is_warm):
    """srv6.md 5: block:N:F::/64, longer than block:N::/48, so it comes first."""
    bench = Bench(NEXT, sids=(UN, sid("fcbb:bb00:101:e001::/64", "uA", 3)))
    packet = frame(usid(f"{BLOCK}:101:e001:201::"))
    if is_warm:
        bench.warm(packet)
    assert bench.out(packet) == (3, forwarded(usid(f"{BLOCK}:201::", hop_limit=63), 3))


def test_an_adjacency_of_several_links_spreads_flows():
    bench = Bench(sids=(sid("fcbb:bb00:e001::/48", "uA", 1, 2, 3, 4),))
    ways = {bench.way(frame(usid(f"{BLOCK}:e001:{n:x}::", flow_label=n))) for n in range(1, 40)}
    assert ways == {1, 2, 3, 4}


@pytest.mark.parametrize("is_warm", [False, True])
def test_two_sids_of_one_switch_in_a_row(is_warm):
    """Two passes, and two hops: as Linux does it."""
    bench = Bench(NEXT, sids=(UN, sid("fcbb:bb00:102::/48", "uN")))
    packet = frame(usid(f"{BLOCK}:101:102:201::"))
    if is_warm:
        bench.warm(packet)
    assert bench.out(packet) == (2, forwarded(usid(f"{BLOCK}:201::", hop_limit=62), 2))


def test_many_sids_of_one_switch_in_a_row_are_too_many():
    sids = (sid("fc00:1::/64", "End"),)
    long_way = classic("fc00:1::", ["fc00:1::"] * 60, 60, hop_limit=255)
    bench = Bench(sids=sids)
    assert bench.drops(frame(long_way)) == ("passes", [])
    short_way = classic("fc00:1::", ["fd00::9"] + ["fc00:1::"] * 20, 20, hop_limit=255)
    assert Bench(route("fd00::/16", 1), sids=sids).way(frame(short_way)) == 1


def test_the_second_container_is_in_the_srh():
    bench = Bench(NEXT, sids=(UN,))
    packet = classic(f"{BLOCK}:101::", [f"{BLOCK}:201:b01::"], 1)
    want = classic(f"{BLOCK}:201:b01::", [f"{BLOCK}:201:b01::"], 0, hop_limit=63)
    assert bench.out(frame(packet)) == (2, forwarded(want, 2))


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_usid_that_nobody_owns_is_dropped_and_counted(is_warm):
    """mrc.md 12.5: no static entry, no packet; told in ICMP only where the lab wants it."""
    bench = Bench(NEXT, sids=(UN,))
    packet = frame(usid(f"{BLOCK}:777:b01::"))
    if is_warm:
        bench.warm(packet)
    assert bench.drops(packet) == ("unknown_sid", [])
    assert bench.drops(frame(usid(f"{BLOCK}:101:777::"))) == ("unknown_sid", [])
    back = route("fd00::/16", 4)
    told = Bench(back, sids=(UN,), srv6_errors=True)
    reason, ((port, out),) = told.drops(packet)
    assert (reason, port, Ether(out)[ICMPv6DestUnreach].code) == ("unknown_sid", 4, 0)


def test_without_sids_a_usid_is_an_address_like_others():
    assert Bench().drops(frame(usid(f"{BLOCK}:777::")))[0] == "no_route"


# -- decapsulation -------------------------------------------------------------------------


@pytest.mark.parametrize("behaviour", ["uDT6", "uDT46", "End.DT6", "End.DT46"])
def test_s08_a_container_in_the_destination_needs_no_srh(behaviour):
    """Field report S08: three uSIDs, no SRH, decapsulated at the end."""
    bench = Bench(route("fd0b::/16", 3), sids=(SidPlan(f"{BLOCK}:b01::/48", behaviour),))
    want = ip6("fd0b::1", src="fd0a::1", hop_limit=32)
    assert bench.out(frame(usid(f"{BLOCK}:b01::"))) == (3, forwarded(want, 3))


def test_s09_segments_left_must_be_0_at_a_last_segment():
    """Field report S09: one SID with an SRH of its own, and the fault with a counter."""
    segment = "fc00:b::d6"
    bench = Bench(route("fd0b::/16", 3), sids=(SidPlan(f"{segment}/128", "End.DT6"),))
    one = bytes(h_encaps(INNER, packed("fd00::a"), [packed(segment)]))
    assert one[43] == 0  # the encapsulator's part
    assert bench.way(frame(one)) == 3
    left = one[:43] + b"\1" + one[44:]
    assert bench.drops(frame(left)) == ("srv6_segments_left_at_end", [])
    assert bench.count(f"sid.{segment}/128.errors") == 1


@pytest.mark.parametrize("is_dx", [False, True])
def test_ipv4_comes_out_of_ipv6(is_dx):
    sids = (sid("fc00:4::/64", "End.DX4", 4) if is_dx else sid("fc00:4::/64", "End.DT4"),)
    bench = Bench(route("198.18.0.0/15", 4), sids=sids)
    packet = ip6("fc00:4::", ip4(ttl=9), next_header=IP4IP, src="fd00::a")
    assert bench.out(frame(packet)) == (4, forwarded(ip4(ttl=8), 4))


def test_dx6_sends_to_its_neighbour_whatever_the_destination():
    bench = Bench(sids=(sid("fc00:6::/64", "End.DX6", 4),))
    want = ip6("fd0b::1", src="fd0a::1", hop_limit=32)
    assert bench.out(frame(usid("fc00:6::"))) == (4, forwarded(want, 4))


def test_an_inner_packet_is_looked_at_as_if_it_had_just_come_in():
    bench = Bench(route("fd0b::/16", 3), sids=(SidPlan("fc00:6::/64", "End.DT46"),))
    bad = bytearray(ip4("198.18.0.2"))
    bad[4] ^= 1
    outer = ip6("fc00:6::", bytes(bad), next_header=IP4IP, src="fd00::a")
    assert bench.drops(frame(outer))[0] == "checksum"
    from_group = ip6("fd0b::1", src="ff02::1")
    assert bench.drops(frame(usid("fc00:6::", from_group)))[0] == "source"
    in_itself = usid("fc00:6::", usid("fc00:6::"))
    assert bench.way(frame(usid("fc00:6::", in_itself))) == 3


def test_an_inner_hop_limit_that_ends_is_told_to_the_inner_source():
    bench = Bench(
        route("fd0b::/16", 3), route("fd0a::/16", 5), sids=(SidPlan("fc00:6::/64", "End.DT6"),)
    )
    inner = ip6("fd0b::1", src="fd0a::1", hop_limit=1)
    reason, ((port, out),) = bench.drops(frame(usid("fc00:6::", inner)))
    assert (reason, port, Ether(out)[IPv6].dst) == ("ttl", 5, "fd0a::1")
    assert out[62:] == inner


def test_usd_decapsulates_at_a_node_sid():
    """SONiC programs uN with PSP and USD, srv6.md 5."""
    sids = (sid("fcbb:bb00:101::/48", "uN", flavours=("psp", "usd")),)
    bench = Bench(route("fd0b::/16", 3), sids=sids)
    want = ip6("fd0b::1", src="fd0a::1", hop_limit=32)
    assert bench.out(frame(usid(f"{BLOCK}:101::"))) == (3, forwarded(want, 3))


def test_psp_pops_the_srh_at_the_one_before_the_last():
    sids = (sid("fc00:1::/64", "End", flavours=("psp",)),)
    bench = Bench(route("fc00:2::/64", 2), sids=sids)
    want = ip6("fc00:2::", INNER, next_header=IPIP, src="fd00::a", hop_limit=63)
    assert bench.out(frame(classic("fc00:1::", ["fc00:2::"], 1))) == (2, forwarded(want, 2))


# -- classic chains ------------------------------------------------------------------------


def test_end_takes_the_next_segment():
    bench = Bench(route("fc00:2::/64", 2), sids=(sid("fc00:1::/64", "End"),))
    segments = ["fc00:b::", "fc00:2::", "fc00:1::"]
    want = classic("fc00:2::", segments, 1, hop_limit=63)
    assert bench.out(frame(classic("fc00:1::", segments, 2))) == (2, forwarded(want, 2))


def test_end_x_sends_over_its_link():
    bench = Bench(sids=(sid("fc00:1::/64", "End.X", 4),))
    want = classic("fc00:2::", ["fc00:2::"], 0, hop_limit=63)
    assert bench.out(frame(classic("fc00:1::", ["fc00:2::"], 1))) == (4, forwarded(want, 4))


PADDED = srh(["fc00:3::", "fc00:2::"], 1, inner=b"\4\6" + bytes(6) + INNER)
PADDED = PADDED[:1] + b"\5" + PADDED[2:]  # 8 bytes of TLVs


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [
        (3, 9, "segments_left"),
        (4, 9, "last_entry"),
        (2, 0, "routing_type"),
        (1, 200, "truncated"),
        (41, 7, "tlv"),
    ],
)
def test_a_malformed_srh_has_its_counter(offset, value, reason):
    """Field report S07, through the switch."""
    bench = Bench(route("fc00:3::/64", 2), sids=(sid("fc00:1::/64", "End"),))
    assert bench.way(frame(ip6("fc00:1::", PADDED, next_header=ROUTING))) == 2
    broken = bytearray(PADDED)
    broken[offset] = value
    packet = ip6("fc00:1::", bytes(broken), next_header=ROUTING)
    assert bench.drops(frame(packet)) == (f"srv6_{reason}", [])


def test_transit_does_not_look_at_the_srh():
    """RFC 8754, section 4.2: ordinary forwarding, whatever it says."""
    bench = Bench(route("fd00::/16", 1), sids=(sid("fc00:1::/64", "End"),))
    packet = ip6("fd00::9", b"\x29\xff\x04\xff" + bytes(40), next_header=ROUTING)
    want = ip6("fd00::9", b"\x29\xff\x04\xff" + bytes(40), next_header=ROUTING, hop_limit=63)
    assert bench.out(frame(packet)) == (1, forwarded(want, 1))


# -- SIDs beside routes ----------------------------------------------------------------------


def test_s14_a_sid_stays_when_a_route_above_it_goes():
    """Field report S14: run-time deletion of the covering prefix."""
    bench = Bench(route("fcbb:bb00::/32", 5), NEXT, sids=(UN,))
    packet = frame(usid(f"{BLOCK}:101:201::"))
    assert bench.way(packet) == 2
    bench.forwarder.remove_route("fcbb:bb00::/32")
    assert bench.way(packet) == 2
    assert bench.drops(frame(usid(f"{BLOCK}:777::")))[0] == "unknown_sid"


def test_tables_are_told_without_what_is_up_or_was_looked_up():
    """mrc.md 12.17, 11: what is compared before and after a run."""
    bench = Bench(route("fcbb:bb00::/32", 5, 4), NEXT, sids=(UN,))
    before = sorted(bench.forwarder.tables())
    assert len(before) == 3
    bench.forwarder.set_carrier("e5", False)
    bench.warm(frame(usid(f"{BLOCK}:101:201::")))
    assert sorted(bench.forwarder.tables()) == before
    bench.forwarder.remove_route("fcbb:bb00::/32")
    assert set(bench.forwarder.tables()) < set(before)
    other = Bench(route("fcbb:bb00::/32", 5, 3), NEXT, sids=(UN,))
    assert len({*before} & {*other.forwarder.tables()}) == 2


def test_the_longer_of_sid_and_route_wins():
    locator = sid("fcbb:bb00:101::/48", "uN")
    bench = Bench(route("fcbb:bb00:101:5::/64", 5), NEXT, sids=(locator,))
    assert bench.way(frame(usid(f"{BLOCK}:101:5:201::"))) == 5
    bench = Bench(route("fcbb:bb00:101::/48", 5), NEXT, sids=(locator,))
    assert bench.way(frame(usid(f"{BLOCK}:101:201::"))) == 2


# -- headend -------------------------------------------------------------------------------

SEGMENTS = ("fc00:1::", "fc00:2::", "fc00:b::")


@pytest.mark.parametrize("mode", ["encaps", "encaps_red"])
@pytest.mark.parametrize("segments", [SEGMENTS, SEGMENTS[:1]])
def test_what_is_bound_for_a_prefix_is_steered(mode, segments):
    steer = (SteerPlan("fd0b::/16", segments, SWITCH6, mode),)
    bench = Bench(route("fc00:1::/64", 1), steer=steer)
    port, out = bench.out(frame(ip6("fd0b::1", hop_limit=33, flow_label=7)))
    inner = ip6("fd0b::1", hop_limit=33, flow_label=7)
    want = bytearray(
        h_encaps(
            inner, packed(SWITCH6), [packed(s) for s in segments], reduced=mode == "encaps_red"
        )
    )
    want[7] -= 1  # the hop of a router
    assert (port, out) == (1, forwarded(bytes(want), 1))
    assert bench.count("steered") == 1


def test_ipv4_is_steered_too():
    steer = (SteerPlan("198.18.0.0/15", (f"{BLOCK}:1:2::",), SWITCH6),)
    bench = Bench(route(f"{BLOCK}::/32", 1), steer=steer)
    _, out = bench.out(frame(ip4()))
    assert (out[12:14], out[20], out[54:]) == (b"\x86\xdd", IP4IP, ip4())


def test_a_headend_tells_the_source_what_fits_under_its_header():
    """RFC 2473, section 7.1: the error is about the packet as it came, less what is added."""
    steer = (SteerPlan("fd0b::/16", SEGMENTS, SWITCH6),)
    bench = Bench(route("fc00:1::/64", 1), route("fd00::/16", 2), steer=steer, mtu={1: 1500})
    packet = ip6("fd0b::1", udp(payload=bytes(1452)))
    reason, ((_, out),) = bench.drops(frame(packet))
    message = Ether(out)[ICMPv6PacketTooBig]
    assert (reason, message.mtu) == ("too_big", 1500 - 40 - 8 - 2 * 16)
    assert out[62:] == packet[:1232]
    assert bench.way(frame(ip6("fd0b::1", bytes(1500 - 80 - 40)))) == 1


@pytest.mark.parametrize("make", [ip6, ip4])
def test_a_headend_is_a_router_of_what_it_steers(make):
    steer = tuple(
        SteerPlan(prefix, SEGMENTS, SWITCH6) for prefix in ("fd0b::/16", "198.18.0.2/32")
    )
    bench = Bench(route("fc00:1::/64", 1), route("::/0", 2), route("0.0.0.0/0", 2), steer=steer)
    packet = ip6("fd0b::1", hop_limit=1) if make is ip6 else ip4(ttl=1)
    reason, ((_, out),) = bench.drops(frame(packet))
    assert reason == "srv6_hop_limit"
    assert out[-len(packet) :] == packet


def test_a_path_may_begin_at_the_headend_itself():
    steer = (SteerPlan("fd0b::/16", (f"{BLOCK}:101:201::",), SWITCH6),)
    bench = Bench(NEXT, sids=(UN,), steer=steer)
    port, out = bench.out(frame(ip6("fd0b::1")))
    assert (port, out[38:54], out[21]) == (2, packed(f"{BLOCK}:201::"), 62)


# -- plans that cannot be ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sids", "message"),
    [
        ((sid("fe80::2/128", "End"),), "SID fe80::2/128 is link-local"),
        ((sid("fc00:1::/64", "End.X"),), "End.X wants an adjacency"),
        ((sid("fc00:1::/64", "End", 1),), "End has no adjacencies"),
        ((sid("fcbb:bb00:1::/40", "uN"),), "fcbb:bb00:1::/40 has host bits set"),
        ((UN, UN), "SID fcbb:bb00:101::/48 is there twice"),
        ((SidPlan("fc00:1::/64", "End.X", (), hops(9)),), "there is no such port"),
    ],
)
def test_sids_that_cannot_be_are_refused(sids, message):
    """Field report S12: also link-local ones."""
    with pytest.raises(ValueError, match=message):
        Bench(sids=sids)


def test_segments_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="link-local"):
        Bench(steer=(SteerPlan("fd0b::/16", ("fe80::1",), SWITCH6),))
