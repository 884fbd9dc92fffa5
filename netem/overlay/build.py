"""From a plan to the parts of a gateway: TUN and sockets opened, tunnel made, driver around it.

The interface is there already (`netem.kernel.steps`), and this process is in its namespace.
"""

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random

from netem.capture.budget import Budget
from netem.capture.runfolder import RunFolder
from netem.host.gateway import names_of, tunnel_of
from netem.host.tunnel import TunnelMachine
from netem.impair.schedule import Agenda
from netem.node.build import Node, NodeConfig
from netem.node.driver import Tell
from netem.node.turns import Turns
from netem.overlay.driver import TunnelDriver
from netem.overlay.outer import Outer
from netem.overlay.uapi import listen, server_of
from netem.sockets.tun import Tun


def build(
    config: NodeConfig,
    turns: Turns,
    tell: Tell,
    stack: ExitStack,
    budget: Budget | None = None,
) -> Node:
    """Open what the gateway called `config.name` needs.

    Raise OSError where the host refuses something. A gateway records no frames: its ports are
    the kernel's, and sniffed.
    """
    del budget
    node = config.plan.node(config.name)
    plan = node.tunnel
    assert plan is not None, "only gateways are built here"
    tunnel = tunnel_of(plan, Random(node.seed), os.urandom, epoch=config.epoch)
    machine = TunnelMachine(node.name, tunnel, names_of(plan))
    keep = None
    if plan.secrets and config.run_folder is not None:
        file = RunFolder(Path(config.run_folder)).secrets(node.name)
        keep = partial(_append, stack.enter_context(file.open("a", encoding="ascii")).fileno())
    driver = TunnelDriver(
        machine,
        stack.enter_context(Tun(plan.interface)),
        stack.enter_context(Outer(plan.listen_port, fragments=plan.fragments)),
        turns,
        agenda=Agenda(config.name),
        tell=tell,
        keep_secrets=keep,
        moves=plan.moves,
    )
    # What `fabriclab exec` runs in the gateway finds it, and so does `wg` in any other node
    wg = partial(server_of(driver).serve, stack.enter_context(listen(plan.interface)))
    return Node(machine, driver, None, (wg,))


def _append(fd: int, text: str) -> None:
    """Write secrets down before the packets that they open can be sent."""
    os.write(fd, text.encode("ascii"))
