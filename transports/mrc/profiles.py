"""EV profiles: how a short entropy value becomes the bits that a packet carries.

Public controller API of OCP MRC 1.0 (libmrc, `mrc_ctl.h`): an *EV format profile* lists the
widths of the fields of a packet; an *EV profile* says of each field what is fixed in it and
which bits come from the EV. Expansion, field by field from the left: the field begins as its
init value, and the set bits of its mask take the next bits of the EV, the most significant
first. The fields stand side by side; what a field is narrower than its place in the format is
zeros to its left, and places without a field are zeros.

    mask 0x0f0f, init 0xa0a0, EV 1100'0101     0xa0a0 -> 0xaca5      MaskFill.HIGH_FIRST
                                               0xa0a0 -> 0xaaa3      MaskFill.LOW_FIRST

`HIGH_FIRST` walks a mask from its most significant bit down. The example program beside the
header lays the EV's bits on the mask from the other end, the last one on the lowest: the same.
Who reads "for each bit set in the mask" from bit 0 up gets `LOW_FIRST`.

The layouts at the end are those of the profile `mrc-emu/1`: what lies where in an expanded EV.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import product, zip_longest
from random import Random
from typing import NamedTuple

MAX_WIDTH = 256  # bits: an EV buffer of the API has 32 bytes
DEFAULT_SALT = 0x55  # never 0, which keeps the UDP source port from being 0


class MaskFill(Enum):
    """From which end the set bits of a mask take the bits of an EV."""

    HIGH_FIRST = "high first"
    LOW_FIRST = "low first"


class EvField(NamedTuple):
    """One field of an EV profile. A fixed one has no mask, and 0 for min and max."""

    width: int
    init: int = 0
    min: int = 0  # of the number that the mask's bits make, where values are generated
    max: int = 0
    mask: int = 0

    @property
    def ev_bits(self) -> int:
        """Return how many bits of an EV this field takes."""
        return self.mask.bit_count()


class EvFormat(NamedTuple):
    """An EV format profile: what there is room for in a packet."""

    name: str
    widths: tuple[int, ...]

    @property
    def width(self) -> int:
        return sum(self.widths)


@dataclass(frozen=True)
class EvProfile:
    """An EV profile of one format. Raise ValueError, in words, for one that is not legal."""

    format: EvFormat
    fields: tuple[EvField, ...]

    def __post_init__(self) -> None:
        if problem := self._problem():
            raise ValueError(f"EV profile of format {self.format.name}: {problem}")

    def _problem(self) -> str | None:
        widths = self.format.widths
        if self.format.width > MAX_WIDTH:
            return f"the format has {self.format.width} bits, legal are {MAX_WIDTH}"
        if len(self.fields) > len(widths):
            return f"{len(self.fields)} fields, the format has {len(widths)}"
        for number, (field, place) in enumerate(zip(self.fields, widths, strict=False)):
            if problem := _field_problem(field, place):
                return f"field {number}: {problem}"
        return None

    @cached_property
    def ev_bits(self) -> int:
        """How many bits an EV of this profile has."""
        return sum(field.ev_bits for field in self.fields)

    def expand(self, ev: int, fill: MaskFill = MaskFill.HIGH_FIRST) -> int:
        """Return what `ev`, a number of `ev_bits` bits, is in a packet: `format.width` bits.

        Raise ValueError for an EV that is wider.
        """
        if not 0 <= ev < 1 << self.ev_bits:
            raise ValueError(f"EV {ev:#x} does not fit the {self.ev_bits} bits of its profile")
        left, value = self.ev_bits, 0
        for number, place in enumerate(self.format.widths):
            value <<= place
            if number < len(self.fields):
                field = self.fields[number]
                left -= field.ev_bits
                value |= _filled(field, ev >> left & (1 << field.ev_bits) - 1, fill)
        return value

    def values(self) -> Iterator[int]:
        """Return the EVs that a device generates, unexpanded: min to max of each field."""
        ranges = [range(field.min, field.max + 1) for field in self.fields if field.mask]
        widths = [field.ev_bits for field in self.fields if field.mask]
        for numbers in product(*ranges):
            ev = 0
            for number, width in zip(numbers, widths, strict=True):
                ev = ev << width | number
            yield ev


def _field_problem(field: EvField, place: int) -> str | None:
    if not 0 < field.width <= place:
        return f"{field.width} bits wide, legal are 1 to {place}, as the format has it"
    for name in ("init", "mask"):
        if not 0 <= getattr(field, name) < 1 << field.width:
            return f"{name} {getattr(field, name):#x} does not fit {field.width} bits"
    if not 0 <= field.max < 1 << field.ev_bits:
        return (
            f"max {field.max:#x} does not fit the {field.ev_bits} bits of mask {field.mask:#x}"
        )
    if not 0 <= field.min <= field.max:
        return f"min {field.min:#x}, legal are 0 to max {field.max:#x}"
    return None


def _filled(field: EvField, number: int, fill: MaskFill) -> int:
    """Return `field` with `number`, which has as many bits as the mask has set, in its mask."""
    value = field.init & ~field.mask
    bits = range(field.width)
    left = field.ev_bits
    for bit in reversed(bits) if fill is MaskFill.HIGH_FIRST else bits:
        if field.mask >> bit & 1:
            left -= 1
            value |= (number >> left & 1) << bit
    return value


class EvLayout(NamedTuple):
    """Named fields of an expanded EV of the profile `mrc-emu/1`, the most significant first."""

    name: str
    fields: tuple[tuple[str, int], ...]  # name, width; a name of "" is for fixed ones

    @property
    def format(self) -> EvFormat:
        return EvFormat(self.name, tuple(width for _, width in self.fields))

    def shift(self, name: str) -> int:
        """Return how many bits are below the field. Raise ValueError if there is none."""
        below = 0
        for field, width in reversed(self.fields):
            if field == name:
                return below
            below += width
        legal = ", ".join(field for field, _ in self.fields if field)
        raise ValueError(f"{self.name} has no field {name}; it has {legal}")

    def read(self, ev: int, name: str) -> int:
        """Return the number in a field of `ev`."""
        return ev >> self.shift(name) & (1 << dict(self.fields)[name]) - 1

    def plane_of(self, ev: int) -> int:
        return ev >> self.shift("plane") & 7

    def profile(self, planes: Sequence[int], uplinks: int, salts: int = 1) -> EvProfile:
        """Return the EV profile of `uplinks` ways up on some planes, told apart by salts.

        It generates every plane from the lowest to the highest of `planes`.
        """
        low = {"hop0": 0, "salt": self._first_salt, "plane": min(planes)}
        high = {
            "hop0": uplinks - 1,
            "salt": self._first_salt + salts - 1,
            "plane": max(planes),
        }
        fields = []
        for name, width in self.fields:
            full = (1 << width) - 1
            if name in low:
                fields.append(EvField(width, 0, low[name], high[name], full))
            else:
                fields.append(EvField(width, 0 if name else full))
        return EvProfile(self.format, tuple(fields))

    @property
    def _first_salt(self) -> int:
        return DEFAULT_SALT if dict(self.fields)["salt"] > 3 else 1

    def make(self, plane: int, hop0: int = 0, nth: int = 0) -> int:
        """Return an EV of a plane; `nth` tells apart those that take the same way."""
        widths = dict(self.fields)
        salts = (1 << widths["salt"]) - 1  # all but 0
        salt = (self._first_salt - 1 + nth) % salts + 1
        for name, number in (("plane", plane), ("hop0", hop0)):
            if not 0 <= number < 1 << widths[name]:
                raise ValueError(f"{name} {number} does not fit {widths[name]} bits")
        ev = salt << self.shift("salt") | plane << self.shift("plane")
        if "" in widths:
            ev |= ((1 << widths[""]) - 1) << self.shift("")
        return ev | hop0 << self.shift("hop0")

    def describe(self, ev: int) -> str:
        """Return what an EV says, like `plane 3 hop0 5 salt 0x55`."""
        return " ".join(
            f"{name} {self.read(ev, name):{'#x' if name == 'salt' else 'd'}}"
            for name in ("plane", "hop0", "hop1", "hop2", "salt")
            if name in dict(self.fields) and (self.read(ev, name) or name in ("plane", "hop0"))
        )


MAX_PLANES = 8  # that an EV can name
STEV32 = EvLayout("stev32", (("hop0", 10), ("hop1", 8), ("hop2", 4), ("salt", 7), ("plane", 3)))
UDP16 = EvLayout("udp16", (("", 2), ("plane", 3), ("hop0", 8), ("salt", 3)))
# By the name of a format; with `srv6` the packet inside has the EV as stev32. mrc-emu/1, 12.4
LAYOUTS = {STEV32.name: STEV32, UDP16.name: UDP16, "srv6": STEV32}

SRV6 = EvFormat("srv6", (32, 16, 16, 16, 16, 16, 16))  # an address: locator block and six uSIDs
SRV6_SRH = EvFormat("srv6-srh", (*SRV6.widths, 32, 16, 16, 16, 16, 32))  # and a second one


def srv6(
    block: int, plane: int, t0s: tuple[int, int], uplinks: int, downlink: int
) -> EvProfile:
    """Return the EV profile of the ways over T1 from one T0 to another, on one plane.

    `block` is the 32 bits of the locator; `t0s` are the numbers of the T0 of the source and of
    the destination; uSIDs as in `mrc-emu/1`: plane 4 bits, role 4, number 8. The EV is the
    number of the T1. A profile is of one plane, since a bit of an EV has one place only.
    """
    base = plane << 12
    there, back = (EvField(16, base | 0x100 | t0) for t0 in t0s)
    over = EvField(16, base | 0x200, 0, uplinks - 1, 0xFF)
    last = EvField(16, base | 0x800 | downlink)
    return EvProfile(SRV6, (EvField(32, block), there, over, back, last))


class EvSet(NamedTuple):
    """The EVs of a queue pair: those in use, and those that stand in for bad ones."""

    active: tuple[int, ...]
    backup: tuple[int, ...]


def draw(
    layout: EvLayout, planes: Sequence[int], uplinks: int, count: int, rng: Random
) -> EvSet:
    """Return `count` EVs in use and as many in reserve, an equal share of both on each plane.

    Planes take turns, so that a rotation (`paths`) fills all of them alike at any moment, and
    not one after another. Within a plane the ways up come in an order of chance, each once
    before any a second time; those that take the same way differ in salt. `uplinks` is 1 where
    both ends share a T0.
    """
    if not planes or count < 1 or uplinks < 1:
        raise ValueError(f"{count} EVs over {uplinks} uplinks on {len(planes)} planes")
    active: list[list[int]] = []  # by plane
    backup: list[list[int]] = []
    for position, plane in enumerate(planes):
        share = count // len(planes) + (position < count % len(planes))
        ways = rng.sample(range(uplinks), uplinks)
        evs = [
            layout.make(plane, ways[nth % uplinks], nth // uplinks) for nth in range(2 * share)
        ]
        evs = list(dict.fromkeys(evs))  # fewer where salts do not suffice
        active.append(evs[:share])
        backup.append(evs[share:])
    return EvSet(tuple(_in_turns(active)), tuple(_in_turns(backup)))


def _in_turns(rows: Iterable[Iterable[int]]) -> Iterator[int]:
    """Yield the first of each row, then the second of each, and so on."""
    for column in zip_longest(*rows):
        yield from (ev for ev in column if ev is not None)
