"""The notation of cases: what it may say, and where it is wrong."""

import pytest

from netem.conform.endpoint import Wants
from netem.conform.notation import NotationError, Relative, duration, parse
from netem.conform.pattern import PATTERN, pattern
from netem.conform.sim import SimTarget
from netem.conform.suite import built_in, run

CASE = """
# a comment
case roce/R1.odd A title of words
also roce/W26
with access=write timeout=14
each size 4 8
> WRITE_ONLY psn=+0 size=$size data="two words" ask   # why
< ACK psn=+0 | NAK code=sequence
quiet 5ms
"""


def test_a_case_has_a_clause_a_title_wants_and_steps():
    four, eight = parse(CASE, "a file")
    assert (four.id, eight.id) == ("roce/R1.odd-4", "roce/R1.odd-8")
    assert four.clauses == ("roce/R1", "roce/W26")
    assert four.wants == {"access": "write", "timeout": 14}
    say, expect, quiet = four.steps
    assert say.words.fields == {"psn": Relative(0), "size": 4, "data": "two words", "ask": 1}
    assert [words.name for words in expect.choices] == ["ACK", "NAK"]
    assert quiet.words.fields == {"for": "5ms"}
    assert str(expect) == "< ACK psn=+0 | NAK code=sequence"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("> ACK", "is before the first `case`"),
        ("case roce/R1", "a case is `case CLAUSE"),
        ("case roce/R99 title", "roce/R99 is no clause"),
        ("case roce/R1 title\nsay ACK", "legal is with, also, each, slow, >"),
        ("case roce/R1 title\n> ACK Psn=1", "'Psn=1' is no field"),
        ("case roce/R1 title\n> ACK | NAK", "only what is expected may have choices"),
        ("case roce/R1 title\n<", "wants a name"),
        ("case roce/R1 title\neach size", "each wants a name and values"),
        ('case roce/R1 title\n> ACK data="open', "No closing quotation"),
    ],
)
def test_a_bad_line_is_named_with_what_is_legal(text, what):
    with pytest.raises(NotationError, match="f, line") as caught:
        list(parse(text, "f"))
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("> NOTHING_ONLY", "NOTHING_ONLY is no packet of RC"),
        ("> WRITE_ONLY sise=8", "has no field sise"),
        ("> WRITE_ONLY key=nice", "key=nice is unknown, legal is good, bad"),
        ("with colour=blue", "with colour is unknown, legal is service"),
    ],
)
def test_a_word_that_nobody_knows_is_named_when_it_is_said(line, what):
    [case] = parse(f"case roce/R1 title\n{line}", "f")
    with pytest.raises(NotationError, match="f, line") as caught:
        list(run([case], SimTarget()))
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("> ARP", "ARP is no frame, legal is IPV4, IPV6, PFC"),
        ("> IPV6 colour=blue", "no field colour"),
        ("> IPV6 in=e9", "e9 is no port, legal is e1"),
        ("> IPV6 size=60", "size leaves 6 bytes to a header of 8"),
        ("> PFC pause=3:65536", "PFC: int too big"),
    ],
)
def test_a_frame_that_no_switch_could_get_is_named_when_it_is_said(line, what):
    [case] = parse(f"case trim/T1 title\nwith service=SWITCH\n{line}", "f")
    with pytest.raises(NotationError, match="f, line") as caught:
        list(run([case], SimTarget()))
    assert what in str(caught.value)


def test_a_time_has_a_unit():
    assert duration("67ms") == 67_000_000
    with pytest.raises(ValueError, match="write for example 67ms"):
        duration(67)


def test_the_pattern_begins_anew_at_its_end():
    size = len(PATTERN)
    assert pattern(size - 2, 4) == PATTERN[-2:] + PATTERN[:2]


def test_every_built_in_case_wants_what_is_known_and_has_its_own_id():
    cases = list(built_in())
    assert len({case.id for case in cases}) == len(cases)
    for case in cases:
        Wants.of(case.wants)
