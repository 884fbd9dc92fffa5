"""The EV engine: rotation, penalties, retirement, recovery. mrc-emu/1, 12.9."""

from collections import Counter
from copy import deepcopy
from random import Random

import pytest

from transports.mrc.paths import EvState, LossRule, Paths, PathsConfig
from transports.mrc.profiles import STEV32
from wire.mrc.reliability import PathVerdict

R = 12_000
GOOD, SKIP, BAD, SPARE, DENIED = (
    EvState.GOOD, EvState.SKIP, EvState.ASSUMED_BAD, EvState.SPARE, EvState.DENIED,
)  # fmt: skip


def ev(plane, hop0):
    return STEV32.make(plane, hop0)


FOUR = tuple(ev(plane, hop0) for plane in (0, 1) for hop0 in (0, 1))
SPARES = tuple(ev(plane, 2) for plane in (0, 1))
A, B, C, D = FOUR


def paths(active=FOUR, backup=SPARES, **keys):
    return Paths(PathsConfig(active, backup, min_active=1, **keys), Random(7))


def take(engine, count, **keys):
    return [engine.next_ev(0, **keys) for _ in range(count)]


def told(engine):
    return [(event.ev, event.old, event.new, event.cause) for event in engine.events()]


# Rotation


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_each_round_visits_every_ev_once(count):
    evs = tuple(ev(plane % 8, plane // 8) for plane in range(count))
    engine = paths(evs, ())
    for _ in range(20):
        assert sorted(take(engine, count)) == sorted(evs)


def test_the_order_changes_from_round_to_round():
    evs = tuple(ev(0, hop0) for hop0 in range(16))
    engine = paths(evs, ())
    assert len({tuple(take(engine, 16)) for _ in range(20)}) > 5


def test_the_same_seed_gives_the_same_order():
    assert take(paths(), 100) == take(paths(), 100)


def test_bad_configurations_are_refused():
    with pytest.raises(ValueError, match="0 active"):
        paths((), ())
    with pytest.raises(ValueError, match="2 active EVs, 1 of 2"):
        paths((A, A), ())


# Penalties


def test_a_marked_ev_is_passed_over_once():
    engine = paths((A, B), ())
    engine.on_marked(A)
    assert engine.state_of(A) is SKIP
    assert Counter(take(engine, 3)) == {B: 2, A: 1}
    assert not told(engine)


def test_a_trimmed_ev_is_passed_over_four_times():
    engine = paths((A, B), ())
    engine.on_trimmed(A)
    assert A not in take(engine, 4)
    assert Counter(take(engine, 4)) == {A: 2, B: 2}


def test_marks_and_trims_never_retire():
    engine = paths()
    for _ in range(100):
        engine.on_trimmed(A)
        engine.on_marked(A)
        take(engine, 8)
    assert engine.state_of(A) is not BAD
    assert engine.counters.retired == 0


def test_an_ev_that_was_never_used_is_counted():
    engine = paths()
    engine.on_marked(0xDEAD)
    engine.on_lost(0xDEAD, LossRule.L4, 0, 0)
    engine.take_back_loss(0xDEAD)
    engine.on_always_skip(0xDEAD)
    assert engine.counters.unknown_evs == 4
    engine.on_acknowledged([0xDEAD], 0)
    engine.on_probe_answer(0xDEAD, 0, 0)
    assert not told(engine)


# Choice


def test_an_excluded_ev_comes_last():
    engine = paths((A, B), ())
    assert take(engine, 4, excluding=(A,)) == [B] * 4
    engine = paths((A,), ())
    assert take(engine, 2, excluding=(A,)) == [A, A]


def test_a_retransmission_avoids_a_plane_as_long_as_another_has_a_good_ev():
    engine = paths()
    assert set(take(engine, 20, avoid=1)) == {C, D}
    engine.set_ports(1, 0)
    assert set(take(engine, 20, avoid=1)) == {A, B}
    assert set(take(engine, 20, avoid=1, excluding=(A,))) == {B}


def test_a_full_plane_is_passed_over_and_costs_no_turn():
    engine = paths()
    engine.on_trimmed(A)
    assert set(take(engine, 100, room=2)) == {C, D}
    assert engine.state_of(A) is SKIP
    assert take(engine, 1, room=0) == [None]
    assert engine.counters.stalls == 1


def test_when_all_are_to_be_skipped_the_one_with_the_fewest_turns_serves():
    engine = paths((A, B), ())
    engine.on_lost(A, LossRule.L4, 0, 0)  # retired: B is the last one
    engine.on_lost(B, LossRule.L4, 0, 0)
    assert engine.state_of(B) is SKIP
    assert engine.next_ev(0) == B
    assert engine.counters.forced == 1
    assert [cause for *_, cause in told(engine)] == [
        "a packet timed out (L4)",
        "a packet timed out (L4); kept, one of the last 1",
    ]


# Losses


@pytest.mark.parametrize("rule", [LossRule.L2, LossRule.L3, LossRule.L5])
def test_with_trimming_the_first_loss_retires(rule):
    engine = paths()
    engine.on_lost(A, rule, 5, 5)
    assert engine.state_of(A) is BAD
    assert [tuple(event) for event in engine.events()] == [
        ("stev32", A, 0, GOOD, BAD, f"a packet was lost ({rule.name})", 5),
        ("stev32", SPARES[0], 0, SPARE, GOOD, f"in place of {A:#010x}", 5),
    ]
    assert A not in take(engine, 50)
    assert set(engine.active) == {SPARES[0], B, C, D}


def test_without_trimming_it_takes_two_within_two_rounds():
    engine = paths(trimming=False)
    engine.on_lost(A, LossRule.L2, 0, 0)
    assert engine.state_of(A) is GOOD
    take(engine, 4)
    engine.on_lost(A, LossRule.L2, 0, 0)
    assert engine.state_of(A) is BAD
    assert told(engine)[0][3] == "a packet was lost (L2), 2 in two rounds"


def test_a_loss_is_forgiven_after_two_rounds():
    engine = paths(trimming=False)
    for _ in range(10):
        engine.on_lost(A, LossRule.L2, 0, 0)
        take(engine, 4 * 3)
        engine.on_acknowledged([A], 0)
        take(engine, 4)
    assert engine.state_of(A) is GOOD


def test_a_timeout_retires_at_once_and_a_nack_does_not():
    engine = paths(trimming=False)
    engine.on_lost(A, LossRule.L1, 0, 0)
    assert engine.state_of(A) is GOOD
    engine.on_lost(A, LossRule.L4, 0, 0)
    assert engine.state_of(A) is BAD


def test_always_skip_retires():
    engine = paths()
    engine.on_always_skip(C)
    assert told(engine)[0] == (C, GOOD, BAD, "the peer says ALWAYS_SKIP")


def test_a_spare_of_another_plane_does_not_help():
    engine = paths(backup=SPARES[1:])
    engine.on_lost(A, LossRule.L4, 0, 0)
    assert set(take(engine, 30)) == {B, C, D}


def test_a_trim_takes_its_loss_back():
    engine = paths()
    engine.on_lost(A, LossRule.L3, 0, 0)
    engine.take_back_loss(A)
    assert engine.state_of(A) is SPARE  # another one has its slot
    engine.on_lost(B, LossRule.L4, 0, 0)
    assert engine.state_of(A) is GOOD
    engine.take_back_loss(B)
    assert engine.state_of(B) is BAD  # a timeout is not taken back


def test_a_quarter_is_kept():
    evs = tuple(ev(0, hop0) for hop0 in range(8))
    engine = Paths(PathsConfig(evs), Random(1))
    for each in evs:
        engine.on_lost(each, LossRule.L4, 0, 0)
    assert Counter(state for _, state in engine.states()) == {BAD: 6, SKIP: 2}
    assert engine.counters.kept_by_floor == 2


# Recovery


def test_probes_come_every_hundred_rtt_and_then_ever_more_rarely():
    engine = paths()
    engine.on_lost(A, LossRule.L4, 0, 0)
    times = []
    for _ in range(9):
        now = engine.deadline
        times.append(now // R)
        assert engine.probes(now - 1) == []
        assert engine.probes(now) == [A]
        assert engine.probes(now) == []
    gaps = [late - early for early, late in zip([0, *times], times, strict=False)]
    assert gaps == [100, 100, 200, 400, 800, 1600, 3200, 6400, 8192]


def answer(engine, m=PathVerdict.NONE):
    now = engine.deadline
    for each in engine.probes(now):
        engine.on_probe_answer(each, m, now)


def test_three_answers_in_a_row_make_a_path_good_and_twice_as_many_next_time():
    engine = paths(backup=())
    for wanted in (3, 6, 12, 24, 48, 64, 64):
        engine.on_lost(A, LossRule.L4, 0, 0)
        for _ in range(wanted - 1):
            answer(engine)
        assert engine.state_of(A) is BAD
        answer(engine)
        assert engine.state_of(A) is GOOD
        assert engine.deadline is None
        assert told(engine)[-1] == (A, BAD, GOOD, f"{wanted} probes in a row answered")


def test_a_silent_probe_ends_the_streak():
    engine = paths(backup=())
    engine.on_lost(A, LossRule.L4, 0, 0)
    answer(engine)
    answer(engine)
    engine.probes(engine.deadline)  # no answer
    answer(engine)
    answer(engine)
    assert engine.state_of(A) is BAD
    answer(engine)
    assert engine.state_of(A) is GOOD


@pytest.mark.parametrize(("good", "state"), [(False, SKIP), (True, GOOD)])
def test_a_marked_answer_counts_and_the_ev_returns_as_the_option_says(good, state):
    engine = paths(backup=(), probe_skip_is_good=good)
    engine.on_lost(A, LossRule.L4, 0, 0)
    for _ in range(3):
        answer(engine, PathVerdict.SKIP_ONCE)
    assert engine.state_of(A) is state


def test_a_path_that_returns_takes_an_idle_slot_of_its_plane_or_becomes_a_spare():
    engine = paths()
    engine.on_lost(A, LossRule.L4, 0, 0)  # the spare takes its slot
    engine.on_lost(B, LossRule.L4, 0, 0)  # no spare is left
    for _ in range(3):
        answer(engine)
    assert engine.state_of(A) is GOOD  # in the slot of B
    assert engine.state_of(B) is SPARE
    assert set(engine.active) == {A, SPARES[0], C, D}


def test_an_answer_that_nobody_asked_for_changes_nothing():
    engine = paths(backup=())
    engine.on_lost(A, LossRule.L4, 0, 0)
    for _ in range(5):
        engine.on_probe_answer(A, PathVerdict.NONE, 1)
    assert engine.state_of(A) is BAD


def test_on_a_plane_that_is_down_nothing_is_probed():
    engine = paths()
    engine.on_lost(A, LossRule.L4, 0, 0)
    engine.set_ports(0b10, 0)
    assert engine.probes(engine.deadline) == []
    engine.set_ports(0b11, 0)
    assert engine.probes(engine.deadline) == [A]


# Ports and the controller


def test_a_port_down_takes_its_plane_out():
    engine = paths()
    engine.set_ports(0b01, 0)
    assert set(take(engine, 20)) == {A, B}
    engine.set_ports(0b10, 0)
    assert set(take(engine, 20)) == {C, D}
    engine.set_ports(0, 0)
    assert take(engine, 1) == [None]


def test_a_port_that_comes_up_begins_in_skip():
    engine = paths()
    engine.set_ports(0b01, 0)
    engine.set_ports(0b11, 0)
    assert [engine.state_of(each) for each in FOUR] == [GOOD, GOOD, SKIP, SKIP]
    assert set(take(engine, 6)) == {A, B}
    assert set(take(engine, 20)) == set(FOUR)


@pytest.mark.parametrize("rule", [LossRule.L2, LossRule.L3, LossRule.L4, LossRule.L5])
def test_what_a_port_lost_is_held_against_no_ev(rule):
    """12.9: a plane that is down is passed over, and begins in SKIP. Its EVs are healthy."""
    engine = paths(backup=())
    engine.set_ports(0b10, 100)
    engine.on_lost(A, rule, 150, 90)  # while it is down
    engine.on_always_skip(A)
    engine.set_ports(0b11, 200)
    engine.on_lost(B, rule, 250, 100)  # and once it is up again
    assert [engine.state_of(each) for each in FOUR] == [SKIP, SKIP, GOOD, GOOD]
    assert engine.deadline is None
    assert not told(engine)
    engine.on_lost(B, rule, 300, 200)
    assert engine.state_of(B) is BAD
    engine.on_lost(C, rule, 300, 90)  # the other plane was up all the time
    assert engine.state_of(C) is BAD


def test_the_floor_does_not_count_planes_that_are_down():
    """12.9: else the last plane could lose all that it has."""
    evs = tuple(ev(plane, hop0) for plane in range(4) for hop0 in range(4))
    engine = Paths(PathsConfig(evs), Random(1))
    engine.set_ports(0b0001, 0)
    for each in evs[:4]:
        engine.on_lost(each, LossRule.L4, 1, 1)
    assert [engine.state_of(each) for each in evs[:4]] == [BAD, BAD, BAD, SKIP]
    assert engine.counters.kept_by_floor == 1
    assert set(take(engine, 20)) == {evs[3]}


def test_with_nothing_good_on_a_live_plane_the_least_bad_serves():
    """12.9: a plane that had become bad is all that is left when the good one goes down."""
    engine = paths(backup=())
    for each in (A, B):
        engine.on_lost(each, LossRule.L4, 0, 0)
    assert set(take(engine, 20)) == {C, D}
    assert take(engine, 1, room=0b01) == [None], "the good plane is full, and soon is not"
    engine.set_ports(0b01, 0)
    assert set(take(engine, 20)) == {A, B}, "in turn"
    assert take(engine, 1, excluding=(A,)) == [B]
    engine.probes(engine.deadline)
    engine.on_probe_answer(B, PathVerdict.NONE, 100 * R)
    assert set(take(engine, 20)) == {B}, "it answers"
    assert take(engine, 1, excluding=(B,)) == [A]
    engine.deny(A)
    engine.deny(B)
    assert take(engine, 1) == [None]


def test_a_denied_ev_is_used_for_nothing_until_it_is_allowed():
    engine = paths()
    engine.deny(A)
    engine.deny(SPARES[1])
    engine.on_lost(A, LossRule.L4, 0, 0)
    engine.on_lost(C, LossRule.L4, 0, 0)
    assert engine.probes(engine.deadline) == [C]
    assert set(take(engine, 20)) == {B, D}
    engine.allow(A)
    engine.allow(SPARES[1])
    assert set(take(engine, 20)) == {A, B, D, SPARES[1]}


def test_what_nobody_reads_is_bounded():
    engine = paths()
    for _ in range(2000):
        engine.deny(A)
        engine.allow(A)
    assert len(told(engine)) == 1024
    assert engine.counters.events_dropped == 4000 - 1024


# Properties


def happen(engine, rng, evs, now):
    """Let one thing happen to one of `evs`, or to the ports."""
    one = rng.choice(evs)
    match rng.randrange(10):
        case 0 | 1 | 2 | 3:
            signals = engine.on_marked, engine.on_trimmed, engine.take_back_loss
            rng.choice([*signals, engine.on_always_skip])(one)
        case 4:
            engine.on_lost(one, rng.choice(list(LossRule)), now, now - rng.randrange(20 * R))
        case 5:
            engine.on_acknowledged([one], now)
        case 6:
            (engine.deny if rng.random() < 0.1 else engine.allow)(one)
        case 7:
            engine.set_ports(rng.randrange(16), now)
        case 8:
            engine.set_ports(15 - (1 << rng.randrange(4)), now)
        case _:
            for each in engine.probes(now):
                engine.on_probe_answer(each, rng.randrange(2), now)


@pytest.mark.parametrize("seed", range(40))
def test_after_any_history_bad_paths_and_dead_planes_carry_nothing(seed):
    """mrc-emu/1, 12.17: invariants 6 and 7, and that the floor and the slots hold."""
    rng = Random(seed)
    evs = [ev(plane, hop0) for plane in range(4) for hop0 in range(8)]
    engine = Paths(PathsConfig(tuple(evs[::2]), tuple(evs[1::2]), trimming=seed % 2 == 0), rng)
    now = 0
    for _ in range(600):
        now += rng.randrange(20 * R)
        happen(engine, rng, evs, now)
        excluding = tuple(rng.sample(evs, rng.randrange(3)))
        avoid, room = rng.randrange(16), rng.randrange(16)
        there = dict(engine.states())
        chosen = engine.next_ev(now, excluding, room, avoid)
        live = engine.live_planes & room
        good = [each for each in engine.active if there[each] in (GOOD, SKIP)]
        usable = [each for each in good if live >> (each & 7) & 1]
        if not any(engine.live_planes >> (each & 7) & 1 for each in good):
            bad = [each for each in engine.active if there[each] is BAD]
            usable = [each for each in bad if live >> (each & 7) & 1]
        if chosen is None:
            assert not usable
        else:
            assert chosen in usable
            better = [each for each in usable if there[each] is GOOD and each not in excluding]
            assert chosen not in excluding or not better
        assert len(set(engine.active)) == 16
        assert sum(each & 7 == 2 for each in engine.active) == 4
        spares = {each for each, state in engine.states() if state is SPARE}
        assert not spares & set(engine.active)


@pytest.mark.parametrize("seed", range(4))
def test_the_short_way_to_an_ev_is_that_of_the_rotation(seed):
    """Whatever happened, `next_good` gives what `next_ev` gives, or changes nothing."""
    rng = Random(seed)
    evs = [ev(plane, hop0) for plane in range(4) for hop0 in range(8)]
    engine = Paths(PathsConfig(tuple(evs[::2]), tuple(evs[1::2])), rng)
    found = 0
    for now in range(0, 300 * R, 3 * R):
        happen(engine, rng, evs, now)
        engine.set_ports(rng.choice([engine.live_planes, 15]), now)
        take(engine, rng.randrange(100))
        room = rng.choice([None, rng.randrange(16)])
        before, twin = deepcopy(engine), deepcopy(engine)
        short = engine.next_good(now, room)
        found += short is not None
        if short is None:
            assert take_all(engine) == take_all(before)
        else:
            assert short == twin.next_ev(now, (), room)
            assert take_all(engine) == take_all(twin)
    assert found > 20


def take_all(engine):
    """Return what comes next, which tells all that the rotation knows."""
    engine = deepcopy(engine)
    return take(engine, 40), [*engine.states()]


def test_the_short_way_passes_over_what_is_retired():
    """It ends with the rotation, and there alone: once in three of four paths."""
    engine = paths(FOUR, ())
    engine.on_lost(A, LossRule.L4, 0, 0)
    assert engine.state_of(A) is BAD
    taken = []
    ends = 0
    for _ in range(60):
        short = engine.next_good(0, None)
        ends += short is None
        taken.append(engine.next_ev(0) if short is None else short)
    assert Counter(taken) == {B: 20, C: 20, D: 20}
    assert ends <= 21


def test_a_packet_costs_the_same_with_256_evs_as_with_16():
    """Counted in slots that are looked at, with a tenth of the packets marked."""

    def looks(count):
        rng = Random(3)
        engine = paths(tuple(ev(n % 8, n // 8) for n in range(count)), ())
        start = engine._round * engine._size + engine._position
        for _ in range(20_000):
            chosen = engine.next_ev(0)
            if rng.random() < 0.1:
                engine.on_marked(chosen)
        return engine._round * engine._size + engine._position - start

    assert looks(256) / looks(16) < 1.15
