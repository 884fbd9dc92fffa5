"""The PFC watchdog of one queue: what to do about a pause that does not end. switch.md 5.

A queue that has frames, is paused, and sends nothing for `detect` is in a storm. What is done
then is the plan's action, until no pause has been in force for `restore`:

    drop      what waits, what comes for the queue, and what its port receives of the class
    forward   obey no pause
    alert     nothing; only tell

Chips poll; here the times are exact.
"""

from netem.topology.switch_plan import WatchdogPlan
from transports.clock import Ns


class Watchdog:
    """Watches one queue."""

    def __init__(self, plan: WatchdogPlan) -> None:
        self.plan = plan
        self.in_storm = False
        self.detected = 0
        self.restored = 0
        self._stuck_since: Ns | None = None

    @property
    def drops(self) -> bool:
        """Say whether frames are dropped now."""
        return self.in_storm and self.plan.action == "drop"

    @property
    def ignores_pause(self) -> bool:
        """Say whether no pause is obeyed now."""
        return self.in_storm and self.plan.action == "forward"

    def stuck(self, now: Ns) -> Ns | None:
        """Take note that the queue has frames and is paused; return when to call `expire`.

        None where that was said before.
        """
        if self._stuck_since is not None or self.in_storm:
            return None
        self._stuck_since = now
        return now + self.plan.detect

    def moved(self) -> None:
        """Take note that the queue has sent a frame, or has none."""
        self._stuck_since = None

    def changed(self, paused_until: Ns) -> Ns | None:
        """Take note of another end of the pause; return when to call `expire`, if in a storm.

        A resume lets the calm begin at once, not when the pause would have run out.
        """
        return paused_until + self.plan.restore if self.in_storm else None

    def expire(self, paused_until: Ns, now: Ns) -> Ns | None:
        """Begin or end a storm if it is time; return when to be called again, or None."""
        if not self.in_storm:
            since = self._stuck_since
            if since is None or paused_until <= now:  # it may send again
                self._stuck_since = None
                return None
            if now < since + self.plan.detect:
                return since + self.plan.detect
            self._stuck_since = None
            self.in_storm = True
            self.detected += 1
        calm = paused_until + self.plan.restore
        if now < calm:
            return calm
        self.in_storm = False
        self.restored += 1
        return None
