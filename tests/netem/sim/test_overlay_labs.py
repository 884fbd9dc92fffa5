"""The labs of the overlay in virtual time: the same machine, and expectations that can fail."""

from pathlib import Path

import pytest

from wire.wireguard import MessageType

pytestmark = pytest.mark.slow

LABS = Path(__file__).parents[3] / "netem" / "labs"
UDP = 14 + 40  # where the UDP header begins in a frame of the underlay


@pytest.fixture
def lab(simulate):
    """Return a function from a built-in lab's name to its run."""
    return lambda name, **overrides: simulate(
        (LABS / name / "lab.yaml").read_text(), **overrides
    )


def outer(run, port):
    """Return the frames that a gateway sent there, by the type of their message."""
    frames = [r for r in run.records if r.port == port]
    assert all(record.frame[20] == 17 for record in frames)
    return {
        kind: [r for r in frames if r.frame[UDP + 8] == kind]
        for kind in (MessageType.INITIATION, MessageType.RESPONSE, MessageType.TRANSPORT)
    }


SIMULATED = ["rc-over-overlay", "two-sites-overlay", "overlay-rekey", "overlay-roaming"]


@pytest.mark.parametrize("name", SIMULATED)
@pytest.mark.parametrize(
    "form",
    [{}, {"overlay.family": "ipv4"}, {"defaults.host.family": "ipv4"}],
    ids=["ipv6", "outside ipv4", "inside ipv4"],
)
def test_a_lab_meets_its_expectations_over_and_with_both_families(lab, name, form):
    assert lab(name, **form).verdict == ("pass", "")


def test_the_sites_may_be_a_continent_apart(lab):
    more = {"fabric.distance": "2000km", "transports.long.window": 32}
    assert lab("two-sites-overlay", **more).verdict == ("pass", "")


@pytest.mark.parametrize(
    ("name", "without", "fail"),
    [
        (
            "rc-over-overlay", {"workload[0].count": 2},
            {"tunnelled >= 300"},
        ),
        (
            "two-sites-overlay", {"workload[2].to": "h1"},
            {"tunnelled >= 321"},
        ),
        (
            "overlay-rekey", {"overlay.timers.rekey_after_time": "3s"},
            {"sessions >= 8"},
        ),
        ("overlay-roaming", {"overlay.sites.roamer.moves": []}, {"roams == 2"}),
    ],
)  # fmt: skip
def test_without_its_cause_a_phenomenon_is_gone(lab, name, without, fail):
    judged = lab(name, **without).judged
    assert {one.name for one in judged.expectations if one.verdict == "fail"} == fail


def test_outside_there_is_nothing_but_wireguard_and_a_packet_is_80_bytes_more(lab):
    run = lab("rc-over-overlay")
    sent = outer(run, "g0:e1")
    (initiation,), data = sent[MessageType.INITIATION], sent[MessageType.TRANSPORT]
    tos = int.from_bytes(initiation.frame[14:16], "big") >> 4 & 0xFF
    assert tos == 0x88
    inner = [r for r in run.records if r.port == "h0:p0"]
    keepalive, *packets = data
    assert len(keepalive.frame) == 14 + 80
    padded = [-(-(len(r.frame) - 14) // 16) * 16 for r in inner]
    assert [len(r.frame) - 14 - 80 for r in packets] == padded


def test_only_the_initiator_renews(lab):
    run = lab("overlay-rekey")
    east, west = outer(run, "g0:e1"), outer(run, "g1:e1")
    assert len(east[MessageType.INITIATION]) == len(west[MessageType.RESPONSE]) == 6
    assert not west[MessageType.INITIATION]


def test_the_roamer_speaks_from_three_ports_and_is_answered_at_each(lab):
    run = lab("overlay-roaming")
    ports = {
        int.from_bytes(r.frame[UDP : UDP + 2], "big") for r in run.records if r.port == "g0:e1"
    }
    answered = {
        int.from_bytes(r.frame[UDP + 2 : UDP + 4], "big")
        for r in run.records
        if r.port == "g1:e1"
    }
    assert ports == answered == {51820, 40001, 40002}
    moved = [event for event in run.outcome.events if event.event == "endpoint_moved"]
    assert [event.fields["peer"] for event in moved] == ["roamer"] * 3  # from nowhere, at first


def test_keys_that_expire_on_the_way_cost_packets_and_rc_sends_them_again(lab):
    slow = {"topology.links[1].delay": "500ms", "overlay.timers.reject_after_time": "2100ms"}
    slow |= {"transports.rc.timeout": 20, "workload[0].count": 4}
    run = lab("overlay-rekey", **slow)
    assert run.flow.retransmissions > 0
    assert run.flow.completed == 4
    refused = run.outcome.reports[3].counters
    assert refused["overlay.refused_expired"] > 0


def test_w06_on_an_underlay_of_1280_the_path_mtu_falls_and_nothing_is_cut(lab):
    small = {"topology.links[1].mtu": 1280, "overlay.family": "ipv4"}
    small |= {
        "defaults.host.family": "ipv4",
        "workload[0].size": "1MiB",
        "workload[0].count": 1,
    }
    run = lab("rc-over-overlay", **small)
    assert run.verdict == ("pass", "")
    assert run.plan.node("g0").tunnel.mtu == 1280 - 60
    between = [r.frame[14:] for r in run.records if r.port in {"g0:e1", "g1:e1"}]
    assert max(map(len, between)) <= 1280
    assert all(packet[6] & 0x3F == packet[7] == 0 for packet in between)  # no fragment
    inside = [r.frame[14:] for r in run.records if r.port == "h0:p0"]
    assert max(map(len, inside)) == 20 + 8 + 12 + 16 + 1024 + 4  # IPv4, UDP, BTH, RETH, ICRC


def test_w08_what_the_overlay_needs_for_itself_is_counted_apart_from_data(lab):
    run = lab("overlay-rekey")
    counters = {name: report.counters for name, report in zip(
        ("g0", "g1"), run.outcome.reports[2:], strict=True)}  # fmt: skip
    for host, gateway in (("h0:p0", "g0"), ("h1:p0", "g1")):
        packets = sum(r.port == host for r in run.records)
        assert counters[gateway]["overlay.data_sent"] == packets
        sent = outer(run, f"{gateway}:e1")
        handshakes = len(sent[MessageType.INITIATION]) + len(sent[MessageType.RESPONSE])
        assert counters[gateway]["overlay.handshakes_sent"] == handshakes == 6
        keepalives = len(sent[MessageType.TRANSPORT]) - packets
        assert counters[gateway].get("overlay.keepalives_sent", 0) == keepalives


def test_two_runs_are_the_same_to_the_byte_keys_included(lab):
    one, other = lab("rc-over-overlay"), lab("rc-over-overlay")
    assert one.records == other.records
    assert one.outcome.secrets == other.outcome.secrets
    assert set(one.outcome.secrets) == {"g0", "g1"}
    assert lab("rc-over-overlay", seed=4).outcome.secrets != one.outcome.secrets


def test_both_ways_at_once_take_the_time_of_a_retry_to_agree(lab):
    """Trap 7: one slot for a handshake; the jittered retry decides."""
    at_once = {"overlay.sites.east.keepalive": "off"}
    run = lab("rc-over-overlay", **at_once)
    assert {status for flow in run.judged.flows for status in flow.statuses} == {
        "RETRY_EXC_ERR", "WR_FLUSH_ERR"
    }  # fmt: skip
    patient = lab("rc-over-overlay", **at_once, **{"transports.rc.timeout": 19})
    begun = [e.at for e in patient.outcome.events if e.event == "session_begun"]
    assert 5_000_000_000 < min(begun) < 5_500_000_000
