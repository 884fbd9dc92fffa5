"""Shapes of jitter, against the standard library and closed formulas."""

from bisect import bisect_left
from itertools import pairwise
from math import sqrt
from statistics import NormalDist, fmean, pstdev

import pytest

from netem.impair.distribution import Jitter, table
from netem.impair.streams import Stream, stream
from tests.netem.impair.script import Script

N = 20_000
UNIT = 8192
JITTER = 1_000_000


def offsets(distribution, seed=1, correlation=0.0, count=N):
    jitter = Jitter(JITTER, distribution, stream(seed, "a->b", "delay", correlation))
    return [jitter.offset(n) for n in range(count)]


def kolmogorov_smirnov(sample, cumulative):
    """Return the largest distance between a sample and a distribution, times sqrt(n)."""
    ordered, count = sorted(sample), len(sample)
    gaps = (
        max((i + 1) / count - cumulative(x), cumulative(x) - i / count)
        for i, x in enumerate(ordered)
    )
    return max(gaps) * sqrt(count)


def from_table(name):
    """Return the cumulative distribution that a table stands for."""
    values = [x * JITTER / UNIT for x in table(name)]
    return lambda x: bisect_left(values, x + 0.5) / len(values)


def uniform(x):
    return (x + JITTER) / (2 * JITTER)


def normal(x):
    return NormalDist(0, JITTER).cdf(x)


def pareto(x):
    """Return the share below x of a Pareto of shape 3, moved to mean 0 and scaled by 4/3."""
    place = x / JITTER * 3 / 4 + 1.5
    return 0.0 if place < 1 else 1 - place**-3


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("name", "cumulative", "allowed"),
    [
        pytest.param("uniform", uniform, 1.95, id="uniform"),
        pytest.param("normal", normal, 1.95, id="normal"),
        pytest.param("paretonormal", from_table("paretonormal"), 2.1, id="paretonormal"),
    ],
)
def test_jitter_has_the_shape_asked_for(name, cumulative, allowed, seed):
    """Kolmogorov-Smirnov: 1.95 is passed once in a thousand seeds."""
    assert kolmogorov_smirnov(offsets(name, seed), cumulative) < allowed


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pareto_jitter_has_its_shape_up_to_where_it_is_cut(seed):
    """A 16-bit entry of netem's tables holds 4 jitters; beyond lies 1 part in 92."""
    sample = [x for x in offsets("pareto", seed) if x < 4 * JITTER]
    inside = pareto(4 * JITTER)
    assert kolmogorov_smirnov(sample, lambda x: pareto(x) / inside) < 1.95
    assert len(sample) / N == pytest.approx(inside, abs=4 * sqrt(inside * (1 - inside) / N))


def test_the_normal_table_is_the_inverse_of_the_normal_distribution():
    exact = [NormalDist().inv_cdf((i + 0.5) / 4096) * UNIT for i in range(4096)]
    assert all(abs(x - y) <= 0.51 for x, y in zip(table("normal"), exact, strict=True))


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        pytest.param("normal", -32768, 28858, id="normal"),
        pytest.param("pareto", -5461, 32767, id="pareto"),
        pytest.param("paretonormal", -12305, 31789, id="paretonormal"),
    ],
)
def test_the_tables_span_what_those_of_iproute2_span(name, least, most):
    """Within a tenth: theirs end in single samples of the tails, ours at midpoints."""
    found = table(name)
    assert len(found) == 4096
    assert list(found) == sorted(found)
    assert found[0] == pytest.approx(least, rel=0.1)
    assert found[-1] == pytest.approx(most, rel=0.1)


@pytest.mark.parametrize("name", ["uniform", "normal"])
def test_symmetric_jitter_is_zero_in_the_mean(name):
    sample = offsets(name)
    assert abs(fmean(sample)) < 4 * pstdev(sample) / sqrt(N)


@pytest.mark.parametrize(("draw", "offset"), [(0, -JITTER), (1 << 31, 0), (2**32 - 1, JITTER)])
def test_uniform_jitter_reaches_from_minus_to_plus_and_no_further(draw, offset):
    found = Jitter(JITTER, "uniform", Script(draw)).offset(0)
    assert found == pytest.approx(offset, abs=1)
    assert -JITTER <= found < JITTER


def neighbours(sample):
    """Return the correlation of each value with the one before it."""
    mean = fmean(sample)
    pairs = pairwise(sample)
    return sum((x - mean) * (y - mean) for x, y in pairs) / sum((x - mean) ** 2 for x in sample)


@pytest.mark.parametrize("name", ["uniform", "normal", "pareto", "paretonormal"])
def test_correlated_jitter_follows_the_delay_before_it(name):
    """Ours: netem's modulo loses the correlation of anything but very wide jitter."""
    assert neighbours(offsets(name, correlation=0.5)) > 0.4
    assert abs(neighbours(offsets(name))) < 4 / sqrt(N)


def test_tables_are_made_once():
    assert table("normal") is table("normal")


def test_jitter_does_not_depend_on_the_order_of_asking():
    one = Jitter(JITTER, "normal", Stream(3, "a->b", "delay"))
    there = [one.offset(n) for n in range(40)]
    assert [one.offset(n) for n in reversed(range(40))] == there[::-1]
