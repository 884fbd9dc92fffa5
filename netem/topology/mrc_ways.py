"""The ways of MRC over SRv6, as templates: each router of a way by its uSID, then the downlink.

hop0 of an entropy value is the number of a way up. Where a router farther on has several next
hops, the same number chooses there, modulo theirs, as it does at switches that read it. So a
way is a list of uSIDs, and a template says it for all of them if each uSID is that of the first
way plus so much for every further one: true for what `fabric` makes, and for uSIDs that are
given in a row.
"""

from ipaddress import IPv6Address

from netem.topology.plan import MrcTemplate
from netem.topology.routing import Routing
from netem.topology.srv6 import PathError, Srv6
from netem.topology.wiring import node_of
from netem.topology.workload import Pair

MAX_USID = 0xFFFF


def template(srv6: Srv6, routing: Routing, pair: Pair) -> MrcTemplate:
    """Return the ways from one port to another. Raise PathError where uSIDs do not say them."""
    downlink = srv6.downlink(pair.target)
    gateways = [node_of(step.receiver) for step in routing.gateways(pair.source)]
    if downlink is None or not gateways:
        port = pair.target if downlink is None else pair.source
        raise PathError(f"{port} has no router in front of it, so nothing leads there by uSIDs")
    first = gateways[0]
    count = len(_next(routing, first, pair.target)) or 1
    ways = [(*_way(routing, first, pair.target, number),) for number in range(count)]
    slots = []
    for routers in zip(*ways, strict=True):
        usids = [srv6.router_usid(name) for name in routers]
        slots.append((usids[0], usids[1] - usids[0] if count > 1 else 0))
        for number, (name, usid) in enumerate(zip(routers, usids, strict=True)):
            if not 0 < usid <= MAX_USID:
                raise PathError(f"{name} has no uSID; write usid:")
            if usid != slots[-1][0] + slots[-1][1] * number:
                listed = ", ".join(f"{n} {u:#06x}" for n, u in zip(routers, usids, strict=True))
                raise PathError(
                    f"the uSIDs of the ways from {pair.source} to {pair.target} are not evenly"
                    f" spaced ({listed}), so no bits of an entropy value name them; give these"
                    " routers a usid: in a row"
                )
    block = str(IPv6Address(srv6.block << 96))
    return MrcTemplate(block, (*slots, (downlink, 0)), count)


def _next(routing: Routing, router: str, target: str) -> list[str]:
    """Return the routers that are next on the way to a port; none from the one before it."""
    if router in routing.edge(target):
        return []
    return list(dict.fromkeys(node_of(step.receiver) for step in routing.hops(router, target)))


def _way(routing: Routing, router: str, target: str, number: int) -> list[str]:
    """Return the routers of one way."""
    found = [router]
    while ahead := _next(routing, found[-1], target):
        found.append(ahead[number % len(ahead)])
    return found
