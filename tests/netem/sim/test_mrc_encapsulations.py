"""MRC over IPv4 and SRv6 in labs, in virtual time: every entropy value leads where it says."""

from collections import defaultdict

import pytest

from tests.labs.commands import inside
from tests.netem.sim.test_mrc import FABRIC, counter, events, fabric
from transports.mrc.profiles import STEV32
from wire.csid import csids
from wire.mrc import entropy
from wire.srh import Srh

pytestmark = pytest.mark.slow


def led(text=None, **more):
    return (text or fabric(**more)).replace("paths: 8", "paths: 8, ev_format: srv6")


def over_ipv4(**more):
    text = fabric(**more).replace("paths: 8", "paths: 8, ev_format: udp16")
    return text.replace(
        "switch: {balance: {mode: ev}}",
        "host: {family: ipv4}\n  switch: {balance: {mode: ev, ev_format: udp16}}",
    )


def ways(run, source="h0"):
    """From what a host has sent: the uSIDs of each plane and hop0."""
    found = defaultdict(set)
    for record in run.records:
        if record.port.startswith(source + ":"):
            packet, inner = record.frame[14:], inside(record.frame)[14:]
            usids = csids(packet[24:40])
            if packet[6] == 43:
                usids += csids(Srh.unpack_from(packet, 40).segment_list[0])
            port = int.from_bytes(inner[40:42], "big")
            ev = entropy.join(int.from_bytes(inner[:4], "big") & 0xFFFFF, port)
            found[STEV32.plane_of(ev), STEV32.read(ev, "hop0")].add(usids)
    return found


def test_over_ipv4_the_entropy_value_is_the_port_and_names_the_spine(simulate):
    run = simulate(over_ipv4(count=32))
    assert run.verdict == ("pass", "")
    assert run.flow.retransmissions == 0
    up = defaultdict(set)
    for record in run.records:
        if record.port.startswith("t0-p0-0:e"):
            port = int.from_bytes(record.frame[34:36], "big")
            assert record.frame[12:14] == b"\x08\x00"
            up[record.port].add(port >> 3 & 0xFF)  # hop0 of udp16
    assert up["t0-p0-0:e1"] == {0}
    assert up["t0-p0-0:e2"] == {1}


@pytest.mark.parametrize("text", [over_ipv4(count=16), led(count=16)], ids=["ipv4", "srv6"])
def test_trims_losses_marks_and_flipped_bits_are_met_as_over_ipv6(simulate, text):
    faults = """faults:
  - {do: trim, where: {op: WRITE_MIDDLE}, skip: 3, on: h0:p1, trim: {keep: 20B}}
  - {do: mark, where: {op: WRITE_MIDDLE}, skip: 15, on: h0:p0}
  - {do: drop, where: {op: WRITE_MIDDLE}, skip: 25, on: h0:p1}
  - {do: corrupt, where: {op: WRITE_MIDDLE}, skip: 35, on: h0:p0}
"""
    run = simulate(text + faults)
    assert run.verdict == ("pass", "")
    assert [counter(run, "h1", name) for name in ("trimmed", "marked", "refused_icrc")] == [
        1, 1, 1,
    ]  # fmt: skip
    assert len(events(run, "retransmission")) == 3


def test_every_entropy_value_is_a_list_of_usids_of_its_own(simulate):
    run = simulate(led(planes=4, count=32))
    assert run.verdict == ("pass", "")
    assert ways(run) == {
        (plane, way): {(plane << 12 | 0x100, plane << 12 | 0x200 | way, plane << 12 | 0x101,
                        plane << 12 | 0x800)}
        for plane in range(4) for way in range(2)
    }  # fmt: skip


def test_a_dead_path_is_a_retired_list_of_segments(simulate):
    fault = "faults: [{at: 15us, on: t0-p1-0->t1-p1-1, set: {loss: 100%}}]\n"
    run = simulate(led(count=32) + fault)
    assert run.verdict == ("pass", "")
    retired = [row for row in events(run, "ev_state") if row["new"] == "ASSUMED_BAD"]
    assert retired
    assert {(row["plane"], int(row["ev"], 16) >> 22) for row in retired} == {(1, 1)}


def test_switches_choose_nothing(simulate):
    """Whatever `balance` says: a uN has one way on, and what is inside is never looked at."""
    text = led(count=8)
    runs = [
        simulate(text.replace("mode: ev", f"mode: {mode}")) for mode in ("ecmp", "spray", "ev")
    ]
    assert runs[0].records == runs[1].records == runs[2].records


def test_more_than_six_usids_go_into_an_srh(simulate):
    """Two sites: T0, T1, T2, T2, T1, T0 and the downlink."""
    text = led().replace(
        "{kind: clos, planes: 2, t0: 2, t1: 2, hosts_per_t0: 1}",
        "{kind: two_sites, t0: 1, t1: 2, hosts_per_t0: 1, distance: 1km}",
    ).replace("rate: 100gbit", "rate: 10gbit")  # fmt: skip
    run = simulate(text)
    assert run.verdict == ("pass", "")
    found = ways(run)
    assert sorted(found) == [(0, 0), (0, 1)]
    for (_, way), (usids,) in found.items():
        assert usids == (0x100, 0x200 + way, 0x300, 0x301, 0x202 + way, 0x101, 0x800)
    for record in run.records:
        if record.port == "h1:p0":
            assert record.frame[20] == 43


def test_in_a_fat_tree_the_way_is_strict_up_to_the_core_and_down_again(simulate):
    text = led().replace(
        "{kind: clos, planes: 2, t0: 2, t1: 2, hosts_per_t0: 1}", "{kind: fat_tree, k: 4}"
    ).replace("to: h1", "to: h15")  # fmt: skip
    run = simulate(text)
    assert run.verdict == ("pass", "")
    assert ways(run) == {
        (0, 0): {(0x100, 0x200, 0x300, 0x206, 0x107, 0x801)},
        (0, 1): {(0x100, 0x201, 0x303, 0x207, 0x107, 0x801)},
    }


def test_below_one_t0_all_entropy_values_lead_one_way(simulate):
    text = led().replace("hosts_per_t0: 1", "hosts_per_t0: 2")
    run = simulate(text)
    assert run.verdict == ("pass", "")
    assert ways(run) == {(plane, 0): {(plane << 12 | 0x100, plane << 12 | 0x801)}
                         for plane in (0, 1)}  # fmt: skip


def test_tags_and_rc_beside_it(simulate):
    text = led().replace("mtu: 4300", "mtu: 4300, vlan: 12").replace(
        "transports:\n", "transports:\n  rc: {kind: rc, mtu: 1024, path: [t0-p0-0, t1-p0-1]}\n"
    ).replace("{op: write,", "{op: write, transport: mrc,").replace(
        "expect:", "  - {op: write, transport: rc, from: h0, to: h1, size: 64KiB}\nexpect:"
    )  # fmt: skip
    run = simulate(text)
    assert run.verdict == ("pass", "")
    report = next(one for one in run.outcome.reports if one.node == "h1")
    assert report.counters["p0.srv6.decapsulated"] == 64  # RC's, by the host's SID
    assert report.counters["mrc.received_packets"] > 100


def test_the_labs_of_this_file_are_what_they_say():
    assert "ev_format: srv6" in led()
    assert "mode: ev" in FABRIC
