"""The nodes of a plan as bare processes in their namespaces: where ceilings are measured.

A ceiling must have the same namespaces, links and offload settings as what it stands beside, so
it is built by the same steps, and only the processes differ.
"""

import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from netem.kernel.sandbox import Gate, Sandbox, fork_nodes, hold
from netem.kernel.steps import execute, steps
from netem.topology.plan import Plan

Figures = dict[str, Any]  # JSON values, by names that the body chooses
Body = Callable[[], Figures]
LIMIT_S = 60.0


def run_bare(plan: Plan, bodies: Mapping[str, Body]) -> dict[str, Figures]:
    """Run one body per node in the namespaces of `plan`, side by side; return their figures."""
    with Sandbox.enter(partial(_main, plan, bodies)) as sandbox:
        sandbox.channel.settimeout(LIMIT_S)
        said = b""
        while chunk := sandbox.channel.recv(1 << 16):
            said += chunk
        sandbox.wait(LIMIT_S)
    figures: dict[str, Figures] = msgspec.json.decode(said)
    return figures


def _main(plan: Plan, bodies: Mapping[str, Body], channel: socket.socket) -> int:
    gate = Gate()
    ends = {name: os.pipe() for name in bodies}
    runs = {
        node.name: partial(_report, bodies[node.name], ends[node.name][1])
        if node.name in bodies
        else hold
        for node in plan.nodes
    }
    pids = fork_nodes(runs, gate=gate)
    for _, write_end in ends.values():
        os.close(write_end)
    execute(steps(plan), pids)
    gate.open()
    figures = {}
    for name, (read_end, _) in ends.items():
        with os.fdopen(read_end, "rb") as pipe:
            figures[name] = msgspec.json.decode(pipe.read())
    channel.sendall(msgspec.json.encode(figures))
    return 0


def _report(body: Body, write_end: int) -> None:
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write(msgspec.json.encode(body()))
