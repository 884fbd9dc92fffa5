"""The spool: what one process appends for every frame that it sends or kills.

A capture file made in the middle of a run must survive the end of its writer, whatever ends it.
So a process never edits and never seeks: it collects the frames of one turn of its loop in
memory and hands them to the kernel in one write. After that write a SIGKILL takes nothing away,
and a file that is cut at any byte is readable up to its last whole record.

    file     PREAMBLE  header (JSON)  record*  [end]
    record   RECORD    frame          comment (UTF-8)
    note     RECORD with flag NOTED; in place of a frame the NOTE of `netem.capture.notes`
    end      RECORD with port END_PORT; in place of a frame a JSON object: why, and what is lost

A note is what a process knows about a frame that another records: it is read as a record and
never becomes a frame.

Integers are little endian. A spool without its end was not closed: its process was killed, and
frames of its last turn may be missing. Times are emulated nanoseconds since the run's start and
may be negative (frames seen before it); the merger adds the epoch of the header.

The writer never stops a run. When its limit is reached or the disk is full it cuts the file
back to whole records, says so in the end record, and from then on only counts.
"""

import os
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from netem.capture.budget import Budget
from netem.capture.notes import FOR_EVER, pack_note
from transports.clock import Ns
from wire.codec import ReadBuffer

PREAMBLE = Struct("<8sI")  # MAGIC | length of the header that follows
RECORD = Struct("<HHHHIIq")  # MARK | port | flags | comment | captured | original length | time
MAGIC = b"fabspl\x00\x01"  # the last byte is the version
MARK = 0x5AF0
END_PORT = 0xFFFF
KILLED = 0x0001
NOTED = 0x0002

# Ours: a turn of a node's loop is at most 64 frames of 4 KiB on each of a few ports. A caller
# that never flushes is held to this much memory.
BATCH_BYTES = 1 << 20
HEADER_LIMIT = 1 << 24  # 65,534 ports with long names: what is larger is not a header
COMMENT_LIMIT = 0xFF00  # a pcapng option holds 65,535 bytes; later hops add a few words
NO_LIMIT = 1 << 62


class SpoolError(Exception):
    """A file that is not a spool of ours; a cut one is not an error."""


class SpoolPort(msgspec.Struct, frozen=True):
    """A port whose outgoing frames the spool holds."""

    name: str  # "h0:p0"
    peer: str  # "h1:p0"
    link: str  # "h0:p0--h1:p0"
    forwards: bool = (
        False  # its node passes frames on, so one that leaves here may have come in
    )


class SpoolHeader(msgspec.Struct, frozen=True):
    """What a reader must know before the first record."""

    node: str
    ports: tuple[SpoolPort, ...]  # a record names its port by its index here
    epoch: Ns = 0  # Unix time, in nanoseconds, of emulated time 0


class SpoolEnd(msgspec.Struct, frozen=True):
    """The last record: what the writer knows to be missing."""

    missing: dict[str, int] = {}  # frames that should be in the file and are not, by port
    why: str = ""  # why the writer gave up; empty where it did not


class SpoolRecord(NamedTuple):
    """One frame as it was recorded, or what is to be said of one that another records."""

    at: Ns
    port: int
    killed: bool
    original: int  # bytes of the frame on the wire; more than len(frame) where it was cut
    comment: str
    frame: bytes  # of a note: what the frame is recognised by
    is_note: bool = False


class Spool:
    """The writing end. `record` is the sink that drivers and the simulator share.

    Call `flush` once per turn of the loop, before the turn's frames leave: then nothing that a
    peer has seen can be missing from the file.
    """

    def __init__(
        self, path: Path, header: SpoolHeader, *, limit: int | Budget = NO_LIMIT
    ) -> None:
        """`limit` is what the file may hold, or a budget that it shares with others."""
        if len(header.ports) >= END_PORT:
            raise ValueError(f"a spool holds {END_PORT - 1} ports at most")
        self.path = path
        self.frames = 0
        self.missing: Counter[str] = Counter()
        self.why_incomplete = ""
        self._names = [port.name for port in header.ports]
        self._index = {name: index for index, name in enumerate(self._names)}
        self._budget = limit if isinstance(limit, Budget) else None
        self._max = limit if isinstance(limit, int) else 0  # what the file may grow to
        self._batch = bytearray()
        self._batch_frames = 0  # in _batch: what a failed write loses
        self._written = 0  # bytes in the file, always whole records
        self._room = 0  # bytes that _batch may grow to before something must be decided
        text = msgspec.json.encode(header)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o644)
        self._write(PREAMBLE.pack(MAGIC, len(text)) + text)

    @property
    def is_complete(self) -> bool:
        return not self.why_incomplete

    def record(
        self, at: Ns, port: str, frame: ReadBuffer, comment: str = "", killed: bool = False
    ) -> None:
        """Record `frame`, whole, as sent (or killed) by `port`; a port not captured is none."""
        index = self._index.get(port)
        if index is not None:
            self.append(at, index, frame, comment, killed)

    def append(
        self,
        at: Ns,
        port: int,
        frame: ReadBuffer,
        comment: str = "",
        killed: bool = False,
        *,
        original: int = 0,
    ) -> None:
        """Record a frame of the port with that index in the header; the bytes are copied.

        `original` is given where `frame` is less than what was on the wire.
        """
        text = comment.encode()[:COMMENT_LIMIT] if comment else b""
        size = len(frame)
        batch = self._batch
        if len(batch) + size + len(text) > self._room:
            if not self._make_room(size + len(text)):
                self.missing[self._names[port]] += 1
                return
            batch = self._batch
        batch += RECORD.pack(MARK, port, killed, len(text), size, original or size, at)
        batch += frame
        if text:
            batch += text
        self._batch_frames += 1

    def note(
        self, at: Ns, port: int, payload: ReadBuffer, comment: str, lasting: Ns = FOR_EVER
    ) -> None:
        """Say what happened to a frame that the sniffer records, known by its UDP payload.

        It is the first one not spoken for that the port sends at `at` or later, and, where
        `lasting` is given, no later than that after `at`. One that finds no room is left out:
        no frame is missing for that, and the spool says already that it is not complete.
        """
        key, text = pack_note(payload, lasting), comment.encode()[:COMMENT_LIMIT]
        size = len(key) + len(text)
        if len(self._batch) + size > self._room and not self._make_room(size):
            return
        self._batch += RECORD.pack(MARK, port, NOTED, len(text), len(key), len(key), at)
        self._batch += key + text

    def flush(self) -> None:
        """Hand everything recorded so far to the kernel, in one write."""
        if self._batch:
            if self._write(self._batch):
                self.frames += self._batch_frames
            else:
                for record in read_records(BytesIO(self._batch), len(self._names)):
                    if not record.is_note:
                        self.missing[self._names[record.port]] += 1
            self._batch_frames = 0
            self._batch = bytearray()

    def close(self, drops: Mapping[str, int] | None = None) -> None:
        """Flush, write the end and close; harmless when called twice.

        `drops` are frames that the kernel lost before we saw them, by port. Those of ports that
        are not in the header were recorded, or are missing, elsewhere.
        """
        if self._fd < 0:
            return
        self.flush()
        self.missing.update(
            {n: count for n, count in (drops or {}).items() if n in self._index}
        )
        if self._written:  # else the disk was full before the header
            # An end that finds no room is left out, which says "incomplete" as well.
            end = msgspec.json.encode(SpoolEnd(dict(+self.missing), self.why_incomplete))
            self._write(RECORD.pack(MARK, END_PORT, 0, 0, len(end), len(end), 0) + end)
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

    def _make_room(self, size: int) -> bool:
        """Find room for a record of `size` body bytes, by a flush or not at all."""
        if not self.why_incomplete:
            self.flush()
        short = self._written + RECORD.size + size - self._max
        if not self.why_incomplete and short > 0 and not self._extend(short):
            whose = "" if self._budget is None else "lab's "
            most = self._max if self._budget is None else self._budget.max_bytes
            self._give_up(f"the {whose}limit of {most} bytes is reached")
        if self.why_incomplete:
            return False
        self._room = max(size, self._room)  # what is larger than a whole batch goes alone
        return True

    def _extend(self, short: int) -> bool:
        """Let the file grow by `short` bytes or more, if there is something to take it from."""
        if self._budget is None:
            return False
        granted = self._budget.take(short)
        self._max += granted
        self._room = min(BATCH_BYTES, self._max - self._written) - RECORD.size
        return granted >= short

    def _give_up(self, why: str) -> None:
        self.why_incomplete = why
        self._room = -1  # every later record takes the slow path, which counts it

    def _write(self, data: bytes | bytearray) -> bool:
        """Append `data` whole, or leave the file as it was and give up."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            os.ftruncate(self._fd, self._written)
            self._give_up(error.strerror or str(error))
            return False
        self._written += len(data)
        self._room = min(BATCH_BYTES, self._max - self._written) - RECORD.size
        return True


class SpoolReader:
    """The reading end: a header, then records up to the end or to where the file is cut.

    After `records` is exhausted, `end` is the end record, or None where the writer was killed.
    """

    def __init__(self, path: Path, epoch: Ns | None = None) -> None:
        """`epoch` takes the place of the header's, where one is given."""
        self.path = path
        self.end: SpoolEnd | None = None
        with path.open("rb") as file:
            self.header, self.start = _read_header(file.read(PREAMBLE.size), file, path)
        if epoch is not None:
            self.header = replace(self.header, epoch=epoch)

    def records(self) -> Iterator[SpoolRecord]:
        """Yield whole records, in the order in which they were written."""
        self.end = None
        with self.path.open("rb") as file:
            file.seek(self.start)
            self.end = yield from read_records(file, len(self.header.ports))


def read_records(file: BinaryIO, ports: int) -> Generator[SpoolRecord, None, SpoolEnd | None]:
    """Yield the records from where `file` stands; return the end record, if there is one."""
    read, unpack = file.read, RECORD.unpack
    while len(head := read(RECORD.size)) == RECORD.size:
        mark, port, flags, text_size, size, original, at = unpack(head)
        if mark != MARK:
            return None
        body = read(size + text_size)
        if len(body) < size + text_size:
            return None
        if port >= ports:
            return _decode_end(body) if port == END_PORT else None
        comment = body[size:].decode(errors="replace") if text_size else ""
        frame = body[:size] if text_size else body
        killed, is_note = bool(flags & KILLED), bool(flags & NOTED)
        yield SpoolRecord(at, port, killed, original, comment, frame, is_note)
    return None


def seal(path: Path) -> None:
    """Give the spool of a writer that was killed on purpose its end.

    It is whole up to its last turn, and what came after that turn never left. A record that was
    cut short is taken away; a spool that has its end, and one without a header, stays as it is.
    """
    with path.open("r+b") as file:
        header, at = _read_header(file.read(PREAMBLE.size), file, path)
        file.seek(0, os.SEEK_END)
        size = file.tell()
        while at + RECORD.size <= size:
            file.seek(at)
            mark, port, _, text_size, body_size, _, _ = RECORD.unpack(file.read(RECORD.size))
            after = at + RECORD.size + text_size + body_size
            if mark != MARK or after > size:
                break
            if port == END_PORT:
                return
            at = after
        if header.ports:
            end = msgspec.json.encode(SpoolEnd())
            file.truncate(at)
            file.seek(at)
            file.write(RECORD.pack(MARK, END_PORT, 0, 0, len(end), len(end), 0) + end)


def pack_record(record: SpoolRecord) -> bytes:
    """Return the bytes of one record, for a file without a header."""
    at, port, killed, original, comment, frame, is_note = record
    text, flags = comment.encode(), KILLED * killed | NOTED * is_note
    return RECORD.pack(MARK, port, flags, len(text), len(frame), original, at) + frame + text


def _read_header(preamble: bytes, file: BinaryIO, path: Path) -> tuple[SpoolHeader, int]:
    """Return the header and where the records start; a cut header is one without ports."""
    nothing = SpoolHeader(path.stem, ())
    if preamble[: len(MAGIC)] != MAGIC[: len(preamble)]:
        raise SpoolError(f"{path} is not a spool")
    if len(preamble) < PREAMBLE.size:
        return nothing, len(preamble)
    size = PREAMBLE.unpack(preamble)[1]
    if size > HEADER_LIMIT:
        raise SpoolError(f"{path} has a header of {size} bytes")
    text = file.read(size)
    if len(text) < size:
        return nothing, PREAMBLE.size + len(text)
    try:
        return msgspec.json.decode(text, type=SpoolHeader), PREAMBLE.size + size
    except msgspec.MsgspecError as error:
        raise SpoolError(f"{path} has a header that cannot be read: {error}") from None


def _decode_end(body: bytes) -> SpoolEnd | None:
    try:
        return msgspec.json.decode(body, type=SpoolEnd)
    except msgspec.MsgspecError:
        return None
