"""From a capture file and a wish to the story that is told, as text and as JSON."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netem.analysis.conversation import Conversation, conversations
from netem.analysis.frames import describe, one_line
from netem.analysis.names import Names
from netem.analysis.reader import Captured, read_as_far_as_possible
from netem.analysis.records import CaptureReader
from netem.analysis.story import Story, Wanted, story, subject_of, transmissions
from netem.conform.clauses import clauses
from transports.clock import Ns


@dataclass(frozen=True)
class Told:
    """A story, and where it is from."""

    story: Story
    conversation: Conversation
    start: Ns  # Unix time of the first packet of all
    problem: str  # why the file could not be read to its end

    def text(self) -> list[str]:
        """Return the story as lines: when, in which frame, what, and about which clause."""
        head = [self.story.title, ""]
        rows = [
            (f"{(line.at - self.start) / 1000:,.3f} us", f"frame {line.frame}", line)
            for line in self.story.lines
        ]
        widths = max(len(at) for at, _, _ in rows), max(len(frame) for _, frame, _ in rows)
        for at, frame, line in rows:
            clause = f" [{line.clause}]" if line.clause else ""
            head.append(f"{at:>{widths[0]}}  {frame:<{widths[1]}}  {line.text}{clause}")
        cited = self.cited()
        if cited:
            head += ["", *(f"{name}: {text}" for name, text in cited.items())]
        return head

    def cited(self) -> dict[str, str]:
        """Return the clauses of the story, each in a sentence."""
        known = clauses()
        names = dict.fromkeys(line.clause for line in self.story.lines if line.clause)
        return {name: known[name].text for name in names}

    def as_json(self) -> dict[str, Any]:
        """Return what `explain --json` prints: JSON values, hence Any."""
        return {
            "schema_version": 1,
            "title": self.story.title,
            "complete": self.story.is_complete,
            "lines": [
                {
                    "at_ns": line.at - self.start,
                    "frame": line.frame,
                    "text": line.text,
                    "clause": line.clause,
                }
                for line in self.story.lines
            ],
            "clauses": self.cited(),
        }


def tell(path: Path, wanted: Wanted) -> Told | None:
    """Return the story of the packet that is meant; None if there is none like that.

    Raise NoCaptureError for a file that is none, OSError for one that cannot be read.
    """
    with path.open("rb") as file:
        reader = CaptureReader(file)
        found = conversations(read_as_far_as_possible(reader), Names())
    if wanted.frame is not None:
        wanted = wanted._replace(frame=_first_record(path, wanted.frame))
    subject = subject_of(found, wanted)
    if subject is None:
        return None
    conversation, packet = subject
    numbers = {one.number for one in transmissions(conversation, packet)}
    told = story(conversation, packet, _hops(path, numbers))
    start = min(one.at for conversation in found for one in conversation.packets)
    return Told(told, conversation, start, reader.problem)


def what_is_in(path: Path, frame: int) -> str:
    """Return in a line what a frame is, "" where the file has none of that number."""
    with path.open("rb") as file:
        for record in read_as_far_as_possible(CaptureReader(file)):
            if record.number == frame:
                return one_line(record.frame)
    return ""


def _first_record(path: Path, frame: int) -> int:
    """Return the number of the first record of the packet that is in `frame`.

    Where a tunnel has hidden a packet on the way its number is lost: it is then the last before
    that says the same, between the same ends.
    """
    firsts: dict[int, int] = {}
    with path.open("rb") as file:
        for record in read_as_far_as_possible(CaptureReader(file)):
            first = record.number
            if record.packet is not None:
                first = firsts.setdefault(record.packet, record.number)
            if record.number == frame:
                return first if record.packet is not None else _same_before(path, record)
    return frame


def _same_before(path: Path, later: Captured) -> int:
    """Return the number of the last numbered record that says what a later one says."""
    wanted, found = describe(later.frame)[:3], later.number
    with path.open("rb") as file:
        for record in read_as_far_as_possible(CaptureReader(file)):
            if record.number >= later.number:
                break
            if record.packet is not None and describe(record.frame)[:3] == wanted:
                found = record.number
    return found


def _hops(path: Path, numbers: set[int]) -> list[Captured]:
    """Return the records of the packets that begin in the frames of `numbers`."""
    packets: set[int] = set()
    found = []
    with path.open("rb") as file:
        for record in read_as_far_as_possible(CaptureReader(file)):
            if record.number in numbers:
                found.append(record)
                if record.packet is not None:
                    packets.add(record.packet)
            elif record.packet in packets:
                found.append(record)
    return found
