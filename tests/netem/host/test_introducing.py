"""MRC connections that set themselves up (mrc.md 12.7): as others, but for the start."""

import json

import pytest

from netem.host.host import Host
from netem.topology.errors import LabError
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab
from tests.netem.sim.conftest import Run
from transports.clock import S
from transports.mrc.qp import QueuePair
from transports.mrc.setup import READINGS

LAB = """
name: introduced
fabric: {kind: clos, planes: 2, t0: 2, t1: 2, hosts_per_t0: 1}
defaults: {link: {rate: 100gbit, delay: 500ns, mtu: 4300}}
transports: {mrc: {kind: mrc, paths: 8, connect: setup, mpr: 5, max_wimm: 9, timeout: 9}}
workload:
  - {op: write, from: h0, to: h1, size: 9000B, count: 5, qps: 2}
  - {op: write_imm, from: h0, to: h1, size: 9000B, count: 5, imm: 9}
expect: [all_complete, no_corruption]
"""
FLOWS = 3


def plan_of(text=LAB, **overrides):
    return plan_lab(load_lab(text, overrides=overrides))


def told(run, name):
    return [(e.at, e.node, e.fields) for e in run.outcome.events if e.event == name]


def says(run):
    return [
        (node, said["role"], json.loads(said["says"])) for _, node, said in told(run, "setup")
    ]


@pytest.mark.parametrize("ev_format", ["stev32", "udp16", "srv6"])
def test_each_end_says_who_it_is_before_anything_is_sent(ev_format):
    run = Run(plan_of(**{"transports.mrc.ev_format": ev_format}))
    assert run.verdict == ("pass", "")
    said = [(node, message["type"]) for node, _, message in says(run)]
    for node, kind in ("h0", "offer"), ("h1", "answer"), ("h0", "ready"), ("h1", "ready"):
        assert said.count((node, kind)) == FLOWS
    assert len(told(run, "connected")) == 2 * FLOWS
    offer = next(message for _, _, message in says(run) if message["type"] == "offer")
    assert offer["addrs"] == ["fd00::1", "fd00:1::1"]
    assert offer["ev_format"] == ev_format
    assert (offer["mpr_dest"], offer["max_wimm_dest"], offer["path_mtu"]) == (5, 9, 4096)
    if ev_format == "srv6":
        assert offer["srv6_rows"] == [{"t0": 0, "downlink": 0}, {"t0": 0, "downlink": 0}]
        answer = next(message for _, _, message in says(run) if message["type"] == "answer")
        assert answer["srv6_rows"] == [{"t0": 1, "downlink": 0}, {"t0": 1, "downlink": 0}]


def test_what_is_agreed_on_is_what_the_plan_says(monkeypatch):
    seen = []

    def noted(qp, state, now, **attributes):
        seen[-1].setdefault(qp.qp_num, {}).update(attributes)
        plain(qp, state, now, **attributes)

    plain = QueuePair.modify
    monkeypatch.setattr(QueuePair, "modify", noted)
    for connect in "given", "setup":
        seen.append({})
        run = Run(plan_of(**{"transports.mrc.connect": connect}))
        assert run.verdict == ("pass", "")
    given, by_setup = seen
    assert len(given) == 2 * FLOWS
    assert by_setup == given


OTHER = {
    "bth_bit_order": "se_m", "ev_split": "label_low", "eeth_op_shift": 4, "icrc": False,
    "port_mask_base": 1, "ack_msn": "last",
}  # fmt: skip


@pytest.mark.parametrize("name", READINGS)
def test_ends_that_read_a_point_differently_are_refused_by_name_and_nothing_is_sent(name):
    text = LAB.replace("imm: 9}", "imm: 9, expect_status: WR_FLUSH_ERR}").replace(
        "qps: 2}", "qps: 2, expect_status: WR_FLUSH_ERR}"
    ).replace("[all_complete, no_corruption]", "[statuses]")  # fmt: skip
    run = Run(plan_of(text, **{"transports.mrc.peer_readings": {name: OTHER[name]}}))
    assert [flow.verdict for flow in run.judged.flows] == ["pass"] * FLOWS
    assert [expectation.verdict for expectation in run.judged.expectations] == ["pass"]
    assert not run.records
    why = {node: said["why"] for _, node, said in told(run, "not_connected")}
    assert why["h1"].startswith(f"readings.{name} is ")
    assert why["h1"].endswith("give both ends the same")
    assert why["h0"] == f"the peer refuses: {why['h1']}"
    assert run.judged.flows[0].first_error.endswith(why["h0"])


def alone(text=LAB):
    host = Host(plan_of(text, dilation=1000), "h0")
    host.start(0)
    list(host.transmit(0))
    return host


def heard(host):
    return [
        (event.event, event.fields) for event in host.events() if event.event != "item_started"
    ]


def test_a_peer_that_never_answers_is_given_up_after_five_seconds_of_the_wall():
    host = alone()
    assert [name for name, _ in heard(host)] == ["setup"] * FLOWS
    assert host.deadline == 5 * S // 1000
    host.expire(host.deadline)
    list(host.transmit(5 * S))
    rest = heard(host)
    assert [fields["why"] for name, fields in rest if name == "not_connected"] == [
        "the other end did not answer within 5 s of the wall's clock"
    ] * FLOWS
    assert "setup" in {name for name, _ in rest}, "the peer is told, should it wake up"


@pytest.mark.parametrize(
    ("flow", "role", "text"),
    [("9/h0->h9/0", "responder", "{}"), ("0/h0->h1/0", "requester", "{}"), ("", "", "")],
)
def test_what_is_for_nobody_here_is_ignored(flow, role, text):
    host = alone()
    heard(host)
    host.hear(flow, role, text, 1)
    assert not heard(host)


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"type": "ready"}', "\ud83d\ude00"])
def test_nonsense_ends_one_connection_in_words(text):
    host = alone()
    heard(host)
    host.hear("0/h0->h1/0", "responder", text, 1)
    list(host.transmit(1))
    names = [name for name, _ in heard(host)]
    assert names.count("not_connected") == 1


def test_an_answer_of_addresses_that_nothing_leads_to_is_refused():
    host = alone(LAB.replace("connect: setup", "connect: setup, ev_format: srv6"))
    offer = next(fields for name, fields in heard(host) if name == "setup")
    said = json.loads(offer["says"])
    said["type"], said["protocol_version"] = "answer", 1
    said["addrs"] = ["fd00::99", None]
    host.hear(offer["flow"], "responder", json.dumps(said), 1)
    list(host.transmit(1))
    rest = dict(heard(host))
    assert rest["not_connected"]["why"] == "there is no way to the peer's address fd00::99"
    assert json.loads(rest["setup"]["says"])["type"] == "error"


def test_only_mrc_is_set_up_so_and_only_rc_by_cm():
    for overrides, line in (
        ({"transports.mrc.connect": "cm"}, "transports.mrc.connect: cm is unknown"),
        (
            {"transports.mrc": {"kind": "rc", "connect": "setup"}},
            "transports.mrc.connect: setup",
        ),
    ):
        with pytest.raises(LabError) as refusal:
            plan_of(**overrides)
        assert any(one.startswith(line) for one in refusal.value.problems)
