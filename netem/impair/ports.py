"""From the plan to the egresses of a node: which faults and queue pairs each port has."""

from ipaddress import ip_address

from netem.impair.egress import Egress
from netem.impair.faults import QpNote
from netem.topology.plan import NodePlan, Plan, PortPlan


def qp_notes(node: NodePlan, port: PortPlan) -> dict[tuple[bytes, int], QpNote]:
    """Return what faults must know about the queue pairs whose packets leave by `port`."""
    return {
        (ip_address(qp.remote_ip).packed, qp.dest_qp_num): QpNote(qp.flow, qp.sq_psn, qp.rq_psn)
        for qp in node.qps
        if qp.port == port.name
    }


def is_paced(node: NodePlan, port: PortPlan) -> bool:
    """Say whether a node of ours serialises by itself what it sends by `port`."""
    return node.kind == "switch" or port.nic is not None


def egress_of(plan: Plan, node: NodePlan, port: PortPlan) -> Egress:
    """Return the egress of a port of ours."""
    name = f"{node.name}:{port.name}"
    return Egress(
        name,
        port.peer,
        port.egress,
        plan.seed,
        plan.faults,
        qps=qp_notes(node, port),
        is_paced=is_paced(node, port),
    )


def ingress_of(plan: Plan, node: NodePlan, port: PortPlan) -> Egress | None:
    """Return what the far end would do if it could: it is the kernel's, and we act for it.

    None where the far end acts for itself. Queue pairs behind a kernel end are not known.
    """
    if port.ingress is None:
        return None
    return Egress(port.peer, f"{node.name}:{port.name}", port.ingress, plan.seed, plan.faults)
