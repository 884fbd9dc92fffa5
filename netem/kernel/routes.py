"""What a kernel is told to forward: addresses, routes, SIDs and paths of a plan, as `ip` words.

A plan names a next hop by its port and MAC; the kernel wants an address. That of a neighbour
with this MAC is taken where the plan knows one, else one is made up from the MAC, which no
packet ever carries: on the link, with a permanent row in the neighbour table. IPv4 goes by the
same IPv6 next hops (RFC 5549). A tunnel has no MAC: the interface says it all.

What the kernel cannot do is refused, never approximated: `unsupported` has the list.
"""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import TypeAlias

from netem.topology.plan import NodePlan
from netem.topology.switch_plan import NextHop, RoutePlan, SidPlan, SteerPlan, SwitchPlan

Words: TypeAlias = tuple[str, ...]

# Ours: where addresses of next hops are made up, a prefix with room for a MAC
_MADE_UP = int(IPv6Address("fd00:fffe::"))
_MADE_UP_IPV4 = int(IPv4Address("169.254.0.0"))
# Ours: the interface that SIDs and paths are said to be behind. Behind `lo` no packet would
# pass, and behind a port they would go when its link goes down: so a veth that leads back in.
_SRV6 = ("sr0", "sr1")
# Table 0 is none in particular: the rules decide, so the node's own addresses are found too.
_ALL_TABLES = "0"
_BLOCK = 32  # bits; F3216

_ACTIONS = {"uN": "End", "uA": "End.X", "uDX4": "End.DX4", "uDX6": "End.DX6", "uDT6": "End.DT6"}
_KNOWN = frozenset({"End", "End.X", "End.DX4", "End.DX6", "End.DT6", *_ACTIONS})
_VRF = frozenset({"End.DT4", "End.DT46", "uDT4", "uDT46"})


class UnsupportedError(ValueError):
    """A kernel router is asked for what the kernel cannot do; one line says what."""


def unsupported(node: NodePlan) -> Iterator[str]:
    """Yield what the plan of a kernel router asks for and the kernel has not, a line each."""
    plan = node.switch or SwitchPlan()
    mode = plan.balance.mode
    if mode in {"spray", "ev"} and any(len(route.hops) > 1 for route in plan.routes):
        yield f"{node.name}: the kernel chooses paths by flow, it has no {mode}"
    for sid in plan.sids:
        name = f"{node.name}: SID {sid.prefix}"
        if sid.behaviour in _VRF:
            yield f"{name}: the kernel wants a VRF device for {sid.behaviour}"
        elif sid.behaviour not in _KNOWN:
            yield f"{name}: the kernel has no {sid.behaviour}"
        if wrong := [flavour for flavour in sid.flavours if flavour != "psp"]:
            yield f"{name}: the kernel has no flavour {wrong[0]}"
        elif sid.flavours and sid.behaviour not in {"End", "uN"}:
            yield f"{name}: the kernel has no psp for {sid.behaviour}"
        if len(sid.hops) > 1:
            yield f"{name}: the kernel takes one neighbour, not {len(sid.hops)}"
    if len({steer.source for steer in plan.steer}) > 1:
        yield f"{node.name}: the kernel has one source for all paths"


def router(node: NodePlan) -> Iterator[Words]:
    """Yield the `ip` commands of a kernel router, in an order in which they are accepted.

    Its interfaces are there, up, and know the neighbours of the plan. Raise UnsupportedError.
    """
    for why in unsupported(node):
        raise UnsupportedError(why)
    plan = node.switch or SwitchPlan()
    for address, bits in ((plan.address, 128), (plan.address_v4, 32)):
        if address:
            yield ("addr", "add", f"{address}/{bits}", "dev", "lo")
    if not node.ports:
        return
    interfaces = {port.name: port.name for port in node.ports}
    hops = _Hops(node, interfaces)
    routes = plan.routes
    if plan.balance.mode == "static":
        routes = tuple(RoutePlan(route.prefix, route.hops[:1]) for route in routes)
    named = [row.hops for row in routes] + [row.hops for row in plan.sids]
    yield from hops.introduced([hop for row in named for hop in row])
    for route in routes:
        yield hops.route(route)
    if plan.sids or plan.steer:
        one, other = _SRV6
        yield ("link", "add", "name", one, "type", "veth", "peer", "name", other)
        for end in _SRV6:
            yield ("link", "set", "dev", end, "arp", "off", "multicast", "off", "up")
    yield from _sids(plan.sids, hops)
    own = {plan.address, *(port.ipv6 for port in node.ports)} - {None}
    yield from _steering(plan.steer, own)


def host(node: NodePlan, interfaces: Mapping[str, str]) -> Iterator[Words]:
    """Yield the `ip` commands for the routes of a host with a kernel's stack.

    `interfaces` says what the kernel's interface of each port is called.
    """
    hops = _Hops(node, interfaces)
    yield from hops.introduced([hop for route in node.routes for hop in route.hops])
    for route in node.routes:
        yield hops.route(route)


class _Hops:
    """The next hops of one node, by the addresses that its kernel knows them by."""

    def __init__(self, node: NodePlan, interfaces: Mapping[str, str]) -> None:
        self._interfaces = interfaces
        self._order: list[NextHop] = []
        self._known = {
            NextHop(row.port, row.mac): row.ip for row in node.neighbours if ":" in row.ip
        }

    def introduced(self, hops: Sequence[NextHop]) -> Iterator[Words]:
        """Yield what makes hops known that the neighbour table of the plan does not have."""
        for hop in dict.fromkeys(hops):
            self._order.append(hop)
            if hop in self._known or not hop.mac:
                continue
            address, on = self.ipv6(hop), ("dev", self._interfaces[hop.port])
            yield ("route", "add", f"{address}/128", *on)
            yield ("neigh", "replace", address, "lladdr", hop.mac, *on, "nud", "permanent")

    def ipv6(self, hop: NextHop) -> str:
        made_up = IPv6Address(_MADE_UP | int(hop.mac.replace(":", ""), 16))
        return self._known.get(hop, str(made_up))

    def ipv4(self, hop: NextHop) -> str:
        """Return a made up address, for the one command that takes no IPv6 next hop."""
        return str(IPv4Address(_MADE_UP_IPV4 | self._order.index(hop) + 1))

    def via(self, hop: NextHop, *, is_ipv4: bool) -> Words:
        if not hop.mac:  # into a tunnel: there is nobody to name
            return ("dev", hop.port)
        family = ("inet6",) if is_ipv4 else ()
        return ("via", *family, self.ipv6(hop), "dev", self._interfaces[hop.port])

    def route(self, route: RoutePlan) -> Words:
        """Return the route; of a multipath one the kernel chooses by flow."""
        is_ipv4 = ":" not in route.prefix
        ways = [self.via(hop, is_ipv4=is_ipv4) for hop in route.hops]
        if len(ways) == 1:
            return ("route", "replace", route.prefix, *ways[0])
        nexthops = [word for way in ways for word in ("nexthop", *way)]
        return ("route", "replace", route.prefix, *nexthops)


def _sids(sids: Sequence[SidPlan], hops: _Hops) -> Iterator[Words]:
    for sid in sids:
        action = _ACTIONS.get(sid.behaviour, sid.behaviour)
        words: list[str] = ["action", action]
        if action in {"End.X", "End.DX6"}:
            words += ["nh6", hops.ipv6(sid.hops[0])]
        elif action == "End.DX4":
            address = hops.ipv4(sid.hops[0])
            yield ("route", "replace", f"{address}/32", *hops.via(sid.hops[0], is_ipv4=True))
            words += ["nh4", address]
        elif action == "End.DT6":
            words += ["table", _ALL_TABLES]
        words += _flavours(sid)
        yield (
            "route", "add", sid.prefix, "encap", "seg6local", *words, "count", "dev", _SRV6[0]
        )  # fmt: skip


def _flavours(sid: SidPlan) -> Words:
    flavours: list[str] = list(sid.flavours)
    widths: Words = ()
    if sid.behaviour in {"uN", "uA"}:
        flavours.append("next-csid")
        own = int(sid.prefix.partition("/")[2]) - _BLOCK
        widths = ("lblen", str(_BLOCK), "nflen", str(own))
    return ("flavors", ",".join(flavours), *widths) if flavours else ()


def _steering(paths: Sequence[SteerPlan], own: set[str | None]) -> Iterator[Words]:
    """Yield the paths; their interface says nothing, the first segment is looked up.

    The kernel takes an address of `own`, of the node, as the source of the outer header. It has
    to be told which only where it has a choice, and only root outside may tell it.
    """
    if paths and own != {paths[0].source}:
        yield ("sr", "tunsrc", "set", paths[0].source)
    for path in paths:
        mode = "encap" if path.mode == "encaps" else "encap.red"
        segments = ",".join(path.segments)
        yield (
            "route", "add", path.prefix, "encap", "seg6", "mode", mode, "segs", segments,
            "dev", _SRV6[0],
        )  # fmt: skip
