"""The packet memory of a switch, and who may have how much of it. switch.md 2 and 5.

Memory is one pool: shared = total - reserves - headroom. Two kinds of account draw on it:

* the *queue account* of a lossy class at an egress port. It may use its reserve, and beyond it
  up to a threshold: fixed bytes, or alpha times the shared memory that is free at this moment.
  With n equal users that never have enough, each settles at alpha S / (1 + n alpha).

* the *ingress account* of a lossless class at the port that frames came in by. Up to XOFF it
  draws on reserve and shared memory; what comes later goes into its headroom, and is lost only
  when that is full. It is never charged at the egress as well.

A frame takes whole cells, from its arrival until it begins to leave; one that need not wait
takes none. Accounts count in bytes of cells. The reserve is used first and given back last; the
headroom is used last and given back first, so an account's share of the pool depends only on
how much it holds.
"""

from netem.topology.switch_plan import BufferPlan, PfcPlan


class Pool:
    """The memory that all accounts share."""

    def __init__(self, plan: BufferPlan, reserved: int, headroom: int) -> None:
        """`reserved` is the sum of all reserves, `headroom` of what lossless classes ask for.

        Raise ValueError where nothing would be left to share.
        """
        self.headroom = headroom if plan.headroom is None else plan.headroom
        self.shared = plan.total - reserved - self.headroom
        if self.shared <= 0 or plan.cell <= 0:
            raise ValueError(
                f"buffer of {plan.total} bytes is all taken:"
                f" {reserved} reserved, {self.headroom} headroom"
            )
        self.cell = plan.cell
        self.used = 0  # of the shared part
        self.headroom_used = 0
        self.peak = 0

    def cells(self, size: int) -> int:
        """Return the bytes of memory that a frame of `size` bytes takes."""
        cell = self.cell
        return size if cell == 1 else -(-size // cell) * cell


class Threshold:
    """What an account may have of the shared memory, `over` being what it wants beyond."""

    def __init__(self, pool: Pool, limit: int | None, alpha: float) -> None:
        self._pool = pool
        self._limit = limit
        self._num, self._den = alpha.as_integer_ratio()

    def allows(self, used: int, over: int) -> bool:
        """Say whether an account may hold `used`, of which `over` is not its reserve."""
        if self._limit is not None:
            return used <= self._limit
        pool = self._pool
        return over * self._den <= self._num * (pool.shared - pool.used)

    @property
    def now(self) -> int:
        """The threshold at this moment, in bytes."""
        if self._limit is not None:
            return self._limit
        return self._num * (self._pool.shared - self._pool.used) // self._den


class QueueAccount:
    """Memory of one lossy queue."""

    def __init__(
        self, pool: Pool, *, reserved: int = 0, limit: int | None = None, alpha: float = 8.0
    ) -> None:
        self.pool = pool
        self.reserved = reserved
        self.limit = limit
        self.num, self.den = alpha.as_integer_ratio()
        self.used = 0
        self.peak = 0

    def admit(self, size: int) -> bool:
        """Take memory for a frame of `size` bytes of cells, if there is any for it."""
        pool = self.pool
        used = self.used + size
        over = used - self.reserved
        if over > 0:
            # bench: switch. `Threshold.allows` and min(), written out
            free = pool.shared - pool.used
            extra = over if over < size else size  # noqa: FURB136
            if extra > free:
                return False
            if self.limit is not None:
                if used > self.limit:
                    return False
            elif over * self.den > self.num * free:
                return False
            pool.used += extra
            if pool.used > pool.peak:  # noqa: PLR1730
                pool.peak = pool.used
        self.used = used
        if used > self.peak:  # noqa: PLR1730
            self.peak = used
        return True

    def release(self, size: int) -> None:
        """Give the memory of a frame back."""
        over = self.used - self.reserved
        if over > 0:
            self.pool.used -= over if over < size else size  # noqa: FURB136 - bench: switch
        self.used -= size


class UncountedAccount:
    """Of a lossless queue: its frames are charged where they came in. A `limit` still holds."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self.used = 0
        self.peak = 0

    def admit(self, size: int) -> bool:
        """Count a frame, unless it goes beyond the limit."""
        used = self.used + size
        if self._limit is not None and used > self._limit:
            return False
        self.used = used
        self.peak = max(self.peak, used)
        return True

    def release(self, size: int) -> None:
        self.used -= size


class IngressAccount:
    """Memory of one lossless class at one ingress port, and whether the sender must pause."""

    def __init__(self, pool: Pool, plan: PfcPlan, *, reserved: int = 0) -> None:
        self.plan = plan
        self._pool = pool
        self._reserved = reserved
        self._threshold = Threshold(pool, plan.xoff, plan.alpha)
        self.used = 0  # reserve and shared
        self.headroom_used = 0
        self.peak = 0
        self.headroom_peak = 0
        self.lowest_xoff = self.xoff  # that there was
        self.is_off = False  # the sender is to be silent
        self.lost = 0  # bytes that found the headroom full, since the sender is to be silent
        self.needed = 0  # most headroom that would have lost nothing, over all such times

    @property
    def xoff(self) -> int:
        """Where the sender is told to pause, at this moment."""
        return self._threshold.now

    def admit(self, size: int) -> bool:
        """Take memory for a frame of `size` bytes of cells: shared first, then headroom."""
        pool = self._pool
        used = self.used + size
        over = used - self._reserved
        extra = 0 if over <= 0 else min(over, size)
        if extra <= pool.shared - pool.used and (
            over <= 0 or self._threshold.allows(used, over)
        ):
            pool.used += extra
            pool.peak = max(pool.peak, pool.used)
            self.used = used
            self.peak = max(self.peak, used)
        elif (
            self.headroom_used + size <= self.plan.headroom
            and pool.headroom_used + size <= pool.headroom
        ):
            self.headroom_used += size
            pool.headroom_used += size
            self.headroom_peak = max(self.headroom_peak, self.headroom_used)
            self.needed = max(self.needed, self.headroom_used + self.lost)
        else:
            self.is_off = True
            self.lost += size
            self.needed = max(self.needed, self.headroom_used + self.lost)
            return False
        xoff = self.xoff
        self.lowest_xoff = min(self.lowest_xoff, xoff)
        if self.headroom_used or self.used >= xoff:
            self.is_off = True
        return True

    def release(self, size: int) -> None:
        """Give the memory of a frame back: headroom first."""
        back = min(size, self.headroom_used)
        self.headroom_used -= back
        self._pool.headroom_used -= back
        rest = size - back
        over = self.used - self._reserved
        if over > 0:
            self._pool.used -= min(over, rest)
        self.used -= rest
        if self.is_off and not self.headroom_used and self.used <= self._xon():
            self.is_off = False
            self.lost = 0

    def _xon(self) -> int:
        """Return what the account may hold at most for the sender to go on."""
        plan = self.plan
        if plan.xoff is not None and not plan.xon_offset:
            return plan.xon
        return max(plan.xon, self.xoff - plan.xon_offset)
