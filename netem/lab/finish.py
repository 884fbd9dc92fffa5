"""The end of a run, the same for sockets and simulator: merge, judge, write run.json."""

from collections.abc import Sequence
from importlib import metadata
from typing import Literal

from netem.capture.ends import captured_links
from netem.capture.merge import merge_folder
from netem.capture.runfolder import RunFolder, RunFolderError
from netem.host.happenings import counters
from netem.host.verdict import evaluate
from netem.topology.outcome import (
    SCHEMA_VERSION,
    CaptureReport,
    CommandReport,
    FaultReport,
    NodeReport,
    RunResult,
)
from netem.topology.plan import Plan
from transports.clock import Ns

Engine = Literal["sockets", "sim"]


def finish(
    plan: Plan,
    folder: RunFolder,
    *,
    engine: Engine,
    reports: Sequence[NodeReport],
    duration: Ns,
    trouble: str = "",
    fates: Sequence[FaultReport] = (),
    commands: Sequence[CommandReport] = (),
    epoch: Ns | None = None,
) -> RunResult:
    """Merge the spools, judge the run and write run.json; return what was written.

    `trouble` says in one line why the run did not come to its end, if it did not. A run.json
    that cannot be written fails the run, but its result is not lost: it is returned. `epoch` is
    given where the spools do not have it, see `merge_folder`.
    """
    wanted = bool(captured_links(plan))
    capture = (
        merge_folder(folder.path, epoch=epoch)
        if wanted
        else CaptureReport(remark="none asked for")
    )
    judged = evaluate(
        plan,
        reports,
        duration=duration,
        trouble=trouble,
        capture=capture if wanted else None,
        fates=fates,
        commands=commands,
    )
    result = RunResult(
        schema_version=SCHEMA_VERSION,
        lab=plan.name,
        seed=plan.seed,
        dilation=plan.dilation,
        engine=engine,
        versions={"fabriclab": metadata.version("fabriclab")},
        verdict=judged.verdict,
        why=judged.why,
        duration=duration,
        flows=judged.flows,
        links=judged.links,
        faults=judged.faults,
        expectations=judged.expectations,
        lateness=judged.lateness,
        capture=capture,
        counters=counters(reports),
        commands=list(commands),
    )
    try:
        folder.write_result(result)
    except RunFolderError as error:
        result.why = "; ".join(filter(None, (result.why, str(error))))
        result.verdict = "fail"
    return result
