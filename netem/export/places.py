"""Which interface of a container is which port: by an address that its network gave it.

Every link is a network of its own, with a subnet of eight addresses. Engines name interfaces
in the order in which they attach them, which no file can fix; addresses are fixed. A node looks
for the address, and then makes of the interface what the plan wants.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import NamedTuple

from netem.kernel.steps import WIRE_PORTS, wire_name
from netem.topology.errors import LabError
from netem.topology.plan import Plan

# RFC 2544 keeps 198.18.0.0/15 for benchmarks; labs number their hosts from its beginning.
DEFAULT_SUBNET = IPv4Network("198.19.128.0/17")
BITS = 29  # of a link's subnet: network, gateway (the engine's), two ends, broadcast, and room
_IPV6 = IPv6Network("fd00:fab0::/32")  # of each link a /64, which has its IPv4 subnet in it


class Cable(NamedTuple):
    """What joins two interfaces, each given by a member's name and its own."""

    mtu: int  # IP packet bytes
    ends: tuple[tuple[str, str], tuple[str, str]]


class End(NamedTuple):
    """One end of one network: which member, which of its interfaces, and where to find it."""

    member: str
    interface: str
    address: IPv4Address


class Network(NamedTuple):
    """A network that carries one link, or half of one that has a wire in its middle."""

    name: str
    mtu: int
    subnet: IPv4Network
    ends: tuple[End, End]
    subnet6: IPv6Network  # without one, engines from 27 on drop IPv6 between its ends


def networks(plan: Plan, subnet: IPv4Network = DEFAULT_SUBNET) -> list[Network]:
    """Return the networks of a contained plan, in the order of its links."""
    wanted = list(cables(plan))
    if subnet.num_addresses < len(wanted) << 32 - BITS:
        why = f"{len(wanted)} links with 8 addresses each do not fit; give a larger one"
        raise LabError([f"--subnet {subnet}: {why}"])
    found = []
    for number, (mtu, ends) in enumerate(wanted):
        own = IPv4Network((int(subnet.network_address) + (number << 32 - BITS), BITS))
        in_it = int(own.network_address) << 64
        own6 = IPv6Network((int(_IPV6.network_address) + in_it, 64))
        first, second = (
            End(member, interface, own[2 + side])
            for side, (member, interface) in enumerate(ends)
        )
        name = f"link-{number}"
        found.append(Network(name, mtu, own, (first, second), own6))
    return found


def cables(plan: Plan) -> Iterator[Cable]:
    """Yield the cables of a contained plan: a link is one, with a wire in its middle two."""
    for link in plan.links:
        a, b = (_split(port) for port in (link.a, link.b))
        if link.wire:
            wire = wire_name(link.name)
            yield Cable(link.mtu, (a, (wire, WIRE_PORTS[0])))
            yield Cable(link.mtu, ((wire, WIRE_PORTS[1]), b))
        else:
            yield Cable(link.mtu, (a, b))


def _split(port: str) -> tuple[str, str]:
    node, _, interface = port.partition(":")
    return node, interface
