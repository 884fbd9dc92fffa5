"""One run of an experiment in virtual time: the lab, a seed, and what is kept of it."""

from collections.abc import Iterator
from typing import NamedTuple

from netem.capture.sink import NoSink
from netem.experiments.crossing import Harmed, harmed, spares
from netem.experiments.model import LABS, ExperimentError, Variant
from netem.host.metrics import Figures, of_fabric, of_flows
from netem.host.verdict import evaluate
from netem.sim.world import SimEvent, SimOutcome, run
from netem.topology.errors import LabError
from netem.topology.load import load_lab
from netem.topology.names import is_of
from netem.topology.outcome import FlowReport, FlowResult, Verdict
from netem.topology.plan import Plan
from netem.topology.planner import plan_lab
from transports.clock import Ns

# What measures and pictures look at; all else of a run is not kept.
_KEPT = {
    "sample",
    "ev_state",
    "retransmission",
    "window",
    "qp_fatal",
    "completion",
    "item_done",
}


class Record(NamedTuple):
    """What is kept of a run."""

    variant: str
    seed: int
    verdict: Verdict
    why: str
    duration: Ns  # emulated
    sample: Ns  # how far samples are apart
    flows: list[FlowResult]
    ends: list[FlowReport]
    fabric: Figures
    counters: dict[str, dict[str, int]]  # by node
    events: list[SimEvent]
    harmed: list[Harmed]  # paths over links that the lab file lets lose packets
    spares: dict[tuple[str, object, object], int]  # by node, queue pair and plane, at the start

    def figures(self, flow: str | None) -> Figures:
        """Return the metrics that labs may expect, of all flows or of some."""
        flows = [one for one in self.flows if is_of(one.flow, flow)]
        return of_flows(flows, self.ends) | self.fabric


def plan_of(variant: Variant, seed: int) -> Plan:
    """Return the plan of a run. Raise ExperimentError where its lab cannot be."""
    text = (LABS / f"{variant.lab}.yaml").read_text()
    overrides = {**variant.overrides, "seed": seed}
    try:
        return plan_lab(load_lab(text, name_hint=variant.lab, overrides=overrides))
    except LabError as error:
        raise ExperimentError(f"{variant.name}: {'; '.join(error.problems)}") from error


def conduct(variant: Variant, seed: int) -> Record:
    """Run a lab in the simulator."""
    plan = plan_of(variant, seed)
    return record_of(plan, variant.name, run(plan, NoSink()))


def record_of(plan: Plan, name: str, outcome: SimOutcome) -> Record:
    """Judge a run, and keep what measures and pictures look at."""
    judged = evaluate(
        plan,
        outcome.reports,
        duration=outcome.duration,
        trouble=outcome.trouble,
        fates=outcome.faults,
    )
    verdict, why = judged.verdict, judged.why
    changed = [one.node for one in outcome.tables if one.before != one.after]
    if changed:  # paths are avoided by their senders, never mended by switches: 12.17.11
        verdict, why = "fail", f"the run changed the tables of {', '.join(changed)}"
    return Record(
        name,
        plan.seed,
        verdict,
        why,
        outcome.duration,
        plan.sample or 1,
        judged.flows,
        [end for report in outcome.reports for end in report.flows],
        of_fabric(plan, outcome.reports, judged.links, judged.faults),
        {report.node: report.counters for report in outcome.reports},
        list(_kept(outcome.events)),
        harmed(plan),
        spares(plan),
    )


def _kept(events: list[SimEvent]) -> Iterator[SimEvent]:
    for event in events:
        if event.event in _KEPT:
            yield event
