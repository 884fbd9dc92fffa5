"""One member of a lab in a container: a host, a switch, a kernel router or bridge, a wire."""

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from netem.capture.budget import Budget
from netem.capture.ends import OURS
from netem.capture.runfolder import NODES, RunFolder
from netem.export import interfaces
from netem.export.config import ContainerConfig
from netem.export.fitting import members
from netem.impair.schedule import Agenda
from netem.kernel.hosts import hosts_text
from netem.kernel.steps import WIRE_PORTS
from netem.node.build import Builder, Node, NodeConfig, build
from netem.node.driver import Tell
from netem.node.excerpt import excerpt
from netem.node.frames import FrameDriver
from netem.node.process import run_node
from netem.node.turns import Turns
from netem.node.wire import Wire
from netem.overlay.build import build as build_gateway
from netem.topology.errors import LabError
from netem.topology.plan import NodePlan, Plan

LOCK = "judge.lock"  # in the shared folder; held by the judge from its start to its end
HOSTS = Path("/etc/hosts")


def be_member(config: ContainerConfig, plan: Plan) -> None:
    """Be a node or a wire; return when the judge has ended, or raise SystemExit.

    Raise KernelError where the container lacks an interface or a right, LabError where the lab
    has no such member.
    """
    if config.name not in (legal := members(plan)):
        raise LabError([f"name: {config.name} is no node or wire; legal: {', '.join(legal)}"])
    node = next((node for node in plan.nodes if node.name == config.name), None)
    is_ours = node is None or node.kind in OURS
    shared = Path(config.shared)
    (shared / NODES).mkdir(parents=True, exist_ok=True)
    HOSTS.write_text(hosts_text(plan))
    interfaces.take(plan, config.name, config.interfaces)
    part = NodeConfig(excerpt(plan, config.name), config.name, str(shared), str(shared))
    with interfaces.quiet_kernel() if is_ours else nullcontext():
        with _log_to(RunFolder(shared).log(config.name)):
            run_node(part, build=_builder(node))
        _outlast_judge(shared / LOCK)


def _builder(node: NodePlan | None) -> Builder:
    if node is None or node.kind in OURS:
        return build
    return _build_kernel if node.tunnel is None else build_gateway


def _build_kernel(
    config: NodeConfig, turns: Turns, tell: Tell, stack: ExitStack, budget: Budget | None
) -> Node:
    """Build what speaks for a node whose kernel does all: a wire that leads nowhere."""
    del stack, budget
    nothing = Wire(config.name, *WIRE_PORTS)
    return Node(
        nothing, FrameDriver(nothing, (), turns, agenda=Agenda(config.name), tell=tell), None
    )


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Let what is said on standard error go to a file; said aloud too where the node fails."""
    terminal = os.dup(2)
    with path.open("wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    except SystemExit:
        os.write(terminal, path.read_bytes())
        raise
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def _outlast_judge(lock: Path) -> None:
    """Return when the judge has ended: told so, an engine ends all with the first that ends."""
    # As pid 1 we would not end by the signal's own effect.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
