"""What the launcher asks of pid 1 of the sandbox, and what it gets back."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct, field

from netem.topology.outcome import CommandReport, FaultReport, NodeReport
from netem.topology.plan import Plan
from transports.clock import Ns

Progress = Callable[[int, int], None]  # flows done, flows in all


@dataclass(frozen=True, slots=True)
class Job:
    """One lab to bring up: what, and where its files go."""

    plan: Plan
    folder: Path  # the run folder, absolute
    epoch: Ns  # Unix time of emulated time 0
    stay: bool = False  # `up`: no workload, the lab waits to be used and told to end


class Outcome(Struct):
    """What happened inside: reports of the nodes that could give one, and what went wrong."""

    reports: list[NodeReport] = field(default_factory=list)
    duration: Ns = 0  # emulated
    failures: list[str] = field(default_factory=list)  # "node h1 was killed by SIGKILL"
    interrupted: bool = False
    timed_out: bool = False
    commands: list[CommandReport] = field(default_factory=list)
    fates: list[FaultReport] = field(default_factory=list)  # of nodes killed and restarted


class ToLauncher(Struct, omit_defaults=True):
    """One line from pid 1: it is ready, it got so far, or this is how it ended."""

    ready: bool = False
    done: int = 0  # flows finished
    total: int = 0
    outcome: Outcome | None = None
    refused: str = ""  # the host refused a step: nothing ran
