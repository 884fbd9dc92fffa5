"""What only the whole lab can tell: do names exist, are ports free, does a packet fit.

Each check notes every problem it finds, one line each. A check that would only repeat what an
earlier one said is not made: of a lab with a bad link, nobody wants to hear that its hosts
cannot reach each other.
"""

from collections.abc import Iterator

from netem.topology import congestion
from netem.topology.engines import tc_cannot
from netem.topology.errors import shown
from netem.topology.fault_checks import check_faults
from netem.topology.headroom import Cable
from netem.topology.link_model import LinkSpec
from netem.topology.model import MAX_IN_SEGMENT, MAX_ROUTES, Lab
from netem.topology.mtu import mtu_sum
from netem.topology.names import NameRefusedError, Names, check_port_name, split_port
from netem.topology.node_checks import memory, node_problems, sid_problems
from netem.topology.overlay import Overlay
from netem.topology.overlay_checks import overlay_problems
from netem.topology.oversize import too_small
from netem.topology.routing import Ground, Routing
from netem.topology.settings import (
    direction_impairment,
    in_wall_time,
    kind_of,
    link_engine,
    link_mtu,
    link_vlan,
    roles,
    switch_keys,
    traits,
    transport_of,
)
from netem.topology.shape import idle_keys
from netem.topology.spelling import suggestion
from netem.topology.srv6 import Srv6
from netem.topology.wiring import Wiring, node_of
from netem.topology.workload_checks import WorkloadCheck
from transports.clock import US

Ends = tuple[str, str]
# Code. A REQ says the ACK timeout as one more than the packet life time, which has a code, too.
SHORTEST_BY_CM = 2
MIN_SAMPLE = 1 * US  # ours: what 400 Gbit/s need for some ten packets


def check(lab: Lab, problems: list[str]) -> None:
    """Note what is wrong with a lab whose keys and values are right by themselves."""
    was_readable = not problems
    if lab.limit == 0:
        problems.append("limit: 0s ends the run before it begins; write for example 60s")
    if lab.sample is not None and lab.sample < MIN_SAMPLE:
        problems.append("sample: shorter than a microsecond; write for example 50us, or none")
    if (name := in_wall_time(lab)) and lab.dilation not in {None, 1}:
        problems.append(f"dilation: {name} lives in wall time; write dilation: 1")
    used: dict[str, str] = {}
    ends = [_ends(lab, link, used, problems) for link in lab.topology.links]
    of_nodes = list(node_problems(lab))
    problems.extend(of_nodes)
    problems.extend(_connect_problems(lab))
    problems.extend(_mtu_problems(lab))
    problems.extend(congestion.problems(lab))
    sound = [pair for pair in ends if pair is not None]
    if len(sound) < len(ends):
        return
    names = Names(lab.topology.nodes, sound)
    wiring = Wiring(roles(lab), sound)
    found: dict[str, None] = {}  # a generated link says what is wrong once for all of its tier
    for link, pair in zip(lab.topology.links, sound, strict=True):
        found |= dict.fromkeys(_link_problems(lab, link, pair, names))
        found |= dict.fromkeys(_tag_problems(lab, link, pair, wiring))
    problems.extend(found)
    before = len(problems)
    _check_segments(lab, wiring, sound, problems)
    if len(problems) > before:
        return
    routing = Routing(wiring)
    if (routes := routing.count()) > MAX_ROUTES:
        where = "topology" if lab.fabric is None else "fabric"
        problems.append(f"{where}: {routes} routes in all routers; at most {MAX_ROUTES}")
        return
    srv6 = Srv6(lab, wiring, routing, {})
    problems.extend(sid_problems(lab, wiring, srv6))
    of_overlay = list(overlay_problems(lab, wiring, routing))
    problems.extend(of_overlay)
    has_overlay = lab.overlay is not None and not of_overlay
    overlay = Overlay(lab, wiring, routing) if has_overlay else None
    if not of_nodes:
        problems.extend(_memory_problems(lab, names, wiring))
    if was_readable:
        ground = Ground(names, wiring, routing)
        WorkloadCheck(lab, ground, srv6, problems, overlay).check()
    check_faults(lab, names, problems)
    _check_capture(lab, names, problems)


def _ends(lab: Lab, link: LinkSpec, used: dict[str, str], problems: list[str]) -> Ends | None:
    """Return the ends of a link, None if they cannot be; `used` knows those of other links."""
    before = len(problems)
    for i, end in enumerate(link.endpoints):
        try:
            _check_end(lab, end)
        except NameRefusedError as error:
            problems.append(f"{link.location}.endpoints[{i}]: {error}")
            continue
        if end in used:
            problems.append(
                f"{link.location}.endpoints[{i}]: {end} is used already by {used[end]};"
                " a port has one link"
            )
        used.setdefault(end, link.location)
    a, b = link.endpoints
    if len(problems) == before and node_of(a) == node_of(b):
        problems.append(f"{link.location}.endpoints: both ends are on {node_of(a)}")
    return (a, b) if len(problems) == before else None


def _check_end(lab: Lab, end: str) -> None:
    """Raise NameRefusedError unless `end` is a port that a node of the lab may have."""
    node, port = split_port(end)
    spec = lab.topology.nodes.get(node)
    if spec is None:
        raise NameRefusedError(f"no node {shown(node)}{suggestion(node, lab.topology.nodes)}")
    check_port_name(port, kind_of(spec))


def _link_problems(lab: Lab, link: LinkSpec, ends: Ends, names: Names) -> Iterator[str]:
    """Yield what is wrong with the `a->b` keys of a link, and with its keys together."""
    strange = []
    for text in link.directions:
        try:
            why = "" if names.egress(text) in ends else "not of this link"
        except NameRefusedError as error:
            why = str(error)
        if why:
            legal = f"legal: {ends[0]}->{ends[1]}, {ends[1]}->{ends[0]}"
            strange.append(f"{link.location}.{shown(text)}: {why}; {legal}")
    yield from strange
    is_tc = link_engine(lab, link) == "tc"
    for sender in () if strange else ends:
        given = direction_impairment(lab, link, names, sender)
        for key, why in idle_keys(given):
            yield f"{link.location}.{key}: {why}"
        if is_tc:
            yield from (f"{link.location}.{line}" for line in tc_cannot(given))


def _tag_problems(lab: Lab, link: LinkSpec, ends: Ends, wiring: Wiring) -> Iterator[str]:
    if link_vlan(lab, link) is None:
        return
    for end in ends:
        node = lab.topology.nodes[node_of(end)]
        if wiring.is_host(end) and traits(lab, node).mode == "datagram":
            yield (
                f"{link.location}.vlan: {node_of(end)} is in datagram mode and cannot tag;"
                " write mode: frame"
            )


def _check_segments(lab: Lab, wiring: Wiring, pairs: list[Ends], problems: list[str]) -> None:
    """Refuse loops of bridges, tags that change at a bridge, and crowds of hosts."""
    root = {name: name for name, role in wiring.roles.items() if role == "bridge"}
    hosts = dict.fromkeys(root, 0)
    for link, (a, b) in zip(lab.topology.links, pairs, strict=True):
        one, other = node_of(a), node_of(b)
        if one not in root or other not in root:
            for end, bridge in ((a, other), (b, one)):
                if bridge in root and wiring.is_host(end):
                    hosts[bridge] += 1
            continue
        first, second = _root(root, one), _root(root, other)
        if first == second:
            problems.append(
                f"{link.location}.endpoints: closes a loop of bridges at {one} and"
                f" {other}; a broadcast would circle for ever"
            )
        root[first] = second
    together: dict[str, int] = {}
    for name, count in hosts.items():
        of = _root(root, name)
        together[of] = together.get(of, 0) + count
    problems.extend(
        f"{lab.topology.nodes[name].location}: {count} hosts in one segment of bridges;"
        f" at most {MAX_IN_SEGMENT}"
        for name, count in together.items()
        if count > MAX_IN_SEGMENT
    )
    for name in root:
        links = {wiring.hop(port).link for port in wiring.ports[name]}
        vlans = {link_vlan(lab, lab.topology.links[index]) for index in links}
        if len(vlans) > 1:
            texts = ", ".join(sorted("none" if vlan is None else str(vlan) for vlan in vlans))
            problems.append(
                f"{lab.topology.nodes[name].location}: its links have different vlan values"
                f" ({texts}); a bridge passes tags on as they are"
            )


def _root(root: dict[str, str], name: str) -> str:
    """Return the representative of the bridges joined so far that `name` belongs to."""
    while root[name] != name:
        root[name] = root[root[name]]
        name = root[name]
    return name


def _connect_problems(lab: Lab) -> Iterator[str]:
    """Yield an ACK timeout that the communication manager cannot say."""
    for name, transport in lab.transports.items():
        if transport.connect == "cm" and transport.timeout < SHORTEST_BY_CM:
            yield (
                f"transports.{name}.timeout: {transport.timeout} cannot be agreed on by the"
                f" communication manager; with connect: cm legal is {SHORTEST_BY_CM} to 31"
            )


def _mtu_problems(lab: Lab) -> Iterator[str]:
    """Yield a path MTU whose packets a link cannot carry, for each transport in use."""
    hosts = [node for node in lab.topology.nodes.values() if kind_of(node) == "host"]
    families = {traits(lab, node).family for node in hosts}
    used = {transport_of(lab, item) for item in lab.workload}
    for name, transport in lab.transports.items():
        if name in used and families:
            family = "ipv6" if "ipv6" in families else "ipv4"
            needed = mtu_sum(transport.mtu, family, kind=transport.kind)
            yield from too_small(lab, lab.topology.links, needed, f"transport {name}")


def _memory_problems(lab: Lab, names: Names, wiring: Wiring) -> Iterator[str]:
    """Yield the switches whose memory cannot hold what its classes are promised."""
    link_of = {end: link for link in lab.topology.links for end in link.endpoints}
    found: dict[str, None] = {}
    for name, node in lab.topology.nodes.items():
        if node.kind != "switch":
            continue
        keys = switch_keys(lab, node)
        if keys.buffer is None and keys.queue is None and not keys.queues:
            continue
        cables = []
        for port in wiring.ports[name]:
            given = direction_impairment(lab, link_of[port], names, names.peers[port])
            cables.append(Cable(given.rate, given.delay, link_mtu(lab, link_of[port])))
        found |= dict.fromkeys(memory(lab, name, tuple(cables)))
    yield from found


def _check_capture(lab: Lab, names: Names, problems: list[str]) -> None:
    if lab.capture.links == "all":
        return
    for i, text in enumerate(lab.capture.links):
        try:
            names.link(text)
        except NameRefusedError as error:
            problems.append(f"capture.links[{i}]: {error}")
