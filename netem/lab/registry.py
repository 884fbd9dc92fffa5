"""Which labs are up: one small file per lab in the user's runtime directory.

The file is the only state that a lab keeps outside its sandbox. A file whose process is gone,
or whose pid now belongs to another process, counts as absent and is removed when met.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from netem.capture.runfolder import RunFolderError
from netem.kernel.processes import start_ticks


@dataclass(frozen=True, slots=True)
class Running:
    """A lab that is up: pid 1 of its sandbox as seen from outside, and where it writes."""

    name: str
    pid: int
    ticks: int  # with `pid`, names that process for ever: see netem.kernel.processes
    folder: str  # of the run; holds the plan as plan.json

    @property
    def control(self) -> Path:
        """Where the lab's control sockets are, seen through its own mount namespace."""
        return Path(f"/proc/{self.pid}/root/run/fabriclab")

    def nodes(self) -> dict[str, int]:
        """Return the pid of each process of the lab, as its sandbox knows it."""
        pids: dict[str, int] = json.loads((self.control / "pids.json").read_text())
        return pids

    def sockets(self) -> list[str]:
        """Return the names of the processes that have a control socket."""
        return sorted(path.stem for path in self.control.glob("*.sock"))


def runtime_dir() -> Path:
    """Return this user's directory for labs that are up, making it when it is missing.

    It is the first of a few that is ours. Who is root in a container or a user namespace may
    find that /run is not. Raise RunFolderError where none can be had.
    """
    user = os.geteuid()
    places = [Path("/tmp") / f"fabriclab-{user}"]  # noqa: S108 - checked for its owner
    if user == 0:
        places.insert(0, Path("/run/fabriclab-labs"))
    if base := os.environ.get("XDG_RUNTIME_DIR"):
        places.insert(0, Path(base) / "fabriclab")
    for path in places:
        with contextlib.suppress(OSError):
            path.mkdir(mode=0o700, exist_ok=True)
            if path.stat().st_uid == user and os.access(path, os.W_OK | os.X_OK):
                return path
    tried = ", ".join(map(str, places))
    raise RunFolderError(f"none of {tried} is ours to write to; set XDG_RUNTIME_DIR")


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
    if start_ticks(running.pid) != running.ticks:
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


@contextmanager
def claim(name: str) -> Iterator[bool]:
    """Hold the right to bring lab `name` up; False where another process holds it."""
    with (runtime_dir() / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield find(name) is None
