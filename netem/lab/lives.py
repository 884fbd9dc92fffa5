"""Nodes that the lab file kills, and lets begin anew.

A network namespace ends with its last process, and its links with it. So the namespace of a
node that is to be killed is held open here, and for each time that it begins anew a process is
forked beforehand, like all others, that joins the namespace and waits at a gate of its own: no
process is forked out of an event loop.
"""

import os
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from netem.capture.budget import Budget
from netem.capture.runfolder import RunFolder
from netem.kernel.sandbox import RUNTIME, Gate, fork_node
from netem.lab.job import Job
from netem.node.build import spool_name
from netem.node.excerpt import excerpt
from netem.node.process import node_process
from netem.topology.plan import EventPlan


class Spare(NamedTuple):
    """A process that waits to be a node's next life."""

    pid: int
    gate: Gate


class Lives:
    """The lives that the nodes of a lab have left. Made in pid 1, before its event loop."""

    def __init__(self, job: Job, pids: Mapping[str, int], budget: Budget) -> None:
        """Hold the namespaces of mortal nodes, and fork what comes after them."""
        self._folder = RunFolder(job.folder)
        self._life: Counter[str] = Counter()
        self._held: list[int] = []
        self._spares: dict[EventPlan, Spare] = {}
        for event in job.plan.events:
            if event.do not in {"kill", "restart"}:
                continue
            if event.node not in self._life:
                self._life[event.node] = 1
                ns = f"/proc/{pids[event.node]}/ns/net"
                self._held.append(os.open(ns, os.O_RDONLY | os.O_CLOEXEC))
            if event.do == "restart":
                self._life[event.node] += 1
                self._spares[event] = self._fork(job, event, pids[event.node], budget)
        self._life = Counter(dict.fromkeys(self._life, 1))

    def _fork(self, job: Job, event: EventPlan, pid: int, budget: Budget) -> Spare:
        name, gate = event.node, Gate()
        run = partial(
            node_process,
            excerpt(job.plan, name),
            name,
            RUNTIME,
            job.folder,
            job.epoch,
            budget=budget,
            life=self._life[name],
            since=event.at,
        )
        log = os.open(self._folder.log(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            return Spare(fork_node(run, name=name, gate=gate, output=log, within=pid), gate)
        finally:
            os.close(log)

    def begin(self, event: EventPlan) -> int:
        """Let the node that an event restarts begin anew; return its pid."""
        spare = self._spares[event]
        self._life[event.node] += 1
        spare.gate.open()
        return spare.pid

    def spool_name(self, node: str) -> str:
        """Return what the spool of a node's present life is called."""
        return spool_name(node, self._life[node])
