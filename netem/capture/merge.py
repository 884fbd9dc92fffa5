"""From the spools of a run folder to its lab.pcapng, ordered by time, in bounded memory.

The file has one interface per sending port, in the natural order of their names, so that a
simulation gives the same bytes on any host; nothing about the host is in it. Records of equal
time stay in the order of their spools' names, and within a spool as they were written.

The new file takes its name only when it is whole, and only then the spools go. Whatever ends a
merge, it can be begun again.
"""

import heapq
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, TypeAlias

from netem.capture.blocks import packet_block
from netem.capture.hops import Hops
from netem.capture.notes import Notes
from netem.capture.order import OutOfOrderError, sorted_runs, windowed
from netem.capture.runfolder import CAPTURE, RunFolder, RunFolderError
from netem.capture.spool import SpoolError, SpoolPort, SpoolReader, SpoolRecord
from netem.topology.outcome import CaptureReport
from transports.clock import Ns
from wire.codec import DecodeError
from wire.pcapng import (
    SECRETS_WIREGUARD,
    EnhancedPacket,
    InterfaceStatistics,
    decryption_secrets,
    interface_block,
    interface_statistics,
    read_blocks,
    section_header,
)

# Ours: memory for putting records in order, shared by the spools. A turn of a driver or of the
# sniffer is a few hundred records, of some 1,300 bytes each with their overhead.
WINDOW = 8 << 20
LEAST_WINDOW = 256 << 10
RUN = 16 << 20

Timed: TypeAlias = tuple[Ns, int, SpoolRecord]  # Unix time, interface number, record


def merge_folder(
    path: Path, *, running: bool = False, epoch: Ns | None = None
) -> CaptureReport:
    """Make lab.pcapng of the spools in the run folder `path`, and remove them.

    With `running` the lab goes on: the spools stay, and having no end is no fault of theirs.
    `epoch`, the Unix time of emulated time 0, is given where those who recorded do not know it.
    A folder that was merged before is left as it is. Where the file cannot be written, the
    report says so and the spools stay. Raise RunFolderError for a folder that is none.
    """
    folder = RunFolder(path)
    spools = folder.spools()
    if not spools:
        return _merged_before(folder)
    readers, remarks = [], []
    for spool in spools:
        try:
            readers.append(SpoolReader(spool, epoch))
        except SpoolError as error:
            remarks.append(str(error))
        except OSError as error:
            remarks.append(f"{spool} cannot be read: {error.strerror or error}")
    if not readers and folder.capture.exists():  # only what a merge before could not read
        return _merged_before(folder)
    part = folder.capture.with_suffix(".part")
    try:
        secrets = b"".join(path.read_bytes() for path in folder.all_secrets())
        report = merge(readers, part, remarks=remarks, running=running, secrets=secrets)
        part.replace(folder.capture)
    except OSError as error:
        why = f"{CAPTURE} cannot be written: {error.strerror or error}"
        return CaptureReport(complete=False, remark=f"{why}; the spools are kept")
    finally:
        part.unlink(missing_ok=True)
    report.file = CAPTURE
    if not running:
        for reader in readers:
            reader.path.unlink(missing_ok=True)
    return report


def merge(
    readers: Sequence[SpoolReader],
    out: Path,
    *,
    remarks: Sequence[str] = (),
    running: bool = False,
    window: int = WINDOW,
    run_size: int = RUN,
    secrets: bytes = b"",
) -> CaptureReport:
    """Write the frames of all `readers` to `out`; say what is in it and what is missing.

    `secrets` are lines of Wireshark's key log: what opens the tunnels of the lab.
    """
    readers = sorted(readers, key=lambda reader: natural(reader.header.node))
    window = max(window // max(len(readers), 1), LEAST_WINDOW)
    disordered: set[Path] = set()
    while True:  # once more for each spool that turns out to need sorting
        with out.open("wb", buffering=1 << 20) as file, ExitStack() as files:
            try:
                streams = [
                    sorted_runs(reader, run_size, out.parent, files)
                    if reader.path in disordered
                    else windowed(reader, window)
                    for reader in readers
                ]
                frames = _write(file, readers, streams, secrets)
            except OutOfOrderError as error:
                disordered.add(error.path)
                continue
        break
    missing = _missing(readers)
    told = [*remarks, *_remarks(readers, missing, running=running)]
    complete = not told
    if not frames:
        told.append("no packets captured")
    return CaptureReport(
        frames=frames, drops=sum(missing.values()), complete=complete, remark="; ".join(told)
    )


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts h2 before h10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _PARTS.findall(name)]


_PARTS = re.compile(r"[0-9]+|[^0-9]+")


def _write(
    file: BinaryIO,
    readers: Sequence[SpoolReader],
    streams: Sequence[Iterator[SpoolRecord]],
    secrets: bytes,
) -> int:
    """Write a whole pcapng file; return how many frames are in it."""
    found = {port.name: port for reader in readers for port in reader.header.ports}
    ports = [found[name] for name in sorted(found, key=natural)]
    numbers = {port.name: number for number, port in enumerate(ports)}
    file.write(section_header())
    file.writelines(interface_block(port.name, describe(port)) for port in ports)
    if secrets:
        file.write(decryption_secrets(SECRETS_WIREGUARD, secrets))
    timed = [
        _timed(reader, stream, [numbers[port.name] for port in reader.header.ports])
        for reader, stream in zip(readers, streams, strict=True)
    ]
    placer, write = Placer(ports), file.write
    now = max((reader.header.epoch for reader in readers), default=0)
    for now, number, record in heapq.merge(*timed, key=itemgetter(0)):
        write(placer.block(now, number, record))
    missing = _missing(readers)
    # Of a spool that was not closed nobody knows how many frames there were.
    closed = {
        port.name
        for reader in readers
        if reader.end is not None
        for port in reader.header.ports
    }
    for number, port in enumerate(ports):
        dropped = missing[port.name]
        received = placer.frames[number] + dropped if port.name in closed else None
        write(interface_statistics(number, now, received=received, dropped=dropped))
    return sum(placer.frames)


class Placer:
    """Makes blocks of records in the order of time: comments from notes, ids over hops."""

    def __init__(self, ports: Sequence[SpoolPort]) -> None:
        self._place = Hops(ports).place
        self._notes = Notes(len(ports))
        self.frames = [0] * len(ports)

    def block(self, now: Ns, number: int, record: SpoolRecord) -> bytes:
        """Return the block of a record of port `number`; of a note nothing."""
        _, _, killed, _, comment, frame, is_note = record
        if is_note:
            self._notes.add(number, now, frame, comment)
            return b""
        self.frames[number] += 1
        if not killed and (noted := self._notes.comment(number, now, frame)):
            comment = noted
            killed = noted.startswith("dropped")
        packet, comment = self._place(number, frame, comment, killed)
        return packet_block(number, now, frame, record.original, comment=comment, packet=packet)


def describe(port: SpoolPort) -> str:
    """Return the if_description: which link, which way the frames go, and whose they are."""
    frames = "frames passed on" if port.forwards else "frames"
    return f"link {port.link}, {frames} from {port.name} to {port.peer}"


def _timed(
    reader: SpoolReader, records: Iterator[SpoolRecord], numbers: Sequence[int]
) -> Iterator[Timed]:
    epoch = reader.header.epoch
    for record in records:
        yield max(epoch + record.at, 0), numbers[record.port], record


def _missing(readers: Sequence[SpoolReader]) -> Counter[str]:
    missing: Counter[str] = Counter()
    for reader in readers:
        if reader.end is not None:
            missing.update(reader.end.missing)
    return missing


def _remarks(
    readers: Sequence[SpoolReader], missing: Counter[str], *, running: bool
) -> Iterator[str]:
    """Yield what is to be said about a capture that is not complete."""
    unclosed = [reader.header.node for reader in readers if reader.end is None]
    if unclosed and not running:
        yield f"ended without closing the spool, last frames may be missing: {_few(unclosed)}"
    for reader in readers:
        if reader.end is not None and reader.end.why:
            yield f"{reader.header.node} stopped recording: {reader.end.why}"
    if missing:
        ports = [f"{count} at {port}" for port, count in sorted(missing.items())]
        yield f"frames not captured: {_few(ports)}"


def _few(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _merged_before(folder: RunFolder) -> CaptureReport:
    """Report on a folder without spools: what its capture holds, if it has one."""
    frames = drops = 0
    try:
        with folder.capture.open("rb") as file:
            for block in read_blocks(file):
                frames += isinstance(block, EnhancedPacket)
                drops += block.dropped or 0 if isinstance(block, InterfaceStatistics) else 0
    except OSError:
        if not folder.nodes.is_dir():
            raise RunFolderError(f"{folder.path} is not a run folder") from None
        return CaptureReport(complete=False, remark="no spools and no capture")
    except DecodeError as error:
        return CaptureReport(CAPTURE, frames, drops, complete=False, remark=str(error))
    return CaptureReport(CAPTURE, frames, drops, complete=not drops, remark="merged before")
