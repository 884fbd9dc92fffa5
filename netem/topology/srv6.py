"""SIDs of a lab's nodes, the routes to them, and segment lists made of paths.

Who has which SIDs without saying so, in a lab that uses SRv6:

    router    <block>:<uSID>::/48              uN
              fc00:ffff:<plane>:<N+1>::e       End
    host      <block>:<downlink>::/48          uDT6 (uDT4)   } on each port that is
              fc00:<plane>:<N+1>::d6 (::d4)    End.DT6 (DT4) } linked to a router

A uSID is plane (4 bits), role (4) and number (8), mrc.md 12.5: role 1 is T0, 2 is T1, 3 is T2,
F is a switch that no generator made, and 8 is a downlink: it names a port of the router in
front of the host and means something there alone. So a path of uSIDs ends with that router's
uSID and the downlink's.

Locators are routed like addresses, by all equal shortest ways. A prefix that several nodes own
has a local meaning, as that of an adjacency, and is not routed.
"""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv6Address
from typing import NamedTuple

from netem.topology import addresses
from netem.topology.errors import shown
from netem.topology.model import Lab, NodeSpec, Place
from netem.topology.names import plane_of
from netem.topology.plan import SourceRoute
from netem.topology.routing import Edge, Routing
from netem.topology.settings import SourcePath, kind_of, traits, uses_srv6
from netem.topology.spelling import suggestion
from netem.topology.srv6_model import (
    DEFAULT_BLOCK,
    Encaps,
    Sid,
    SidSpec,
    SteerSpec,
    is_sid,
    parse_sid,
)
from netem.topology.switch_plan import Behaviour, NextHop, SidPlan, SteerPlan
from netem.topology.wiring import Wiring, node_of

USIDS = 6  # in one container: 128 bits without the block's 32, by 16
_LOCATOR = 64  # bits
_USID = 48
_HOST_ROLE = 8
_OTHER_ROLE = 0xF
# Behaviours that send to neighbours of their own, and those that take the outer header off.
ADJACENT: frozenset[Behaviour] = frozenset(
    {"End.X", "uA", "End.DX4", "End.DX6", "uDX4", "uDX6"}
)
DECAPSULATING: frozenset[Behaviour] = frozenset(
    {
        "End.DX4", "End.DX6", "End.DT4", "End.DT6", "End.DT46",
        "uDX4", "uDX6", "uDT4", "uDT6", "uDT46",
    }
)  # fmt: skip
_U: frozenset[Behaviour] = frozenset({"uN", "uA", "uDX4", "uDX6", "uDT4", "uDT6", "uDT46"})


class PathError(ValueError):
    """A path that cannot be written: one line, and which of the elements it is about."""

    def __init__(self, why: str, element: int | None = None) -> None:
        super().__init__(why)
        self.element = element


class Owned(NamedTuple):
    """A SID, who owns it, and where the lab file has it ("" where we gave it)."""

    node: str
    sid: Sid
    spec: SidSpec | None
    behaviour: Behaviour


def usid_of(node: NodeSpec) -> int:
    """Return a router's uSID, which may be more than 16 bits: then it has none."""
    if node.usid is not None:
        return node.usid
    place = node.place
    if place is None:
        return _OTHER_ROLE << 8 | node.number if node.number < 0x100 else 1 << 16
    return _packed(place, place.tier + 1)


def _packed(place: Place, role: int) -> int:
    if place.number > 0xFF:
        return 1 << 16
    return place.plane << 12 | role << 8 | place.number


class Srv6:
    """The SIDs of one lab."""

    def __init__(
        self, lab: Lab, wiring: Wiring, routing: Routing, macs: Mapping[str, str]
    ) -> None:
        """`macs` are those of ports."""
        self._lab = lab
        self._wiring = wiring
        self._routing = routing
        self._macs = macs
        self._nodes = lab.topology.nodes
        self.block = DEFAULT_BLOCK if lab.srv6 is None else lab.srv6.block
        self.is_used = uses_srv6(lab)
        self._routers = dict.fromkeys(wiring.routers)
        self._owned: dict[str, list[Owned]] = {}
        for name in self._nodes:
            own = list(self._of_node(name))
            if own:
                self._owned[name] = own
        self._owners: dict[Sid, list[Owned]] = {}
        for owned in self.all():
            self._owners.setdefault(owned.sid, []).append(owned)

    def all(self) -> Iterator[Owned]:
        """Yield the SIDs of all nodes."""
        for own in self._owned.values():
            yield from own

    # -- who has what ----------------------------------------------------------------------

    def _of_node(self, name: str) -> Iterator[Owned]:
        """Yield a node's SIDs, first those that the lab file gives it."""
        node = self._nodes[name]
        written = set()
        for spec in node.sids:
            written.add(spec.sid)
            yield Owned(name, spec.sid, spec, spec.behaviour)
        if not self.is_used:
            return
        given = self._of_router(node) if name in self._routers else self._of_host(name)
        for sid, behaviour in given:
            if sid not in written:
                yield Owned(name, sid, None, behaviour)

    def _of_router(self, node: NodeSpec) -> Iterator[tuple[Sid, Behaviour]]:
        usid = usid_of(node)
        if usid <= 0xFFFF:
            yield self.usid_locator(usid), "uN"
        locator = addresses.router_locator(node.number, plane_of_router(node))
        yield Sid(locator | addresses.END, 128), "End"

    def _of_host(self, name: str) -> Iterator[tuple[Sid, Behaviour]]:
        if self._wiring.roles[name] != "host":
            return
        node = self._nodes[name]
        family = traits(self._lab, node).family
        for port in self._wiring.ports[name]:
            if self._routing.gateways(port):
                yield self._decapsulating(port), "End.DT6" if family == "ipv6" else "End.DT4"
                if (downlink := self.downlink(port)) is not None:
                    yield (
                        self.usid_locator(downlink),
                        "uDT6" if family == "ipv6" else "uDT4",
                    )

    def usid_locator(self, usid: int) -> Sid:
        """Return the locator of a uSID."""
        return Sid(self.block << 96 | usid << 80, _USID)

    def _decapsulating(self, port: str) -> Sid:
        """Return the SID at which a host's port takes the outer header off."""
        node = self._nodes[node_of(port)]
        plane = plane_of(port.partition(":")[2])
        function = addresses.DECAPSULATE[traits(self._lab, node).family]
        return Sid(addresses.host_locator(node.number, plane) | function, 128)

    def _ipv6(self, port: str) -> str:
        """Return the IPv6 address that goes with a host's port."""
        node, name = port.split(":")
        return addresses.host_ipv6(self._nodes[node].number, plane_of(name))

    def downlink(self, port: str) -> int | None:
        """Return the uSID of a host's port at the router it is linked to; None: it has none."""
        peer = self._wiring.hop(port).receiver
        if not self._wiring.is_router(peer):
            return None
        number = plane_of(peer.partition(":")[2])
        if number > 0xFF:
            return None
        plane = plane_of_router(self._nodes[node_of(peer)])
        return plane << 12 | _HOST_ROLE << 8 | number

    # -- what is planned -------------------------------------------------------------------

    def sids(self, name: str) -> tuple[SidPlan, ...]:
        """Return what a node does with packets to its SIDs."""
        return tuple(
            SidPlan(
                prefix=owned.sid.prefix,
                behaviour=owned.behaviour,
                flavours=owned.spec.flavours if owned.spec else (),
                hops=self._adjacency(owned),
            )
            for owned in self._owned.get(name, ())
        )

    def _adjacency(self, owned: Owned) -> tuple[NextHop, ...]:
        if owned.spec is None or owned.spec.target is None:
            return ()
        found = self.adjacent(owned.node, owned.spec.target)
        return tuple(NextHop(s.partition(":")[2], self._macs[r]) for s, r in found)

    def adjacent(self, name: str, target: str) -> list[tuple[str, str]]:
        """Return own port and neighbour's port for each link to a neighbour, or to a port."""
        return [
            (port, end)
            for port in self._wiring.ports[name]
            for end in self._wiring.segment(port)
            if target in {end, node_of(end)}
        ]

    def locators(self) -> Iterator[tuple[str, str]]:
        """Yield each prefix that is routed, and the router, or the port of a host, it is at."""
        for sid, owners in self._owners.items():
            nodes = {owned.node for owned in owners}
            if len(nodes) > 1:
                continue
            (name,) = nodes
            is_given = all(owned.spec is None for owned in owners)
            if self._wiring.roles[name] == "host":
                port = self._port_of(name, sid, is_given=is_given)
                if port is not None:
                    locator = sid.value >> 64 << 64
                    yield Sid(locator, _LOCATOR).prefix if is_given else sid.prefix, port
            elif is_given and sid.length == 128:
                yield Sid(sid.value >> 64 << 64, _LOCATOR).prefix, name
            else:
                yield sid.prefix, name

    def _port_of(self, name: str, sid: Sid, *, is_given: bool) -> str | None:
        """Return the host's port that packets to a SID of its go to; None for a downlink."""
        ports = [p for p in self._wiring.ports[name] if self._routing.gateways(p)]
        if not is_given:
            return ports[0] if ports else None
        return next((port for port in ports if self._decapsulating(port) == sid), None)

    def downlinks(self, router: str) -> Iterator[tuple[str, str]]:
        """Yield the prefix of each downlink of a router, and its own port to it."""
        if not self.is_used:
            return
        for port in self._wiring.ports[router]:
            peer = self._wiring.hop(port).receiver
            if self._wiring.is_host(peer) and (usid := self.downlink(peer)) is not None:
                yield self.usid_locator(usid).prefix, port

    def router_usid(self, name: str) -> int:
        """Return a router's uSID; more than 16 bits where it has none."""
        return usid_of(self._nodes[name])

    # -- paths -----------------------------------------------------------------------------

    def route(
        self, path: SourcePath, ends: tuple[str, str], *, back: bool = False
    ) -> SourceRoute | None:
        """Return how packets between two ports are led; None where the routes alone do it.

        `ends` are the sending and the receiving port. The outer header is IPv6 whatever is
        inside, so its source is the IPv6 address of the port's number. Raise PathError.
        """
        elements = path.back if back else path.there
        if not elements:
            return None
        owned = list(self._led(elements, path.encaps, self._routing.edge(ends[0])))
        segments = self._segments(owned, path.encaps, ends[1])
        return SourceRoute(
            segments=tuple(str(IPv6Address(value)) for value in segments),
            source=self._ipv6(ends[0]),
            mode="encaps" if path.encaps == "h_encaps" else "encaps_red",
            via=tuple(one.node for one in owned if self._wiring.roles[one.node] == "router"),
        )

    def led(
        self, path: SourcePath | None, source: str, target: str
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the routers that an item's packets are led by, there and back."""
        if path is None:
            return (), ()
        there = self.route(path, (source, target))
        back = self.route(path, (target, source), back=True)
        return there.via if there else (), back.via if back else ()

    def steered(
        self, router: str, spec: SteerSpec, source: str, ips: Mapping[str, str]
    ) -> SteerPlan:
        """Return what a router encapsulates, to all addresses of a host alike.

        `ips` are those of hosts' ports. Raise PathError.
        """
        port = self._only_port(spec.target)
        owned = list(self._led(spec.path, spec.encaps, frozenset([router])))
        if not owned:
            raise PathError("an empty path leads nowhere")
        ip = ips.get(port, "::")
        return SteerPlan(
            prefix=f"{ip}/{128 if ':' in ip else 32}",
            segments=tuple(
                str(IPv6Address(value)) for value in self._segments(owned, spec.encaps, port)
            ),
            source=source,
            mode="encaps" if spec.encaps == "h_encaps" else "encaps_red",
        )

    def _only_port(self, target: str) -> str:
        """Return the port of a host that is named, or has only one."""
        name = node_of(target)
        if self._wiring.roles.get(name) != "host":
            hosts = self._wiring.hosts
            raise PathError(f"{shown(target)} is no host{suggestion(target, hosts)}")
        ports = self._wiring.ports[name]
        if target in ports:
            return target
        if ":" in target or len(ports) != 1:
            raise PathError(f"{shown(target)} is not one port; legal: {', '.join(ports)}")
        return ports[0]

    def _led(self, elements: Iterable[str], encaps: Encaps, start: Edge) -> Iterator[Owned]:
        """Yield the SID of each element of a path that begins at one of some routers."""
        decapsulates = False
        for number, element in enumerate(elements):
            if decapsulates:
                raise PathError("comes after a SID that decapsulates", number)
            try:
                owned = self._element(element, encaps)
                self._check_reached(element, owned, start)
            except PathError as error:
                raise PathError(str(error), number) from None
            yield owned
            decapsulates = owned.behaviour in DECAPSULATING

    def _segments(self, owned: list[Owned], encaps: Encaps, target: str) -> list[int]:
        """Return the addresses of the segments: SIDs, or containers of uSIDs."""
        sids = [one.sid.value for one in owned]
        decapsulates = owned[-1].behaviour in DECAPSULATING
        if encaps != "usid":
            return sids if decapsulates else [*sids, self._decapsulating(target).value]
        usids = [usid for sid in sids for usid in _usids(sid)]
        if not decapsulates:
            usids += self._ending(target, owned[-1].node)
        return [
            self._container(usids[start : start + USIDS])
            for start in range(0, len(usids), USIDS)
        ]

    def _ending(self, target: str, last: str) -> list[int]:
        """Return what leads to a host's port from the router `last`."""
        downlink = self.downlink(target)
        if downlink is None:
            raise PathError(f"{target} has no router in front of it, so it has no uSID")
        front = node_of(self._wiring.hop(target).receiver)
        return [downlink] if front == last else [usid_of(self._nodes[front]), downlink]

    def _container(self, usids: list[int]) -> int:
        value = self.block
        for usid in usids:
            value = value << 16 | usid
        return value << 16 * (USIDS - len(usids))

    def _element(self, element: str, encaps: Encaps) -> Owned:
        """Return the SID that an element of a path stands for."""
        if is_sid(element):
            return self._literal(element, encaps)
        known = self._nodes.get(element)
        if known is None:
            routers = list(self._routers)
            raise PathError(f"no node {shown(element)}{suggestion(element, routers)}")
        if self._wiring.roles[element] != "router":
            raise PathError(
                f"{element} is a {kind_of(known)}, which has no segments;"
                f" legal: {', '.join(list(self._routers)[:32])}"
            )
        wanted = "uN" if encaps == "usid" else "End"
        for owned in self._owned[element]:
            if owned.behaviour == wanted:
                return owned
        raise PathError(f"{element} has no {wanted} SID")

    def _literal(self, element: str, encaps: Encaps) -> Owned:
        try:
            value = parse_sid(element).value
        except ValueError as error:
            raise PathError(str(error)) from None
        for owned in self.all():
            bits = 128 - owned.sid.length
            if value >> bits << bits == owned.sid.value:
                is_usid = owned.behaviour in _U and owned.sid.value >> 96 == self.block
                if (encaps == "usid") != is_usid:
                    what = "a uSID" if is_usid else "no uSID"
                    raise PathError(f"{element} is {what}; encaps: {encaps} cannot carry it")
                return owned._replace(sid=Sid(value, 128))
        raise PathError(f"no node has the SID {element}")

    def _check_reached(self, element: str, owned: Owned, start: Edge) -> None:
        """Refuse what lies in another plane than the routers where the path begins."""
        if self._wiring.roles[owned.node] == "router" and not any(
            self._routing.joined(owned.node, router) for router in start
        ):
            first = ", ".join(sorted(start)) or "a host without a router"
            raise PathError(f"no way from {first} to {element}")


def _usids(container: int) -> Iterator[int]:
    """Yield the uSIDs of a container, up to the first that is 0."""
    for shift in range(80, -1, -16):
        usid = container >> shift & 0xFFFF
        if not usid:
            return
        yield usid


def plane_of_router(node: NodeSpec) -> int:
    """Return the plane of a router: 0 where no generator says."""
    return node.place.plane if node.place is not None else 0
