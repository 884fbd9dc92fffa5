"""What a lab means where it says nothing: its own words over its defaults over ours."""

from typing import NamedTuple

from netem.impair.model import Impairment
from netem.topology.model import Family, ItemSpec, Lab, LinkSpec, NodeSpec
from netem.topology.names import Names
from netem.topology.plan import Mode, Stack
from netem.topology.shape import impairment

DEFAULT_MTU = 1500  # of a link, as of any Ethernet


class HostTraits(NamedTuple):
    """What a host is, its own words over the defaults."""

    mode: Mode
    stack: Stack
    family: Family


def traits(lab: Lab, node: NodeSpec) -> HostTraits:
    """Return a host's traits: what it says, else what the defaults say."""
    default = lab.defaults.host
    return HostTraits(
        node.mode or default.mode or "frame",
        node.stack or default.stack or "none",
        node.family or default.family or "ipv6",
    )


def transport_of(lab: Lab, item: ItemSpec) -> str | None:
    """Return the name of an item's transport: the one written, or the lab's only one."""
    if item.transport is not None:
        return item.transport
    return next(iter(lab.transports)) if len(lab.transports) == 1 else None


def link_mtu(lab: Lab, link: LinkSpec) -> int:
    """Return a link's MTU: 1500 where nobody says."""
    return link.mtu or lab.defaults.link.mtu or DEFAULT_MTU


def link_vlan(lab: Lab, link: LinkSpec) -> int | None:
    """Return a link's VLAN, if it has one."""
    return link.vlan or lab.defaults.link.vlan


def direction_impairment(lab: Lab, link: LinkSpec, names: Names, sender: str) -> Impairment:
    """Return what a link does to what `sender` sends on it."""
    own = [s for text, s in link.directions.items() if names.egress(text) == sender]
    return impairment(lab.defaults.link, link, *own)
