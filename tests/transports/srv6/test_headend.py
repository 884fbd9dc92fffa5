"""H.Encaps and H.Encaps.Red: a kernel's packets, marks and hop limits, what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transports.srv6.packets import (
    BLOCK,
    ENCAPS,
    INNER,
    IPV6,
    REDUCED_PATH,
    ROUTING,
    S1,
    S2,
    SOURCE,
    UDP,
    USID_PATH,
    D,
    a6,
    changed,
    ip4,
    ip6,
)
from tests.wire.strategies import moderate, octets
from transports.srv6.endpoint import process
from transports.srv6.headend import Policy, containers, encaps_usid, encapsulate, h_encaps
from transports.srv6.outcome import TIME_EXCEEDED, Decapsulated, Drop, Forward, Reason
from transports.srv6.sids import SidTable, udt, un
from wire.codec import DecodeError
from wire.srh import Srh, Tlv

USIDS = [0x101, 0x201, 0xB01]


class TestKernel:
    """What Linux sent for the same policies."""

    def test_h_encaps(self):
        assert h_encaps(INNER, SOURCE, [S1, S2, D]) == ENCAPS

    def test_h_encaps_red(self):
        assert h_encaps(INNER, SOURCE, [S1, S2, D], reduced=True) == REDUCED_PATH[0]

    def test_s08_one_container_needs_no_srh(self):
        assert encaps_usid(INNER, SOURCE, BLOCK.network_address.packed, USIDS) == USID_PATH[0]

    def test_s02_all_segments_reach_the_wire(self):
        path = [a6(f"fc00:{n:x}::e") for n in range(1, 7)]
        packet = h_encaps(INNER, SOURCE, path)
        assert Srh.unpack_from(packet, 40).segment_list[::-1] == tuple(path)

    def test_s09_one_segment_with_an_srh_has_none_left(self):
        packet = h_encaps(INNER, SOURCE, [D])
        assert Srh.unpack_from(packet, 40) == Srh(IPV6, (D,), 0)

    def test_seven_csids_are_two_containers_and_an_srh_of_one(self):
        packet = encaps_usid(INNER, SOURCE, BLOCK.network_address.packed, range(1, 8))
        assert packet[24:40] == a6("fcbb:bb00:1:2:3:4:5:6")
        assert Srh.unpack_from(packet, 40) == Srh(IPV6, (a6("fcbb:bb00:7::"),), 1)


class TestOuterHeader:
    V6 = ip6(D, b"12345678", UDP, hop_limit=9, traffic_class=0xBA)
    V6 = changed(V6, o1=V6[1] | 0x5, o2=0x43, o3=0x21)  # flow label 0x54321

    def outer(self, packet, *, is_router=False, **options):
        out = encapsulate(packet, Policy(SOURCE, (D,), **options), is_router=is_router).packet
        word = int.from_bytes(out[:4], "big")
        return word >> 20 & 0xFF, word & 0xFFFFF, out[7]

    def test_class_label_and_hop_limit_are_those_of_an_ipv6_packet(self):
        assert self.outer(self.V6) == (0xBA, 0x54321, 9)

    def test_over_ipv4_the_class_is_that_of_the_packet_and_the_hop_limit_is_not(self):
        assert self.outer(ip4(tos=0xBA, ttl=9)) == (0xBA, 0, 64)

    def test_each_can_be_set_instead(self):
        options = {"traffic_class": 4, "flow_label": 5, "hop_limit": 6}
        assert self.outer(self.V6, **options) == (4, 5, 6)
        assert self.outer(ip4(), **options) == (4, 5, 6)

    def test_zero_is_a_number(self):
        assert self.outer(self.V6, traffic_class=0, flow_label=0) == (0, 0, 9)

    def test_a_router_counts_as_a_hop_outside_as_with_linux(self):
        assert self.outer(self.V6, is_router=True) == (0xBA, 0x54321, 8)
        out = encapsulate(self.V6, Policy(SOURCE, (D,)), is_router=True).packet
        assert out.endswith(self.V6)

    @pytest.mark.parametrize("packet", [V6, ip4(ttl=9)], ids=["IPv6", "IPv4"])
    def test_a_router_counts_as_a_hop_inside_as_in_the_text(self, packet):
        """RFC 8986, section 5.1, S05: the same outer header, over IPv6."""
        policy = Policy(SOURCE, (D,), inner_hop=True)
        out = encapsulate(packet, policy, is_router=True).packet
        inner = ip4(ttl=8) if packet[0] >> 4 == 4 else changed(packet, o7=8)
        assert out.endswith(inner)
        assert out[7] == (64 if packet[0] >> 4 == 4 else 8)

    def test_an_srh_names_what_is_behind_it(self):
        assert h_encaps(ip4(), SOURCE, [S1, D])[40] == 4
        assert h_encaps(self.V6, SOURCE, [S1, D])[40] == 41
        assert h_encaps(ip4(), SOURCE, [D], reduced=True)[6] == 4

    def test_tlvs_are_padded_and_keep_the_srh(self):
        policy = Policy(SOURCE, (D,), reduced=True, tlvs=(Tlv(0x1E, b"abc"),))
        out = encapsulate(INNER, policy).packet
        srh = Srh.unpack_from(out, 40)
        assert out[6] == ROUTING
        assert srh.segment_list == (D,)
        assert policy.overhead == len(out) - len(INNER) == 40 + 24 + 8


class TestRefusals:
    POLICY = Policy(SOURCE, (S1, D))

    @pytest.mark.parametrize("ttl", [0, 1])
    @pytest.mark.parametrize("packet", [INNER, ip4()], ids=["IPv6", "IPv4"])
    def test_a_router_does_not_pass_on_what_is_too_old(self, ttl, packet):
        old = changed(INNER, o7=ttl) if packet is INNER else ip4(ttl=ttl)
        outcome = encapsulate(old, self.POLICY, is_router=True)
        assert outcome == Drop(old, Reason.HOP_LIMIT, TIME_EXCEEDED)
        assert isinstance(encapsulate(old, self.POLICY), Forward)

    @pytest.mark.parametrize(
        ("packet", "reason"),
        [(b"", Reason.TRUNCATED), (INNER[:39], Reason.TRUNCATED),
         (ip4()[:19], Reason.TRUNCATED), (bytes(60), Reason.VERSION),
         (b"\x70" * 60, Reason.VERSION)],
    )  # fmt: skip
    def test_what_is_no_ip_packet_is_refused(self, packet, reason):
        assert encapsulate(packet, self.POLICY) == Drop(packet, reason)
        with pytest.raises(DecodeError):
            h_encaps(packet, SOURCE, [D])

    @pytest.mark.parametrize(("size", "is_legal"), [(65471, True), (65472, False)])
    def test_what_becomes_too_long_is_refused(self, size, is_legal):
        """65,535 bytes behind the outer header are an SRH of 24, the inner header and these."""
        packet = ip6(D, bytes(size), UDP)
        outcome = encapsulate(packet, Policy(SOURCE, (S1, D), reduced=True))
        assert isinstance(outcome, Forward) == is_legal
        assert is_legal or outcome == Drop(packet, Reason.TOO_LONG)

    def test_a_host_is_told_when_its_packet_becomes_too_long(self):
        with pytest.raises(ValueError, match="payload_length is 0x10000"):
            h_encaps(ip6(D, bytes(65496), UDP), SOURCE, [D], reduced=True)

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"segments": ()}, "at least one segment"),
            ({"segments": (b"four",)}, "segment is 4 bytes"),
            ({"segments": (a6("fe80::2"),)}, "segment fe80::2 is link-local"),
            ({"segments": (a6("ff02::1"),)}, "segment ff02::1 is multicast"),
            ({"segments": (bytes(16),)}, "segment :: is unspecified"),
            ({"segments": (a6("::1"),)}, "segment ::1 is loopback"),
            ({"source": bytes(16)}, "source :: is unspecified"),
            ({"traffic_class": 256}, "traffic_class is 0x100"),
            ({"flow_label": 1 << 20}, "flow_label is 0x100000"),
            ({"hop_limit": 1}, "hop_limit is 1"),
            ({"segments": (D,) * 128}, "128 segments"),
        ],
    )
    def test_s12_a_policy_that_cannot_be_is_refused_when_it_is_made(self, options, text):
        with pytest.raises(ValueError, match=text):
            Policy(**{"source": SOURCE, "segments": (D,)} | options)


@moderate
@given(
    st.binary(max_size=80).map(lambda payload: ip6(D, payload, UDP)) | st.just(ip4()),
    st.lists(st.integers(1, 0xFFFF), min_size=1, max_size=20),
)
def test_what_is_encapsulated_comes_out_at_the_end_of_its_path(packet, csids):
    """Every CSID acts once, none is lost, and the packet is as it was."""
    block = BLOCK.network_address.packed
    outer = encaps_usid(packet, SOURCE, block, csids)
    for csid in csids[:-1]:
        outcome = process(outer, SidTable([un(BLOCK, csid)]))
        assert isinstance(outcome, Forward)
        outer = outcome.packet
    outcome = process(outer, SidTable([udt(BLOCK, csids[-1], 0)]))
    assert isinstance(outcome, Decapsulated)
    assert outcome.packet == packet


@moderate
@given(st.binary(max_size=120), st.booleans(), st.booleans())
def test_no_packet_raises(packet, is_router, inner_hop):
    outcome = encapsulate(
        packet, Policy(SOURCE, (D,), inner_hop=inner_hop), is_router=is_router
    )
    assert isinstance(outcome, Forward | Drop)


@moderate
@given(st.lists(octets(2).filter(any), min_size=1, max_size=30))
def test_containers_are_as_few_as_can_be(raw):
    csids = [int.from_bytes(each, "big") for each in raw]
    assert len(containers(BLOCK.network_address.packed, csids)) == -(-len(csids) // 6)
