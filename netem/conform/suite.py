"""A run of cases against one target: which ones, each in a folder of its own, what came out.

CASE/capture.pcapng   every frame, either way
CASE/story.txt        what was wanted (|), what happened (> and <), the verdict
CASE/peer.log         the suite's end: who it was, and what it knew of the other
CASE/endpoint.log     what the endpoint's application was asked and told
"""

import fnmatch
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from netem.conform.clauses import Clause, Strength, clause
from netem.conform.diary import Diary
from netem.conform.endpoint import EndedError, StageError, Target, UnsupportedError, Wants
from netem.conform.notation import Case, NotationError, WordError, parse
from netem.conform.script import Played, Verdict, lasts, play
from transports.clock import S
from wire.pcapng import enhanced_packet, interface_block, section_header

_EPOCH = 1_700_000_000_000_000_000  # of captures in virtual time: no host fact enters them

_TRIES = 3  # of a case about which this host was too late to tell
_LONG_S = 5.0  # of real time: a case that waits longer is a slow one


class NoCaseError(Exception):
    """Nothing was chosen: what was asked for, and how to see what there is."""


@dataclass(frozen=True, slots=True)
class Result:
    """How one case ended. `broke` is the rule for all packets that was broken, if one was."""

    case: Case
    verdict: Verdict
    why: str = ""
    broke: str = ""
    folder: str = ""
    seconds: float = 0.0

    @property
    def clause(self) -> Clause:
        """The clause that the verdict counts for."""
        return clause(self.case.clauses[0])

    def counts(self, *, strict: bool) -> bool:
        """Say whether a failure makes the run a failed one."""
        if self.verdict is not Verdict.FAIL:
            return False
        strength = self.clause.strength
        return strength is Strength.MUST or (strict and strength is Strength.SHOULD)


def built_in() -> Iterator[Case]:
    """Yield the cases of the package, in the order of their files and lines."""
    folder = files("netem.conform").joinpath("cases")
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".case"):
            yield from parse(file.read_text("utf-8"), file.name)


def from_folder(folder: Path) -> Iterator[Case]:
    """Yield the cases of a user's folder. Raise NotationError, also where there are none."""
    found = sorted(folder.glob("**/*.case"))
    if not found:
        raise NotationError(str(folder), None, "no file here is called *.case")
    for file in found:
        yield from parse(file.read_text("utf-8"), str(file))


def choose(cases: Iterable[Case], patterns: Sequence[str]) -> list[Case]:
    """Return the cases that one of the patterns matches, by id or by a clause they prove.

    Raise NoCaseError where none does, NotationError where two have one id.
    """
    chosen: dict[str, Case] = {}
    for case in cases:
        names = (case.id, *case.clauses)
        if patterns and not any(fnmatch.fnmatchcase(n, p) for n in names for p in patterns):
            continue
        if case.id in chosen:
            raise NotationError(case.source, case.line, f"{case.id} is there twice")
        chosen[case.id] = case
    if not chosen:
        raise NoCaseError(
            f"no case matches {', '.join(patterns)}; fabriclab conform --list shows them,"
            " for example --filter 'roce/R*'"
        )
    return list(chosen.values())


def run(
    cases: Sequence[Case],
    target: Target,
    folder: Path | None = None,
    *,
    slow: bool = False,
    told: Callable[[Result], None] = lambda _: None,
) -> Iterator[Result]:
    """Play the cases one after the other; yield each result when it is there.

    A caller that stops asking, as on Ctrl-C, has what was done so far.
    """
    for number, case in enumerate(cases, 1):
        started = time.monotonic()
        where = None if folder is None else folder / case.id.replace("/", "-")
        if case.is_slow and not slow:
            result = Result(case, Verdict.UNTESTED, "slow; ask for it with --slow")
        else:
            diary, tries = Diary(), 1
            played = _played(case, target, number, diary, slow)
            while played.is_late and tries < _TRIES:
                diary, tries = Diary(), tries + 1
                played = _played(case, target, number, diary, slow)
            if where is not None:
                _leave(where, case, played, diary)
            result = Result(
                case,
                played.verdict,
                played.why,
                played.broke,
                "" if where is None else str(where),
                time.monotonic() - started,
            )
        told(result)
        yield result


def _played(case: Case, target: Target, number: int, diary: Diary, slow: bool) -> Played:
    try:
        wants = Wants.of(case.wants)
    except ValueError as error:
        raise NotationError(case.source, case.line, str(error)) from error
    played = Played(Verdict.UNTESTED)
    try:
        with target.session(case, wants, number) as session:
            diary.open(session)
            takes = lasts(case) * session.stretch / S if session.is_real else 0.0
            if takes > _LONG_S and not slow:
                played.why = f"takes {takes:.0f} s here; ask for it with --slow"
                return played
            play(case, session, played)
    except UnsupportedError as error:
        return Played(Verdict.UNSUPPORTED, str(error), story=[str(error)])
    except EndedError as error:
        played.verdict, played.why = Verdict.FAIL, str(error)
        played.story += [str(error), *error.last_words]
    except StageError as error:
        return Played(Verdict.INCONCLUSIVE, str(error), story=[str(error)])
    except WordError as error:
        raise NotationError(case.source, case.line, str(error)) from error
    return played


def _leave(where: Path, case: Case, played: Played, diary: Diary) -> None:
    where.mkdir(parents=True, exist_ok=True)
    blocks = [section_header(), interface_block("peer"), interface_block("endpoint")]
    begin = played.seen[0].at if played.seen else 0
    blocks += [
        enhanced_packet(0 if s.is_ours else 1, _EPOCH + s.at - begin, s.frame, outbound=True)
        for s in played.seen
    ]
    (where / "capture.pcapng").write_bytes(b"".join(blocks))
    head = [f"{case.id}  {case.title}", *(_about(name) for name in case.clauses), ""]
    tail = ["", f"{played.verdict}{f': {played.why}' if played.why else ''}"]
    (where / "story.txt").write_text("\n".join([*head, *played.story, *tail, ""]))
    (where / "peer.log").write_text(diary.peer())
    (where / "endpoint.log").write_text(diary.endpoint())


def _about(name: str) -> str:
    about = clause(name)
    return f"{name} ({about.strength}, {about.section}): {about.text}"
