"""A lab as a containerlab topology: its links are veths, as in a sandbox, and carry everything.

containerlab names interfaces as the topology says, gives its containers all rights, and adds
the links when they run already: a node sets its own kernel parameters, and waits for its ports.
"""

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
from netem.export.places import cables
from netem.topology.plan import Plan


def configs(plan: Plan, source: Source) -> dict[str, ContainerConfig]:
    """Return the config of every container of a contained plan, by its name in the topology."""
    ports: dict[str, dict[str, str]] = {name: {} for name in members(plan)}
    for cable in cables(plan):
        for member, interface in cable.ends:
            ports[member][interface] = ""
    found = {
        label(name): ContainerConfig(source, "clab", name, own) for name, own in ports.items()
    }
    return found | {JUDGE: ContainerConfig(source, "clab", JUDGE)}


def clab(plan: Plan, image: str) -> Tree:
    """Return the topology of a contained plan, as what YAML is to be made of."""
    nodes = {label(name): {"cmd": " ".join(command(label(name)))} for name in members(plan)}
    judge = {
        "cmd": " ".join(command(JUDGE)),
        "binds": [*_binds(), f"./captures:{CAPTURES}"],
    }
    return {
        "name": plan.name,
        "topology": {
            "defaults": {"kind": "linux", "image": image, "binds": _binds()},
            "nodes": nodes | {JUDGE: judge},
            "links": [
                {
                    "endpoints": [f"{label(member)}:{port}" for member, port in cable.ends],
                    "mtu": cable.mtu,
                }
                for cable in cables(plan)
            ],
        },
    }


def label(member: str) -> str:
    """Return a member's name without what a host's name may not have."""
    return member.replace(".", "-")


def _binds() -> list[str]:
    return [f".:{LAB}:ro", f"./shared:{SHARED}"]
