"""Spools in order of time, in bounded memory.

A spool is nearly ordered: a driver's turn may record a delayed frame of one port behind a fresh
one of another, and the sniffer drains its sockets one after the other. So records pass a window
from which the oldest leaves first. A spool that the window cannot put right (a sniffer that was
far behind on one socket) is known by the first record that comes too late; it is then sorted
for good, in runs of bounded size kept in unnamed temporary files.

Records of equal time keep the order in which they were written: in a spool of several nodes,
that is cause before effect.
"""

import heapq
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path

from netem.capture.spool import SpoolReader, SpoolRecord, pack_record, read_records
from transports.clock import Ns

# What a record costs in memory beside its bytes: the tuple, its integers, a place in a heap.
OVERHEAD = 250

_at = attrgetter("at")


class OutOfOrderError(Exception):
    """The window was too small for this spool."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is too far out of order for the window")
        self.path = path


def windowed(reader: SpoolReader, window: int) -> Iterator[SpoolRecord]:
    """Yield a spool's records in order of time, holding about `window` bytes of them.

    Raise OutOfOrderError, after any number of records, where that is not enough.
    """
    heap: list[tuple[Ns, int, SpoolRecord]] = []
    held = 0
    last: Ns | None = None
    for sequence, record in enumerate(reader.records()):
        if last is not None and record.at < last:
            raise OutOfOrderError(reader.path)
        heapq.heappush(heap, (record.at, sequence, record))
        held += len(record.frame) + OVERHEAD
        while held > window:
            last, _, oldest = heapq.heappop(heap)
            held -= len(oldest.frame) + OVERHEAD
            yield oldest
    while heap:
        yield heapq.heappop(heap)[2]


def sorted_runs(
    reader: SpoolReader, run_size: int, folder: Path, files: ExitStack
) -> Iterator[SpoolRecord]:
    """Yield a spool's records in order of time, however they lie in it.

    About `run_size` bytes are held while sorting; then one small buffer per run. The temporary
    files in `folder` have no names, so nothing of them is left when the process ends, and are
    closed with `files`.
    """
    runs = [
        _stored(run, folder, files, len(reader.header.ports))
        for run in _runs(reader.records(), run_size)
    ]
    return heapq.merge(*runs, key=_at)


def _runs(records: Iterable[SpoolRecord], run_size: int) -> Iterator[list[SpoolRecord]]:
    run: list[SpoolRecord] = []
    held = 0
    for record in records:
        run.append(record)
        held += len(record.frame) + OVERHEAD
        if held > run_size:
            run.sort(key=_at)
            yield run
            run = []
            held = 0
    run.sort(key=_at)
    yield run


def _stored(
    run: list[SpoolRecord], folder: Path, files: ExitStack, ports: int
) -> Iterator[SpoolRecord]:
    file = files.enter_context(tempfile.TemporaryFile(dir=folder))  # noqa: SIM115 - `files` closes it
    file.writelines(pack_record(record) for record in run)
    file.seek(0)
    return read_records(file, ports)
