"""Which labs are up: one small file per lab in the user's runtime directory.

The file is the only state that a lab keeps outside its sandbox. A file whose process is gone,
or whose pid now belongs to another process, counts as absent and is removed when met.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Running:
    """A lab that is up: pid 1 of its sandbox as seen from outside, and where it writes."""

    name: str
    pid: int
    started: str  # the process's start time in clock ticks: tells a reused pid apart
    folder: str
    plan: str  # path of the plan, as JSON

    @property
    def control(self) -> Path:
        """Where the lab's control sockets are, seen through its own mount namespace."""
        return Path(f"/proc/{self.pid}/root/run/fabriclab")


def runtime_dir() -> Path:
    """Return this user's directory for labs that are up, making it when it is missing."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if base and Path(base).is_dir() and os.access(base, os.W_OK):
        path = Path(base) / "fabriclab"
    elif os.geteuid() == 0:
        path = Path("/run/fabriclab-labs")
    else:
        path = Path("/tmp") / f"fabriclab-{os.geteuid()}"  # noqa: S108 - checked for its owner
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user")
    return path


def start_time(pid: int) -> str | None:
    """Return when process `pid` started, in clock ticks since boot; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def save(running: Running) -> None:
    """Write the lab's file; it appears whole or not at all."""
    path = runtime_dir() / f"{running.name}.json"
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(asdict(running)))
    draft.replace(path)


def find(name: str) -> Running | None:
    """Return the lab `name` if it is up."""
    path = runtime_dir() / f"{name}.json"
    try:
        running = Running(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        path.unlink(missing_ok=True)
        return None
    if start_time(running.pid) != running.started:
        path.unlink(missing_ok=True)
        return None
    return running


def up() -> list[Running]:
    """Return all labs of this user that are up, by name."""
    names = sorted(path.stem for path in runtime_dir().glob("*.json"))
    return [running for name in names if (running := find(name)) is not None]


def forget(name: str) -> None:
    """Remove the lab's file."""
    (runtime_dir() / f"{name}.json").unlink(missing_ok=True)
