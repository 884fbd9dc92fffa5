"""RoCE packets of a capture against lines of the notation: what `assert_packets` stands on.

A relative PSN counts from the first request between the same two addresses in its direction; of
an answer, from the first request that went the other way.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from netem.analysis.reader import read_capture
from netem.conform.notation import NotationError, Relative, Value, parse_words
from netem.conform.roce_hearing import CODES, RESPONSES, fields_of, name_of
from wire.codec import DecodeError
from wire.roce.packet import RocePacket, locate


class LineError(ValueError):
    """A line that is no notation."""


@dataclass(frozen=True, slots=True)
class Found:
    """One RoCE packet of a capture. `base` is what its relative PSN counts from."""

    number: int  # as Wireshark shows it
    at: int  # ns
    port: str  # name of the interface, "h0:p0"
    name: str
    fields: Mapping[str, int]
    payload: bytes
    base: int


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a packet must be like."""

    text: str
    name: str
    fields: Mapping[str, Value]
    passes_over: bool

    @classmethod
    def of(cls, line: str) -> Self:
        """Read `WRITE_ONLY psn=+0 ask`, with a `* ` before it to pass over others."""
        star, text = line.startswith("*"), line.lstrip("* ")
        try:
            words = parse_words(text, line, 0)
        except NotationError as error:
            raise LineError(str(error)) from error
        return cls(line, words.name, words.fields, star)

    def differs(self, packet: Found) -> str | None:
        """Say in what a packet is not this; None if it is."""
        if self.name not in {packet.name, "ANY"}:
            return f"{packet.name}, wanted {self.text}"
        for name, value in self.fields.items():
            got = packet.fields.get(name)
            if isinstance(value, Relative):
                wanted: int | None = (packet.base + value.by) & 0xFFFFFF
            elif isinstance(value, str):
                wanted = CODES.get(value)
            else:
                wanted = value
            if got != wanted:
                return f"{packet.name} with {name} {got}, wanted {self.text} ({wanted})"
        return None


def find_packets(path: Path) -> Iterator[Found]:
    """Yield the RoCE packets of a capture that were sent. DecodeError: it is no capture."""
    bases: dict[tuple[bytes, bytes], int] = {}
    with path.open("rb") as file:
        for captured in read_capture(file):
            if captured.is_killed:
                continue
            try:
                place = locate(captured.frame)
                packet = RocePacket.unpack(captured.frame[place.bth_offset : place.icrc_offset])
            except DecodeError:
                continue
            ip, name = place.ip_offset, name_of(packet)
            start, size = (12, 4) if captured.frame[ip] >> 4 == 4 else (8, 16)
            source = bytes(captured.frame[ip + start :][:size])
            target = bytes(captured.frame[ip + start + size :][:size])
            way = (target, source) if name.startswith(RESPONSES) else (source, target)
            base = bases.setdefault(way, packet.bth.psn)
            fields = fields_of(captured.frame, ip, packet)
            payload = bytes(packet.payload)
            yield Found(
                captured.number, captured.at, captured.port, name, fields, payload, base
            )
