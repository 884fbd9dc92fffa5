"""The capture of a lab that is up, while it grows: spools followed, merged, written to a pipe.

A process appends to its spool once a turn, so what has happened is in the files a moment later.
Records are kept for a short while and go out in the order of their times; one that comes later
than that goes out late, which a reader of a live capture bears.
"""

import heapq
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from netem.capture.merge import Placer, describe, natural
from netem.capture.runfolder import RunFolder
from netem.capture.spool import SpoolEnd, SpoolError, SpoolReader, SpoolRecord, read_records
from transports.clock import Ns
from wire.pcapng import (
    SECRETS_WIREGUARD,
    decryption_secrets,
    interface_block,
    section_header,
)

HELD = 2  # rounds for which a record waits for those of other spools
POLL_S = 0.1  # between two rounds; a person sees no difference


class Followed:
    """One spool, read as far as it has been written."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        reader = SpoolReader(path)
        self.header = reader.header
        self.is_over = False
        self._file = stack.enter_context(path.open("rb"))
        self._file.seek(reader.start)

    def news(self) -> Iterator[SpoolRecord]:
        """Yield the records that are whole by now and were not before."""
        records = read_records(self._file, len(self.header.ports))
        place = self._file.tell()
        while True:
            try:
                record = next(records)
            except StopIteration as end:
                self.is_over = isinstance(end.value, SpoolEnd)
                break
            place = self._file.tell()
            yield record
        self._file.seek(place)  # before a record that is not whole yet


class Live:
    """The spools of one run folder, as one growing pcapng file."""

    def __init__(self, folder: Path, out: IO[bytes], stack: ExitStack) -> None:
        """Write what stands before the first packet; `out` is flushed after each round.

        Raise SpoolError where a spool cannot be read. A node that begins anew is followed, too.
        """
        self._folder = RunFolder(folder)
        self._out = out
        self._stack = stack
        self._followed: dict[Path, Followed] = {}
        self._look_for_spools()
        found = {p.name: p for spool in self._followed.values() for p in spool.header.ports}
        ports = [found[name] for name in sorted(found, key=natural)]
        self._numbers = {port.name: number for number, port in enumerate(ports)}
        self._placer = Placer(ports)
        self._waiting: list[tuple[Ns, int, int, SpoolRecord]] = []
        self._order = 0
        self._rounds: list[int] = []  # how many had been read by the end of each
        out.write(section_header())
        out.writelines(interface_block(port.name, describe(port)) for port in ports)
        secrets = b"".join(path.read_bytes() for path in self._folder.all_secrets())
        if secrets:
            out.write(decryption_secrets(SECRETS_WIREGUARD, secrets))
        out.flush()

    def follow(self, goes_on: Callable[[], bool], wait: Callable[[], object]) -> None:
        """Write what comes until the lab is down (not `goes_on()`); `wait` between rounds.

        Raise BrokenPipeError when the reader has gone.
        """
        while goes_on() and not all(spool.is_over for spool in self._followed.values()):
            self.round()
            wait()
        self.round()
        self._emit(self._order)

    def round(self) -> None:
        """Read what is new, write what has waited long enough."""
        self._look_for_spools()
        for spool in self._followed.values():
            ports, epoch = spool.header.ports, spool.header.epoch
            for record in spool.news():
                number = self._numbers.get(ports[record.port].name)
                if number is not None:
                    at = max(epoch + record.at, 0)
                    heapq.heappush(self._waiting, (at, self._order, number, record))
                    self._order += 1
        self._rounds.append(self._order)
        if len(self._rounds) > HELD:
            self._emit(self._rounds.pop(0))

    def _emit(self, read_before: int) -> None:
        """Write, in order, up to the last of the records that were read before that one."""
        left = sum(order < read_before for _, order, _, _ in self._waiting)
        while left:
            at, order, number, record = heapq.heappop(self._waiting)
            left -= order < read_before
            self._out.write(self._placer.block(at, number, record))
        self._out.flush()

    def _look_for_spools(self) -> None:
        for path in self._folder.spools():
            if path not in self._followed:
                try:
                    self._followed[path] = Followed(path, self._stack)
                except (OSError, SpoolError):  # being made, or just merged
                    continue
