"""Random numbers by place, netem's fractions and netem's correlation."""

from collections import Counter

import pytest

from netem.impair.streams import Chance, Stream, fraction, stream, threshold
from tests.netem.impair.script import Script

N = 20_000

# Probability, and the 32-bit fraction that tc 6.1 put into its netlink message for it.
TC_FRACTIONS = [
    pytest.param(0.001, 0x00418937, id="corrupt 0.1%"),
    pytest.param(0.005, 0x0147AE14, id="loss state p14 0.5%"),
    pytest.param(0.01, 0x028F5C29, id="loss 1%"),
    pytest.param(0.1, 0x1999999A, id="loss gemodel r 10%"),
    pytest.param(0.2, 0x33333333, id="loss state p23 20%"),
    pytest.param(0.25, 0x40000000, id="correlation 25%"),
    pytest.param(
        0.7, 0xFFFFFFFF - 0x4CCCCCCD, id="loss gemodel 1-h 70%, sent as its complement"
    ),
    pytest.param(0.5, 0x80000000, id="reorder correlation 50%"),
    pytest.param(0.99, 0xFD70A3D6, id="loss state 1%: p31"),
    pytest.param(1.0, 0xFFFFFFFF, id="loss state 1%: p23"),
]


@pytest.mark.parametrize(("p", "written"), TC_FRACTIONS)
def test_a_fraction_is_what_tc_writes(p, written):
    assert fraction(p) == written


@pytest.mark.parametrize("p", [-0.01, 1.001, float("nan")])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(ValueError, match="probability"):
        fraction(p)


def test_none_and_all_are_ordinary_probabilities():
    """I13: not one draw of 2^32 happens at 0, not one is spared at 100 %."""
    assert threshold(0.0) == 0
    assert threshold(1.0) == 1 << 32
    assert not Chance(Script(0), 0.0).hits(0)
    assert Chance(Script(0xFFFFFFFF), 1.0).hits(0)


def test_a_word_depends_on_its_number_and_on_nothing_else():
    forward, backward = Stream(7, "a->b", "loss"), Stream(7, "a->b", "loss")
    there = [forward.word(n) for n in range(100)]
    back = [backward.word(n) for n in reversed(range(100))]
    assert there == back[::-1]


@pytest.mark.parametrize(
    "other", [Stream(8, "a->b", "loss"), Stream(7, "b->a", "loss"), Stream(7, "a->b", "delay")]
)
def test_seed_direction_and_cause_each_make_another_stream(other):
    one = Stream(7, "a->b", "loss")
    assert [one.word(n) for n in range(4)] != [other.word(n) for n in range(4)]


def test_words_are_the_same_on_every_host():
    """Written down once: a capture made elsewhere from the same seed must stay the same."""
    one = Stream(7, "h0:p0->h1:p0", "loss")
    assert [one.word(n) for n in (0, 1, 16, 1_000_000)] == [
        0xDE658946,
        0xF7BCB73C,
        0xC58346F8,
        0x81E57ED8,
    ]


def test_words_are_even():
    """Chi-square over 16 cells; 37.7 is passed once in a thousand seeds."""
    one = Stream(1, "a->b", "loss")
    cells = Counter(one.word(n) >> 28 for n in range(N))
    expected = N / 16
    assert sum((cells[cell] - expected) ** 2 / expected for cell in range(16)) < 37.7


def test_correlation_mixes_a_draw_with_the_value_before_it():
    """c = (r x (2^32 - (rho + 1)) + last x (rho + 1)) >> 32, as sch_netem has it."""
    plain, leaning = Stream(7, "a->b", "loss"), stream(7, "a->b", "loss", 0.25)
    rho = fraction(0.25)
    values = [leaning.word(n) for n in range(50)]
    for n in range(1, 50):
        fresh, last = plain.word(n), values[n - 1]
        assert values[n] == (fresh * (2**32 - (rho + 1)) + last * (rho + 1)) >> 32


def test_full_correlation_repeats_one_value_for_ever():
    leaning = stream(7, "a->b", "loss", 1.0)
    assert len({leaning.word(n) for n in range(100)}) == 1


def test_no_correlation_is_a_plain_stream():
    plain, leaning = Stream(7, "a->b", "loss"), stream(7, "a->b", "loss", 0.0)
    assert [plain.word(n) for n in range(9)] == [leaning.word(n) for n in range(9)]
