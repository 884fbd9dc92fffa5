"""A lab as a compose file: a service for each node and wire, a network for each link.

The file keeps to what docker-compose 1.29 and Compose 2 both take. `interface_name` is known
from Compose 2.36 and engine 28.1 on, and refused before: it is there when asked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network

from netem.export.config import (
    CAPTURES,
    LAB,
    SHARED,
    ContainerConfig,
    Source,
    Tree,
    command,
)
from netem.export.fitting import JUDGE, members
from netem.export.interfaces import parameters
from netem.export.places import DEFAULT_SUBNET, Network, networks
from netem.topology.plan import NodePlan, Plan

TUN = "/dev/net/tun:/dev/net/tun"
HEALTH_INTERVAL = "2s"
HEALTH_RETRIES = 30
STOP_GRACE = "60s"  # the judge merges the capture after an interrupt


def configs(
    plan: Plan, source: Source, subnet: IPv4Network = DEFAULT_SUBNET
) -> dict[str, ContainerConfig]:
    """Return the config of every container of a contained plan, by its name."""
    places: dict[str, dict[str, str]] = {name: {} for name in members(plan)}
    for network in networks(plan, subnet):
        for end in network.ends:
            places[end.member][end.interface] = str(end.address)
    found = {
        name: ContainerConfig(source, "compose", name, own) for name, own in places.items()
    }
    return found | {JUDGE: ContainerConfig(source, "compose", JUDGE)}


def compose(
    plan: Plan,
    image: str,
    *,
    subnet: IPv4Network = DEFAULT_SUBNET,
    interface_names: bool = False,
) -> Tree:
    """Return the compose file of a contained plan, as what YAML is to be made of."""
    links = networks(plan, subnet)
    nodes = {node.name: node for node in plan.nodes}
    services: dict[str, object] = {
        name: _member(plan, name, nodes.get(name), image)
        | {"networks": dict(_attached(name, links, interface_names))}
        for name in members(plan)
    }
    services[JUDGE] = {
        "image": image,
        "command": command(JUDGE),
        "depends_on": list(members(plan)),
        "network_mode": "none",
        "stop_grace_period": STOP_GRACE,
        "volumes": [*_volumes(), f"./captures:{CAPTURES}"],
    }
    return {
        "services": services,
        "networks": {network.name: _network(network) for network in links},
        "volumes": {"shared": {}},
    }


def _member(plan: Plan, name: str, node: NodePlan | None, image: str) -> Tree:
    """Return a service without its networks. Nothing is privileged."""
    service: Tree = {
        "image": image,
        "command": command(name),
        "cap_drop": ["ALL"],
        "cap_add": ["NET_ADMIN", "NET_RAW"],
        "sysctls": {
            key.replace("/", "."): value for key, value in parameters(plan, name).items()
        },
        "healthcheck": {
            "test": ["CMD", "test", "-S", f"{SHARED}/{name}.sock"],
            "interval": HEALTH_INTERVAL,
            "retries": HEALTH_RETRIES,
        },
        "volumes": _volumes(),
    }
    if node is not None and (node.tunnel is not None or node.stack != "none"):
        service["devices"] = [TUN]
    return service


def _volumes() -> list[str]:
    return [f".:{LAB}:ro", f"shared:{SHARED}"]


def _attached(
    name: str, links: Sequence[Network], interface_names: bool
) -> Iterator[tuple[str, Mapping[str, str]]]:
    for network in links:
        for side, end in enumerate(network.ends):
            if end.member != name:
                continue
            place = {
                "ipv4_address": str(end.address),
                "ipv6_address": str(network.subnet6[2 + side]),
            }
            if interface_names:
                place["interface_name"] = end.interface
            yield network.name, place


def _network(network: Network) -> Tree:
    """Return a network with room for the link's packets.

    Where bridges of the host filter (br_netfilter), rules of the engine say what passes between
    the two ends: in a network that is `internal`, no IPv4 from addresses of the lab's own; from
    engine 27 on, in one without IPv6, no IPv6. Members drop the address and routes they get.
    """
    pools = [{"subnet": str(network.subnet)}, {"subnet": str(network.subnet6)}]
    return {
        "driver": "bridge",
        "driver_opts": {"com.docker.network.driver.mtu": str(network.mtu)},
        "enable_ipv6": True,
        "ipam": {"config": pools},
    }
