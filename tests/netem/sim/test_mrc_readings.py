"""Each disputed point of MRC in labs: both readings run; ends that differ are told in words.

mrc.md 12.1 and 12.18. The default of each is what all other labs run with.
"""

import json

import pytest

from netem.topology.reading import keys_of
from netem.topology.transport_model import ReadingKeys
from tests.netem.sim.test_mrc import counter, events, fabric, frames

pytestmark = pytest.mark.slow

OTHER = {
    "udp_dport": 4971, "bth_bit_order": "se_m", "ev_split": "label_low", "eeth_op_shift": 4,
    "icrc": False, "port_mask_base": 1, "oor_policy": "drop", "probe_skip_result": "good",
    "ack_msn": "last", "always_skip_run": 3, "loss_rules": ["L2"],
}  # fmt: skip
# A trim, a loss, a port that goes and comes, and planes on which no data comes for a while:
# NACKs, SACKs, port states and EV probes, of both ends.
TROUBLE = """faults:
  - {do: trim, where: {op: WRITE_MIDDLE}, skip: 9, on: h0->t0-p1-0, trim: {keep: 20B}}
  - {at: 20us, on: t0-p1-0->t1-p1-1, set: {loss: 30%}, for: 20us}
  - {at: 60us, on: h1--t0-p1-1, down: 60us}
"""


def lab(**keys):
    text = fabric(op="write_imm", count=64).replace("imm, from", "imm, solicited: true, from")
    if any(value.get("ev_split") == "label_low" for value in keys.values()):
        text = text.replace("mode: ev}", "mode: ev, ev_split: label_low}")
    written = "".join(f", {key}: {readings_text(value)}" for key, value in keys.items())
    return text.replace("paths: 8", f"paths: 8{written}")


def readings_text(readings):
    """As YAML in one line."""
    return json.dumps(readings)


def test_every_point_has_a_test():
    assert set(OTHER) == set(keys_of(ReadingKeys))


@pytest.mark.parametrize("name", OTHER)
def test_the_other_reading_runs_end_to_end(simulate, name):
    run = simulate(lab(readings={name: OTHER[name]}) + TROUBLE)
    assert run.verdict == ("pass", ""), run.judged.expectations
    assert not events(run, "mismatch")
    assert len(events(run, "peer_ports")) == 2
    assert counter(run, "h1", "trimmed") == 1
    if name != "icrc":
        return
    sent = [record for record in run.records if record.port[:2] in {"h0", "h1"}]
    assert {record.frame[-4:] for record in sent if not record.comment} == {b"\xff" * 4}


def test_the_wire_has_what_the_reading_says(simulate):
    """One look at the bytes: ports, entropy, bits."""
    everything = {name: OTHER[name] for name in ("udp_dport", "bth_bit_order", "ev_split")}
    for keys, port, top in (({}, 4791, 0x40), (everything, 4971, 0x80)):
        run = simulate(lab(readings=keys) if keys else lab())
        assert run.verdict == ("pass", "")
        sent = [(r.port, r.frame) for r in run.records if r.port in {"h0:p0", "h0:p1"}]
        lasts = [(port, frame) for port, frame in sent if frame[62] == 0xC9]
        assert lasts
        for name, frame in lasts:
            assert int.from_bytes(frame[56:58], "big") == port
            assert frame[63] & 0xC0 == top
            salted = frame[54:56] if top == 0x40 else frame[16:18]
            assert int.from_bytes(salted, "big") & 7 == int(name[-1])  # the plane


@pytest.mark.parametrize("name", ["oor_policy", "probe_skip_result", "always_skip_run",
                                  "loss_rules", "udp_dport"])  # fmt: skip
@pytest.mark.parametrize("whose", ["readings", "peer_readings"])
def test_a_difference_that_does_no_harm_does_none(simulate, name, whose):
    run = simulate(lab(**{whose: {name: OTHER[name]}}) + TROUBLE)
    assert run.verdict == ("pass", "")
    assert not events(run, "mismatch")


# In the lab alone: EV probes are answered where data does not come on a plane.
SILENT = "faults: [{do: drop, where: {op: WRITE}, on: h0:p1, count: 1000000}]\n"


@pytest.mark.parametrize("name", ["bth_bit_order", "ev_split", "eeth_op_shift", "icrc",
                                  "port_mask_base", "ack_msn"])  # fmt: skip
@pytest.mark.parametrize("one", [True, False], ids=["requester", "responder"])
def test_ends_that_differ_are_told_which_point_it_is(simulate, name, one):
    """By `transports.mrc.diagnosis`; the run ends, well or in a status, and does not hang."""
    mine, other = {name: OTHER[name]}, {name: default(name)}
    keys = {"readings": mine, "peer_readings": other}
    if not one:
        keys = {"readings": other, "peer_readings": mine}
    text = lab(**keys).replace("exponential: 7", "exponential: 1")
    run = simulate(text.replace("paths: 8", "paths: 8, exponential: 1, linear: 2") + (
        SILENT if name == "eeth_op_shift" else TROUBLE
    ))  # fmt: skip
    told = {row["why"].partition(":")[0] for row in events(run, "mismatch")}
    where = "QpConfig" if name == "ack_msn" else "WireOptions"
    assert told == {f"{where}.{name}"}
    assert run.outcome.trouble == ""


def default(name):
    return {"bth_bit_order": "m_se", "ev_split": "label_high", "eeth_op_shift": 2, "icrc": True,
            "port_mask_base": 0, "ack_msn": "count"}[name]  # fmt: skip


def test_rules_that_are_off_leave_losses_to_the_others(simulate):
    fault = "faults: [{do: drop, where: {op: WRITE_MIDDLE}, skip: 9, on: h0:p1, count: 1}]\n"
    for rules, found in ((["L2", "L3"], "L2"), (["L3"], "L"), ([], "L")):
        run = simulate(lab(readings={"loss_rules": rules}) + fault)
        assert run.verdict == ("pass", "")
        (again,) = events(run, "retransmission")
        assert again["why"].startswith(found)
        assert again["why"][:2] in {*rules, "L4", "L5"}


def test_a_path_whose_packets_are_always_marked_is_retired_where_that_is_switched_on(simulate):
    fault = "faults: [{do: mark, where: {op: WRITE}, on: t1-p1-0:e1, count: 1000000}]\n"
    for run_length, wanted in ((None, False), (4, True)):
        keys = {"readings": {"always_skip_run": run_length}} if run_length else {}
        run = simulate(lab(**keys) + fault)
        assert run.verdict == ("pass", "")
        retired = [row for row in events(run, "ev_state") if row["new"] == "ASSUMED_BAD"]
        assert bool(retired) is wanted
        assert frames(run, "t0-p1-0:e1->t1-p1-0:e0") > 0
