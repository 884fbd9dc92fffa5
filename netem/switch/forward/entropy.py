"""Structured entropy values: fields that name the way, tier by tier. mrc.md 12.4.

    stev32   hop0 10 | hop1 8 | hop2 4 | salt 7 | plane 3      flow label 15:0, UDP source port
                                             (or the halves the other way round: mrc.md 3.14)
    udp16    1 1 | plane 3 | hop0 8 | salt 3                   UDP source port

A sender writes into the field of a tier which of its uplinks to take, and a switch of that tier
reads it: no hash, no table that changes. IPv4 has room for `udp16` only.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from netem.switch.forward.parse import parse
from wire.codec import ReadBuffer
from wire.ipv4 import Protocol

_PLAIN = Struct("!IxxB33xH")  # word | next header | UDP source port, right behind the header


class Field(NamedTuple):
    """Where a field is: bits above its lowest one, and how wide it is."""

    shift: int
    width: int


STEV32 = {
    "hop0": Field(22, 10),
    "hop1": Field(14, 8),
    "hop2": Field(10, 4),
    "salt": Field(3, 7),
    "plane": Field(0, 3),
}
UDP16 = {"plane": Field(11, 3), "hop0": Field(3, 8), "salt": Field(0, 3)}
FORMATS = {"stev32": STEV32, "udp16": UDP16}


class EntropyReader:
    """Reads chosen fields of entropy values of one format as one number."""

    def __init__(self, form: str, fields: Sequence[str], split: str = "label_high") -> None:
        """Raise ValueError for a format or a field that there is not, and for no field."""
        if form not in FORMATS:
            raise ValueError(f"ev format {form}: legal are {', '.join(FORMATS)}")
        layout = FORMATS[form]
        if wrong := [name for name in fields if name not in layout] or (not fields and [""]):
            raise ValueError(
                f"ev field {wrong[0]!r}: legal with {form} are {', '.join(layout)}"
            )
        self._has_label = form == "stev32"
        self._label_high = self._has_label and split == "label_high"
        self._fields = tuple(layout[name] for name in fields)
        # A field that udp16 does not have reads as 0 over IPv4.
        self._ipv4_fields = tuple(UDP16.get(name, Field(0, 0)) for name in fields)

    def of(self, frame: ReadBuffer, at: int) -> int:
        """Return the number in the fields, the first one highest, of the packet at `at`.

        A packet without UDP has an entropy value too: where its source port would be is 0.
        """
        # Bench switch.
        if len(frame) >= at + _PLAIN.size:
            word, next_header, port = _PLAIN.unpack_from(frame, at)
            if word >> 28 == 6 and next_header == Protocol.UDP:
                if self._label_high:  # nearly always
                    return _read(self._fields, (word & 0xFFFF) << 16 | port)
                return _read(self._fields, self._value(word, port))
        found = parse(frame[at:])
        assert found is not None
        port = found.sport
        if found.version == 4:
            return _read(self._ipv4_fields, port)
        return _read(self._fields, self._value(found.flow_label, port))

    def _value(self, label: int, port: int) -> int:
        """Return the entropy value in an IPv6 packet; the label's low 16 bits count."""
        if not self._has_label:
            return port
        return (
            (label & 0xFFFF) << 16 | port if self._label_high else port << 16 | label & 0xFFFF
        )


def _read(fields: Sequence[Field], value: int) -> int:
    """Return the numbers in some fields as one, the first one highest."""
    number = 0
    for shift, width in fields:
        number = number << width | value >> shift & (1 << width) - 1
    return number
