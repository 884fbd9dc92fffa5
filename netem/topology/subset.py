"""A part of a lab: some of its nodes, and what can be said of these alone.

All other nodes go, with their links; items of the workload whose hosts are not all there, or
that name a node which is not; faults on what is gone; links that were to be captured. What
stays keeps its name, its number and so its addresses. Patterns are over the hosts that are
left. An item that would have to wait for one that is gone waits for what that one waited for.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from netem.topology.checks import check
from netem.topology.errors import LabError
from netem.topology.fault_model import FaultSpec, TimedSpec
from netem.topology.model import ItemSpec, Lab, TopologySpec
from netem.topology.names import NameRefusedError, Names
from netem.topology.overlay_model import OverlaySpec
from netem.topology.settings import source_path
from netem.topology.srv6_model import is_sid
from netem.topology.wiring import node_of


def subset(lab: Lab, names: Iterable[str]) -> Lab:
    """Return the lab with the nodes called `names` and no others.

    Raise LabError for names that are not there, and for what is left but cannot be: two hosts
    of an item without a way between them, for instance.
    """
    ends = ((link.endpoints[0], link.endpoints[1]) for link in lab.topology.links)
    whole = Names(lab.topology.nodes, ends)
    problems = []
    kept = set()
    for name in names:
        try:
            kept.add(whole.node(name))
        except NameRefusedError as error:
            problems.append(f"--nodes: {error}")
    if problems or not kept:
        raise LabError(problems or ["--nodes: names no node; write for example --nodes h0,h1"])
    part = _cut(lab, kept, whole)
    check(part, problems)
    if problems:
        raise LabError(f"--nodes: {line}" for line in problems)
    return part


def _cut(lab: Lab, kept: set[str], whole: Names) -> Lab:
    nodes = {name: spec for name, spec in lab.topology.nodes.items() if name in kept}
    links = tuple(
        link
        for link in lab.topology.links
        if all(node_of(end) in kept for end in link.endpoints)
    )
    numbers = {
        old: new
        for new, old in enumerate(
            i for i, item in enumerate(lab.workload) if _is_whole(lab, item, kept)
        )
    }
    ports = {end for link in links for end in link.endpoints}
    captured = lab.capture.links
    if captured != "all":
        captured = tuple(
            text for text in captured if set(whole.links[whole.link(text)]) <= ports
        )
    return replace(
        lab,
        topology=TopologySpec(nodes=nodes, links=links),
        workload=tuple(
            replace(lab.workload[old], after=_after(lab, old, numbers)) for old in numbers
        ),
        faults=tuple(
            _renumbered(fault, numbers)
            for fault in lab.faults
            if _is_there(fault, kept, ports, whole) and _has_flow(fault, numbers, kept)
        ),
        capture=replace(lab.capture, links=captured),
        overlay=_overlay_of(lab, kept),
    )


def _overlay_of(lab: Lab, kept: set[str]) -> OverlaySpec | None:
    """Return the overlay between the gateways that are left; None where it has one end."""
    if lab.overlay is None:
        return None
    sites = {name: site for name, site in lab.overlay.sites.items() if site.gateway in kept}
    return replace(lab.overlay, sites=sites) if len(sites) > 1 else None


def _is_whole(lab: Lab, item: ItemSpec, kept: set[str]) -> bool:
    """Say whether every node that an item names is there, and hosts for its pattern are."""
    named = {node_of(end) for end in (item.source, item.target) if end is not None}
    path = source_path(lab, item)
    if path is not None:
        named |= {one for one in (*path.there, *path.back) if not is_sid(one)}
    if not named <= kept:
        return False
    nodes = lab.topology.nodes
    return item.pattern is None or sum(nodes[name].kind == "host" for name in kept) > 1


def _after(lab: Lab, old: int, numbers: dict[int, int]) -> int | None:
    """Return the new number of the item to wait for."""
    after = lab.workload[old].after
    while after is not None and after not in numbers:
        after = lab.workload[after].after
    return None if after is None else numbers[after]


def _is_there(
    fault: FaultSpec | TimedSpec, kept: set[str], ports: set[str], whole: Names
) -> bool:
    """Say whether what a fault is on is there."""
    if fault.on in whole.nodes:
        return fault.on in kept
    return set(whole.egresses(fault.on)) <= ports


def _has_flow(fault: FaultSpec | TimedSpec, numbers: dict[int, int], kept: set[str]) -> bool:
    """Say whether the flow that a fault waits for is there."""
    if not isinstance(fault, FaultSpec) or fault.where.flow is None:
        return True
    item, _, ends = fault.where.flow.partition("/")
    named = ends.partition("/")[0].split("->") if ends else []
    return int(item) in numbers and kept.issuperset(named)


def _renumbered(fault: FaultSpec | TimedSpec, numbers: dict[int, int]) -> FaultSpec | TimedSpec:
    """Return a fault whose flow has the new number of its item."""
    if not isinstance(fault, FaultSpec) or fault.where.flow is None:
        return fault
    item, slash, rest = fault.where.flow.partition("/")
    flow = f"{numbers[int(item)]}{slash}{rest}"
    return replace(fault, where=replace(fault.where, flow=flow))
