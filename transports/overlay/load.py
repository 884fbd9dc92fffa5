"""How much handshake work there is, and how much one address may ask for under load.

A kernel queues handshake messages and calls itself under load when the queue is long. This
machine works each off at once, so it keeps the length of the queue that *would* be there: each
message adds one, time takes `handshakes_per_second` away. So the answer depends on what came
when, and not on how the driver happened to batch it.
"""

from transports.clock import Ns, S
from transports.overlay.endpoint import Endpoint
from transports.overlay.limits import Limits


class _Queue:
    """A length that time shortens, at most `most` long; in nanoseconds of work."""

    def __init__(self, per_second: int, most: int) -> None:
        self._cost = S // per_second
        self._most = most * self._cost
        self._idle_at: Ns = 0  # when all that came so far is worked off

    def has_room(self, now: Ns) -> bool:
        return max(self._idle_at - now, 0) + self._cost <= self._most

    def add(self, now: Ns) -> bool:
        """Lengthen the queue by one, if that fits; say whether it is at its longest now."""
        waiting = max(self._idle_at - now, 0) + self._cost
        self._idle_at = now + min(waiting, self._most)
        return waiting >= self._most


class Load:
    """Whether we are under load, and whether there is room for work at all."""

    def __init__(self, limits: Limits) -> None:
        rate = limits.handshakes_per_second
        self._arrivals = _Queue(rate, limits.load_threshold)
        self._work = _Queue(rate, limits.max_waiting)
        self._memory = limits.load_memory
        self._until: Ns = -1

    def arrive(self, now: Ns) -> bool:
        """Note a message with a valid mac1; say whether we are under load."""
        if self._arrivals.add(now):
            self._until = now + self._memory
        return now < self._until

    def admit(self, now: Ns) -> bool:
        """Say whether a handshake may be worked on, and note it."""
        if not self._work.has_room(now):
            return False
        self._work.add(now)
        return True


class RateLimiter:
    """A token bucket per address: so many packets a second, and a burst.

    The key is a whole IPv4 address or the first 64 bits of an IPv6 address, of which one host
    may have all. It is asked only after a valid mac2, so addresses in it are real.
    """

    def __init__(self, limits: Limits) -> None:
        self._cost: Ns = S // limits.source_packets_per_second
        self._full: Ns = self._cost * limits.source_burst
        self._most = limits.max_sources
        self._buckets: dict[bytes, tuple[Ns, Ns]] = {}  # tokens in nanoseconds, and when
        self._swept_at: Ns = 0

    def allow(self, source: Endpoint, now: Ns) -> bool:
        key = source.address[:8]
        bucket = self._buckets.get(key)
        if bucket is None:
            self._sweep(now)
            if len(self._buckets) >= self._most:
                return False
            bucket = self._full, now
        tokens, at = bucket
        tokens = min(self._full, tokens + now - at)
        allowed = tokens >= self._cost
        self._buckets[key] = tokens - self._cost if allowed else tokens, now
        return allowed

    def __len__(self) -> int:
        return len(self._buckets)

    def _sweep(self, now: Ns) -> None:
        """Forget buckets that are full again: nothing is lost with them."""
        if now - self._swept_at < self._full and len(self._buckets) < self._most:
            return
        self._swept_at = now
        self._buckets = {
            key: (tokens, at)
            for key, (tokens, at) in self._buckets.items()
            if tokens + now - at < self._full
        }
