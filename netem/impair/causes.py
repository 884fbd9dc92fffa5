"""The random part of an impairment: all decisions about frame number n, taken at once.

Every cause that is switched on decides about every frame, also about one that another cause
has already killed, because a correlated cause remembers: only so does no cause shift another.

Deviation: netem asks a cause only about frames that got that far.
"""

from netem.impair.distribution import Jitter
from netem.impair.loss import LossModel, loss_model
from netem.impair.model import NEUTRAL, Impairment, RandomLoss
from netem.impair.streams import Chance, stream
from transports.clock import Ns

# What is to happen to one frame, as bits: an int, because most frames are only asked about.
LOST = 1
DUPLICATED = 2
CORRUPTED = 4
CANDIDATE = 8  # for overtaking; `gap` has a say as well


class Causes:
    """The causes of one direction, each with its own stream."""

    def __init__(self, seed: int, direction: str) -> None:
        self._seed = seed
        self._direction = direction
        self._now = NEUTRAL
        self._loss: LossModel | None = None
        self._duplicate: Chance | None = None
        self._corrupt: Chance | None = None
        self._reorder: Chance | None = None
        self._jitter: Jitter | None = None
        self.is_idle = True  # nothing to ask `decide`
        self.has_jitter = False

    def adopt(self, new: Impairment) -> None:
        """Make the causes of `new`; one whose parameters are as before goes on as it is."""
        old, self._now = self._now, new
        if new.loss != old.loss:
            self._loss = self._loss_model(new)
        if (new.duplicate, new.duplicate_corr) != (old.duplicate, old.duplicate_corr):
            self._duplicate = self._chance("duplicate", new.duplicate, new.duplicate_corr)
        if (new.corrupt, new.corrupt_corr) != (old.corrupt, old.corrupt_corr):
            self._corrupt = self._chance("corrupt", new.corrupt, new.corrupt_corr)
        if (new.reorder, new.reorder_corr) != (old.reorder, old.reorder_corr):
            self._reorder = self._chance("reorder", new.reorder, new.reorder_corr)
        jitter = new.jitter, new.distribution, new.delay_corr
        if jitter != (old.jitter, old.distribution, old.delay_corr):
            self._jitter = self._jitter_of(new)
        self.is_idle = not (self._loss or self._duplicate or self._corrupt or self._reorder)
        self.has_jitter = self._jitter is not None

    def _loss_model(self, new: Impairment) -> LossModel | None:
        if new.loss is None or (isinstance(new.loss, RandomLoss) and not new.loss.p):
            return None
        return loss_model(new.loss, self._seed, self._direction)

    def _chance(self, cause: str, p: float, correlation: float) -> Chance | None:
        return Chance(stream(self._seed, self._direction, cause, correlation), p) if p else None

    def _jitter_of(self, new: Impairment) -> Jitter | None:
        if not new.jitter:
            return None
        draws = stream(self._seed, self._direction, "delay", new.delay_corr)
        return Jitter(new.jitter, new.distribution, draws)

    def decide(self, number: int) -> int:
        """Return what happens to frame `number`; to be asked once for each, in order."""
        verdict = 0
        if self._loss is not None and self._loss.hits(number):
            verdict |= LOST
        if self._duplicate is not None and self._duplicate.hits(number):
            verdict |= DUPLICATED
        if self._corrupt is not None and self._corrupt.hits(number):
            verdict |= CORRUPTED
        if self._reorder is not None and self._reorder.hits(number):
            verdict |= CANDIDATE
        return verdict

    def jitter(self, number: int) -> Ns:
        """Return what frame `number` adds to the constant delay; asked once for each, too."""
        return 0 if self._jitter is None else self._jitter.offset(number)
