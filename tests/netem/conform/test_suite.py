"""What a run of cases leaves and comes to: verdicts, folders, reports, exit codes."""

from contextlib import contextmanager
from xml.etree import ElementTree as ET

import pytest

from netem.conform import report
from netem.conform.endpoint import StageError, UnsupportedError
from netem.conform.notation import NotationError, parse
from netem.conform.script import Verdict
from netem.conform.sim import SimTarget
from netem.conform.suite import NoCaseError, Result, choose, from_folder, run
from transports.clock import MS, S
from wire.pcapng import read_packets

GOOD = (
    "case roce/R1.good A WRITE is acknowledged\n> WRITE_ONLY ask size=8\n< ACK psn=+0 msn=1\n"
)
BAD = "case roce/R1.bad A WRITE is not\n> WRITE_ONLY ask size=8\n< NAK psn=+0 code=access\n"
SHOULD = "case roce/N1.bad A mark is never told\nwith dcqcn=1\n> WRITE_ONLY tos=3\nquiet\n"


def results_of(*texts, **settings):
    cases = [case for text in texts for case in parse(text, "test")]
    return list(run(cases, SimTarget(), **settings))


def verdicts(results):
    return [result.verdict for result in results]


def test_a_case_leaves_its_capture_its_story_and_both_logs(tmp_path):
    [result] = results_of(GOOD, folder=tmp_path)
    where = tmp_path / "roce-R1.good"
    assert result.folder == str(where)
    sent, answered = read_packets((where / "capture.pcapng").read_bytes())
    assert (sent.interface.name, answered.interface.name) == ("peer", "endpoint")
    story = (where / "story.txt").read_text()
    assert "| > WRITE_ONLY ask=1 size=8" in story
    assert "< ACK psn=+0" in story
    assert story.endswith("pass\n")
    assert "R_Key" in (where / "peer.log").read_text()
    assert (where / "endpoint.log").exists()


def test_a_failed_case_says_what_came_and_what_was_wanted():
    [result] = results_of(BAD)
    assert result.verdict is Verdict.FAIL
    assert result.why == "came ACK, wanted NAK (line 3: < NAK psn=+0 code=access)"


def test_what_comes_after_the_last_line_fails_a_case():
    [result] = results_of("case roce/R1.more title\n> WRITE_ONLY ask size=8\n")
    assert result.why.startswith("came ACK psn=+0")


def test_what_does_not_come_fails_a_case():
    [result] = results_of("case roce/R1.none title\n> WRITE_ONLY size=8\n< ACK\n")
    assert result.why.startswith("nothing came")


def test_a_time_that_is_not_kept_fails_a_case():
    text = (
        "case roce/Q10.slow title\nwith timeout=14\n! write length=8\n"
        "< WRITE_ONLY\n< WRITE_ONLY before=60ms\n"
    )
    [result] = results_of(text)
    assert result.why.startswith("came after 67.109 ms, wanted by 60 ms")


class Broken:
    name = "broken"

    def __init__(self, error):
        self._error = error

    def session(self, case, wants, number):
        raise self._error


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (UnsupportedError("no SENDs here"), Verdict.UNSUPPORTED),
        (StageError("joining by CM", "no REP in 5 s", b"\1\2"), Verdict.INCONCLUSIVE),
    ],
)
def test_a_target_that_cannot_or_does_not_answer_is_no_failure(error, verdict, tmp_path):
    [result] = run([*parse(GOOD, "test")], Broken(error), tmp_path)
    assert result.verdict is verdict
    assert result.why == str(error)
    assert (tmp_path / "roce-R1.good" / "story.txt").exists()
    assert report.exit_code([result], strict=True, interrupted=False) == 4


def test_a_stage_says_which_bytes_were_seen():
    assert str(StageError("joining", "no REP", b"\1\2")) == "joining: no REP; bytes seen: 01 02"


def test_slow_cases_wait_to_be_asked_for():
    text = GOOD.replace("\n", "\nslow\n", 1)
    assert verdicts(results_of(text)) == [Verdict.UNTESTED]
    assert verdicts(results_of(text, slow=True)) == [Verdict.PASS]


class Late:
    """The simulator on a host that was late by a second, and where all takes twice as long."""

    name = "late"

    def __init__(self, hurry, late=S):
        self.hurry, self.late, self.played = hurry, late, 0

    @contextmanager
    def session(self, case, wants, number):
        self.played += 1
        with SimTarget().session(case, wants, number) as session:
            session.hurry, session.stretch = self.hurry, 2.0
            session.wire.lateness = lambda: self.late
            session.is_real = True
            yield session


@pytest.mark.parametrize(
    ("text", "hurry", "verdict", "times"),
    [
        (BAD, MS, Verdict.INCONCLUSIVE, 3),
        (BAD, 2 * S, Verdict.FAIL, 1),
        (BAD, None, Verdict.FAIL, 1),
        (GOOD, MS, Verdict.PASS, 1),
    ],
)
def test_a_failure_on_a_host_that_was_too_late_says_nothing_and_is_tried_again(
    text, hurry, verdict, times
):
    target = Late(hurry)
    [result] = run(list(parse(text, "test")), target)
    assert (result.verdict, target.played) == (verdict, times)
    assert ("this host was late" in result.why) == (verdict is Verdict.INCONCLUSIVE)


def test_what_takes_longer_here_is_waited_for_as_long():
    text = "case roce/R1.x title\n! write\n< WRITE_ONLY\n< WRITE_ONLY after=2s before=2001ms\n"
    quiet = "case roce/R1.y title\nquiet 2s\n"
    [timed] = run(list(parse(text, "test")), Late(None, late=0))
    assert "came after" in timed.why
    assert "wanted 4000 ms" in timed.why
    [result] = run(list(parse(quiet, "test")), Late(None))
    assert result.verdict is Verdict.PASS


class Sleepy:
    """The simulator on a host that wakes up 2 ms after it wanted to."""

    name = "sleepy"

    @contextmanager
    def session(self, case, wants, number):
        with SimTarget().session(case, wants, number) as session:
            receive = session.wire.receive
            session.wire.receive = lambda until: receive(until + 2 * MS)
            yield session


def test_what_was_said_late_after_a_silence_moves_no_bound():
    """The timer of 67 ms runs from the first packet on; what is counted from was 2 ms late."""
    text = (
        "case roce/R1.x title\nwith timeout=14\n! write\n< WRITE_ONLY\nquiet 10ms\n"
        "> WRITE_ONLY psn=+0 size=8\n< WRITE_ONLY after={}ms\n"
    )
    [result] = run(list(parse(text.format(57), "test")), Sleepy())
    assert result.verdict is Verdict.PASS, result.why
    [result] = run(list(parse(text.format(59), "test")), Sleepy())
    assert "came after 55" in result.why
    [result] = run(list(parse(text.format(57), "test")), SimTarget())
    assert result.verdict is Verdict.PASS, result.why


def test_what_would_wait_for_long_here_is_slow():
    [case] = parse("case roce/R1.x title\nquiet 5100ms\n", "test")
    [result] = run([case], Late(None))
    assert (result.verdict, result.why) == (
        Verdict.UNTESTED, "takes 10 s here; ask for it with --slow"
    )  # fmt: skip
    [result] = run([case], Late(None), slow=True)
    assert result.verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("texts", "strict", "interrupted", "code"),
    [
        ([GOOD], False, False, 0),
        ([GOOD, BAD], False, False, 1),
        ([GOOD, SHOULD], False, False, 0),
        ([GOOD, SHOULD], True, False, 1),
        ([GOOD], False, True, 4),
        ([BAD], False, True, 1),
    ],
)
def test_the_exit_code_follows_the_strength_of_what_fails(texts, strict, interrupted, code):
    results = results_of(*texts)
    assert report.exit_code(results, strict=strict, interrupted=interrupted) == code


def test_junit_counts_what_fails_and_what_was_not_done():
    results = results_of(GOOD, BAD)
    results.append(Result(results[0].case, Verdict.UNSUPPORTED, "why\x1b not"))
    suite = ET.fromstring(report.junit(results, "sim"))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert suite[1][0].tag == "failure"
    assert "wanted NAK" in suite[1][0].get("message")


def test_the_table_has_a_row_per_clause_and_a_column_per_target():
    good, both = results_of(GOOD), results_of(GOOD, BAD)
    table = report.markdown(
        [
            report.as_json(good, "sim", interrupted=False),
            report.as_json(both, "other", interrupted=False),
        ]
    )
    assert "| clause | demands | sim | other | what |" in table
    assert "| roce/R1 | MUST | pass | **fail** |" in table
    assert "What fails with other:" in table
    assert "What fails with sim:" not in table


def test_a_known_deviation_is_told_with_the_failure():
    [failed] = results_of(BAD.replace("roce/R1.bad", "roce/R29"))
    [case] = report.as_json([failed], "rxe", interrupted=False)["cases"]
    assert case["verdict"] == "fail"
    assert case["known"].startswith("after a partial replay")
    assert not report.as_json([failed], "sim", interrupted=False)["cases"][0]["known"]


def test_cases_are_chosen_by_id_or_by_clause():
    cases = [*parse(GOOD + BAD + SHOULD, "test")]
    assert [case.id for case in choose(cases, ["roce/R*"])] == ["roce/R1.good", "roce/R1.bad"]
    assert [case.id for case in choose(cases, ["roce/N1"])] == ["roce/N1.bad"]
    with pytest.raises(NoCaseError, match="no case matches roce/Z"):
        choose(cases, ["roce/Z*"])


def test_a_folder_of_a_user_has_its_cases(tmp_path):
    with pytest.raises(NotationError, match="no file here is called"):
        list(from_folder(tmp_path))
    (tmp_path / "mine.case").write_text(GOOD + BAD)
    assert [case.id for case in from_folder(tmp_path)] == ["roce/R1.good", "roce/R1.bad"]
    with pytest.raises(NotationError, match=r"roce/R1.good is there twice"):
        choose([*from_folder(tmp_path), *from_folder(tmp_path)], ())
