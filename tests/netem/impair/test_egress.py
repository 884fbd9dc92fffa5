"""One direction of a link: what it does to frames, what it says, what it counts."""

from itertools import pairwise
from math import sqrt

import pytest

from netem.impair.departure import FrameMeta, join, remark
from netem.impair.egress import Egress, Fate
from netem.impair.model import FourState, GilbertElliott, Impairment, RandomLoss
from netem.topology.outcome import DirectionReport
from tests.netem.impair.frames import icrc_is_right, number_of, numbered, udp, write
from transports.clock import MS, US

N = 10_000


def egress(seed=7, direction=("h0:p0", "h1:p0"), **impairment):
    return Egress(*direction, Impairment(**impairment), seed)


def run(one, frames, step=1000, start=0):
    """Offer one frame each `step` and return all departures."""
    left = []
    for index, frame in enumerate(frames):
        now = start + index * step
        one.send(frame, now)
        left += one.due(now)
    return left + list(one.due(1 << 60))


def frames(count=N):
    return [numbered(n) for n in range(count)]


def touched(left):
    """Return which frames something happened to, and what."""
    return [(number_of(d.frame), d.fate, d.comment) for d in left if d.comment]


def near(count, total, p):
    """Say whether a count is within four standard errors of what probability `p` makes."""
    return abs(count - total * p) <= 4 * sqrt(total * p * (1 - p))


# -- nothing at all ----------------------------------------------------------------------------


def test_a_neutral_egress_passes_frames_at_once_and_untouched():
    one = egress()
    assert one.is_transparent
    frame = numbered(0)
    one.send(frame, 5)
    assert one.deadline == 5
    (departure,) = one.due(5)
    assert departure == (5, frame, Fate.SENT, "", FrameMeta())
    assert departure.frame is frame
    assert one.deadline is None


def test_a_departure_is_handed_out_once():
    one = egress(delay=10)
    one.send(numbered(0), 0)
    assert list(one.due(9)) == []
    assert len(list(one.due(10))) == 1
    assert list(one.due(11)) == []


def test_what_the_driver_sent_itself_is_counted_and_numbered():
    """The n-th frame stays the n-th, when an impairment comes later."""
    went_round, went_through = egress(), egress()
    went_round.bypassed(1000, frames=10)
    for n in range(10):
        went_through.send(bytes(100), n)
    assert len(list(went_through.due(10))) == 10
    assert went_round.report() == went_through.report()
    for one in (went_round, went_through):
        one.change(Impairment(loss=RandomLoss(0.3)), 10)
    assert touched(run(went_round, frames(200))) == touched(run(went_through, frames(200)))


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        (FrameMeta(), ""),
        (FrameMeta(transmission=1), ""),
        (FrameMeta(transmission=2, why="timeout"), "retransmission: timeout"),
        (FrameMeta(transmission=3), "retransmission: reason unknown"),
        (FrameMeta(why="duplicate"), "retransmission: duplicate"),
    ],
)
@pytest.mark.parametrize("impairment", [{}, {"delay": 10}, {"loss": RandomLoss(0.0)}])
def test_a_retransmission_is_remarked(meta, said, impairment):
    one = egress(**impairment)
    one.send(numbered(0), 0, meta)
    (departure,) = one.due(10)
    assert departure.comment == said == remark(meta)
    assert departure.meta is meta
    assert departure.transmission == meta.transmission


def test_phrases_of_a_comment_are_joined():
    assert join("", "a", "", "b") == "a; b"


# -- each cause --------------------------------------------------------------------------------

LOSSES = [
    pytest.param(RandomLoss(1.0), "dropped by loss 100% (random)", id="random"),
    pytest.param(
        GilbertElliott(1.0, 0.0, loss_good=1.0),
        "dropped by loss gemodel 100% 0% 100% 100%",
        id="gemodel",
    ),
    pytest.param(FourState(1.0, 0.0), "dropped by loss state 100% 0%", id="state"),
]


@pytest.mark.parametrize(("loss", "said"), LOSSES)
def test_a_lost_frame_says_by_what(loss, said):
    one = egress(loss=loss)
    (departure,) = run(one, [numbered(0)])
    assert (departure.fate, departure.comment) == (Fate.DROPPED, said)
    assert one.report().lost == 1


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_loss_is_near_what_was_asked(seed):
    one = egress(seed, loss=RandomLoss(0.01))
    run(one, frames())
    assert near(one.report().lost, N, 0.01)


@pytest.mark.parametrize("version", [4, 6])
def test_both_families_lose_alike(version):
    """I11: nothing here looks at addresses."""
    one = egress(loss=RandomLoss(0.5))
    run(one, [udp(version)] * N)
    assert near(one.report().lost, N, 0.5)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_none_and_all_are_ordinary_values(p):
    """I13: 100 %: nothing passes; 0: everything."""
    one = egress(loss=RandomLoss(p))
    left = run(one, frames(1000))
    assert one.report().lost == 1000 * p
    assert len(left) == 1000


@pytest.mark.parametrize(
    ("version", "ecn", "fate", "after"),
    [
        pytest.param(4, 2, Fate.SENT, 3, id="IPv4 ECT(0)"),
        pytest.param(6, 1, Fate.SENT, 3, id="IPv6 ECT(1)"),
        pytest.param(6, 3, Fate.SENT, 3, id="marked before"),
        pytest.param(4, 0, Fate.DROPPED, 0, id="not ECN-capable"),
    ],
)
def test_with_ecn_a_loss_is_a_mark_where_it_may_be(version, ecn, fate, after):
    one = egress(loss=RandomLoss(1.0), ecn=True)
    (departure,) = run(one, [write(1, version=version, ecn=ecn)])
    assert departure.fate is fate
    assert departure.frame == write(1, version=version, ecn=after)
    assert (one.report().marked, one.report().lost) == ((1, 0) if fate is Fate.SENT else (0, 1))


def test_a_mark_in_place_of_a_loss_says_so():
    (departure,) = run(egress(loss=RandomLoss(1.0), ecn=True), [udp(ecn=2)])
    assert departure.comment == "marked CE by loss 100% (random)"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_corruption_flips_one_bit_behind_the_ethernet_header(seed):
    one = egress(seed, corrupt=0.1)
    sent = frames()
    hit = [(sent[n], d) for n, d in enumerate(run(one, sent)) if d.comment]
    assert near(len(hit), N, 0.1)
    assert len(hit) == one.report().corrupted
    places = set()
    for before, departure in hit:
        difference = int.from_bytes(before, "big") ^ int.from_bytes(departure.frame, "big")
        assert difference.bit_count() == 1
        bit = len(before) * 8 - difference.bit_length()
        assert departure.comment == f"corrupted bit {bit} (byte {bit // 8}) by corrupt 10%"
        places.add(bit // 8)
    assert places == set(range(14, 64))


@pytest.mark.parametrize(
    ("first", "frame", "least"),
    [
        pytest.param(None, write(1), 14, id="behind the Ethernet header"),
        pytest.param(None, write(1, vlan=5), 18, id="behind the tag"),
        pytest.param(0, write(1), 0, id="anywhere, as netem does"),
        pytest.param(74, write(1), 74, id="behind the BTH"),
    ],
)
def test_where_corruption_begins_can_be_said(first, frame, least):
    one = egress(corrupt=1.0, corrupt_from=first)
    places = [
        next(i for i, (a, b) in enumerate(zip(frame, d.frame, strict=True)) if a != b)
        for d in run(one, [frame] * 2000)
    ]
    assert least <= min(places) < least + 3


@pytest.mark.parametrize("size", [0, 1, 13, 14])
def test_a_frame_without_anything_to_corrupt_is_spared(size):
    one = egress(corrupt=1.0)
    (departure,) = run(one, [bytes(size)])
    assert (departure.frame, departure.comment) == (bytes(size), "")
    assert one.report().corrupted == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_duplicates_are_exact_and_right_behind(seed):
    one = egress(seed, duplicate=0.05, delay=50 * US, jitter=40 * US)
    left = run(one, frames())
    twins = [i for i, d in enumerate(left) if "duplicated by duplicate 5%" in d.comment]
    assert near(len(twins), N, 0.05)
    assert len(left) == N + len(twins) == N + one.report().duplicated
    assert all(left[i].frame == left[i - 1].frame for i in twins)


def test_a_duplicate_has_the_same_flipped_bit():
    left = run(egress(duplicate=1.0, corrupt=1.0), [write(1)])
    assert left[0].frame == left[1].frame
    assert not icrc_is_right(left[0].frame)
    assert left[1].comment.startswith("duplicated by duplicate 100%; corrupted bit ")


def test_lost_and_duplicated_is_one_frame():
    """netem, step 2: exactly one copy remains."""
    one = egress(loss=RandomLoss(1.0), duplicate=1.0)
    left = run(one, [numbered(0)])
    assert [(d.fate, d.comment) for d in left] == [
        (Fate.DROPPED, "dropped by loss 100% (random)"),
        (Fate.SENT, "duplicated by duplicate 100%"),
    ]
    report = one.report()
    assert (report.frames, report.duplicated, report.lost, report.delivered) == (1, 1, 1, 1)


def test_a_copy_takes_its_own_time_on_the_wire_and_its_own_room():
    one = egress(duplicate=1.0, rate=8 * 10**9, limit=1000)
    left = run(one, [bytes(600)])
    assert [(d.at, d.fate) for d in left] == [(600, Fate.SENT), (600, Fate.DROPPED)]
    assert left[1].comment == "dropped by queue limit 1000B; duplicated by duplicate 100%"


@pytest.mark.parametrize("cause", ["corrupt", "duplicate", "reorder"])
def test_a_correlated_cause_strikes_in_runs(cause):
    def hits(correlation):
        one = egress(**{cause: 0.45, f"{cause}_corr": correlation}, delay=1)
        return [one._causes.decide(n) > 0 for n in range(N)]

    def changes(found):
        return sum(a != b for a, b in pairwise(found)) / (2 * sum(found))

    assert changes(hits(0.8)) < 0.7 * changes(hits(0.0))


# -- the same in every run ---------------------------------------------------------------------

BUSY = Impairment(
    corrupt_from=18,  # not in a frame's number
    delay=20 * US,
    jitter=9 * US,
    loss=GilbertElliott(0.02, 0.3),
    corrupt=0.02,
    duplicate=0.02,
    reorder=0.02,
)


def test_the_same_seed_touches_the_same_frames():
    """I10: to the byte and to the nanosecond."""
    one, other = (Egress("h0:p0", "h1:p0", BUSY, 7) for _ in range(2))
    assert run(one, frames(2000)) == run(other, frames(2000))
    assert one.report() == other.report()


def test_another_seed_touches_others():
    """I10."""
    one, other = (Egress("h0:p0", "h1:p0", BUSY, seed) for seed in (7, 8))
    assert touched(run(one, frames(2000))) != touched(run(other, frames(2000)))


def test_the_two_directions_of_a_link_have_their_own_luck():
    there = run(egress(loss=RandomLoss(0.1)), frames(500))
    back = run(egress(loss=RandomLoss(0.1), direction=("h1:p0", "h0:p0")), frames(500))
    assert touched(there) != touched(back)


def decisions(left, *words):
    """Return what was decided about each frame, without what time decides."""
    return sorted(
        (number_of(d.frame), phrase)
        for d in left
        for phrase in d.comment.split("; ")
        if phrase.startswith(words)
    )


DECIDED = ("dropped by loss", "corrupted", "duplicated")


@pytest.mark.parametrize("step", [0, 1, 777, 10 * MS])
def test_decisions_do_not_depend_on_time(step):
    usual = run(Egress("h0:p0", "h1:p0", BUSY, 7), frames(1000))
    other = run(Egress("h0:p0", "h1:p0", BUSY, 7), frames(1000), step=step, start=step)
    assert decisions(other, *DECIDED) == decisions(usual, *DECIDED)


@pytest.mark.parametrize(
    "more",
    [
        {"corrupt": 0.3, "corrupt_from": 18},
        {"duplicate": 0.3, "duplicate_corr": 0.5},
        {"delay": 1 * MS, "jitter": 100 * US, "distribution": "pareto", "delay_corr": 0.2},
        {"reorder": 0.5, "delay": 1 * MS},
        {"rate": 10**9},
    ],
)
def test_another_cause_does_not_shift_the_losses(more):
    loss = GilbertElliott(0.05, 0.2, loss_bad=0.8, loss_good=0.01)
    alone = run(egress(loss=loss), frames(2000))
    together = run(egress(loss=loss, **more), frames(2000))
    assert decisions(together, "dropped by loss") == decisions(alone, "dropped by loss")


def test_losses_do_not_shift_the_corrupted_frames():
    """Also where corruption remembers: it is asked about lost frames as well."""
    corrupt = {"corrupt": 0.4, "corrupt_corr": 0.5, "corrupt_from": 18}
    alone = run(egress(**corrupt), frames(2000))
    together = run(egress(**corrupt, loss=RandomLoss(0.3)), frames(2000))
    lost = {number_of(d.frame) for d in together if d.fate is Fate.DROPPED}
    kept = [x for x in decisions(alone, "corrupted") if x[0] not in lost]
    assert decisions(together, "corrupted") == kept


def test_a_larger_probability_touches_the_same_frames_and_more():
    few = run(egress(loss=RandomLoss(0.05)), frames(1000))
    many = run(egress(loss=RandomLoss(0.1)), frames(1000))
    lost = [{number_of(d.frame) for d in left if d.comment} for left in (few, many)]
    assert lost[0] < lost[1]


# -- change ------------------------------------------------------------------------------------


def test_jitter_then_loss_are_both_in_force():
    """I03: the caller replaces one field, and what was there goes on."""
    one = egress()
    one.change(Impairment(delay=50 * US, jitter=20 * US), 0)
    one.change(Impairment(delay=50 * US, jitter=20 * US, loss=RandomLoss(0.5)), 0)
    left = run(one, frames(1000))
    assert near(one.report().lost, 1000, 0.5)
    delays = [d.at - number_of(d.frame) * 1000 for d in left if d.fate is Fate.SENT]
    assert min(delays) >= 30 * US
    assert max(delays) > 60 * US


def test_loss_back_to_nothing_is_gone_at_once():
    """I06: 10 % to 0 %: 10,000 frames, 0 lost."""
    one = egress(loss=RandomLoss(0.1))
    run(one, frames(100))
    before = one.report().lost
    one.change(Impairment(loss=RandomLoss(0.0)), 10**9)
    run(one, frames(), start=10**9)
    assert before > 0
    assert one.report().lost == before
    assert one.is_transparent


def test_a_change_keeps_what_waits():
    one = egress(delay=1000)
    one.send(numbered(0), 0)
    one.change(Impairment(), 10)
    assert not one.is_transparent
    one.send(numbered(1), 20)
    left = list(one.due(2000))
    assert [(d.at, number_of(d.frame)) for d in left] == [(20, 1), (1000, 0)]
    assert left[1].comment == "delayed 1us, overtaken"
    assert one.is_transparent


@pytest.mark.parametrize(
    "remembering",
    [
        {"loss": GilbertElliott(0.05, 0.1)},
        {"loss": FourState(0.05, 0.1)},
        {"loss": RandomLoss(0.45, 0.9)},
        {"corrupt": 0.45, "corrupt_corr": 0.9, "corrupt_from": 18},
        {"duplicate": 0.45, "duplicate_corr": 0.9},
    ],
)
def test_a_change_of_delay_does_not_cut_a_burst_short(remembering):
    straight = run(egress(**remembering), frames(600))
    one = egress(**remembering)
    left = run(one, frames(300))
    one.change(Impairment(**remembering, delay=5), 10**9)
    left += run(one, frames(600)[300:], start=10**9)
    assert decisions(left, *DECIDED) == decisions(straight, *DECIDED)


def test_a_change_of_loss_does_not_change_the_pace_of_jitter():
    wobble = {"delay": 1 * MS, "jitter": 500 * US, "delay_corr": 0.9}
    straight = run(egress(**wobble), frames(400))
    one = egress(**wobble)
    left = run(one, frames(200))
    one.change(Impairment(**wobble, loss=RandomLoss(0.0)), 200_000)
    left += run(one, frames(400)[200:], start=200_000)
    assert sorted(d.at for d in left) == sorted(d.at for d in straight)


def test_a_loss_that_comes_and_goes_finds_its_place_again():
    """The decision about frame n is the same whenever the loss was switched on."""
    always = run(egress(loss=RandomLoss(0.2)), frames(400))
    one = egress()
    left = run(one, frames(400)[:123])
    one.change(Impairment(loss=RandomLoss(0.2)), 10**9)
    left += run(one, frames(400)[123:], start=10**9)
    late = [x for x in decisions(always, "dropped") if x[0] >= 123]
    assert decisions(left, "dropped") == late


def test_a_slower_rate_holds_for_what_comes_after():
    one = egress(rate=8 * 10**9)
    one.send(bytes(1000), 0)
    one.change(Impairment(rate=8 * 10**8), 10)
    one.send(bytes(1000), 20)
    assert [d.at for d in one.due(10**6)] == [1000, 11_000]


def test_a_refused_change_changes_nothing():
    one = egress(delay=5)
    with pytest.raises(ValueError, match="rate"):
        one.change(Impairment(rate=-1, loss=RandomLoss(1.0)), 0)
    assert one.impairment == Impairment(delay=5)
    assert [d.fate for d in run(one, frames(3))] == [Fate.SENT] * 3


@pytest.mark.parametrize(
    "wrong", [{"loss": RandomLoss(1.1)}, {"corrupt": -0.1}, {"delay": 1, "reorder": 2.0}]
)
def test_what_is_no_probability_is_refused(wrong):
    """I13: 100.1 and -1 are no percentages."""
    with pytest.raises(ValueError, match="probability"):
        egress(**wrong)


# -- counters ----------------------------------------------------------------------------------


def test_the_report_says_what_was_touched():
    """M13: an impairment proves that it acted."""
    one = egress(loss=RandomLoss(0.1), duplicate=0.1, corrupt=0.1, delay=10 * US, jitter=9 * US)
    left = run(one, frames(1000))
    report = one.report()
    assert report.direction == "h0:p0->h1:p0"
    assert report.engine == "ours"
    assert report.bytes == 64_000
    assert min(report.lost, report.duplicated, report.corrupted, report.reordered) > 50
    assert report.delivered == sum(d.fate is Fate.SENT for d in left)


def test_an_impairment_that_met_no_frame_shows_it():
    """M13: `loss: 1%` on an idle link: nothing offered, nothing touched."""
    assert egress(loss=RandomLoss(0.01)).report() == DirectionReport("h0:p0->h1:p0")


def test_a_report_is_a_copy():
    one = egress()
    before = one.report()
    run(one, frames(3))
    assert before.frames == 0
    assert one.report().frames == 3


def test_what_waits_is_in_the_report():
    one = egress(delay=100)
    for n in range(5):
        one.send(numbered(n), n)
    assert one.report().queued == 5
