"""What only the whole lab can tell: do names exist, are ports free, does a packet fit.

Each check notes every problem it finds, one line each. A check that would only repeat what an
earlier one said is not made: of a lab with a bad link, nobody wants to hear that its hosts
cannot reach each other.
"""

from collections.abc import Iterator

from netem.impair.faults import legal_ops
from netem.impair.model import Impairment
from netem.topology.errors import shown
from netem.topology.model import FaultSpec, Lab, LinkSpec
from netem.topology.mtu import mtu_sum
from netem.topology.names import NameRefusedError, Names, check_port_name, split_port
from netem.topology.settings import (
    direction_impairment,
    link_mtu,
    link_vlan,
    traits,
    transport_of,
)
from netem.topology.shape import changed, idle_keys
from netem.topology.spelling import suggestion
from netem.topology.wiring import Wiring, node_of
from netem.topology.workload_checks import WorkloadCheck

Ends = tuple[str, str]
_SERVICES = ("RC_", "UC_", "RD_", "UD_", "XRC_")  # before the name of an opcode


def check(lab: Lab, problems: list[str]) -> None:
    """Note what is wrong with a lab whose keys and values are right by themselves."""
    was_readable = not problems
    if lab.limit == 0:
        problems.append("limit: 0s ends the run before it begins; write for example 60s")
    used: dict[str, str] = {}
    ends = [_ends(lab, link, used, problems) for link in lab.topology.links]
    _check_nodes(lab, problems)
    _check_mtus(lab, problems)
    sound = [pair for pair in ends if pair is not None]
    if len(sound) < len(ends):
        return
    names = Names(lab.topology.nodes, sound)
    wiring = Wiring({name: spec.kind for name, spec in lab.topology.nodes.items()}, sound)
    for link, pair in zip(lab.topology.links, sound, strict=True):
        problems.extend(_direction_problems(lab, link, pair, names))
        problems.extend(_tag_problems(lab, link, pair, wiring))
    _check_bridges(lab, wiring, sound, problems)
    if was_readable:
        WorkloadCheck(lab, names, wiring, problems).check()
    _check_faults(lab, names, problems)
    _check_capture(lab, names, problems)


def _check_nodes(lab: Lab, problems: list[str]) -> None:
    if not lab.topology.nodes:
        problems.append("topology.nodes: empty; write at least one node")
    for name, node in lab.topology.nodes.items():
        if node.kind != "host":
            keys = [
                key for key in ("mode", "stack", "family") if getattr(node, key) is not None
            ]
            problems.extend(f"{node.path}.{key}: a {node.kind} has none" for key in keys)
            continue
        host = traits(lab, node)
        if host.mode == "datagram" and host.family == "ipv4":
            problems.append(
                f"topology.nodes.{name}: datagram mode is IPv6 only;"
                " write family: ipv6 or mode: frame"
            )


def _ends(lab: Lab, link: LinkSpec, used: dict[str, str], problems: list[str]) -> Ends | None:
    """Return the ends of a link, None if they cannot be; `used` knows those of other links."""
    before = len(problems)
    for i, end in enumerate(link.endpoints):
        try:
            _check_end(lab, end)
        except NameRefusedError as error:
            problems.append(f"{link.path}.endpoints[{i}]: {error}")
            continue
        if end in used:
            problems.append(
                f"{link.path}.endpoints[{i}]: {end} is used already by {used[end]};"
                " a port has one link"
            )
        used.setdefault(end, link.path)
    a, b = link.endpoints
    if len(problems) == before and node_of(a) == node_of(b):
        problems.append(f"{link.path}.endpoints: both ends are on {node_of(a)}")
    return (a, b) if len(problems) == before else None


def _check_end(lab: Lab, end: str) -> None:
    """Raise NameRefusedError unless `end` is a port that a node of the lab may have."""
    node, port = split_port(end)
    spec = lab.topology.nodes.get(node)
    if spec is None:
        raise NameRefusedError(f"no node {shown(node)}{suggestion(node, lab.topology.nodes)}")
    check_port_name(port, host=spec.kind == "host")


def _direction_problems(lab: Lab, link: LinkSpec, ends: Ends, names: Names) -> Iterator[str]:
    """Yield what is wrong with the `a->b` keys of a link, and with its keys together."""
    strange = []
    for text in link.directions:
        try:
            why = "" if names.egress(text) in ends else "not of this link"
        except NameRefusedError as error:
            why = str(error)
        if why:
            legal = f"legal: {ends[0]}->{ends[1]}, {ends[1]}->{ends[0]}"
            strange.append(f"{link.path}.{shown(text)}: {why}; {legal}")
    yield from strange
    seen = set()
    for sender in () if strange else ends:
        given = direction_impairment(lab, link, names, sender)
        for key, why in idle_keys(given):
            if key not in seen:
                yield f"{link.path}.{key}: {why}"
            seen.add(key)


def _tag_problems(lab: Lab, link: LinkSpec, ends: Ends, wiring: Wiring) -> Iterator[str]:
    if link_vlan(lab, link) is None:
        return
    for end in ends:
        node = lab.topology.nodes[node_of(end)]
        if wiring.is_host(end) and traits(lab, node).mode == "datagram":
            yield (
                f"{link.path}.vlan: {node_of(end)} is in datagram mode and cannot tag;"
                " write mode: frame"
            )


def _check_bridges(lab: Lab, wiring: Wiring, pairs: list[Ends], problems: list[str]) -> None:
    """Refuse loops of bridges, and tags that change at a bridge."""
    root = {name: name for name in lab.topology.nodes}
    for link, (a, b) in zip(lab.topology.links, pairs, strict=True):
        if wiring.is_host(a) or wiring.is_host(b):
            continue
        one, other = _root(root, node_of(a)), _root(root, node_of(b))
        if one == other:
            problems.append(
                f"{link.path}.endpoints: closes a loop of bridges at {node_of(a)} and"
                f" {node_of(b)}; a broadcast would circle for ever"
            )
        root[one] = other
    for name, node in lab.topology.nodes.items():
        if node.kind == "host":
            continue
        links = {wiring.hop(port).link for port in wiring.ports[name]}
        vlans = {link_vlan(lab, lab.topology.links[index]) for index in links}
        if len(vlans) > 1:
            texts = ", ".join(sorted("none" if vlan is None else str(vlan) for vlan in vlans))
            problems.append(
                f"{node.path}: its links have different vlan values ({texts});"
                " a bridge passes tags on as they are"
            )


def _root(root: dict[str, str], name: str) -> str:
    """Return the representative of the bridges joined so far that `name` belongs to."""
    while root[name] != name:
        root[name] = root[root[name]]
        name = root[name]
    return name


def _check_mtus(lab: Lab, problems: list[str]) -> None:
    """Refuse a path MTU whose packets a link cannot carry, for each transport in use."""
    hosts = [node for node in lab.topology.nodes.values() if node.kind == "host"]
    families = {traits(lab, node).family for node in hosts}
    used = {transport_of(lab, item) for item in lab.workload}
    for name, transport in lab.transports.items():
        if name not in used or not families:
            continue
        need = mtu_sum(transport.mtu, "ipv6" if "ipv6" in families else "ipv4")
        problems.extend(
            f"{link.path}.mtu: {mtu} is too small for transport {name};"
            f" legal: {need.packet} or more: {need.text}"
            for link in lab.topology.links
            if (mtu := link_mtu(lab, link)) < need.packet
        )


def _check_faults(lab: Lab, names: Names, problems: list[str]) -> None:
    changes = []
    for fault in lab.faults:
        if isinstance(fault, FaultSpec):
            problems.extend(f"{fault.path}.{line}" for line in _fault_problems(fault))
        try:
            if isinstance(fault, FaultSpec):
                names.egress(fault.on)
            else:
                names.egresses(fault.on)
                changes.append(fault)
        except NameRefusedError as error:
            problems.append(f"{fault.path}.on: {error}")
    state: dict[str, Impairment] = {}
    for change in sorted(changes, key=lambda change: change.at):
        seen = set()
        for port in names.egresses(change.on):
            state[port] = changed(state.get(port) or _at_start(lab, names, port), change.set)
            seen |= set(idle_keys(state[port]))
        problems.extend(f"{change.path}.set.{key}: {why}" for key, why in sorted(seen))


def _at_start(lab: Lab, names: Names, port: str) -> Impairment:
    """Return what the lab's links do to what a port sends before any change."""
    ends = {port, names.peers[port]}
    link = next(link for link in lab.topology.links if set(link.endpoints) == ends)
    return direction_impairment(lab, link, names, port)


def _fault_problems(fault: FaultSpec) -> Iterator[str]:
    takes_time = fault.do in {"delay", "hold"}
    if takes_time and fault.delay is None:
        yield f"delay: missing; how long to {fault.do}, for example 1ms"
    if not takes_time and fault.delay is not None:
        yield f"delay: {fault.do} takes none; only delay and hold do"
    where = fault.where
    if where.op is not None and where.op.upper() not in (ops := legal_ops()):
        plain = [op for op in ops if not op.startswith(_SERVICES)]
        yield f"where.op: {shown(where.op)} is unknown{suggestion(where.op.upper(), plain)}"


def _check_capture(lab: Lab, names: Names, problems: list[str]) -> None:
    if lab.capture.links == "all":
        return
    for i, text in enumerate(lab.capture.links):
        try:
            names.link(text)
        except NameRefusedError as error:
            problems.append(f"capture.links[{i}]: {error}")
