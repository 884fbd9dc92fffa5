"""The table of SIDs, and what cannot be one."""

from ipaddress import IPv6Network

import pytest

from tests.transports.srv6.packets import BLOCK, EAST, WEST, a6, sid, table
from transports.srv6.sids import (
    MAX_SHIFTS,
    Behaviour,
    Flavour,
    SidTable,
    refusal,
    ua,
    udt,
    un,
)
from wire.csid import CsidStructure, pack_container

B, F = Behaviour, Flavour


class TestNames:
    @pytest.mark.parametrize(
        ("one", "prefix", "behaviour"),
        [
            (un(BLOCK, 0x101), "fcbb:bb00:101::/48", B.END),
            (ua(BLOCK, 0xF001, EAST), "fcbb:bb00:f001::/48", B.END_X),
            (ua(BLOCK, 0xF001, EAST, node=0x101), "fcbb:bb00:101:f001::/64", B.END_X),
            (udt(BLOCK, 0xB01, 255), "fcbb:bb00:b01::/48", B.END_DT46),
            (udt(BLOCK, 0xB01, 255, node=0x101, behaviour=B.END_DT6),
             "fcbb:bb00:101:b01::/64", B.END_DT6),
        ],
    )  # fmt: skip
    def test_the_short_names_make_sids_of_f3216(self, one, prefix, behaviour):
        assert one.prefix == IPv6Network(prefix)
        assert one.behaviour is behaviour
        assert (F.NEXT_CSID in one.flavours) == (behaviour in {B.END, B.END_X})

    def test_flavours_come_on_top(self):
        assert un(BLOCK, 1, F.PSP | F.USD).flavours == F.PSP | F.USD | F.NEXT_CSID


class TestRefusals:
    @pytest.mark.parametrize(
        ("address", "why"),
        [("fe80::2", "link-local, and no router forwards that"), ("febf::1", "link-local"),
         ("ff02::1", "multicast"), ("::", "unspecified"), ("::1", "loopback")],
    )  # fmt: skip
    def test_s12_an_address_of_no_node_is_no_sid(self, address, why):
        """Field report S12: refused where it is configured, in one line."""
        with pytest.raises(ValueError, match=why) as caught:
            sid(address)
        assert str(caught.value).startswith(f"SID {address}/128 is ")
        assert "\n" not in str(caught.value)

    def test_ordinary_addresses_are_not_refused(self):
        for address in ("fc00:1::e", "fd00::1", "2001:db8::1", "fec0::1"):
            assert not refusal(sid(address).prefix.network_address)

    @pytest.mark.parametrize("csid", [0, 0x10000, -1])
    def test_a_csid_of_zero_or_too_wide_is_refused(self, csid):
        with pytest.raises(ValueError, match="CSID is"):
            un(BLOCK, csid)

    def test_a_sid_whose_csid_is_zero_is_refused(self):
        with pytest.raises(ValueError, match="CSID 0x0, which ends a container"):
            sid("fcbb:bb00::/48", flavours=F.NEXT_CSID)

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (("fcbb:bb00:1::/64", B.END, F.NEXT_CSID), "should be a /48"),
            (("fc00::1", B.END_X), "End.X wants an adjacency"),
            (("fc00::1", B.END_DX6), "End.DX6 wants an adjacency"),
            (("fc00::1", B.END_DT6), "End.DT6 wants a table"),
        ],
    )
    def test_what_a_behaviour_lacks_is_named(self, arguments, text):
        with pytest.raises(ValueError, match=text):
            sid(*arguments)

    @pytest.mark.parametrize(
        ("behaviour", "flavours", "options", "text"),
        [
            (B.END, F.NONE, {"adjacencies": (EAST,)}, "End has no adjacencies"),
            (B.END, F.NONE, {"table": 1}, "End has no table"),
            (B.END_DT6, F.PSP, {"table": 1}, "End.DT6 has no flavours"),
            (B.END_DX4, F.USD, {"adjacencies": (EAST,)}, "End.DX4 has no flavours"),
        ],
    )
    def test_what_a_behaviour_does_not_have_is_named(self, behaviour, flavours, options, text):
        with pytest.raises(ValueError, match=text):
            sid("fc00::1", behaviour, flavours, **options)

    def test_a_structure_that_cannot_be_is_refused(self):
        with pytest.raises(ValueError, match=r"structure is 33\+12 bits"):
            sid("fc00::/45", flavours=F.NEXT_CSID, structure=CsidStructure(33, 12))

    def test_a_block_of_another_width_is_refused(self):
        with pytest.raises(ValueError, match="should be a /32"):
            un(IPv6Network("fcbb::/16"), 1)

    def test_the_same_prefix_twice_is_refused(self):
        with pytest.raises(ValueError, match="fcbb:bb00:101::/48 is there twice"):
            table(un(BLOCK, 0x101), udt(BLOCK, 0x101, 1))


class TestTable:
    COMPOSITE = ua(BLOCK, 0xF001, EAST, node=0x101)
    NODE = un(BLOCK, 0x101)
    WHOLE = sid("fcbb:bb00:101:f001::", B.END_X, adjacencies=(WEST,))

    @pytest.mark.parametrize("order", [1, -1])
    def test_the_longest_prefix_wins_whatever_the_order(self, order):
        sids = table(*[self.COMPOSITE, self.NODE, self.WHOLE][::order])
        found = [
            sids.find(a6(text)).sid
            for text in ("fcbb:bb00:101::", "fcbb:bb00:101:f001:1::", "fcbb:bb00:101:f001::")
        ]
        assert found == [self.NODE, self.COMPOSITE, self.WHOLE]
        assert sids.find(a6("fcbb:bb00:102::")) is None

    def test_a_sid_taken_out_is_gone_and_the_others_stay(self):
        sids = table(self.COMPOSITE, self.NODE)
        sids.remove(self.COMPOSITE.prefix)
        assert sids.find(a6("fcbb:bb00:101:f001::")).sid == self.NODE
        assert len(sids) == 1
        with pytest.raises(KeyError):
            sids.remove(self.COMPOSITE.prefix)

    def test_a_shift_is_remembered_until_the_table_changes(self):
        sids = table(self.NODE)
        destination = a6("fcbb:bb00:101:f001:7::")
        assert sids.shift(destination).destination == a6("fcbb:bb00:f001:7::")
        assert sids.shift(destination) is sids.shift(destination)
        sids.add(self.COMPOSITE)
        assert sids.shift(destination).destination == a6("fcbb:bb00:7::")
        assert sids.shift(destination).adjacencies == (EAST,)
        sids.remove(self.COMPOSITE.prefix)
        assert sids.shift(destination).destination == a6("fcbb:bb00:f001:7::")

    @pytest.mark.parametrize("text", ["fcbb:bb00:101::", "fcbb:bb00:999:1::", "fc00::1"])
    def test_where_there_is_nothing_to_shift_there_is_no_shift(self, text):
        assert table(self.NODE, sid("fc00::/64")).shift(a6(text)) is None

    def test_what_is_remembered_is_bounded(self):
        sids = SidTable([self.NODE])
        block = BLOCK.network_address.packed
        for number in range(1, MAX_SHIFTS + 10):
            sids.shift(pack_container(block, [0x101, number]))
        assert len(sids._shifts) <= MAX_SHIFTS
