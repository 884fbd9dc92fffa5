"""What `dcqcn-incast` and small labs of its kind show in virtual time."""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from wire.roce.opcodes import Opcode

LABS = Path(__file__).parents[3] / "netem" / "labs"
KMIN, KMAX = 32 << 10, 128 << 10
PAIR = """
sample: 10us
fabric: {kind: star, hosts: 3}
defaults:
  link: {rate: 10gbit, delay: 1us, mtu: 4200}
  switch: {queue: {limit: 1MiB, ecn: ECN}}
transports: {rc: {mtu: 4096, window: 64, dscp: 26, dcqcn: {min_time_between_cnps: 40us}}}
workload: [{pattern: incast, op: OP, to: h0, size: 512KiB}]
"""


def two_to_one(simulate, *, ecn="{min: 32KiB, max: 128KiB}", op="write", **more):
    return simulate(PAIR.replace("ECN", ecn).replace("OP", op), **more)


@pytest.fixture
def incast(simulate):
    """Return a function that runs the built-in lab."""
    text = (LABS / "dcqcn-incast" / "lab.yaml").read_text()
    return lambda **overrides: simulate(text, **overrides)


def figure(run, name):
    """Return what was got for an expectation of a figure, by its name."""
    got = {e.name.partition(" ")[0]: e.got for e in run.judged.expectations}
    return float(got[name].removeprefix("got "))


def samples(run):
    return [event for event in run.outcome.events if event.event == "sample"]


def cnps(run):
    """Return when a CNP left, by the queue pair that it is for."""
    found = defaultdict(list)
    for record in run.records:
        frame = record.frame
        if record.port.startswith("h") and frame[12:14] == b"\x86\xdd":
            bth = frame[62:]
            if bth[0] == Opcode.CNP:
                found[int.from_bytes(bth[5:8], "big")].append((record.at, frame))
    return found


@pytest.mark.slow
class TestIncast:
    def test_with_dcqcn_the_queue_settles_between_the_thresholds_and_pfc_rests(self, incast):
        run = incast()
        assert run.verdict == ("pass", "")
        assert KMIN / 2 < figure(run, "settled_queue") < KMAX
        assert figure(run, "pauses") == 0

    @pytest.mark.parametrize(
        ("change", "missing"),
        [
            ({"transports.rc.dcqcn": "none"}, {"pauses", "cnps", "rate_cuts", "settled_queue"}),
            ({"transports.rc.ecn": "off"}, {"pauses", "cnps", "rate_cuts", "settled_queue"}),
            (
                {"defaults.switch.queues.3.ecn": "none"},
                {"pauses", "cnps", "rate_cuts", "settled_queue"},
            ),
        ],
        ids=["no DCQCN", "not ECN-capable", "no marking"],
    )
    def test_without_any_of_its_parts_the_lab_fails(self, incast, change, missing):
        """Field report M12, too: marks without rate control change nothing."""
        run = incast(**change)
        failed = {
            e.name.partition(" ")[0] for e in run.judged.expectations if e.verdict == "fail"
        }
        assert run.judged.verdict == "fail"
        assert missing <= failed
        assert figure(run, "settled_queue") > 3 * KMAX

    def test_adapters_clocks_settle_as_well(self, incast):
        run = incast(**{"transports.rc.dcqcn.profile": "mlx"})
        assert run.verdict == ("pass", "")

    def test_samples_tell_rates_and_queue_over_time(self, incast):
        run = incast()
        rows = samples(run)
        assert {event.at % 20_000 for event in rows} == {0}
        for node in ("h1", "h2", "h3", "h4"):
            mine = [event.fields for event in rows if event.node == node]
            assert min(row["rate"] for row in mine) < 2_500_000_000
            assert max(row["rate"] for row in mine) <= 10_000_000_000
            sent = [row["bytes"] for row in mine]
            assert sent == sorted(sent)
            assert sent[-1] > 2 << 20 - 1
        queue = [e.fields for e in rows if e.node == "t0-p0-0" and e.fields["port"] == "e0"]
        assert {row["class"] for row in queue} == {3}
        (switch,) = [r for r in run.outcome.reports if r.node == "t0-p0-0"]
        assert max(row["waiting"] for row in queue) <= switch.counters["e0.q3.WatermarkBytes"]
        assert queue[-1]["marked"] == switch.counters["e0.q3.EcnMarkedPkts"]

    def test_samples_change_nothing_but_themselves(self, incast):
        """The same frames at the same times, with samples, with others, and without."""
        runs = [incast(sample=every) for every in ("20us", "7us", "none")]
        assert runs[0].records == runs[1].records == runs[2].records
        assert not samples(runs[2])
        report = runs[2].judged.expectations
        assert [e.got for e in report if e.name.startswith("settled_queue")] == [
            "was not measured"
        ] * 2


def test_g12_with_marking_on_there_are_cnps_within_their_interval_for_each_queue_pair(simulate):
    """Field report G12, rows N1 and N2 in a fabric: 2-to-1 overload."""
    run = two_to_one(simulate)
    (flows,) = {len(run.judged.flows)}
    assert run.judged.verdict == "pass"
    told = cnps(run)
    assert len(told) == flows == 2
    for sent in told.values():
        times = [at for at, _ in sent]
        assert len(times) > 2
        assert min(b - a for a, b in pairwise(times)) >= 40_000 - 1_000
        assert {frame[14:16] for _, frame in sent} == {b"\x6c\x20"}  # DSCP 48, ECT(0)


def test_g12_with_marking_off_there_are_none_and_it_is_said(simulate):
    run = two_to_one(simulate, ecn="none")
    assert not cnps(run)
    (marking,) = [e for e in run.outcome.events if e.event == "marking"]
    assert marking.fields == {"on": "", "off": "0"}
    (switch,) = [r for r in run.outcome.reports if r.node == "t0-p0-0"]
    assert "e0.q0.EcnMarkedPkts" not in switch.counters or (
        switch.counters["e0.q0.EcnMarkedPkts"] == 0
    )


def test_a_responder_that_is_read_from_slows_down(simulate):
    """The notification goes to the sender of the data: of a READ, the responder."""
    run = simulate(
        PAIR.replace("ECN", "{min: 32KiB, max: 128KiB}").replace(
            "[{pattern: incast, op: OP, to: h0, size: 512KiB}]",
            "[{op: read, from: h0, to: h1, size: 512KiB},"
            " {op: read, from: h0, to: h2, size: 512KiB}]",
        )
    )
    assert run.judged.verdict == "pass"
    for flow in run.judged.flows:
        assert flow.cnps == flow.rate_cuts > 2
    handled = {
        report.node: report.counters.get("p0.roce.rp_cnp_handled", 0)
        for report in run.outcome.reports
    }
    assert handled["h0"] == 0 < min(handled["h1"], handled["h2"])


@pytest.mark.slow
class TestGidAndClasses:
    """Field reports G02, G06, G10 and G11 in one lab."""

    @pytest.fixture
    def frames(self, simulate):
        """Return the RoCE frames of hosts: opcode, DSCP, ECN, priority, EtherType."""
        run = simulate((LABS / "gid-and-classes" / "lab.yaml").read_text())
        assert run.verdict == ("pass", "")
        return [
            told
            for record in run.records
            if record.port.startswith("h") and (told := classes(record.frame)) is not None
        ]

    @pytest.mark.parametrize("ethertype", [0x0800, 0x86DD])
    def test_cnps_have_the_dscp_that_is_configured_and_its_priority(self, frames, ethertype):
        """G11: class 5 has DSCP 5 and 46; the configured one wins."""
        found = {f[1:4] for f in frames if f[0] == Opcode.CNP and f[4] == ethertype}
        assert len([f for f in frames if f[0] == Opcode.CNP and f[4] == ethertype]) > 4
        assert found == {(46, 2, 5)}

    def test_data_and_acknowledgements_have_their_own(self, frames):
        """G10: `tc: 106` is DSCP 26 and ECT(0); ACKs are set separately."""
        data = {f[1:4] for f in frames if f[0] == Opcode.RC_WRITE_MIDDLE}
        sends = {f[1:3] for f in frames if f[0] == Opcode.RC_SEND_FIRST}
        acks = {f[1:4] for f in frames if f[0] == Opcode.RC_ACKNOWLEDGE}
        assert data == {(26, 2, 3)}
        assert sends == {(26, 2), (0, 0)}
        assert acks == {(34, 0, 4), (26, 2, 3), (0, 0, 0)}

    def test_in_a_class_that_the_switch_does_not_know_packets_are_lost(self, simulate):
        text = (LABS / "gid-and-classes" / "lab.yaml").read_text()
        run = simulate(text, **{"transports.bulk.dscp": 27, "transports.bulk.pcp": 3})
        assert run.judged.verdict == "fail"
        assert figure(run, "dropped") > 0
        assert figure(run, "marked") == 0


def classes(frame):
    """Return what a tagged RoCE frame says of its class; None for any other."""
    tci, ethertype = int.from_bytes(frame[14:16], "big"), int.from_bytes(frame[16:18], "big")
    if frame[12:14] != b"\x81\x00" or ethertype not in {0x0800, 0x86DD}:
        return None
    ip = frame[18:]
    is_v4 = ethertype == 0x0800
    byte = ip[1] if is_v4 else int.from_bytes(ip[:2], "big") >> 4 & 0xFF
    return ip[28 if is_v4 else 48], byte >> 2, byte & 3, tci >> 13, ethertype
