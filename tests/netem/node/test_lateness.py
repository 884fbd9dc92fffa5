"""The lateness meter: bounded, and right to an eighth."""

from statistics import median_low

from hypothesis import given
from hypothesis import strategies as st

from netem.node.lateness import LatenessMeter
from netem.topology.outcome import Lateness


def test_nothing_measured_is_not_zero():
    assert LatenessMeter().report() == Lateness(None, None)


@given(st.lists(st.integers(0, 10**11), min_size=1, max_size=60))
def test_the_worst_is_exact_and_the_median_within_an_eighth(values):
    meter = LatenessMeter()
    for value in values:
        meter.record(value)
    report = meter.report()
    assert report.worst == max(values)
    assert median_low(values) <= report.median <= median_low(values) * 9 / 8


def test_early_counts_as_on_time_and_a_year_as_a_year():
    meter = LatenessMeter()
    meter.record(-5)
    assert meter.report() == Lateness(0, 0)
    meter.record(31_536_000 * 10**9)
    assert meter.report().worst == 31_536_000 * 10**9
