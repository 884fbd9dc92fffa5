"""Plays one case: says its lines, listens, and comes to a verdict from what was on the wire."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from netem.conform.endpoint import (
    RefusedError,
    Session,
    StageError,
    UnsupportedError,
)
from netem.conform.notation import Case, Step, Value, WordError, Words, duration
from netem.conform.pattern import pattern
from netem.conform.vocabulary import AnyHeard, differs, hear, rules_broken, say, show
from transports.clock import Ns
from wire.codec import DecodeError

_MOST_FRAMES = 4096  # of one step: an endpoint that never falls silent


class Verdict(StrEnum):
    """How a case ended."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    UNSUPPORTED = "unsupported"  # the endpoint cannot be brought to it
    INCONCLUSIVE = "inconclusive"  # not joined, or too late to tell
    UNTESTED = "untested"


@dataclass(frozen=True, slots=True)
class Seen:
    """One frame of a case's capture."""

    at: int
    is_ours: bool
    frame: bytes


@dataclass(slots=True)
class Played:
    """A verdict, why, and everything that led to it."""

    verdict: Verdict
    why: str = ""
    broke: str = ""  # the clause of a rule for all packets, where one was broken
    is_late: bool = False  # inconclusive for what this host did; may be played again
    seen: list[Seen] = field(default_factory=list)
    story: list[str] = field(default_factory=list)


class _FailedError(Exception):
    def __init__(self, why: str, broke: str = "") -> None:
        super().__init__(why)
        self.broke = broke


class _TooLateError(Exception):
    """The host was too slow to tell."""


def play(case: Case, session: Session, played: Played) -> None:
    """Play a case in a session of its own; it ends with a time of silence.

    What happens is told in `played`, up to where an exception of the endpoint may end it.
    """
    player = _Player(session, played)
    steps = [*case.steps]
    if not steps or steps[-1].kind not in {"quiet", "="}:
        steps.append(Step("quiet", (Words("", {}),), case.line))
    step = steps[0]
    try:
        for step in steps:
            player.note(f"{'':>14} | {step}")
            player.step(step)
        played.verdict = Verdict.PASS
    except _FailedError as error:
        played.verdict, played.broke = Verdict.FAIL, error.broke
        played.why = f"{error} (line {step.line}: {step})"
        late, hurry = player.late(), session.hurry
        if hurry is not None and late > hurry:
            played.verdict, played.is_late = Verdict.INCONCLUSIVE, True
            played.why += f", but this host was late by {late / 1e6:.3f} ms"
    except UnsupportedError as error:
        played.verdict, played.why = Verdict.UNSUPPORTED, str(error)
    except (StageError, _TooLateError) as error:
        played.verdict, played.why = Verdict.INCONCLUSIVE, str(error)
        played.is_late = isinstance(error, _TooLateError)
    except WordError as error:
        raise WordError(f"{case.source}, line {step.line}: {error}") from error
    if played.why:
        player.note(f"{'':>14} ! {played.why}")


def lasts(case: Case) -> Ns:
    """Return how long a case waits, at most, by what it says itself."""
    return sum(
        max(
            duration(words.fields[name])
            for words in step.choices
            for name in ("for", "after", "before")
            if name in words.fields
        )
        for step in case.steps
        if any({"for", "after", "before"} & words.fields.keys() for words in step.choices)
    )


class _Player:
    def __init__(self, session: Session, played: Played) -> None:
        self.played = played
        self._session = session
        self._waiting: deque[AnyHeard] = deque()  # heard, and for a later step
        self._since = session.wire.now()  # of the last packet, either way
        self._burst: int | None = None  # when the first was said of what is said at once
        self._apart = 0  # the longest that it took to say what is said at once
        self._overslept = 0  # the longest that a time of silence was longer than it was to be
        self._told: list[Mapping[str, Value]] = []
        self._begin = self._since

    def note(self, line: str) -> None:
        self.played.story.append(line)

    def late(self) -> int:
        """Return by how much a time told here may be late."""
        return self._session.wire.lateness() + self._apart + self._overslept

    def step(self, step: Step) -> None:
        if step.kind != ">":
            self._burst = None
        match step.kind:
            case ">":
                self._say(step)
            case "<" | "<?" | "<*":
                self._expect(step)
            case "quiet":
                self._quiet(step.words)
            case "!":
                self._act(step.words)
            case "=":
                self._judge_told(step.words)

    # -- the wire --------------------------------------------------------------------------

    def _say(self, step: Step) -> None:
        wire = self._session.wire
        frame = self._session.joined.said = say(step.words, self._session.joined)
        self._since = wire.now()
        self._burst = self._since if self._burst is None else self._burst
        self._apart = max(self._apart, self._since - self._burst)
        self._keep(self._since, frame, is_ours=True)
        self.note(f"{self._clock(self._since)} > {step.words}")
        wire.send(frame)

    def _listen(self, until: int) -> AnyHeard | None:
        """Return the next packet of the endpoint for our queue pair, which must be whole."""
        return self._waiting.popleft() if self._waiting else self._receive(until)

    def _receive(self, until: int) -> AnyHeard | None:
        joined = self._session.joined
        for _ in range(_MOST_FRAMES):
            found = self._session.wire.receive(until)
            if found is None:
                return None
            at, frame = found
            self._keep(at, frame, is_ours=False)
            heard: AnyHeard | None
            try:
                heard = hear(at, frame, joined)
            except DecodeError as error:
                raise _FailedError(f"a packet that cannot be read: {error}") from error
            if heard is None:
                continue
            self.note(f"{self._clock(at)} < {show(heard, joined)}")
            for clause, what in rules_broken(heard, frame):
                raise _FailedError(f"{clause}: {what}", clause)
            return heard
        raise _FailedError(f"{_MOST_FRAMES} frames and no end")

    def _expect(self, step: Step) -> None:
        limit = self._limit(step)
        passed_over = 0
        while True:
            before = self._since
            heard = self._listen(limit)
            if heard is None:
                if step.kind == "<?":
                    return
                raise _FailedError("nothing came")
            joined = self._session.joined
            whys = [differs(words, heard, joined) for words in step.choices]
            joined.port = int(heard.fields.get("port", 0))
            joined.last = heard.fields
            if None in whys:
                self._since = max(self._since, heard.at)
                self._judge_choice(step.choices[whys.index(None)], heard.at - before)
                return
            if step.kind == "<?":
                self._waiting.appendleft(heard)
                return
            passed_over += 1
            if step.kind == "<" or passed_over > _MOST_FRAMES:
                raise _FailedError(f"came {whys[0]}")
            self._since = max(self._since, heard.at)

    def _limit(self, step: Step) -> int:
        wire = self._session.wire
        times = [words.fields["before"] for words in step.choices if "before" in words.fields]
        latest = max(map(self._span, times), default=0)
        if step.kind == "<?":
            return max(wire.now() + wire.quiet, self._since + latest)
        return max(wire.now(), self._since + 2 * latest) + wire.patience

    def _judge_choice(self, words: Words, took: int) -> None:
        if "unclear" in words.fields:
            if self._session.is_real:
                raise _TooLateError("the endpoint was done before the peer could ask for more")
            raise _FailedError(f"came {words.name}")
        if not {"after", "before"} & words.fields.keys():
            return
        lateness = self.late()
        if "after" in words.fields:
            least = self._span(words.fields["after"])
            if took + lateness < least:
                raise _FailedError(f"came after {took / 1e6:.3f} ms, wanted {least / 1e6:g} ms")
        if "before" in words.fields:
            most = self._span(words.fields["before"])
            if took <= most + lateness:
                return
            if took <= most + 10 * lateness:
                raise _TooLateError(
                    f"came after {took / 1e6:.3f} ms, wanted by {most / 1e6:g} ms, but this"
                    f" host was late by {lateness / 1e6:.3f} ms"
                )
            raise _FailedError(f"came after {took / 1e6:.3f} ms, wanted by {most / 1e6:g} ms")

    def _quiet(self, words: Words) -> None:
        wire = self._session.wire
        span = self._span(words.fields["for"]) if "for" in words.fields else wire.quiet
        until = wire.now() + span
        heard = self._listen(until)
        if heard is not None:
            raise _FailedError(f"came {show(heard, self._session.joined)}, wanted nothing")
        self._overslept = max(self._overslept, wire.now() - until)

    def _span(self, value: Value) -> int:
        """Return how long here takes what a case says takes so long."""
        return int(duration(value) * self._session.stretch)

    def _keep(self, at: int, frame: bytes, *, is_ours: bool) -> None:
        self.played.seen.append(Seen(at, is_ours, bytes(frame)))

    def _clock(self, at: int) -> str:
        return f"{(at - self._begin) / 1e6:>11.3f} ms"

    # -- the application -------------------------------------------------------------------

    def _act(self, words: Words) -> None:
        fields = dict(words.fields)
        wants_refusal = fields.pop("refused", 0)
        name = str(fields.pop("name", ""))
        self._since = self._session.wire.now()
        try:
            done = self._session.application.act(words.name, fields)
        except RefusedError as error:
            if wants_refusal:
                self.note(f"{'':>14} . refused: {error}")
                return
            raise _FailedError(f"the application was refused: {error}") from error
        if wants_refusal:
            raise _FailedError("the application was not refused")
        if "key" in done:
            self._session.joined.keys[name or "further"] = done["key"]

    def _judge_told(self, words: Words) -> None:
        if words.name == "memory":
            self._judge_memory(words)
            return
        untold = self._session.application.untold
        for name in (words.name, *(f"{words.name}.{each}" for each in words.fields)):
            if name in untold:
                raise UnsupportedError(f"this endpoint's application is not told {name}")
        found = self._await_told(words.name)
        for name, wanted in words.fields.items():
            if found.get(name) != wanted:
                raise _FailedError(
                    f"told {words.name} with {name} {found.get(name)}, wanted {wanted}"
                )

    def _await_told(self, name: str) -> Mapping[str, Value]:
        """Return the next thing of this name that the application is told, or fail."""
        wire = self._session.wire
        limit = wire.now() + wire.patience
        while True:
            self._told += self._session.application.told()
            if name == "nothing":
                left = [each for each in self._told if each["name"] == "completion"]
                if left:
                    raise _FailedError(f"told {left[0]}, wanted no completion")
                return {}
            found = next((each for each in self._told if each["name"] == name), None)
            if found is not None:
                self._told.remove(found)
                return found
            if wire.now() >= limit:
                raise _FailedError(f"the application was not told of {name}")
            heard = self._receive(min(limit, wire.now() + wire.quiet))
            if heard is not None:
                self._waiting.append(heard)
            if len(self._waiting) > _MOST_FRAMES:
                raise _FailedError(f"{_MOST_FRAMES} frames, and no word of {name}")

    def _judge_memory(self, words: Words) -> None:
        fields = {k: v for k, v in words.fields.items() if isinstance(v, int)}
        at = fields.get("at", 0)
        size = fields.get("size", 8)
        if "data" in words.fields:
            wanted = str(words.fields["data"]).encode()
            size = len(wanted)
        elif "value" in fields:
            wanted = fields["value"].to_bytes(8, "little")
        elif "zero" in fields:
            wanted = bytes(size)
        else:
            wanted = pattern(fields.get("from", 0), size)
        got = self._session.application.memory(at, size)
        if got != wanted:
            raise _FailedError(
                f"memory at {at} is {got[:16].hex()}, wanted {wanted[:16].hex()}"
            )
