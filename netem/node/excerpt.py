"""The part of a plan that one node needs, so that a large lab does not make each node large.

Children share the plan with the parent that made it until they touch it, and touching is
reading: a reference counted is a page copied. A node that never sees the other sixty-three
costs half a megabyte less.
"""

from msgspec.structs import replace

from netem.kernel.steps import wire_name
from netem.topology.plan import LinkPlan, Plan


def excerpt(plan: Plan, name: str) -> Plan:
    """Return `plan` with what the node or wire called `name` has to do with, and no more.

    That is: itself, the nodes at the other end of its queue pairs, its links, and the faults
    and changes of these. Everything that a node draws from the plan comes out the same.
    """
    links = [link for link in plan.links if _is_on(link, name)]
    ports = {port for link in links for port in (link.a, link.b)}
    wanted = {name, *(port.partition(":")[0] for port in ports)}
    flows = {qp.flow for node in plan.nodes if node.name == name for qp in node.qps}
    return replace(
        plan,
        nodes=tuple(
            node
            for node in plan.nodes
            if node.name in wanted or any(qp.flow in flows for qp in node.qps)
        ),
        links=tuple(links),
        faults=tuple(fault for fault in plan.faults if fault.on in ports),
        changes=tuple(change for change in plan.changes if change.on in ports),
        events=tuple(event for event in plan.events if ports.intersection(event.ports)),
    )


def _is_on(link: LinkPlan, name: str) -> bool:
    """Say whether `name` is a node at the link, or the wire on it."""
    if link.wire and wire_name(link.name) == name:
        return True
    return name in {link.a.partition(":")[0], link.b.partition(":")[0]}
