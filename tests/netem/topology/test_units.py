"""Units: nothing without one, nothing rounded, and the RNR timer by its time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.topology import units
from wire.roce.eths import RNR_TIMER_NS


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.parse_time, "1ns", 1),
        (units.parse_time, "1us", 1_000),
        (units.parse_time, "0.5ms", 500_000),
        (units.parse_time, "2.25 s", 2_250_000_000),
        (units.parse_time, "0ms", 0),
        (units.parse_rate, "1bit", 1),
        (units.parse_rate, "2.5gbit", 2_500_000_000),
        (units.parse_rate, "400gbit", 400_000_000_000),
        (units.parse_rate, "1tbit", 10**12),
        (units.parse_size, "0B", 0),
        (units.parse_size, "64KiB", 65_536),
        (units.parse_size, "1.5MiB", 1_572_864),
        (units.parse_offset, "-1B", -1),
        (units.parse_offset, "4KiB", 4096),
        (units.parse_percent, "0%", 0.0),
        (units.parse_percent, "0.1%", 0.001),
        (units.parse_percent, "100%", 1.0),
        (units.parse_percent, "100.000%", 1.0),
        (units.parse_rnr_timer, "0.64ms", 12),
        (units.parse_rnr_timer, "10us", 1),
        (units.parse_rnr_timer, "655.36ms", 0),
    ],
)
def test_a_quantity_with_its_unit_is_exact(parse, text, value):
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "value", "message"),
    [
        (units.parse_time, 5, "5 has no unit; write 5ms (ns, us, ms, s)"),
        (units.parse_time, 0, "0 has no unit; write 0ms (ns, us, ms, s)"),
        (units.parse_time, 2.5, "2.5 has no unit; write 2.5ms (ns, us, ms, s)"),
        (units.parse_time, "5m", "5m has the unknown unit m; write 5ms (ns, us, ms, s)"),
        (units.parse_time, "0.5ns", "0.5ns is not a whole number of ns"),
        (units.parse_time, "-1ms", "-1ms is negative; write for example 5ms"),
        (units.parse_time, "20000000s", "20000000s is too large; at most 1000000s"),
        (units.parse_time, "fast", "fast is not a time; write for example 5ms (ns, us, ms, s)"),
        (
            units.parse_time,
            None,
            "nothing is not a time; write for example 5ms (ns, us, ms, s)",
        ),
        (units.parse_time, True, "true is not a time; write for example 5ms (ns, us, ms, s)"),
        (units.parse_time, [], "a list is not a time; write for example 5ms (ns, us, ms, s)"),
        (
            units.parse_rate,
            "10gbps",
            "10gbps has the unknown unit gbps; write 10gbit (bit, kbit, mbit, gbit, tbit)",
        ),
        (units.parse_rate, "0bit", "0bit lets nothing pass; for that write loss: 100%"),
        (units.parse_size, 4096, "4096 has no unit; write 4096B (B, KiB, MiB, GiB)"),
        (
            units.parse_size,
            "64KB",
            "64KB has the unknown unit KB; write 64B (B, KiB, MiB, GiB)",
        ),
        (units.parse_percent, 1, "1 has no unit; write 1% (0% to 100%)"),
        (units.parse_percent, 0.01, "0.01 has no unit; write 0.01% (0% to 100%)"),
    ],
)
def test_what_is_no_quantity_is_refused_with_an_example(parse, value, message):
    with pytest.raises(units.UnitError) as refusal:
        parse(value)
    assert str(refusal.value) == message


@pytest.mark.parametrize("text", ["100.1%", "-1%", "100.0000000001%"])
def test_i13_a_percentage_outside_0_to_100_is_refused(text):
    """Field report I13: 0 and 100 are ordinary values, what lies outside is refused."""
    with pytest.raises(units.UnitError) as refusal:
        units.parse_percent(text)
    assert str(refusal.value) == f"{text} is out of range; legal: 0% to 100%"


def test_r12_an_rnr_timer_is_shown_with_its_code_and_refused_with_the_legal_range():
    """Field report R12: 0.64ms is accepted and printed with its code, 33 is refused."""
    assert units.format_rnr_timer(units.parse_rnr_timer("0.64ms")) == "0.64ms (code 12)"
    with pytest.raises(units.UnitError) as refusal:
        units.parse_rnr_timer(33)
    assert str(refusal.value) == (
        "33 has no unit; legal: 0.01ms (code 1) to 491.52ms (31), and 655.36ms (0, the longest)"
    )
    with pytest.raises(units.UnitError, match=r"^12 has no unit; code 12 is 0\.64ms; legal: "):
        units.parse_rnr_timer(12)


def test_an_rnr_timer_between_two_codes_is_not_rounded():
    with pytest.raises(units.UnitError) as refusal:
        units.parse_rnr_timer("0.5ms")
    assert str(refusal.value).startswith(
        "0.5ms is no RNR timer; nearest: 0.48ms (code 11) and 0.64ms (code 12); legal: "
    )


@pytest.mark.parametrize("code", range(32))
def test_every_rnr_timer_is_read_back(code):
    text = units.format_rnr_timer(code).partition(" ")[0]
    assert units.parse_rnr_timer(text) == code


def test_the_longest_rnr_timer_has_code_0():
    assert max(RNR_TIMER_NS) == RNR_TIMER_NS[0] == 655_360_000


@pytest.mark.parametrize(
    ("code", "text"), [(0, "none"), (8, "1.048576ms (code 8)"), (14, "67.108864ms (code 14)")]
)
def test_an_ack_timeout_is_shown_with_its_code(code, text):
    assert units.format_ack_timeout(code) == text


@pytest.mark.parametrize(
    ("format_", "value", "text"),
    [
        (units.format_time, 0, "0ns"),
        (units.format_time, 1_500_000, "1.5ms"),
        (units.format_time, 1_000_000_001, "1.000000001s"),
        (units.format_rate, 2_500_000_000, "2.5gbit"),
        (units.format_size, 1500, "1500B"),
        (units.format_size, 65_536, "64KiB"),
        (units.format_percent, 0.001, "0.1%"),
    ],
)
def test_a_quantity_is_shown_in_its_largest_unit(format_, value, text):
    assert format_(value) == text


@given(st.integers(0, units.MAX_TIME))
def test_times_are_read_back(time):
    assert units.parse_time(units.format_time(time)) == time


@given(st.integers(1, units.MAX_RATE))
def test_rates_are_read_back(rate):
    assert units.parse_rate(units.format_rate(rate)) == rate


@given(st.integers(0, units.MAX_SIZE))
def test_sizes_are_read_back(size):
    assert units.parse_size(units.format_size(size)) == size


@given(st.text() | st.integers() | st.floats() | st.booleans() | st.none())
def test_anything_at_all_is_a_quantity_or_refused_on_one_line(value):
    said = []
    for parse in (
        units.parse_time,
        units.parse_rate,
        units.parse_size,
        units.parse_offset,
        units.parse_percent,
        units.parse_rnr_timer,
    ):
        try:
            parse(value)
        except units.UnitError as refusal:
            said.append(str(refusal))
    assert all(line.isprintable() for line in said)
