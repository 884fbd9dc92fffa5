"""A lab on real sockets from its first namespace to run.json."""

import time

from netem.capture.runfolder import RunFolder
from netem.lab.finish import finish
from netem.lab.job import Job, Outcome, Progress
from netem.lab.launcher import launch, no_progress
from netem.topology.outcome import RunResult
from netem.topology.plan import Plan
from netem.topology.units import format_time
from transports.clock import S


def run(plan: Plan, folder: RunFolder, progress: Progress = no_progress) -> RunResult:
    """Run `plan`; return what run.json says. Raises KernelError where the host refuses."""
    job = Job(plan, folder.path.absolute(), time.time_ns())
    outcome = launch(job, progress)
    return finish(
        plan,
        folder,
        engine="sockets",
        reports=outcome.reports,
        duration=outcome.duration,
        trouble=trouble(plan, outcome),
        fates=outcome.fates,
        commands=outcome.commands,
    )


def trouble(plan: Plan, outcome: Outcome) -> str:
    """Say in one line why the run did not come to its end; nothing where it did."""
    if outcome.failures:
        return "; ".join(outcome.failures)
    if outcome.interrupted:
        return "interrupted"
    if outcome.timed_out:
        limit = format_time(round(plan.limit_s * S))
        return f"not complete after {limit} of wall time (limit:)"
    return ""
