"""Loss models: transitions from scripted draws, long-run figures from seeded ones."""

from itertools import groupby
from math import sqrt

import pytest

from netem.impair.loss import FourStateLoss, GilbertElliottLoss, loss_model
from netem.impair.model import FourState, GilbertElliott, RandomLoss
from netem.impair.streams import fraction
from tests.netem.impair.script import Script

N = 20_000
SEEDS = [1, 2, 3]

ALL = 0xFFFFFFFF  # the largest draw there is


def losses(loss, seed=1, count=N):
    model = loss_model(loss, seed, "a->b")
    return [model.hits(n) for n in range(count)]


def bursts(lost):
    return [len(list(run)) for was_lost, run in groupby(lost) if was_lost]


def within(share, count, wanted, spread=1.0):
    """Say whether a share of `count` is within four standard errors of `wanted`."""
    error = sqrt(wanted * (1 - wanted) / count) * spread
    return abs(share - wanted) <= 4 * error


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("p", [0.001, 0.01, 0.1, 0.5, 0.9])
def test_random_loss_loses_its_share(p, seed):
    assert within(sum(losses(RandomLoss(p), seed)) / N, N, p)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_losses_come_singly(seed):
    """Independent losses of 20 %: the mean burst is 1 / 0.8 frames."""
    found = bursts(losses(RandomLoss(0.2), seed))
    assert sum(found) / len(found) == pytest.approx(1.25, rel=0.05)


@pytest.mark.parametrize(("p", "share"), [(0.0, 0), (1.0, N)])
def test_none_and_all_are_exact(p, share):
    """I13."""
    assert sum(losses(RandomLoss(p))) == share


@pytest.mark.parametrize("seed", SEEDS)
def test_correlated_losses_come_in_bursts_and_are_fewer(seed):
    """netem's correlation narrows the draws around one half, so that less than p is lost."""
    lost = losses(RandomLoss(0.3, correlation=0.75), seed)
    share, found = sum(lost) / N, bursts(lost)
    assert 0.01 < share < 0.1
    assert sum(found) / len(found) > 1.5 / (1 - share)


GILBERT = [
    pytest.param(GilbertElliott(0.01, 0.1), id="1% 10%"),
    pytest.param(GilbertElliott(0.05, 0.5), id="5% 50%"),
    pytest.param(GilbertElliott(0.02, 0.2, loss_bad=0.7), id="2% 20% 70%"),
    pytest.param(GilbertElliott(0.02, 0.25, loss_bad=0.7, loss_good=0.01), id="2% 25% 70% 1%"),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("loss", GILBERT)
def test_gilbert_elliott_loses_its_long_run_share(loss, seed):
    """(p (1-h) + r (1-k)) / (p + r); bursts make the estimate less sure by their length."""
    wanted = (loss.p * loss.loss_bad + loss.r * loss.loss_good) / (loss.p + loss.r)
    assert within(sum(losses(loss, seed)) / N, N, wanted, spread=sqrt(2 / loss.r))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("r", [0.1, 0.25, 0.5])
def test_gilbert_bursts_are_one_over_r_frames_long(r, seed):
    found = bursts(losses(GilbertElliott(0.02, r), seed))
    error = sqrt(1 - r) / r / sqrt(len(found))
    assert abs(sum(found) / len(found) - 1 / r) < 4 * error


def test_gilbert_elliott_asks_the_state_that_the_frame_arrived_in():
    """The frame that moves the state to bad is itself judged as good, and the reverse."""
    p, r = fraction(0.1), fraction(0.3)
    moves, draws = Script(p, ALL, r, ALL), Script(0, 0, 0, 0)
    model = GilbertElliottLoss(GilbertElliott(0.1, 0.3), moves, draws)
    assert [model.hits(n) for n in range(4)] == [False, True, True, False]


def test_gilbert_elliott_of_nothing_and_of_everything():
    """I13: loss in the bad state of 0 never, of 100 % always."""
    assert sum(losses(GilbertElliott(1.0, 0.0), count=1000)) == 999
    assert sum(losses(GilbertElliott(1.0, 0.0, loss_bad=0.0), count=1000)) == 0
    assert sum(losses(GilbertElliott(0.0, 1.0, loss_good=1.0), count=1000)) == 1000


FOUR = FourState(p13=0.2, p31=0.3, p32=0.1, p23=0.4, p14=0.05)
P13, P31, P32, P23, P14 = map(fraction, (0.2, 0.3, 0.1, 0.4, 0.05))

# Draws frame by frame, and which frames are lost; one path through each transition.
FOUR_STATE_PATHS = [
    pytest.param([ALL, ALL], "..", id="good gap stays"),
    pytest.param([P14, 0, ALL], "x..", id="isolated loss, the next passes whatever is drawn"),
    pytest.param([P14, P14, P14], "x.x", id="after an isolated loss it is the good gap again"),
    pytest.param([P14 + 1, ALL, ALL], "xxx", id="into the bad burst and staying"),
    pytest.param([P14 + P13, ALL], "xx", id="the bad burst begins below p14 + p13"),
    pytest.param([P14 + P13 + 2], ".", id="above p14 + p13 nothing begins"),
    pytest.param([P14 + 1, P32, ALL], "x..", id="a good stretch within the burst"),
    pytest.param([P14 + 1, P32, P23, ALL], "x.xx", id="and back into the bad one"),
    pytest.param([P14 + 1, P32, P23 + 1], "x..", id="or not yet"),
    pytest.param([P14 + 1, P32 + 1, ALL], "x..", id="the burst is over"),
    pytest.param([P14 + 1, P32 + P31 + 2, ALL], "xxx", id="or not yet over"),
]


@pytest.mark.parametrize(("draws", "fates"), FOUR_STATE_PATHS)
def test_four_states_move_as_written(draws, fates):
    model = FourStateLoss(FOUR, Script(*draws))
    assert "".join(".x"[model.hits(n)] for n in range(len(draws))) == fates


def four_state_share(loss):
    """Return the long-run loss from the balance of the chain, found by letting it run dry.

    A frame is lost when the chain moves into, or stays in, the bad burst or the isolated loss.
    """
    gap, good, bad, alone = 1.0, 0.0, 0.0, 0.0
    for _ in range(5000):
        gap, good, bad, alone = (
            gap * (1 - loss.p13 - loss.p14) + bad * loss.p31 + alone,
            good * (1 - loss.p23) + bad * loss.p32,
            gap * loss.p13 + good * loss.p23 + bad * (1 - loss.p31 - loss.p32),
            gap * loss.p14,
        )
    return bad + alone


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(FourState(0.01, 0.99), id="state 1%, tc's defaults"),
        pytest.param(FourState(0.05, 0.5), id="5% 50%"),
        pytest.param(FOUR, id="20% 30% 10% 40% 5%"),
        pytest.param(FourState(0.0, 1.0, p14=0.03), id="isolated losses only"),
    ],
)
def test_four_states_lose_their_long_run_share(loss, seed):
    spread = sqrt(2 / min(loss.p31, loss.p23))
    assert within(sum(losses(loss, seed)) / N, N, four_state_share(loss), spread)


def test_isolated_losses_are_never_two_in_a_row():
    assert set(bursts(losses(FourState(0.0, 1.0, p14=0.4)))) == {1}


def test_a_burst_of_the_two_state_chain_is_one_over_p31_frames_long():
    found = bursts(losses(FourState(0.02, 0.25)))
    assert sum(found) / len(found) == pytest.approx(4, rel=0.15)
