"""The three loss models of netem: independent, Gilbert-Elliott, four states.

A model is asked once for each frame offered, in order, whatever else happens to that frame:
what a burst hits depends on the frames' numbers alone.

**Gilbert-Elliott.** Two states. A frame that arrives in the good one moves it to bad with
probability p, in the bad one back to good with r. The frame itself is lost with `loss_good`
(tc: 1-k) or `loss_bad` (tc: 1-h) *of the state it arrived in*. In the long run
(p x loss_bad + r x loss_good) / (p + r) of the frames are lost, and with `loss_bad` 1 and
`loss_good` 0 the mean burst is 1/r frames.

**Four states,** one draw per frame::

    GOOD GAP --p14--> ISOLATED LOSS: this frame is lost, the next one passes, back to GOOD GAP
    GOOD GAP --p13--> BAD BURST: frames are lost ...
    BAD BURST --p32--> GOOD BURST: ... but for some in the middle ...
    GOOD BURST --p23--> BAD BURST
    BAD BURST --p31--> GOOD GAP: ... until the burst is over
"""

from enum import Enum
from typing import Protocol

from netem.impair.model import FourState, GilbertElliott, Loss, RandomLoss
from netem.impair.streams import Chance, Draws, Stream, stream, threshold


class LossModel(Protocol):
    """Decides which frames are lost."""

    def hits(self, number: int) -> bool:
        """Decide for frame `number`; to be asked once for each, in order."""


class GilbertElliottLoss:
    """Two draws per frame: one moves the state, one decides about the frame."""

    def __init__(self, loss: GilbertElliott, moves: Draws, draws: Draws) -> None:
        self._moves = moves
        self._draws = draws
        self._leave = threshold(loss.p), threshold(loss.r)
        self._lose = threshold(loss.loss_good), threshold(loss.loss_bad)
        self._is_bad = False

    def hits(self, number: int) -> bool:
        arrived_in = self._is_bad
        if self._moves.word(number) < self._leave[arrived_in]:
            self._is_bad = not arrived_in
        return self._draws.word(number) < self._lose[arrived_in]


class _State(Enum):
    GOOD_GAP = 1
    GOOD_BURST = 2
    BAD_BURST = 3
    ISOLATED_LOSS = 4


class FourStateLoss:
    """One draw per frame decides both about the frame and about the next state.

    `_table` holds, for each state, (threshold, next state, lost) from the least draw up; the
    last row takes the draws above all others.
    """

    def __init__(self, loss: FourState, draws: Draws) -> None:
        self._draws = draws
        gap, good, bad, isolated = _State
        p13, p14, p23 = threshold(loss.p13), threshold(loss.p14), threshold(loss.p23)
        p31, p32 = threshold(loss.p31), threshold(loss.p32)
        rest = 1 << 32
        self._table = {
            gap: ((p14, isolated, True), (p14 + p13, bad, True), (rest, gap, False)),
            good: ((p23, bad, True), (rest, good, False)),
            bad: ((p32, good, False), (p32 + p31, gap, False), (rest, bad, True)),
            isolated: ((rest, gap, False),),
        }
        self._state = gap

    def hits(self, number: int) -> bool:
        draw = self._draws.word(number)
        row = next(row for row in self._table[self._state] if draw < row[0])
        self._state = row[1]
        return row[2]


def loss_model(loss: Loss, seed: int, direction: str) -> LossModel:
    """Return the model for `loss`, in its starting state."""
    match loss:
        case RandomLoss():
            return Chance(stream(seed, direction, "loss", loss.correlation), loss.p)
        case GilbertElliott():
            moves = Stream(seed, direction, "loss state")
            return GilbertElliottLoss(loss, moves, Stream(seed, direction, "loss"))
        case FourState():
            return FourStateLoss(loss, Stream(seed, direction, "loss"))
