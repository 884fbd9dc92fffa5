"""Labs from YAML text, run in virtual time, with everything that was recorded."""

from typing import NamedTuple

import pytest

from netem.host.verdict import evaluate
from netem.sim.world import run
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab

LINK = """
topology:
  nodes: {h0: {}, h1: {}}
  links: [{endpoints: ["h0:p0", "h1:p0"], delay: 10us, rate: 10gbit}]
"""


class Record(NamedTuple):
    """One frame that a port sent or killed."""

    at: int
    port: str
    frame: bytes
    comment: str
    killed: bool


class Records(list):
    """A sink that keeps everything."""

    def record(self, at, port, frame, comment="", killed=False):
        self.append(Record(at, port, bytes(frame), comment, killed))


class Run:
    """One simulated run and its judgement."""

    def __init__(self, plan, **settings):
        self.plan = plan
        self.records = Records()
        self.outcome = run(plan, self.records, **settings)
        self.judged = evaluate(
            plan,
            self.outcome.reports,
            duration=self.outcome.duration,
            trouble=self.outcome.trouble,
            fates=self.outcome.faults,
        )

    @property
    def verdict(self):
        return self.judged.verdict, self.judged.why

    @property
    def flow(self):
        (flow,) = self.judged.flows
        return flow

    @property
    def lost(self):
        return [record for record in self.records if record.killed]


@pytest.fixture
def plan_of():
    """Return a function from YAML text to a plan; the usual link unless it has a topology."""

    def plan(text, **overrides):
        has_nodes = "topology:" in text or "fabric:" in text
        whole = text if has_nodes else LINK + text
        return plan_lab(load_lab(whole, overrides=overrides))

    return plan


@pytest.fixture
def simulate(plan_of):
    """Return a function from YAML text to a finished run."""
    return lambda text, **overrides: Run(plan_of(text, **overrides))


@pytest.fixture
def run_plan():
    """Return a function from a plan to a finished run."""
    return Run
