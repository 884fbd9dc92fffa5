"""From the plan to the egresses of a node: which faults and queue pairs each port has."""

from ipaddress import ip_address
from typing import NamedTuple

from msgspec.structs import replace

from netem.impair.egress import Egress
from netem.impair.faults import QpNote
from netem.impair.model import NEUTRAL, Impairment
from netem.topology.plan import ChangePlan, NodePlan, Plan, PortPlan, QpPlan


def qp_notes(node: NodePlan, port: PortPlan) -> dict[tuple[bytes, int], QpNote]:
    """Return what faults must know about the queue pairs whose packets leave by `port`."""
    notes = {}
    for qp in node.qps:
        remote = _remote(qp, port.name)
        if remote is not None:
            key = ip_address(remote).packed, qp.dest_qp_num
            notes[key] = QpNote(qp.flow, qp.sq_psn, qp.rq_psn)
    return notes


def _remote(qp: QpPlan, port: str) -> str | None:
    """Return where the packets of a queue pair that leave by a port go; MRC's leave by many."""
    if qp.mrc is None:
        return qp.remote_ip if qp.port == port else None
    plane = int(port[1:])
    return qp.mrc.remote[plane] if plane < len(qp.mrc.remote) else None


def is_paced(node: NodePlan, port: PortPlan) -> bool:
    """Say whether a node of ours serialises by itself what it sends by `port`."""
    return node.kind == "switch" or port.nic is not None


def ours_beside_tc(given: Impairment, is_paced: bool) -> Impairment:
    """Return what stays with our own process where tc impairs what it sends.

    A switch, or a NIC that obeys PFC, has queues before its line: the rate is theirs.
    """
    if not is_paced:
        return NEUTRAL
    return Impairment(rate=given.rate, overhead=given.overhead, limit=given.limit)


def tc_beside_ours(given: Impairment, is_paced: bool) -> Impairment:
    """Return what tc does where our own process sends, the other part of the same."""
    return replace(given, rate=None, overhead=0, limit=None) if is_paced else given


class KernelShare(NamedTuple):
    """What tc does to what one port sends, on a link with `engine: tc`."""

    port: str
    peer: str
    mtu: int
    impairment: Impairment  # at the start
    is_paced: bool  # by a process of ours, whose the rate is then


def kernel_shares(plan: Plan) -> list[KernelShare]:
    """Return all directions that tc impairs, in the order of the plan's links."""
    ports = {f"{n.name}:{port.name}": (n, port) for n in plan.nodes for port in n.ports}
    found = []
    for link in plan.links:
        if link.engine == "tc":
            for sender, peer, given in (
                (link.a, link.b, link.a_to_b),
                (link.b, link.a, link.b_to_a),
            ):
                paced = is_paced(*ports[sender])
                share = tc_beside_ours(given, paced)
                found.append(KernelShare(sender, peer, link.mtu, share, paced))
    return found


def our_changes(plan: Plan) -> tuple[ChangePlan, ...]:
    """Return the changes with what is left of them where tc does the rest."""
    shares = {share.port: share for share in kernel_shares(plan)}
    return tuple(
        replace(change, set=ours_beside_tc(change.set, shares[change.on].is_paced))
        if change.on in shares
        else change
        for change in plan.changes
        if change.on not in shares or shares[change.on].is_paced
    )


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
