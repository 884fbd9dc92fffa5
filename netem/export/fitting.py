"""A plan as containers run it, and what a lab asks for that they cannot give.

In a sandbox a sniffer enters every namespace and records what kernels send. In containers
nobody can: so every frame is recorded by a process of ours that it passes. Between two kernels
that is a wire, a container of its own; beside a host or switch of ours it is that one, which
acts for the kernel at the other end.
"""

from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from netem.capture.ends import OURS
from netem.impair.model import NEUTRAL
from netem.kernel.steps import wire_name
from netem.topology.errors import LabError
from netem.topology.plan import LinkPlan, Plan

Form = Literal["compose", "clab"]

JUDGE = "judge"  # the service that starts, follows and ends the run, and gives the verdict


def contained(plan: Plan) -> Plan:
    """Return `plan` with every frame passing a process of ours that records it."""
    kinds = {node.name: node.kind for node in plan.nodes}

    def is_kernel(port: str) -> bool:
        return kinds[port.partition(":")[0]] not in OURS

    links = tuple(
        replace(link, wire=is_kernel(link.a) and is_kernel(link.b)) for link in plan.links
    )
    nodes = tuple(
        replace(
            node,
            ports=tuple(
                replace(port, ingress=port.ingress or NEUTRAL) if is_kernel(port.peer) else port
                for port in node.ports
            ),
        )
        if node.kind in OURS
        else node
        for node in plan.nodes
    )
    return replace(plan, nodes=nodes, links=links)


def members(plan: Plan) -> list[str]:
    """Return the name of every container of a contained plan but the judge's."""
    nodes = [node.name for node in plan.nodes]
    return nodes + [wire_name(link.name) for link in plan.links if link.wire]


def require_fit(plan: Plan, form: Form) -> None:
    """Raise LabError with a line for each thing that `form` cannot carry."""
    problems = [*_of_nodes(plan), *map(_of_link, filter(_by_tc, plan.links))]
    if form == "compose":
        problems += _of_bridges(plan)
    if any(event.do in {"kill", "restart"} for event in plan.events):
        problems.append(
            "faults: kill and restart: no container may end another; use "
            "`docker compose kill NODE`, or run the lab in a sandbox: fabriclab run"
        )
    if problems:
        raise LabError(problems)


def _of_nodes(plan: Plan) -> Iterator[str]:
    for node in plan.nodes:
        where = f"topology.nodes.{node.name}"
        if node.name == JUDGE:
            yield f"{where}: the service that conducts the run has this name; take another"
        if node.kind == "guest":
            yield f"{where}: a guest boots QEMU, which the image has not; use fabriclab run"
        elif node.command:
            yield f"{where}.command: containers run no commands; use docker compose exec"
        if node.mode == "datagram":
            yield (
                f"{where}.mode: a datagram host's frames are its kernel's, which nothing in "
                "another container can capture; export it with --set defaults.host.mode=frame"
            )


def _by_tc(link: LinkPlan) -> bool:
    return link.engine == "tc"


def _of_link(link: LinkPlan) -> str:
    return (
        f"link {link.name}: engine: tc acts from outside of its nodes; leave the engine to us"
    )


def _of_bridges(plan: Plan) -> Iterator[str]:
    """Yield what a Docker network cannot carry, since it is a Linux bridge."""
    for node in plan.nodes:
        queues = node.switch.queues if node.switch is not None else ()
        if any(queue.pfc is not None for queue in queues):
            yield (
                f"{node.name}: PFC: its frames go to 01:80:c2:00:00:01, which no Linux bridge "
                "forwards, and a Docker network is one; use fabriclab export clab, or run"
            )
