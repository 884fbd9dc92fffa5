"""Each behaviour by the lines of its pseudo-code; a kernel's packets; whatever may come."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transports.srv6.packets import (
    BLOCK,
    EAST,
    ENCAPS,
    FRAGMENT,
    ICMPV6,
    INLINE_PATH,
    INNER,
    IPV4,
    IPV6,
    OPTIONS,
    REDUCED_PATH,
    ROUTING,
    S1,
    S2,
    UDP,
    USID_PATH,
    WEST,
    D,
    a6,
    changed,
    ip4,
    ip6,
    sid,
    srh,
    table,
)
from tests.wire.strategies import moderate
from transports.srv6.endpoint import (
    at_local_address,
    end,
    end_dt4,
    end_dt6,
    end_dt46,
    end_dx4,
    end_dx6,
    end_x,
    process,
)
from transports.srv6.marks import Marks
from transports.srv6.outcome import (
    TIME_EXCEEDED,
    CrossConnect,
    Decapsulated,
    Deliver,
    Drop,
    Forward,
    Problem,
    Reason,
    Transit,
)
from transports.srv6.sids import Behaviour, Flavour, ua, udt, un
from wire.checksum import internet_checksum
from wire.csid import pack_container
from wire.srh import Tlv

B = Behaviour
END = sid("fc00:1::e")
END_X = sid("fc00:1::e", B.END_X, adjacencies=(EAST,))
DX6 = sid("fc00:b::d6", B.END_DX6, adjacencies=(EAST,))
DX4 = sid("fc00:b::d6", B.END_DX4, adjacencies=(EAST,))
DT6 = sid("fc00:b::d6", B.END_DT6, table=254)
DT4 = sid("fc00:b::d6", B.END_DT4, table=7)
DT46 = sid("fc00:b::d6", B.END_DT46, table=7)
PING = bytes.fromhex("8000 0000 0001 0001")
TWO_LEFT = ip6(S1, srh([D, S2, S1], 2), ROUTING)
NONE_LEFT = ip6(D, srh([D, S2], 0), ROUTING)


def erroneous(pointer):
    return Problem(4, 0, pointer)


def upper_layer(pointer):
    return Problem(4, 4, pointer)


class TestEnd:
    """RFC 8986, section 4.1."""

    @pytest.mark.parametrize(
        ("before", "after", "segment"),
        [
            (REDUCED_PATH[0], REDUCED_PATH[1], S1),
            (REDUCED_PATH[1], REDUCED_PATH[2], S2),
            (INLINE_PATH[0], INLINE_PATH[1], S1),
            (INLINE_PATH[1], INLINE_PATH[2], S2),
        ],
        ids=["reduced, link 0", "reduced, link 1", "inline, link 0", "inline, link 1"],
    )
    def test_a_packet_becomes_what_a_kernel_made_of_it(self, before, after, segment):
        outcome = end(before, sid(segment))
        assert outcome == Forward(bytearray(after), after[24:40])

    def test_s01_the_active_segment_goes_down_the_list(self):
        """Field report S01: destination and hops in the order of the path."""
        seen = [ENCAPS[24:40]]
        packet = ENCAPS
        for segment in (S1, S2):
            packet = end(packet, sid(segment)).packet
            seen.append(bytes(packet[24:40]))
        assert seen == [S1, S2, D]
        assert packet[43] == 0

    @pytest.mark.parametrize("hop_limit", [0, 1])
    def test_s05_a_hop_limit_that_is_used_up_comes_before_the_bounds(self, hop_limit):
        packet = changed(TWO_LEFT, o7=hop_limit, o43=9)
        assert end(packet, END) == Drop(packet, Reason.HOP_LIMIT, TIME_EXCEEDED)

    def test_s02_without_segments_left_the_hop_limit_is_not_looked_at(self):
        allowed = sid("fc00:1::e", upper_layers=frozenset({UDP}))
        packet = ip6(S1, srh([S1], 0, b"12345678", UDP), ROUTING, hop_limit=0)
        assert end(packet, allowed) == Deliver(packet, UDP, 64)

    @pytest.mark.parametrize(
        ("change", "reason", "pointer"),
        [
            ({"o44": 3}, Reason.LAST_ENTRY, 43),
            ({"o44": 255}, Reason.LAST_ENTRY, 43),
            ({"o43": 4}, Reason.SEGMENTS_LEFT, 43),
            ({"o43": 255}, Reason.SEGMENTS_LEFT, 43),
            ({"o41": 7}, Reason.TLV, 41),
            ({"o42": 0}, Reason.ROUTING_TYPE, 42),
            ({"o42": 2}, Reason.ROUTING_TYPE, 42),
        ],
    )
    def test_s07_s08_a_bound_that_is_broken_is_a_parameter_problem(
        self, change, reason, pointer
    ):
        """Field report S07; a length of 7 makes TLVs of what is behind the list."""
        packet = changed(TWO_LEFT, **change)
        assert end(packet, END) == Drop(packet, reason, erroneous(pointer))

    def test_s07_one_segment_more_than_the_list_has_is_legal(self):
        """A reduced list: the first segment is in the destination only."""
        assert isinstance(end(ip6(S1, srh([D, S2], 2), ROUTING), END), Forward)

    @pytest.mark.parametrize("size", [41, 47, 48, 95])
    def test_an_srh_that_the_packet_cuts_off_is_refused(self, size):
        packet = changed(TWO_LEFT[:size], o4=0, o5=size - 40)
        assert end(packet, END) == Drop(packet, Reason.TRUNCATED)

    def test_an_srh_that_goes_on_behind_the_payload_length_is_refused(self):
        packet = changed(TWO_LEFT, o4=0, o5=40)
        assert end(packet, END) == Drop(packet, Reason.TRUNCATED)

    def test_flags_and_tag_pass_unchanged(self):
        outcome = end(ip6(S1, srh([D, S1], 1, flags=0xF7, tag=0xBEEF), ROUTING), END)
        assert outcome.packet[45:48] == bytes.fromhex("f7beef")

    def test_a_tlv_passes_unchanged(self):
        tlvs = (Tlv(0x1E, b"abcdef"),)
        packet = ip6(S1, srh([D, S1], 1, tlvs=tlvs), ROUTING)
        assert end(packet, END).packet[40 + 8 + 32 :] == packet[40 + 8 + 32 :]

    def test_an_srh_behind_options_is_found_and_the_options_pass(self):
        options = bytes.fromhex("2b00 0104 00000000")
        packet = ip6(S1, options + srh([D, S1], 1), OPTIONS)
        outcome = end(packet, END)
        assert outcome.destination == D
        assert outcome.packet[40:48] == options
        assert outcome.packet[51] == 0

    def test_the_pointer_counts_from_the_ipv6_header(self):
        options = bytes.fromhex("2b00 0104 00000000")
        packet = ip6(S1, options + srh([D, S1], 1), OPTIONS)
        packet = changed(packet, o51=9)
        assert end(packet, END) == Drop(packet, Reason.SEGMENTS_LEFT, erroneous(51))

    def test_behind_an_srh_with_segments_left_nothing_is_read(self):
        packet = ip6(S1, srh([D, S1], 1, b"", FRAGMENT), ROUTING)
        assert isinstance(end(packet, END), Forward)

    @pytest.mark.parametrize("next_header", [UDP, IPV6, IPV4, ICMPV6, 59, 143])
    def test_an_upper_layer_that_is_not_allowed_is_a_parameter_problem(self, next_header):
        """Section 4.1.1, S04: code 4, pointer to the upper-layer header."""
        for payload, at, first in (
            (PING, 40, next_header),
            (srh([S1], 0, PING, next_header), 64, ROUTING),
        ):
            packet = ip6(S1, payload, first)
            assert end(packet, END) == Drop(packet, Reason.UPPER_LAYER, upper_layer(at))

    def test_an_upper_layer_that_is_allowed_is_handed_over(self):
        pingable = sid("fc00:1::e", upper_layers=frozenset({ICMPV6}))
        packet = ip6(S1, PING, ICMPV6)
        assert end(packet, pingable) == Deliver(packet, ICMPV6, 40)

    def test_another_routing_header_that_is_used_up_is_passed_over(self):
        """RFC 8200, section 4.4."""
        pingable = sid("fc00:1::e", upper_layers=frozenset({ICMPV6}))
        packet = ip6(S1, bytes.fromhex("3a00 0200 00000000") + PING, ROUTING)
        assert end(packet, pingable) == Deliver(packet, ICMPV6, 48)

    def test_a_second_routing_header_is_refused(self):
        packet = ip6(S1, srh([S1], 0, srh([D], 1), ROUTING), ROUTING)
        assert end(packet, END) == Drop(packet, Reason.CHAIN)

    def test_link_padding_is_cut_off(self):
        assert end(REDUCED_PATH[0] + bytes(6), END).packet == REDUCED_PATH[1]

    def test_a_payload_length_above_what_is_there_passes(self):
        """A trimmed packet whose lengths lie is forwarded as it is."""
        packet = changed(REDUCED_PATH[0], o4=0x10)
        assert end(packet, END).packet == changed(REDUCED_PATH[1], o4=0x10)


class TestEndX:
    """RFC 8986, section 4.2."""

    def test_the_packet_goes_to_the_adjacency_whatever_its_destination(self):
        outcome = end_x(REDUCED_PATH[0], END_X)
        assert outcome == CrossConnect(bytearray(REDUCED_PATH[1]), (EAST,))

    def test_several_adjacencies_are_the_owners_choice(self):
        both = sid("fc00:1::e", B.END_X, adjacencies=(EAST, WEST))
        assert end_x(REDUCED_PATH[0], both).adjacencies == (EAST, WEST)

    def test_all_else_is_as_for_end(self):
        packet = changed(TWO_LEFT, o43=9)
        assert end_x(packet, END_X) == end(packet, END)
        packet = ip6(S1, PING, ICMPV6)
        assert end_x(packet, END_X) == end(packet, END)


class TestDecapsulation:
    """RFC 8986, sections 4.4 to 4.8."""

    @pytest.mark.parametrize(
        ("act", "one"), [(end_dt6, DT6), (end_dt46, DT46)], ids=["DT6", "DT46"]
    )
    @pytest.mark.parametrize(
        "packet",
        [ip6(D, INNER, IPV6), NONE_LEFT, ip6(D, srh([D], 0), ROUTING),
         ip6(D, bytes.fromhex("2b00 0104 00000000") + srh([D], 0), OPTIONS),
         ip6(D, srh([D], 0, bytes.fromhex("2900 0104 00000000") + INNER, OPTIONS), ROUTING)],
        ids=["no SRH", "SRH used up", "one segment", "options in front", "options behind"],
    )  # fmt: skip
    def test_s08_s09_an_ipv6_packet_comes_out_whole(self, act, one, packet):
        """Field reports S08 and S09: with one SID, an SRH may be missing or have 0 left."""
        assert act(packet, one) == Decapsulated(
            bytearray(INNER), INNER[24:40], one.table, outer_traffic_class=0
        )

    @pytest.mark.parametrize(("act", "one"), [(end_dt4, DT4), (end_dt46, DT46)])
    def test_an_ipv4_packet_comes_out_whole(self, act, one):
        inner = ip4()
        outcome = act(ip6(D, srh([D], 0, inner, IPV4), ROUTING), one)
        assert outcome == Decapsulated(bytearray(inner), inner[16:20], 7, 0)

    @pytest.mark.parametrize(
        ("act", "one"),
        [(end_dx6, DX6), (end_dx4, DX4), (end_dt6, DT6), (end_dt4, DT4), (end_dt46, DT46)],
    )
    def test_s09_segments_left_at_the_last_sid_are_an_error(self, act, one):
        packet = ip6(D, srh([S2, D], 1), ROUTING)
        assert act(packet, one) == Drop(packet, Reason.SEGMENTS_LEFT_AT_END, erroneous(43))

    @pytest.mark.parametrize(
        ("act", "one", "next_header"),
        [(end_dx6, DX6, IPV4), (end_dx4, DX4, IPV6), (end_dt6, DT6, IPV4),
         (end_dt4, DT4, IPV6), (end_dt46, DT46, UDP), (end_dx6, DX6, 143)],
    )  # fmt: skip
    def test_another_upper_layer_is_a_parameter_problem(self, act, one, next_header):
        packet = ip6(D, srh([D], 0, INNER, next_header), ROUTING)
        assert act(packet, one) == Drop(packet, Reason.UPPER_LAYER, upper_layer(64))

    def test_dx6_sends_over_its_link_and_counts_a_hop(self):
        outcome = end_dx6(ip6(D, INNER, IPV6), DX6)
        assert outcome == CrossConnect(bytearray(changed(INNER, o7=0x3F)), (EAST,))

    def test_dx4_counts_a_hop_and_the_checksum_stays_right(self):
        outcome = end_dx4(ip6(D, ip4(ttl=9), IPV4), DX4)
        assert outcome == CrossConnect(bytearray(ip4(ttl=8)), (EAST,))
        assert internet_checksum(outcome.packet[:20]) == 0

    @pytest.mark.parametrize("ttl", [0, 1])
    def test_an_inner_hop_limit_that_is_used_up_is_told_to_the_inner_source(self, ttl):
        inner = changed(INNER, o7=ttl)
        outcome = end_dx6(ip6(D, inner, IPV6), DX6)
        assert outcome == Drop(bytearray(inner), Reason.HOP_LIMIT, TIME_EXCEEDED)
        outcome = end_dx4(ip6(D, ip4(ttl=ttl), IPV4), DX4)
        assert outcome == Drop(bytearray(ip4(ttl=ttl)), Reason.HOP_LIMIT, TIME_EXCEEDED)

    @pytest.mark.parametrize("hop_limit", [0, 1])
    def test_the_outer_hop_limit_does_not_matter_at_the_end(self, hop_limit):
        assert isinstance(end_dt6(ip6(D, INNER, IPV6, hop_limit=hop_limit), DT6), Decapsulated)

    @pytest.mark.parametrize(
        "inner", [b"", INNER[:39], ip4(), b"\x50" + INNER[1:]],
        ids=["nothing", "a byte short", "IPv4", "version 5"],
    )  # fmt: skip
    def test_what_is_not_the_announced_version_is_refused(self, inner):
        packet = ip6(D, inner, IPV6)
        assert end_dt6(packet, DT6) == Drop(packet, Reason.INNER)

    def test_an_inner_packet_with_lengths_that_lie_comes_out_as_it_is(self):
        """A trimmed packet: the inner length is the receiver's to judge."""
        trimmed = INNER[:60]
        assert end_dt6(ip6(D, trimmed, IPV6), DT6).packet == trimmed

    @pytest.mark.parametrize("bits", ["0001", "0008"])
    def test_a_fragment_is_refused(self, bits):
        packet = ip6(D, bytes.fromhex("2900" + bits + "00000007") + INNER, FRAGMENT)
        assert end_dt6(packet, DT6) == Drop(packet, Reason.FRAGMENT)

    def test_an_atomic_fragment_is_a_whole_packet(self):
        packet = ip6(D, bytes.fromhex("2900 0000 00000007") + INNER, FRAGMENT)
        assert end_dt6(packet, DT6).packet == INNER

    @pytest.mark.parametrize(
        ("marks", "outer", "inner", "after"),
        [
            (Marks.PIPE, 0xBB, 0x02, 0x03),
            (Marks.PIPE, 0xB8, 0x22, 0x22),
            (Marks.UNIFORM, 0xBB, 0x02, 0xBB),
            (Marks.UNIFORM, 0x30, 0x22, 0x32),
            (Marks.INNER, 0xBB, 0x02, 0x02),
        ],
    )
    @pytest.mark.parametrize("version", [4, 6])
    def test_marks_come_in_as_the_sid_says(self, marks, outer, inner, after, version):
        one = sid("fc00:b::d6", B.END_DT46, table=7, marks=marks)

        def packet_of(tos):
            if version == 4:
                return ip4(tos=tos)
            return ip6(D, b"12345678", UDP, traffic_class=tos)

        kind = IPV4 if version == 4 else IPV6
        outcome = end_dt46(ip6(D, packet_of(inner), kind, traffic_class=outer), one)
        assert outcome.packet == packet_of(after)
        assert outcome.outer_traffic_class == outer

    def test_congestion_on_a_packet_that_cannot_say_so_is_a_loss(self):
        """RFC 6040, section 4.2: CE over Not-ECT."""
        packet = ip6(D, ip6(D, b"12345678", UDP), IPV6, traffic_class=3)
        assert end_dt6(packet, DT6) == Drop(packet, Reason.ECN)


class TestFlavours:
    """RFC 8986, section 4.16."""

    PSP = sid("fc00:1::e", flavours=Flavour.PSP)
    USP = sid("fc00:1::e", flavours=Flavour.USP, upper_layers=frozenset({ICMPV6}))
    USD = sid("fc00:1::e", flavours=Flavour.USD)

    def test_psp_pops_the_srh_at_the_last_but_one(self):
        outcome = end(ip6(S1, srh([D, S1], 1), ROUTING), self.PSP)
        assert outcome == Forward(bytearray(ip6(D, INNER, IPV6, hop_limit=63)), D)

    def test_psp_pops_an_srh_with_tlvs_whole(self):
        packet = ip6(S1, srh([D, S1], 1, tlvs=(Tlv(0x1E, bytes(6)),)), ROUTING)
        assert end(packet, self.PSP).packet == ip6(D, INNER, IPV6, hop_limit=63)

    def test_psp_leaves_the_srh_before_that(self):
        outcome = end(TWO_LEFT, self.PSP)
        assert outcome == end(TWO_LEFT, END)

    def test_psp_mends_the_header_in_front(self):
        front, behind = bytes.fromhex("2b00 0104 00000000"), bytes.fromhex("2900 0104 00000000")
        packet = ip6(S1, front + srh([D, S1], 1), OPTIONS)
        assert end(packet, self.PSP).packet == ip6(D, behind + INNER, OPTIONS, hop_limit=63)

    def test_usp_pops_the_srh_at_the_last(self):
        packet = ip6(S1, srh([S1, S2], 0, PING, ICMPV6), ROUTING)
        assert end(packet, self.USP) == Deliver(bytearray(ip6(S1, PING, ICMPV6)), ICMPV6, 40)

    def test_usp_leaves_another_routing_header_alone(self):
        packet = ip6(S1, bytes.fromhex("3a00 0200 00000000") + PING, ROUTING)
        assert end(packet, self.USP) == Deliver(packet, ICMPV6, 48)

    def test_usp_points_at_the_upper_layer_of_the_packet_as_it_came(self):
        packet = ip6(S1, srh([S1, S2], 0, PING, UDP), ROUTING)
        assert end(packet, self.USP) == Drop(packet, Reason.UPPER_LAYER, upper_layer(80))

    @pytest.mark.parametrize(
        "packet", [ip6(S1, INNER, IPV6), ip6(S1, srh([S1, S2], 0), ROUTING)]
    )
    def test_usd_decapsulates_at_the_last(self, packet):
        assert end(packet, self.USD) == Decapsulated(bytearray(INNER), INNER[24:40], None, 0)

    def test_usd_takes_ipv4_too(self):
        inner = ip4()
        assert end(ip6(S1, inner, IPV4), self.USD).packet == inner

    def test_usd_at_end_x_sends_the_inner_packet_over_the_link(self):
        one = sid("fc00:1::e", B.END_X, Flavour.USD, adjacencies=(EAST,))
        outcome = end_x(ip6(S1, INNER, IPV6), one)
        assert outcome == CrossConnect(bytearray(changed(INNER, o7=0x3F)), (EAST,))

    def test_usd_is_not_asked_while_segments_are_left(self):
        assert end(TWO_LEFT, self.USD) == end(TWO_LEFT, END)

    def test_all_of_them_at_once(self):
        every = Flavour.PSP | Flavour.USP | Flavour.USD
        one = sid("fc00:1::e", flavours=every)
        assert end(ip6(S1, srh([D, S1], 1), ROUTING), one) == end(
            ip6(S1, srh([D, S1], 1), ROUTING), self.PSP
        )
        assert end(ip6(S1, INNER, IPV6), one) == end(ip6(S1, INNER, IPV6), self.USD)


class TestNextCsid:
    """RFC 9800, section 4.1.1."""

    @pytest.mark.parametrize(
        ("before", "after", "csid"),
        [(*USID_PATH[0:2], 0x101), (*USID_PATH[1:3], 0x201)],
        ids=["link 0", "link 1"],
    )
    def test_a_packet_becomes_what_a_kernel_made_of_it(self, before, after, csid):
        assert end(before, un(BLOCK, csid)) == Forward(bytearray(after), after[24:40])

    def test_six_csids_are_six_hops(self):
        csids = (0x201, 0x101, 0x201, 0x101, 0x201, 0x101)
        packet = ip6(pack_container(BLOCK.network_address.packed, csids), INNER, IPV6)
        for number, csid in enumerate(csids[:5]):
            packet = end(packet, un(BLOCK, csid)).packet
            expected = pack_container(BLOCK.network_address.packed, csids[number + 1 :])
            assert packet[24:40] == expected
        assert packet[7] == 64 - 5
        assert packet[40:] == INNER

    @pytest.mark.parametrize("hop_limit", [0, 1])
    def test_n02_a_hop_limit_that_is_used_up(self, hop_limit):
        packet = changed(USID_PATH[0], o7=hop_limit)
        assert end(packet, un(BLOCK, 0x101)) == Drop(packet, Reason.HOP_LIMIT, TIME_EXCEEDED)

    def test_the_srh_is_not_looked_at_while_an_argument_is_left(self):
        """segments_left stays, and a broken SRH is the next node's to refuse."""
        container = a6("fcbb:bb00:101:201::")
        packet = changed(ip6(container, srh([D, container], 1), ROUTING), o43=99)
        outcome = end(packet, un(BLOCK, 0x101))
        assert outcome.destination == a6("fcbb:bb00:201::")
        assert outcome.packet[40:] == packet[40:]

    def test_a_second_container_is_taken_when_the_first_is_used_up(self):
        first, second = a6("fcbb:bb00:201::"), a6("fcbb:bb00:102:202:b01::")
        outcome = end(ip6(first, srh([second], 1), ROUTING), un(BLOCK, 0x201))
        assert outcome.destination == second
        assert outcome.packet[43] == 0

    def test_a_used_up_container_without_srh_has_an_upper_layer(self):
        packet = ip6(a6("fcbb:bb00:101::"), INNER, IPV6)
        assert end(packet, un(BLOCK, 0x101)) == Drop(
            packet, Reason.UPPER_LAYER, upper_layer(40)
        )
        usd = un(BLOCK, 0x101, Flavour.PSP | Flavour.USD)
        assert end(packet, usd) == Decapsulated(bytearray(INNER), INNER[24:40], None, 0)

    def test_psp_pops_in_front_of_the_last_container(self):
        first, second = a6("fcbb:bb00:201::"), a6("fcbb:bb00:102:202:b01::")
        outcome = end(ip6(first, srh([second], 1), ROUTING), un(BLOCK, 0x201, Flavour.PSP))
        assert outcome.packet == ip6(second, INNER, IPV6, hop_limit=63)

    def test_ua_sends_over_its_link(self):
        packet = ip6(a6("fcbb:bb00:f001:201::"), INNER, IPV6)
        outcome = end_x(packet, ua(BLOCK, 0xF001, EAST))
        expected = ip6(a6("fcbb:bb00:201::"), INNER, IPV6, hop_limit=63)
        assert outcome == CrossConnect(bytearray(expected), (EAST,))

    def test_un_and_ua_at_once_use_up_two_csids_and_one_hop(self):
        packet = ip6(a6("fcbb:bb00:101:f001:201::"), INNER, IPV6)
        outcome = end_x(packet, ua(BLOCK, 0xF001, EAST, node=0x101))
        expected = ip6(a6("fcbb:bb00:201::"), INNER, IPV6, hop_limit=63)
        assert outcome == CrossConnect(bytearray(expected), (EAST,))

    def test_s08_a_container_of_three_without_srh_is_decapsulated_at_its_end(self):
        """Field report S08: a destination in the table of SIDs is enough."""
        packet = USID_PATH[0]
        for csid in (0x101, 0x201):
            packet = process(packet, table(un(BLOCK, csid))).packet
        outcome = process(packet, table(udt(BLOCK, 0xB01, 255)))
        assert outcome == Decapsulated(bytearray(INNER), INNER[24:40], 255, 0)

    def test_a_nic_takes_its_own_address_with_nothing_behind_it(self):
        """The last switch has shifted too: block, own CSID, zeros. All else is not for it."""
        nic = table(sid("fcbb:bb00:3807::/128", B.END_DT6, table=0))
        outer = ip6(a6("fcbb:bb00:3807::"), INNER, IPV6)
        assert process(outer, nic) == Decapsulated(bytearray(INNER), INNER[24:40], 0, 0)
        behind = ip6(a6("fcbb:bb00:3807:1::"), INNER, IPV6)
        assert isinstance(process(behind, nic), Transit)

    def test_udt_does_not_mind_an_argument(self):
        packet = ip6(a6("fcbb:bb00:b01:7::"), INNER, IPV6)
        assert end_dt46(packet, udt(BLOCK, 0xB01, 255)).packet == INNER


class TestProcess:
    """Matching and counting."""

    def test_a_destination_that_is_no_sid_is_in_transit_and_not_looked_at(self):
        """RFC 8754, section 4.2: a transit node leaves the SRH alone."""
        packet = changed(TWO_LEFT, o43=99)
        sids = table(un(BLOCK, 0x101))
        assert process(packet, sids) == Transit(packet, S1)
        assert not sids.counters

    def test_a_csid_that_nobody_owns_is_in_transit(self):
        packet = ip6(a6("fcbb:bb00:999:201::"), INNER, IPV6)
        sids = table(un(BLOCK, 0x101))
        assert process(packet, sids) == Transit(packet, packet[24:40])

    def test_the_longest_prefix_acts(self):
        sids = table(un(BLOCK, 0x101), ua(BLOCK, 0xF001, EAST, node=0x101))
        both = ip6(a6("fcbb:bb00:101:f001:201::"), INNER, IPV6)
        one = ip6(a6("fcbb:bb00:101:f002:201::"), INNER, IPV6)
        assert isinstance(process(both, sids), CrossConnect)
        assert process(one, sids).destination == a6("fcbb:bb00:f002:201::")

    def test_two_csids_of_one_node_are_two_passes(self):
        sids = table(un(BLOCK, 0x101), ua(BLOCK, 0xF001, EAST))
        outcome = process(ip6(a6("fcbb:bb00:101:f001:201::"), INNER, IPV6), sids)
        outcome = process(outcome.packet, sids)
        assert outcome.packet == ip6(a6("fcbb:bb00:201::"), INNER, IPV6, hop_limit=62)

    def test_packets_octets_and_errors_are_counted_for_each_sid(self):
        """RFC 8986, section 6: of packets processed without error."""
        sids = table(un(BLOCK, 0x101), END)
        process(USID_PATH[0], sids)
        process(USID_PATH[0], sids)
        process(changed(USID_PATH[0], o7=1), sids)
        process(changed(TWO_LEFT, o43=9), sids)
        process(TWO_LEFT, sids)
        counted = {str(row.sid.prefix): (row.packets, row.octets, row.errors) for row in sids}
        assert counted == {
            "fcbb:bb00:101::/48": (2, 2 * len(USID_PATH[0]), 1),
            "fc00:1::e/128": (1, len(TWO_LEFT), 1),
        }
        assert sids.counters == {"hop_limit": 1, "segments_left": 1}

    @pytest.mark.parametrize(
        ("packet", "reason"),
        [(b"", Reason.TRUNCATED), (b"\x60", Reason.TRUNCATED),
         (USID_PATH[0][:39], Reason.TRUNCATED), (ip4(), Reason.VERSION),
         (b"\x00" * 60, Reason.VERSION)],
    )  # fmt: skip
    def test_what_is_no_ipv6_packet_is_refused_and_counted(self, packet, reason):
        sids = table(END)
        assert process(packet, sids) == Drop(packet, reason)
        assert sids.counters == {reason.value: 1}

    def test_a_chain_that_does_not_end_is_refused_and_counted(self):
        sids = table(END)
        endless = ip6(S1, bytes.fromhex("3c00 0104 00000000") * 100, OPTIONS)
        cut = ip6(S1, bytes.fromhex("3c00 0104 00000000") * 3, OPTIONS)
        assert process(endless, sids) == Drop(endless, Reason.CHAIN)
        assert process(cut, sids) == Drop(cut, Reason.TRUNCATED)
        assert sids.counters == {"chain": 1, "truncated": 1}

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_any_kind_of_buffer_will_do_and_stays_as_it_was(self, kind):
        for packet in (USID_PATH[0], TWO_LEFT, NONE_LEFT):
            sids = table(un(BLOCK, 0x101), END, DX6)
            given_ = kind(packet)
            outcome = process(given_, sids)
            assert outcome == process(packet, sids)
            assert given_ == packet


class TestLocalAddress:
    """RFC 8754, section 4.3.2."""

    def test_an_srh_that_is_used_up_is_passed_over(self):
        packet = ip6(D, srh([D, S1], 0, PING, ICMPV6), ROUTING)
        assert at_local_address(packet) == Deliver(packet, ICMPV6, 80)

    def test_an_srh_with_segments_left_is_an_unknown_routing_type(self):
        packet = ip6(D, srh([S1, D], 1), ROUTING)
        assert at_local_address(packet) == Drop(
            packet, Reason.SEGMENTS_LEFT_AT_END, erroneous(42)
        )

    def test_without_an_srh_the_upper_layer_is_found(self):
        assert at_local_address(INNER) == Deliver(INNER, UDP, 40)

    def test_what_is_no_ipv6_packet_is_refused(self):
        assert at_local_address(b"") == Drop(b"", Reason.TRUNCATED)
        assert at_local_address(ip4()) == Drop(ip4(), Reason.VERSION)


ALL = [
    un(BLOCK, 0x101),
    un(BLOCK, 0x102, Flavour.PSP | Flavour.USP | Flavour.USD),
    ua(BLOCK, 0xF001, EAST),
    ua(BLOCK, 0xF001, EAST, node=0x101, flavours=Flavour.USD),
    udt(BLOCK, 0xB01, 255),
    sid("fc00:1::e"),
    sid("fc00:2::e", flavours=Flavour.PSP | Flavour.USD, upper_layers=frozenset({ICMPV6})),
    sid("fc00:3::e", B.END_X, adjacencies=(EAST, WEST)),
    DX6,
    sid("fc00:c::/64", B.END_DX4, adjacencies=(EAST,)),
    sid("fc00:d::/64", B.END_DT6, table=1, marks=Marks.UNIFORM),
    sid("fc00:e::/64", B.END_DT4, table=1),
]
ADDRESSES = [one.prefix.network_address.packed for one in ALL] + [
    a6("fcbb:bb00:101:102:f001:b01::"),
    a6("fcbb:bb00:102:101::"),
    a6("fcbb:bb00:101:f001:102::"),
]
addresses = st.sampled_from(ADDRESSES)


@st.composite
def packets(draw):
    """Packets of the kinds that SIDs expect, with some bytes changed and an end cut off."""
    destination = draw(addresses)
    inner = draw(st.sampled_from([INNER, ip4(), PING, b""]))
    kind = draw(st.sampled_from([IPV6, IPV4, ICMPV6, UDP, FRAGMENT, 59]))
    payload, first = inner, kind
    if draw(st.booleans()):
        segments = draw(st.lists(addresses, min_size=1, max_size=4))
        left = draw(st.integers(0, len(segments)))
        payload, first = srh(segments, left, payload, first), ROUTING
    if draw(st.booleans()):
        payload, first = bytes((first, 0, 1, 4, 0, 0, 0, 0)) + payload, OPTIONS
    packet = bytearray(
        ip6(destination, payload, first, hop_limit=draw(st.sampled_from([0, 1, 2, 64, 255])))
    )
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, min(len(packet), 90) - 1))
        packet[at] = draw(st.integers(0, 255))
    return bytes(packet[: draw(st.integers(0, len(packet) + 20))])


class TestProperties:
    @moderate
    @given(st.lists(packets() | st.binary(max_size=120), min_size=1, max_size=30))
    def test_no_packet_raises_and_the_counters_add_up(self, sent):
        sids = table(*ALL)
        outcomes = Counter()
        for packet in sent:
            outcome = process(packet, sids)
            outcomes[type(outcome)] += 1
            if isinstance(outcome, Drop):
                assert outcome.packet == packet or outcome.reason is Reason.HOP_LIMIT
        assert sum(sids.counters.values()) == outcomes[Drop]
        assert sum(row.packets for row in sids) == sum(
            count for kind, count in outcomes.items() if kind not in {Drop, Transit}
        )

    @moderate
    @given(packets())
    def test_the_fast_path_does_what_the_behaviours_do(self, packet):
        acts = {
            B.END: end, B.END_X: end_x, B.END_DX4: end_dx4, B.END_DX6: end_dx6,
            B.END_DT4: end_dt4, B.END_DT6: end_dt6, B.END_DT46: end_dt46,
        }  # fmt: skip
        sids = table(*ALL)
        outcome = process(packet, sids)
        if not isinstance(outcome, Transit) and len(packet) >= 40 and packet[0] >> 4 == 6:
            one = sids.find(packet[24:40]).sid
            assert outcome == acts[one.behaviour](packet, one)

    @moderate
    @given(packets())
    def test_whatever_goes_on_is_one_hop_older_and_its_length_is_right(self, packet):
        sids = table(*ALL)
        outcome = process(packet, sids)
        if isinstance(outcome, Forward):
            out = outcome.packet
            assert out[7] == packet[7] - 1 >= 1
            assert out[24:40] == outcome.destination
            promised = int.from_bytes(packet[4:6], "big") - int.from_bytes(out[4:6], "big")
            assert promised == min(len(packet), 40 + int.from_bytes(packet[4:6], "big")) - len(
                out
            )

    @moderate
    @given(packets())
    def test_passes_over_one_node_come_to_an_end(self, packet):
        sids = table(*ALL)
        outcome = process(packet, sids)
        passes = 1
        while isinstance(outcome, Forward):
            outcome = process(outcome.packet, sids)
            passes += 1
        assert passes <= 256
