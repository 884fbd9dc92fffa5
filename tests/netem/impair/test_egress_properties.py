"""What holds for any frames, any impairment, any faults and any timing."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.impair.departure import FrameMeta
from netem.impair.egress import MAX_DEAD, Egress, Fate
from netem.impair.model import FourState, GilbertElliott, Impairment, RandomLoss
from netem.topology.plan import FaultPlan, Where
from netem.topology.switch_plan import TrimPlan
from tests.netem.impair.frames import roce
from tests.netem.impair.test_alter import ANY_FRAME
from wire.roce.opcodes import Opcode

pytestmark = pytest.mark.slow

WORDS = (
    "dropped", "corrupted", "duplicated", "delayed", "trimmed", "marked", "retransmission",
    "reconstructed",
)  # fmt: skip

P = st.sampled_from([0.0, 0.1, 0.5, 1.0])
LOSS = st.one_of(
    st.none(),
    st.builds(RandomLoss, P, P),
    st.builds(GilbertElliott, P, P, P, P),
    st.builds(FourState, P, P, P, P, P),
)
IMPAIRMENT = st.builds(
    Impairment,
    delay=st.sampled_from([0, 1, 500, 10_000]),
    jitter=st.sampled_from([0, 300, 20_000]),
    delay_corr=P,
    distribution=st.sampled_from(["uniform", "normal", "pareto", "paretonormal"]),
    loss=LOSS,
    ecn=st.booleans(),
    corrupt=P,
    corrupt_corr=P,
    duplicate=P,
    duplicate_corr=P,
    reorder=P,
    reorder_corr=P,
    gap=st.integers(0, 3),
    rate=st.sampled_from([None, 10**6, 10**9, 10**12]),
    overhead=st.sampled_from([0, 24, -(10**4)]),
    limit=st.sampled_from([None, 0, 100, 5000]),
    keep_order=st.booleans(),
    corrupt_from=st.sampled_from([None, 0, 40]),
)
WHERE = st.builds(
    Where,
    op=st.sampled_from([None, "SEND", "ACK", "NAK", "WRITE_MIDDLE"]),
    psn=st.sampled_from([None, 0, 3]),
    psn_relative=st.booleans(),
    retransmission=st.sampled_from([None, True, False]),
    proto=st.sampled_from([None, "roce", "udp", "any"]),
)
FAULTS = st.lists(
    st.builds(
        FaultPlan,
        index=st.integers(0, 3),
        do=st.sampled_from(["drop", "mark", "corrupt", "duplicate", "delay", "hold", "trim"]),
        on=st.just("a:p0"),
        where=WHERE,
        skip=st.integers(0, 3),
        count=st.integers(0, 4),
        delay=st.sampled_from([0, 100, 5000]),
        trim=st.sampled_from([TrimPlan(size=60), TrimPlan(size=None, keep=20)]),
    ),
    max_size=3,
)
FRAME = st.one_of(
    ANY_FRAME,
    st.builds(
        roce,
        st.sampled_from([Opcode.RC_SEND_ONLY, Opcode.RC_WRITE_MIDDLE, Opcode.RC_ACKNOWLEDGE]),
        psn=st.integers(0, 4),
        payload=st.binary(max_size=40),
        version=st.sampled_from([4, 6]),
        ecn=st.integers(0, 3),
    ),
)
META = st.builds(
    FrameMeta,
    transmission=st.integers(0, 2),
    why=st.sampled_from(["", "NAK"]),
    comment=st.sampled_from(["", "marked CE by queue 0"]),
    killed=st.just(False),
)
# Offers with the time since the one before, drains in between, and changes of mind.
STEP = st.one_of(
    st.tuples(st.just("send"), st.sampled_from([0, 0, 1, 700, 30_000]), FRAME, META),
    st.tuples(st.just("due"), st.sampled_from([0, 100, 10_000])),
    st.tuples(st.just("change"), st.sampled_from([0, 100]), IMPAIRMENT),
    st.tuples(st.just("cut"), st.sampled_from([0, 100]), st.sampled_from("xy")),
    st.tuples(st.just("mend"), st.sampled_from([0, 100]), st.sampled_from("xy")),
    st.tuples(st.just("hold"), st.sampled_from([0, 100]), st.sampled_from([0, 5000])),
)


def act(egress, verb, rest, now):
    """Do what is neither an offer nor a drain."""
    match verb:
        case "change":
            egress.change(*rest, now)
        case "cut":
            egress.cut(*rest, now)
        case "mend":
            egress.mend(*rest)
        case "hold":
            egress.hold(now + rest[0], "fault 9", now)


def play(steps, impairment, faults, seed):
    """Run a script; return the egress, the tags offered, the departures, and when each came."""
    egress = Egress("a:p0", "b:p0", impairment, seed, faults)
    now, offered, left = 0, [], []
    for number, (verb, wait, *rest) in enumerate(steps):
        now += wait
        match verb:
            case "send":
                frame, meta = rest
                offered.append(number)
                egress.send(frame, now, meta._replace(tag=number))
            case "due":
                left += [(now, departure) for departure in egress.due(now)]
            case "wait":
                pass
            case _:
                act(egress, verb, rest, now)
    return egress, offered, left, now


SCRIPT = given(
    steps=st.lists(STEP, max_size=30),
    impairment=IMPAIRMENT,
    faults=FAULTS,
    seed=st.integers(0, 3),
)


@SCRIPT
def test_every_frame_comes_out_and_the_counters_add_up(steps, impairment, faults, seed):
    egress, offered, left, _ = play(steps, impairment, faults, seed)
    halfway = egress.report()
    left += [(1 << 60, departure) for departure in egress.due(1 << 60)]
    report = egress.report()
    assert egress.deadline is None
    assert egress._pipe.is_idle

    seen = Counter(departure.meta.tag for _, departure in left)
    assert set(seen) == set(offered)
    assert sum(seen.values()) == report.frames + report.duplicated
    fates = Counter(departure.fate for _, departure in left)
    assert fates[Fate.SENT] == report.delivered
    assert fates[Fate.DROPPED] == report.lost + report.overflowed
    assert report.queued == 0
    for counts in (halfway, report):
        entered = counts.frames + counts.duplicated
        gone = counts.delivered + counts.lost + counts.overflowed
        assert entered == gone + counts.queued
    assert all(fault.fired <= fault.wanted for fault in egress.fault_reports())


@SCRIPT
def test_time_never_runs_back_and_nothing_is_early(steps, impairment, faults, seed):
    egress, _, left, now = play(steps, impairment, faults, seed)
    assert all(departure.at <= when for when, departure in left)
    rest = []
    while (deadline := egress.deadline) is not None:
        now = max(now, deadline)
        came = list(egress.due(now))
        assert came
        rest += came
    every = [departure.at for _, departure in left] + [departure.at for departure in rest]
    assert every == sorted(every)


@SCRIPT
def test_comments_speak_the_vocabulary_of_captures(steps, impairment, faults, seed):
    egress, _, left, _ = play(steps, impairment, faults, seed)
    for departure in [departure for _, departure in left] + list(egress.due(1 << 60)):
        for phrase in filter(None, departure.comment.split("; ")):
            assert phrase.split()[0].rstrip(":") in WORDS
        assert departure.comment.startswith("dropped") == (departure.fate is Fate.DROPPED)


@SCRIPT
def test_the_same_script_gives_the_same_departures(steps, impairment, faults, seed):
    def told():
        egress, _, left, _ = play(steps, impairment, faults, seed)
        return left, list(egress.due(1 << 60)), egress.report(), egress.fault_reports()

    assert told() == told()


@SCRIPT
def test_draining_often_or_late_makes_no_difference(steps, impairment, faults, seed):
    busy, _, left, _ = play(steps, impairment, faults, seed)
    often = [departure for _, departure in left] + list(busy.due(1 << 60))
    lazy, _, none, _ = play(
        [step if step[0] != "due" else ("wait", step[1]) for step in steps],
        impairment,
        faults,
        seed,
    )
    assert none == []
    assert list(lazy.due(1 << 60)) == often
    assert lazy.report() == busy.report()


@SCRIPT
def test_no_more_waits_than_the_limit_allows(steps, impairment, faults, seed):
    egress = Egress("a:p0", "b:p0", impairment, seed, faults)
    now = 0
    for verb, wait, *rest in steps:
        now += wait
        if verb == "send":
            egress.send(rest[0], now, rest[1])
        assert egress._pipe._bytes == sum(len(waiting[3]) for waiting in egress._pipe._waiting)
        assert egress._pipe._bytes <= egress._pipe.limit


def test_a_lost_frame_is_told_of_in_its_turn():
    """A capture reads in the order of sending: what was offered before it comes before it."""
    one = Egress("a:p0", "b:p0", Impairment(rate=8 * 10**6, delay=500), 1)
    for n in range(3):
        one.send(bytes([n]) * 100, 0)
    one.change(Impairment(rate=8 * 10**6, delay=500, loss=RandomLoss(1.0)), 0)
    one.send(bytes([3]) * 100, 0)
    one.change(Impairment(rate=8 * 10**6, delay=500), 0)
    one.send(bytes([4]) * 100, 0)
    assert not one.is_transparent
    left = list(one.due(10**9))
    assert [departure.frame[0] for departure in left] == [0, 1, 2, 3, 4]
    assert [departure.fate for departure in left].index(Fate.DROPPED) == 3
    assert [departure.at for departure in left] == sorted(departure.at for departure in left)
    assert one.deadline is None


def test_lost_frames_that_wait_for_their_turn_are_bounded():
    one = Egress("a:p0", "b:p0", Impairment(delay=10**12), 1)
    one.send(b"first" * 20, 0)
    one.change(Impairment(delay=10**12, loss=RandomLoss(1.0)), 0)
    for n in range(MAX_DEAD + 5):
        one.send(b"lost" * 20, n)
    told = list(one.due(MAX_DEAD + 5))
    assert len(told) == 5
    assert len(list(one.due(10**13))) == MAX_DEAD + 1
