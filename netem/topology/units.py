"""Units of lab files and flags: `5ms`, `400gbit`, `64KiB`, `1%`, and RNR timers by their time.

Text in, a whole number in the base unit out: nanoseconds, bit/s, bytes; percentages become
probabilities. Nothing is rounded: what the base unit cannot hold is refused, and so is a bare
number, since two people read it in two ways. The words are those of tc(8), but sizes are always
binary and say so, and tc's `bps`, bytes per second, does not exist here.
"""

import re
from collections.abc import Mapping
from math import gcd
from typing import NamedTuple

from netem.topology.errors import shown
from transports.clock import Ns
from wire.roce.eths import RNR_TIMER_NS

TIMES: Mapping[str, int] = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
RATES: Mapping[str, int] = {
    "bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12,
}  # fmt: skip
SIZES: Mapping[str, int] = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
DISTANCES: Mapping[str, int] = {"m": 1, "km": 1_000}

MAX_TIME: Ns = 10**15  # eleven days: longer is a slip, and sums must stay within 64 bits
MAX_RATE = 10**15  # a petabit per second
MAX_SIZE = 1 << 40  # a tebibyte
MAX_DISTANCE = 40_000_000  # metres: once round the earth

MAX_RATIO = 1000

_RATIO = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(?::([0-9]{1,9}(?:\.[0-9]{1,6})?))?")
_QUANTITY = re.compile(r"([+-]?)([0-9]{1,18})(?:\.([0-9]{1,18}))?\s?([A-Za-z%]*)")


class Ratio(NamedTuple):
    """One quantity to another, as in oversubscription: 3:1 is three down for one up."""

    one: int
    other: int


class UnitError(ValueError):
    """A quantity that is not one. The message is one line without the key's path."""


def parse_time(value: object) -> Ns:
    """Return the nanoseconds that `1us` or `0.5ms` mean."""
    return _parse(value, TIMES, "time", "5ms", MAX_TIME)


def parse_rate(value: object) -> int:
    """Return the bits per second that `400gbit` or `2.5gbit` mean; nothing has a rate of 0."""
    rate = _parse(value, RATES, "rate", "10gbit", MAX_RATE)
    if rate == 0:
        raise UnitError(f"{shown(value)} lets nothing pass; for that write loss: 100%")
    return rate


def parse_size(value: object) -> int:
    """Return the bytes that `64KiB` mean."""
    return _parse(value, SIZES, "size", "64KiB", MAX_SIZE)


def parse_offset(value: object) -> int:
    """Return the bytes that `4KiB` or `-1B` mean: a size that may be negative."""
    if isinstance(value, str) and value.startswith("-"):
        return -parse_size(value[1:])
    return parse_size(value)


def parse_distance(value: object) -> int:
    """Return the metres that `40km` mean."""
    return _parse(value, DISTANCES, "distance", "40km", MAX_DISTANCE)


def parse_share(value: object) -> float:
    """Return a probability written as a percentage or, as switches have it, as 0 to 1."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and isinstance(value, int | float):
        if 0 <= value <= 1:
            return float(value)
        raise UnitError(f"{shown(value)} is out of range; legal: 0 to 1, or 0% to 100%")
    return parse_percent(value)


def parse_ratio(value: object) -> Ratio:
    """Return the ratio, above 0, that `4.5:1` or `3` mean, in lowest terms."""
    is_written = isinstance(value, int | float | str) and not isinstance(value, bool)
    match = _RATIO.fullmatch(str(value)) if is_written else None
    if match is not None:
        one, other = _scaled(match[1]), _scaled(match[2] or "1")
        if 0 < one <= MAX_RATIO * other:
            shared = gcd(one, other)
            return Ratio(one // shared, other // shared)
    raise UnitError(f"{shown(value)} is no ratio; write for example 3:1, at most {MAX_RATIO}:1")


def _scaled(number: str) -> int:
    """Return a decimal number times a million."""
    whole, _, decimals = number.partition(".")
    return int(whole) * 1_000_000 + int(f"{decimals:0<6}")


def parse_percent(value: object) -> float:
    """Return the probability, 0 to 1, that `0.1%` means; 0% and 100% are ordinary."""
    sign, whole, decimals, unit = _split(value, "percentage", "1%", "0% to 100%")
    if unit != "%":
        raise UnitError(_unit_missing(value, unit, "1%", "0% to 100%"))
    scale: int = 10 ** len(decimals)
    scaled = int(whole + decimals)
    if (sign == "-" and scaled) or scaled > 100 * scale:
        raise UnitError(f"{shown(value)} is out of range; legal: 0% to 100%")
    return scaled / (100 * scale)


def parse_rnr_timer(value: object) -> int:
    """Return the code, 0 to 31, of an RNR timer given as its time: `0.64ms` is code 12.

    IBTA vol. 1, section 9.7.5.2.8. The codes are not in order of time, and 0 is the longest, so
    nobody should have to write one.
    """
    legal = "legal: 0.01ms (code 1) to 491.52ms (31), and 655.36ms (0, the longest)"
    if isinstance(value, int) and not isinstance(value, bool):
        also = f"code {value} is {_in_ms(RNR_TIMER_NS[value])}; " if 0 <= value < 32 else ""
        raise UnitError(f"{value} has no unit; {also}{legal}")
    time = parse_time(value)
    if time in RNR_TIMER_NS:
        return RNR_TIMER_NS.index(time)
    near = sorted(RNR_TIMER_NS, key=lambda known: (abs(known - time), known))[:2]
    codes = [RNR_TIMER_NS.index(known) for known in sorted(near)]
    choices = " and ".join(map(format_rnr_timer, codes))
    raise UnitError(f"{shown(value)} is no RNR timer; nearest: {choices}; {legal}")


def format_time(time: Ns) -> str:
    """Return `time` exactly, in the largest unit that it has one of: 1500000 is 1.5ms."""
    return _decimal(time, TIMES)


def format_rate(rate: int) -> str:
    """Return `rate` in the largest unit that it has one of: 2500000000 is 2.5gbit."""
    return _decimal(rate, RATES)


def format_size(size: int) -> str:
    """Return `size` in the largest unit that shows it whole: 65536 is 64KiB, 1500 is 1500B."""
    unit = [unit for unit, factor in SIZES.items() if size % factor == 0][-1] if size else "B"
    return f"{size // SIZES[unit]}{unit}"


def format_percent(probability: float) -> str:
    """Return a probability as a percentage: 0.001 is 0.1%."""
    return f"{probability * 100:.9g}%"


def format_rnr_timer(code: int) -> str:
    """Return an RNR timer with its code beside it: 12 is "0.64ms (code 12)"."""
    return f"{_in_ms(RNR_TIMER_NS[code])} (code {code})"


def format_ack_timeout(code: int) -> str:
    """Return what a local ACK timeout code means: 4.096 us x 2^code; 0 is no timeout."""
    return "none" if code == 0 else f"{_in_ms(4096 << code)} (code {code})"


def _in_ms(time: Ns) -> str:
    return _decimal(time, {"ms": TIMES["ms"]})


def _decimal(value: int, units: Mapping[str, int]) -> str:
    """Return `value` in the largest unit that is not above it, with all its decimals."""
    fitting = [unit for unit, factor in units.items() if factor <= abs(value)]
    unit = fitting[-1] if fitting else next(iter(units))
    whole, part = divmod(abs(value), units[unit])
    decimals = f"{part:0{len(str(units[unit])) - 1}d}".rstrip("0") if part else ""
    sign = "-" if value < 0 else ""
    return f"{sign}{whole}.{decimals}{unit}" if decimals else f"{sign}{whole}{unit}"


def _parse(
    value: object, units: Mapping[str, int], what: str, example: str, maximum: int
) -> int:
    names = ", ".join(units)
    sign, whole, decimals, unit = _split(value, what, example, names)
    if unit not in units:
        raise UnitError(_unit_missing(value, unit, example, names))
    scale: int = 10 ** len(decimals)
    amount, rest = divmod(int(whole + decimals) * units[unit], scale)
    if rest:
        raise UnitError(f"{shown(value)} is not a whole number of {next(iter(units))}")
    if sign == "-" and amount:
        raise UnitError(f"{shown(value)} is negative; write for example {example}")
    if amount > maximum:
        largest = format_size(maximum) if units is SIZES else _decimal(maximum, units)
        raise UnitError(f"{shown(value)} is too large; at most {largest}")
    return amount


def _split(value: object, what: str, example: str, names: str) -> tuple[str, str, str, str]:
    """Return sign, digits, decimals and unit of a quantity, or say what one looks like."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match = _QUANTITY.fullmatch(str(value)) if number or isinstance(value, str) else None
    if match is None:
        example = f"write for example {example} ({names})"
        raise UnitError(f"{shown(value)} is not a {what}; {example}")
    sign, whole, decimals, unit = match.groups("")
    return sign, whole, decimals, unit


def _unit_missing(value: object, unit: str, example: str, names: str) -> str:
    """Say what is wrong with the unit, with this very number and a unit as the example."""
    own = re.match(r"[0-9]+(?:\.[0-9]+)?", str(value))
    likely = "B" if "KiB" in names else example.lstrip("0123456789.")
    fixed = f"{own[0]}{likely}" if own else example
    wrong = f"has the unknown unit {unit}" if unit else "has no unit"
    return f"{shown(value)} {wrong}; write {fixed} ({names})"
