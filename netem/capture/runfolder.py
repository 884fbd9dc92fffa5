"""The run folder: one folder per run, with everything that came out of it.

    run.json       what ran and came out (run.schema.json says how it looks)
    lab.pcapng     the whole lab, merged and ordered by time
    events.jsonl   one JSON object a line: ts_ns, node, event, and what explains it
    samples.jsonl  queues and rates over time, if the lab wants samples (samples.schema.json)
    nodes/         NAME.log, what a node said; NAME.out, what its command said; NAME.spool,
                   its frames until the merge

The default is `./fabriclab-runs/LAB-N`. Making the folder is what takes the number, so two labs
that start at once get two numbers.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from netem.topology.outcome import SAMPLE, RunResult
from transports.clock import Ns

RUNS = Path("fabriclab-runs")
RESULT = "run.json"
CAPTURE = "lab.pcapng"
EVENTS = "events.jsonl"
SAMPLES = "samples.jsonl"
NODES = "nodes"
SPOOL_SUFFIX = ".spool"
SECRETS_SUFFIX = ".keys"
SCHEMA = Path(__file__).with_name("run.schema.json")


class RunFolderError(Exception):
    """The folder cannot be made or written; the message is one line."""


class RunFolder:
    """The paths of one run, and the writing of what the launcher itself writes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, lab: str, out: Path | None = None, runs: Path = RUNS) -> Self:
        """Make `out`, or the next free `runs`/LAB-N.

        Raise RunFolderError where that is not allowed, or `out` has something in it: a run
        never mixes with another.
        """
        path = out if out is not None else runs / f"{lab}-N"
        try:
            if out is not None:
                out.mkdir(parents=True, exist_ok=True)
                if any(out.iterdir()):
                    raise RunFolderError(f"run folder {out} is not empty")
            else:
                runs.mkdir(parents=True, exist_ok=True)
                path = _take_number(runs, lab)
            (path / NODES).mkdir()
        except OSError as error:
            why = error.strerror or str(error)
            raise RunFolderError(f"run folder {path} cannot be made: {why}") from error
        return cls(path)

    @property
    def result(self) -> Path:
        return self.path / RESULT

    @property
    def capture(self) -> Path:
        return self.path / CAPTURE

    @property
    def events(self) -> Path:
        return self.path / EVENTS

    @property
    def samples(self) -> Path:
        return self.path / SAMPLES

    @property
    def nodes(self) -> Path:
        return self.path / NODES

    def log(self, name: str) -> Path:
        """Return where the node (or wire, or sniffer) of that name writes what it says."""
        return self.nodes / f"{_as_file(name)}.log"

    def output(self, name: str) -> Path:
        """Return where what the command of a node says is written."""
        return self.nodes / f"{_as_file(name)}.out"

    def spool(self, name: str) -> Path:
        """Return where the node (or wire, or sniffer) of that name appends its frames."""
        return self.nodes / f"{_as_file(name)}{SPOOL_SUFFIX}"

    def spools(self) -> list[Path]:
        """Return the spools that are there, in the order of their names."""
        found = self.nodes.glob(f"*{SPOOL_SUFFIX}")
        return sorted(path for path in found if path.is_file())

    def secrets(self, name: str) -> Path:
        """Return where a gateway writes what opens its tunnels: Wireshark's key log."""
        return self.nodes / f"{_as_file(name)}{SECRETS_SUFFIX}"

    def all_secrets(self) -> list[Path]:
        """Return the key logs that are there, in the order of their names."""
        found = self.nodes.glob(f"*{SECRETS_SUFFIX}")
        return sorted(path for path in found if path.is_file())

    def write_result(self, result: RunResult) -> None:
        """Write run.json whole or not at all; raise RunFolderError where it cannot be."""
        text = msgspec.json.format(msgspec.json.encode(result), indent=2)
        part = self.result.with_suffix(".part")
        try:
            part.write_bytes(text + b"\n")
            part.replace(self.result)
        except OSError as error:
            part.unlink(missing_ok=True)
            why = error.strerror or str(error)
            raise RunFolderError(f"{self.result} cannot be written: {why}") from error


class EventLog:
    """events.jsonl: whole lines, one write per flush, so that a kill cuts no line that counts.

    A full disk is told in `why_incomplete`; the run goes on.
    """

    def __init__(self, path: Path, samples: "EventLog | None" = None) -> None:
        """Write samples into a file of their own, where there is one."""
        self.why_incomplete = ""
        self._samples = samples
        self._lines = bytearray()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags, 0o644)
        except OSError as error:
            raise RunFolderError(f"{path} cannot be written: {error.strerror}") from error

    def add(self, at: Ns, node: str, event: str, details: Mapping[str, Any]) -> None:
        """Add one line. `details` are JSON values (hence Any) and come after the fixed keys."""
        if event == SAMPLE and self._samples is not None:
            self._samples.append({"ts_ns": at, "node": node, **details})
        else:
            self.append({"ts_ns": at, "node": node, "event": event, **details})

    def append(self, line: Mapping[str, Any]) -> None:
        """Add one line as it is."""
        self._lines += msgspec.json.encode(line)
        self._lines += b"\n"

    def flush(self) -> None:
        if self._samples is not None:
            self._samples.flush()
        if not self._lines or self.why_incomplete:
            self._lines.clear()
            return
        view = memoryview(bytes(self._lines))
        self._lines.clear()
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self.why_incomplete = error.strerror or str(error)

    def close(self) -> None:
        """Flush and close; harmless when called twice."""
        if self._samples is not None:
            self._samples.close()
        if self._fd >= 0:
            self.flush()
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_log(folder: RunFolder, *, has_samples: bool) -> EventLog:
    """Return the log of a run, which puts samples into their own file if there are any."""
    return EventLog(folder.events, EventLog(folder.samples) if has_samples else None)


def read_events(path: Path) -> Sequence[dict[str, Any]]:
    """Return the events of a run, without a last line that was cut."""
    lines = path.read_bytes().split(b"\n")[:-1]
    return [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]


def result_schema() -> dict[str, Any]:
    """Return the JSON Schema of run.json, as run.schema.json must have it."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "run.json of fabriclab",
        **msgspec.json.schema(RunResult),
    }


def _take_number(runs: Path, lab: str) -> Path:
    """Make `lab`-N with the lowest N above all that are there.

    mkdir decides between two that want the same number; the loser takes the next.
    """
    taken = [path.name.removeprefix(f"{lab}-") for path in runs.glob(f"{lab}-*")]
    number = max((int(text) for text in taken if text.isdecimal()), default=0) + 1
    while True:
        path = runs / f"{lab}-{number}"
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path


def _as_file(name: str) -> str:
    """Return `name` without the colons of link names, which some file systems refuse."""
    return name.replace(":", ".").replace("/", "_")
