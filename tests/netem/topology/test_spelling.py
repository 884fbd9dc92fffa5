"""What somebody may have meant."""

import pytest

from netem.topology.spelling import close, distance, suggestion


@pytest.mark.parametrize(
    ("a", "b", "slips"),
    [
        ("delay", "delay", 0),
        ("dealy", "delay", 1),
        ("dely", "delay", 1),
        ("delayy", "delay", 1),
        ("delai", "delay", 1),
        ("", "rate", 4),
        ("loss", "rate", 4),
    ],
)
def test_a_slip_is_one_letter_or_two_swapped(a, b, slips):
    assert distance(a, b) == slips == distance(b, a)


def test_the_closest_word_comes_first_and_strangers_do_not_come_at_all():
    assert close("rnr-timer", ["rnr_retry", "rnr_timer", "timeout"]) == ["rnr_timer"]
    assert close("x" * 1000, ["x"]) == []


def test_a_suggestion_ends_a_refusal():
    assert suggestion("dealy", ["delay", "rate"]) == "; did you mean delay; legal: delay, rate"
    assert suggestion("zzzzzz", ["delay"]) == "; legal: delay"
    assert suggestion("x", [str(i) for i in range(50)]).endswith(", 39, ...")
