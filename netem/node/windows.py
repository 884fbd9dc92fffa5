"""Windows that the receiving host can hold.

A sender's window is a promise about the receiver's socket buffer: frames for which there is no
room are lost without a trace on the link, an impairment that nobody asked for. How large a
buffer a process gets depends on the host (`net.core.rmem_max` is 208 KiB on many, and only its
administrator may pass it), so the plan cannot know. All nodes of a lab run on one host with the
same rights: what we get, our peers get.
"""

from collections import Counter
from collections.abc import Callable

from msgspec.structs import replace

from netem.topology.plan import Plan

# Ethernet with a tag, IPv6, UDP, BTH, RETH and ICRC: what a full packet has beside its payload.
OVERHEAD = 18 + 40 + 8 + 12 + 16 + 4


def fitted(plan: Plan, name: str, frames_held: Callable[[int], int]) -> Plan:
    """Return `plan` with the windows of node `name` made to fit its peers' buffers.

    `frames_held` says how many frames of a size one port's buffer surely holds. The queue pairs
    of a port share its buffer: all of them may be sent to at the same time.
    """
    node = plan.node(name)
    if not node.qps:
        return plan
    sharers = Counter((other.name, qp.port) for other in plan.nodes for qp in other.qps)
    ends = {
        (qp.flow, qp.role): (other.name, qp.port) for other in plan.nodes for qp in other.qps
    }
    qps = []
    for qp in node.qps:
        peer = ends[qp.flow, "responder" if qp.role == "requester" else "requester"]
        held = frames_held(qp.path_mtu + OVERHEAD) // sharers[peer]
        qps.append(replace(qp, window=max(1, min(qp.window, held))))
    fitting = replace(node, qps=tuple(qps))
    nodes = tuple(fitting if other is node else other for other in plan.nodes)
    return replace(plan, nodes=nodes)
