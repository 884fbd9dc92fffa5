"""A lab in virtual time, with the same run folder as one on sockets."""

from netem.capture.ends import lab_header
from netem.capture.runfolder import RunFolder, open_log
from netem.capture.spool import Spool
from netem.lab.finish import finish
from netem.lab.job import Progress
from netem.sim import world
from netem.topology.outcome import RunResult
from netem.topology.plan import Plan
from transports.clock import Ns

# The emulated start of every simulation, 2001-09-09 01:46:40 UTC: no host fact enters the
# capture, so that two runs give the same file on any host.
EPOCH: Ns = 1_000_000_000 * 10**9


def simulate(plan: Plan, folder: RunFolder, progress: Progress) -> tuple[RunResult, list[str]]:
    """Run `plan` in virtual time; return its result, and notes on what stands in for what.

    Raises netem.sim.world.CannotSimulateError before anything is written.
    """
    header = lab_header(plan, EPOCH)
    with Spool(folder.spool("sim"), header, limit=plan.capture.max_bytes) as spool:
        outcome = world.run(
            plan,
            spool,
            progress=lambda _, done, total: progress(done, total),
            epoch=EPOCH,
        )
    for name, text in outcome.secrets.items():
        folder.secrets(name).write_text(text, encoding="ascii")
    with open_log(folder, has_samples=plan.sample is not None) as log:
        for event in outcome.events:
            log.add(event.at, event.node, event.event, event.fields)
    result = finish(
        plan,
        folder,
        engine="sim",
        reports=outcome.reports,
        duration=outcome.duration,
        trouble=outcome.trouble,
        fates=outcome.faults,
    )
    return result, outcome.notes
