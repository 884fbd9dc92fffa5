"""Flows whose ends connect by the communication manager: as others, but for the start."""

import pytest

from netem.topology.errors import LabError
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab
from tests.netem.sim.conftest import LINK, Run
from transports.roce.qp import QueuePair
from wire.roce.cm.message import CmMad
from wire.roce.eths import Aeth
from wire.roce.packet import RocePacket, locate

TRAFFIC = """
workload:
  - {op: write, from: h0, to: h1, size: 3000B, count: 5, qps: 2}
  - {op: send_imm, from: h1, to: h0, size: 3000B, count: 5, imm: 9}
  - {op: read, from: h0, to: h1, size: 3000B, count: 5}
"""
BY_CM = (
    "transports: {rc: {connect: CONNECT, timeout: 9, retry: 3, rnr_retry: 2, rnr_timer: 1.92ms,"
    " mtu: 512, max_rd_atomic: 3, tc: 106, credits: true}}\n"
)
FLOWS = 4


def plan_of(connect, **overrides):
    text = LINK + TRAFFIC + BY_CM.replace("CONNECT", connect)
    return plan_lab(load_lab(text, overrides=overrides))


def lab(connect, **overrides):
    return Run(plan_of(connect, **overrides))


def packets(run):
    """Yield time, port and RoCE packet of each frame, and what the manager says in it."""
    for record in run.records:
        place = locate(record.frame)
        packet = RocePacket.unpack(record.frame[place.bth_offset : place.icrc_offset])
        said = CmMad.unpack(packet.payload).message if packet.bth.dest_qp == 1 else None
        yield record.at, record.port, packet, said


@pytest.mark.parametrize(
    ("mode", "family"), [("frame", "ipv4"), ("frame", "ipv6"), ("datagram", "ipv6")]
)
def test_each_connection_is_asked_for_and_confirmed_before_its_work(mode, family):
    run = lab("cm", **{"defaults.host.mode": mode, "defaults.host.family": family})
    assert run.verdict == ("pass", "")
    said = [(port, type(message).__name__) for _, port, _, message in packets(run) if message]
    assert len(said) == 3 * FLOWS
    for name, by_h0, by_h1 in ("Req", 3, 1), ("Rep", 1, 3), ("Rtu", 3, 1):
        assert said.count(("h0:p0", name)) == by_h0
        assert said.count(("h1:p0", name)) == by_h1
    ready = {
        event.fields["qp"]: event.at
        for event in run.outcome.events
        if event.event == "connected"
    }
    assert len(ready) == 2 * FLOWS
    first = min(at for at, _, _, message in packets(run) if message is None)
    assert first >= min(ready.values()) > 0


def test_what_is_agreed_on_is_what_the_plan_says(monkeypatch):
    """Numbers, PSNs, depths, timers, class and UDP source port.

    But for how long who asks would let another wait: it has no receives.
    """
    told = []

    def noted(qp, state, now, **attributes):
        told[-1].setdefault(qp.qp_num, {}).update(attributes)
        plain(qp, state, now, **attributes)

    plain = QueuePair.modify
    monkeypatch.setattr(QueuePair, "modify", noted)
    for connect in "given", "cm":
        told.append({})
        assert lab(connect).verdict == ("pass", "")
    given, by_cm = told
    del by_cm[1]
    assert len(given) == 2 * FLOWS
    for node in plan_of("cm").nodes:
        for end in node.qps:
            if end.role == "requester":
                del given[end.qp_num]["min_rnr_timer"], by_cm[end.qp_num]["min_rnr_timer"]
    assert by_cm == given


def test_the_traffic_is_the_same():
    runs = [
        sorted(
            (port, *packet.pack())
            for _, port, packet, message in packets(lab(c))
            if not message and not isinstance(packet.aeth, Aeth)
        )
        for c in ("given", "cm")
    ]
    assert len(runs[0]) > 50
    assert runs[0] == runs[1]


def test_what_is_lost_is_said_again():
    loss = {"topology.links[0].loss": "20%", "transports.rc.retry": 7, "limit": "100s"}
    run = lab("cm", **loss)
    assert run.verdict == ("pass", "")
    said = [type(message).__name__ for _, _, _, message in packets(run) if message]
    assert len(said) > 3 * FLOWS


def test_where_nobody_answers_the_flow_says_so():
    run = lab("cm", **{"topology.links[0].loss": "100%", "limit": "200s"})
    assert run.verdict[0] == "fail"
    for flow in run.judged.flows:
        assert flow.statuses == {"WR_FLUSH_ERR": 5}
        assert flow.first_error.endswith(
            "is not connected: the peer did not answer, asked 16 times"
        )
    assert {e.event for e in run.outcome.events} >= {"not_connected"}


@pytest.mark.parametrize("timeout", [0, 1])
def test_a_timeout_that_cannot_be_said_is_refused(timeout):
    with pytest.raises(LabError, match=f"transports.rc.timeout: {timeout} cannot be agreed on"):
        lab("cm", **{"transports.rc.timeout": timeout})
