"""What a lab means where it says nothing: its own words over its defaults over ours."""

from collections.abc import Mapping
from typing import NamedTuple

from netem.impair.model import Impairment
from netem.topology.layers import laid
from netem.topology.link_model import Engine, LinkSpec
from netem.topology.model import Family, ItemSpec, Lab, NodeKind, NodeSpec
from netem.topology.names import Names
from netem.topology.plan import Mode, Stack
from netem.topology.shape import impairment
from netem.topology.srv6_model import Encaps
from netem.topology.switch_model import SwitchKeys
from netem.topology.transport_model import MrcSpec
from netem.topology.wiring import Role

DEFAULT_MTU = 1500  # of a link, as of any Ethernet


class HostTraits(NamedTuple):
    """What a host is, its own words over the defaults."""

    mode: Mode
    stack: Stack
    family: Family


def kind_of(node: NodeSpec) -> NodeKind:
    """Return a node's kind: a host where nobody says."""
    return node.kind or "host"


def traits(lab: Lab, node: NodeSpec) -> HostTraits:
    """Return a host's traits: what it says, else what the defaults say."""
    default = lab.defaults.host
    family = node.family or default.family or "ipv6"
    if node.kind == "guest":
        return HostTraits("frame", "kernel", family)
    mode = node.mode or default.mode or "frame"
    stack = node.stack or default.stack or "none"
    if node.command is not None and node.stack is None and mode == "frame":
        stack = "programs"  # else the command would have no network
    return HostTraits(mode, stack, family)


def switch_keys(lab: Lab, node: NodeSpec) -> SwitchKeys:
    """Return what a switch and the defaults say about it together."""
    return laid(lab.defaults.switch, node)


def role(lab: Lab, node: NodeSpec) -> Role:
    """Return what a node does with frames that are not for it."""
    match kind_of(node):
        case "host" | "guest":
            return "host"
        case "linux":
            return "router"
        case "switch" if (node.forward or lab.defaults.switch.forward) != "bridge":
            return "router"
    return "bridge"


def roles(lab: Lab) -> Mapping[str, Role]:
    """Return the role of each node, in the lab's order."""
    return {name: role(lab, node) for name, node in lab.topology.nodes.items()}


def in_wall_time(lab: Lab) -> str:
    """Return a node that knows no dilation, with a kernel or a program of its own; or ""."""
    return next(
        (
            name
            for name, node in lab.topology.nodes.items()
            if node.kind == "guest" or node.command is not None
        ),
        "",
    )


def transport_of(lab: Lab, item: ItemSpec) -> str | None:
    """Return the name of an item's transport: the one written, or the lab's only one."""
    if item.transport is not None:
        return item.transport
    return next(iter(lab.transports)) if len(lab.transports) == 1 else None


class SourcePath(NamedTuple):
    """The nodes and SIDs that an item's packets are led by, and how that is written."""

    there: tuple[str, ...]
    back: tuple[str, ...]  # of what the responder sends; (): by the routes
    encaps: Encaps
    key: str  # where it is written, "workload[0]" or "transports.rc"


def source_path(lab: Lab, item: ItemSpec) -> SourcePath | None:
    """Return an item's path, its own or its transport's; None: by the routes alone."""
    name = transport_of(lab, item) or ""
    transport = lab.transports.get(name)
    if transport is None:
        return None
    there = transport.path if item.path is None else item.path
    back = transport.path_back if item.path_back is None else item.path_back
    if not there and not back:
        return None
    is_own = item.path is not None or item.path_back is not None
    return SourcePath(
        there or (),
        back or (),
        item.encaps or transport.encaps or "usid",
        item.location if is_own else f"transports.{name}",
    )


def uses_srv6(lab: Lab) -> bool:
    """Say whether every router and host of the lab is to have SIDs."""
    return (
        lab.srv6 is not None
        or any(node.steer for node in lab.topology.nodes.values())
        or any(source_path(lab, item) or _is_led(lab, item) for item in lab.workload)
    )


def _is_led(lab: Lab, item: ItemSpec) -> bool:
    """Say whether an item's packets are MRC's and led by segments."""
    transport = lab.transports.get(transport_of(lab, item) or "")
    return isinstance(transport, MrcSpec) and transport.ev_format == "srv6"


def link_mtu(lab: Lab, link: LinkSpec) -> int:
    """Return a link's MTU: 1500 where nobody says."""
    return link.mtu or lab.defaults.link.mtu or DEFAULT_MTU


def link_vlan(lab: Lab, link: LinkSpec) -> int | None:
    """Return a link's VLAN, if it has one."""
    return link.vlan or lab.defaults.link.vlan


def link_engine(lab: Lab, link: LinkSpec) -> Engine:
    """Return who impairs a link: we do where nobody says."""
    return link.engine or lab.defaults.link.engine or "ours"


def direction_impairment(lab: Lab, link: LinkSpec, names: Names, sender: str) -> Impairment:
    """Return what a link does to what `sender` sends on it."""
    own = [s for text, s in link.directions.items() if names.egress(text) == sender]
    return impairment(lab.defaults.link, link, *own)
