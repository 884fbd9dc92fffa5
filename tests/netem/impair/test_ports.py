"""From the plan to egresses."""

from netem.impair.model import Impairment
from netem.impair.ports import egress_of, ingress_of
from netem.topology.plan import (
    FaultPlan,
    NodePlan,
    Plan,
    PortPlan,
    QpPlan,
    RegionPlan,
    Where,
)
from tests.netem.impair.frames import roce, udp
from wire.roce.opcodes import Opcode

REGION = RegionPlan(0, 4096, 1, 1, 7)
QP = QpPlan(
    "0/h0->h1/0", "requester", "rc", "rc", "p0", "fd00::1", "fd00::2", 0xC000, 5, 0x11,
    100, 200, 1024, REGION, REGION,
)  # fmt: skip
PORT = PortPlan(
    "p0", "02:00:00:00:00:01", "h0:p0--s:e0", "s:e0", 1500,
    egress=Impairment(delay=10), ingress=Impairment(delay=20),
)  # fmt: skip
NODE = NodePlan("h0", "host", 0, 1, ports=(PORT,), qps=(QP,))


def plan(*faults):
    return Plan("lab", 7, 1, 60.0, (NODE,), (), faults)


def test_an_egress_knows_its_direction_its_faults_and_its_queue_pairs():
    fault = FaultPlan(0, "drop", "h0:p0", Where(psn=2, psn_relative=True))
    egress = egress_of(plan(fault), NODE, PORT)
    for psn in (101, 102, 103):
        egress.send(roce(Opcode.RC_SEND_ONLY, psn=psn), 0)
    assert "dropped by fault 0 (psn +2)" in [d.comment for d in egress.due(100)]
    assert egress.report().direction == "h0:p0->s:e0"
    assert (egress.report().lost, egress.report().delivered) == (1, 2)


def test_what_a_kernel_end_sends_is_the_other_direction():
    ingress = ingress_of(plan(FaultPlan(0, "drop", "s:e0")), NODE, PORT)
    ingress.send(udp(), 0)
    ingress.send(udp(), 0)
    assert [(d.at, d.fate.value) for d in ingress.due(100)] == [(0, "dropped"), (20, "sent")]
    assert ingress.report().direction == "s:e0->h0:p0"


def test_an_end_that_acts_for_itself_has_no_ingress_here():
    own = PortPlan("p0", "02:00:00:00:00:01", "l", "h1:p0", 1500)
    assert ingress_of(plan(), NODE, own) is None
