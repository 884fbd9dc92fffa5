"""Rule L2 without looking at every bit of every SACK. mrc-emu/1, 12.8.

A path is first in, first out. So what was sent on an EV lies in a queue, and as long as
acknowledgements come from its front nothing is wrong there, whatever other paths do. Only where
one came out of the middle are SACKs looked at: by `losses.later_on_path`, the definition, whose
answer is the same; a test holds the two together.

Limit: what is in flight, and what was sent again meanwhile.
"""

from collections import deque
from collections.abc import Iterable

from transports.mrc.losses import later_on_path
from transports.mrc.scoreboard import Scoreboard, Sent


class Overtaking:
    """What was sent on each EV, in order, and which EVs have lost something, as it seems."""

    def __init__(self) -> None:
        self._queues: dict[int, deque[tuple[int, Sent]]] = {}  # by EV: order, whose
        self._newest: dict[int, int] = {}  # the last order that arrived; for `_suspects` alone
        self._suspects: set[int] = set()  # EVs

    def sent(self, sent: Sent) -> None:
        """Take note of a transmission."""
        queue = self._queues.get(sent.ev)
        if queue is None:
            queue = self._queues[sent.ev] = deque()
        while queue and _is_over(queue[0]):
            queue.popleft()
        queue.append((sent.order, sent))

    def acknowledged(self, new: Iterable[Sent]) -> None:
        """Take note of what a SACK acknowledged."""
        queues, newest = self._queues, self._newest
        grown: set[int] = set()
        for sent in new:
            if sent.transmissions != 1:
                continue  # nobody knows which of them arrived
            queue = queues.get(sent.ev)
            if queue is None:
                continue
            while queue:
                order, first = queue[0]
                if first.order == order and not (first.is_acked or first.is_lost):
                    break
                queue.popleft()
            if queue and queue[0][0] < sent.order:
                grown.add(sent.ev)
                newest[sent.ev] = max(newest.get(sent.ev, 0), sent.order)
        # They are looked at for each SACK: no more of them than there must be.
        for ev in grown:
            queues[ev] = deque(entry for entry in queues[ev] if not _is_over(entry))
        self._suspects |= grown

    def lost(self, board: Scoreboard, cack: int, base: int, bitmap: int) -> list[Sent]:
        """Return what rule L2 infers from one SACK, which was acknowledged before."""
        if not self._suspects:
            return []
        is_shown, width = False, bitmap.bit_length()
        for ev in [*self._suspects]:
            queue, newest = self._queues[ev], self._newest[ev]
            while queue and _is_over(queue[0]):
                queue.popleft()
            if not queue or queue[0][0] > newest:
                self._suspects.discard(ev)
                del self._newest[ev]
                continue
            for order, sent in queue:
                if order > newest or is_shown:
                    break
                bit = sent.psn - base
                is_clear = 0 <= bit < width and not bitmap >> bit & 1
                is_shown = width > 0 and (is_clear or sent.psn == cack + 1)
        return [*later_on_path(board, cack, base, bitmap)] if is_shown else []

    def forget(self) -> None:
        """Take note that nothing is unacknowledged."""
        self._queues.clear()
        self._newest.clear()
        self._suspects.clear()


def _is_over(entry: tuple[int, Sent]) -> bool:
    """Say whether a transmission is settled: it arrived, was declared lost, or sent again."""
    order, sent = entry
    return sent.order != order or sent.is_acked or sent.is_lost
