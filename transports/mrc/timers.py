"""When a requestor does something although nothing has come. mrc-emu/1, 12.8.

    retransmission   one per transmission: a PSN that was not acknowledged in time is lost (L4)
    acknowledgement  the same for what arrived and was not answered by a Transport ACK
    tail probe       asks for a SACK where nothing has been acknowledged for some round trips
    trims            one PSN that is trimmed again and again waits, longer each time

Intervals are linear, then exponential (OCP MRC 1.0, table 10-1, as cited): the same one for the
first `linear` expiries, then twice the last.
"""

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

from transports.clock import Ns
from transports.mrc.scoreboard import Sent

TIMEOUT_UNIT: Ns = 1024  # of the code t: 1.024 us * 2^t
INFINITE = 25  # exponential retries: never give up
_MOST_DOUBLINGS = 25  # ours, for INFINITE
# Ours: trims of one PSN after which it is sent again at once, and how often the wait doubles
PROMPT_TRIMS, MOST_TRIM_DOUBLINGS = 3, 6


def timeout(code: int) -> Ns:
    """Return the interval that the code t stands for."""
    return TIMEOUT_UNIT << code


def wait_after_trim(trims: int, base_rtt: Ns) -> Ns:
    """Return how long a PSN that was trimmed so often waits: 0, then R, 2 R, 4 R, to 64 R.

    A trim says that the peer lives, so it uses up no retry; this keeps it from going on and on
    at the pace of round trips instead.
    """
    again = trims - PROMPT_TRIMS - 1
    return 0 if again < 0 else base_rtt << min(again, MOST_TRIM_DOUBLINGS)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait, and how often."""

    rto: Ns
    linear: int
    exponential: int

    def interval(self, retries: int) -> Ns:
        """Return how long to wait once `retries` were in vain."""
        return self.rto << min(max(0, retries + 1 - self.linear), _MOST_DOUBLINGS)

    def is_exhausted(self, retries: int) -> bool:
        return self.exponential < INFINITE and retries > self.linear + self.exponential


class RetransmissionTimers:
    """One timer per transmission.

    Those of the linear phase expire in the order in which they were armed, so a queue does; a
    heap has the few others.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._linear: deque[tuple[Ns, int, Sent]] = deque()  # due, order, whose
        self._exponential: list[tuple[Ns, int, Sent]] = []

    def arm(self, sent: Sent) -> None:
        """Start the timer of a packet that was sent just now."""
        policy = self._policy
        if sent.retries < policy.linear:
            self._linear.append((sent.sent_at + policy.rto, sent.order, sent))
        else:
            due = sent.sent_at + policy.interval(sent.retries)
            heappush(self._exponential, (due, sent.order, sent))

    @property
    def deadline(self) -> Ns | None:
        """Return when the first one expires."""
        linear, exponential = self._linear, self._exponential
        while linear and _is_stale(linear[0]):
            linear.popleft()
        while exponential and _is_stale(exponential[0]):
            heappop(exponential)
        if linear and exponential:
            return min(linear[0][0], exponential[0][0])
        if linear:
            return linear[0][0]
        return exponential[0][0] if exponential else None

    def next_expired(self, now: Ns) -> Sent | None:
        """Return the packet whose timer expired first, if one has; its timer is gone then."""
        due = self.deadline
        if due is None or due > now:
            return None
        if self._linear and self._linear[0][0] == due:
            return self._linear.popleft()[2]
        return heappop(self._exponential)[2]


def _is_stale(entry: tuple[Ns, int, Sent]) -> bool:
    _, order, sent = entry
    return sent.order != order or not sent.is_in_flight


class TailProbe:
    """When to ask because nobody says anything."""

    def __init__(self) -> None:
        self._quiet_since: Ns = 0
        self._last_probe: Ns | None = None  # since then

    def progress(self, now: Ns) -> None:
        """Take note that something was acknowledged, or that sending began."""
        self._quiet_since = now
        self._last_probe = None

    def probed(self, now: Ns) -> None:
        self._last_probe = now

    def due(self, base_rtt: Ns, target: Ns, *, has_backlog: bool) -> Ns:
        """Return when the next probe is due, if there is anything to ask about."""
        if self._last_probe is not None:
            return self._last_probe + 5 * base_rtt
        return self._quiet_since + (3 * base_rtt if has_backlog else base_rtt + target)


class AckTimer:
    """Gives up when nothing at all has moved: what was sent is not answered."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._since: Ns = 0
        self.retries = 0

    def progress(self, now: Ns) -> None:
        """Take note that something was acknowledged, or that sending began."""
        self._since = now
        self.retries = 0

    @property
    def due(self) -> Ns:
        """Return when the timer expires, if there is something to wait for."""
        return self._since + self._policy.interval(self.retries)

    def expire(self, now: Ns) -> bool:
        """Count an expiry; say whether it was the last one."""
        self._since = now
        self.retries += 1
        return self._policy.is_exhausted(self.retries)
