"""ECN marking at a queue: the law of RED. congestion.md 1; RFC 3168, section 5.

With q, the bytes that wait in the queue before the arriving frame:

    q <= Kmin          p = 0
    Kmin < q <= Kmax   p = Pmax (q - Kmin) / (Kmax - Kmin)
    q > Kmax           p = 1

Equal thresholds make a step. The draw for the n-th frame of a queue is number n of the stream
of that port and queue, whatever happened to the frames before: equal seeds mark equal frames.
"""

from enum import Enum

from netem.impair.alter import Ecn, ecn
from netem.impair.streams import Draws, threshold
from netem.topology.switch_plan import EcnPlan
from wire.codec import ReadBuffer


class Mark(Enum):
    """What the law wants done with a frame."""

    NOTHING = "nothing"
    CE = "mark it"
    DROP = "it is not ECN-capable, and WRED drops such frames"
    WOULD = "mark it, were marking on"
    INCAPABLE = "mark it, were it ECN-capable"


class Marker:
    """The law at one queue of one port."""

    def __init__(self, plan: EcnPlan, draws: Draws, *, is_on: bool) -> None:
        """Raise ValueError for thresholds in the wrong order. Not `is_on`: only say WOULD."""
        if not 0 <= plan.kmin <= plan.kmax:
            raise ValueError(f"ecn: kmin {plan.kmin} and kmax {plan.kmax} are no interval")
        self.at_dequeue = plan.at == "dequeue"
        self.kmin = plan.kmin  # up to which there is nothing to judge
        self._kmax = plan.kmax
        self._most = threshold(plan.pmax)
        self._draws = draws
        self._wred = plan.wred
        self._is_on = is_on

    def judge(self, frame: ReadBuffer, queued: int, number: int) -> Mark:
        """Decide about a frame, the `number`-th of its queue, that finds `queued` bytes."""
        if queued <= self.kmin or not self._strikes(queued, number):
            return Mark.NOTHING
        field = ecn(frame)
        if field is Ecn.CE:
            return Mark.NOTHING
        if field is Ecn.NOT_ECT:
            return Mark.DROP if self._wred else Mark.INCAPABLE
        return Mark.CE if self._is_on else Mark.WOULD

    def _strikes(self, queued: int, number: int) -> bool:
        if queued > self._kmax:
            return True
        chance = self._most * (queued - self.kmin) // (self._kmax - self.kmin)
        return self._draws.word(number) < chance
