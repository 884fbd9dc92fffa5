"""GIDs: the table, and which pair two ends use. Rows of the field reports, section 2."""

from ipaddress import ip_address

import pytest

from tests.transports.roce.script import OUR_QP, datagram, ip_packet, write, write_only
from transports.roce.attributes import AddressHandle, QpState
from transports.roce.gids import GidError, GidTable, choose
from wire.roce.gid import gid_of


def ip(text):
    return ip_address(text).packed


def table(*texts):
    return GidTable(map(ip, texts))


def test_an_ipv4_address_is_mapped():
    assert table("10.0.0.1")[0] == GidTable([gid_of(ip("10.0.0.1"))])[0]


def test_g02_the_family_that_both_have_is_taken():
    a, b = table("fe80::1", "10.0.0.1"), table("fe80::2", "fd00::2", "10.0.0.2")
    assert choose(a, b) == (1, 2)
    assert choose(b, a) == (2, 1)
    with pytest.raises(GidError) as error:
        choose(a, b, family=6)
    assert str(error.value) == (
        "no GIDs of IPv6 to join: ours are 0: fe80::1, 1: 10.0.0.1; "
        "theirs are 0: fe80::2, 1: fd00::2, 2: 10.0.0.2"
    )


def test_g02_where_both_have_both_the_wanted_one_is_taken():
    a, b = table("10.0.0.1", "fd00::1"), table("fd00::2", "10.0.0.2")
    assert choose(a, b) == (1, 0)
    assert choose(a, b, family=4) == (0, 1)


@pytest.mark.parametrize("same_link", [False, True])
def test_g03_a_link_local_gid_is_not_taken_where_there_is_another(same_link):
    a, b = table("fe80::1", "fd00:1::1"), table("fe80::2", "fd00:2::1")
    assert choose(a, b, same_link=same_link) == (1, 1)


def test_g03_a_link_local_gid_never_crosses_a_router_unless_told():
    a, b = table("fe80::1"), table("fe80::2")
    with pytest.raises(GidError, match=r"ours are 0: fe80::1; theirs are 0: fe80::2"):
        choose(a, b)
    assert choose(a, b, same_link=True) == (0, 0)


def test_g04_empty_entries_are_skipped():
    a = table(*(f"fd00::{n}" for n in range(1, 8)))
    for n in range(1, 7):
        a.remove(ip(f"fd00::{n}"))
    assert list(a) == [(6, ip("fd00::7"))]
    assert choose(a, table("fd00::9")) == (6, 0)
    with pytest.raises(GidError, match=r"GID index 0 is empty, the table has 6: fd00::7"):
        a[0]
    with pytest.raises(GidError, match="GID index 7 is empty"):
        a[7]


def test_g05_without_ipv4_a_routed_ipv6_gid_is_taken():
    assert choose(table("fe80::1", "fd00:9::1"), table("fe80::2", "fd00:9::2")) == (1, 1)


def test_g06_ends_of_two_families_are_told_before_anything_changes():
    with pytest.raises(
        ValueError, match=r"^local_ip 10\.0\.0\.1 and remote_ip fe80::2 are of two families$"
    ):
        AddressHandle(ip("10.0.0.1"), ip("fe80::2"))
    with pytest.raises(ValueError, match=r"^local_ip ::ffff:.* is IPv4: give its 4 bytes$"):
        AddressHandle(gid_of(ip("10.0.0.1")), ip("fe80::2"))
    with pytest.raises(ValueError, match=r"^remote_ip 00 is neither 4 nor 16 bytes long$"):
        AddressHandle(ip("10.0.0.1"), b"\0")


def test_g06_tables_without_a_common_family_are_one_line():
    with pytest.raises(GidError) as error:
        choose(table("10.0.0.1"), table("fe80::2"))
    assert "\n" not in str(error.value)
    assert "ours are 0: 10.0.0.1; theirs are 0: fe80::2" in str(error.value)


def test_g07_the_table_follows_the_addresses_and_keeps_the_others_in_place():
    a = table("fd00::1", "fd00::2", "fd00::3")
    assert a.remove(ip("fd00::2")) == 1
    assert a.index(ip("fd00::3")) == 2
    assert a.add(ip("fd00::4")) == 1
    assert a.add(ip("fd00::2")) == 3
    with pytest.raises(ValueError, match="fd00::4 is in the table already"):
        a.add(ip("fd00::4"))
    with pytest.raises(GidError, match="fd00::9 is not in the GID table: 0: fd00::1"):
        a.remove(ip("fd00::9"))
    with pytest.raises(ValueError, match="neither 4 nor 16"):
        a.add(b"\0")


def test_g07_traffic_follows_the_addresses(rc):
    rc.receives(write_only(0, ack_req=True))
    rc.sends_acks(0, 1)
    rc.device.remove_address(rc.ours)
    rc.ignores(write_only(1, ack_req=True))
    assert rc.device.counters()["refused_destination_address"] == 1
    qp = rc.device.create_qp(rc.pd)
    qp.modify(QpState.INIT, 0, pkey_index=0, port_num=1, qp_access_flags=0)
    with pytest.raises(ValueError, match="is not an address of this port"):
        qp.modify(
            QpState.RTR, 0, ah=AddressHandle(rc.ours, rc.peers), path_mtu=256, rq_psn=0,
            dest_qp_num=OUR_QP, max_dest_rd_atomic=1, min_rnr_timer=1,
        )  # fmt: skip
    rc.device.add_address(rc.ours)
    rc.receives(write_only(1, ack_req=True))
    rc.sends_acks(1, 2)
    rc.posts(write(8))
    rc.sends("WRITE_ONLY")


def test_g07_datagrams_follow_too(dialogue):
    ud = dialogue(service="UD")
    other = bytes(15) + b"\x77"
    ud.offers(64)
    ud.ignores(ip_packet(datagram(0), ud.peers, other))
    ud.device.add_address(other)
    ud.receives_raw(ip_packet(datagram(0), ud.peers, other))
    ud.completes(100)
