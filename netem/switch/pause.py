"""PFC at a port, both ways: pauses that it obeys, and pauses that it asks for. switch.md 5.

**Obeying.** A PFC frame stops the classes that it names for so many quanta of 512 bit times,
counted from its arrival; a new time replaces the old one, and 0 means go on. A frame under way
is finished. Only lossless classes obey: for others the frame is counted and ignored.

**Asking.** When the memory of a lossless class at an ingress port passes XOFF, the sender there
is told to pause, again whenever half of the time is over, and to go on at XON. What is to be
told waits in `pending`, one time per class, and leaves before everything that is queued.
"""

from netem.switch.buffer import IngressAccount
from transports.clock import Ns, S
from wire.pfc import QUANTUM_BITS, Pfc, pfc_frame

PRIORITIES = 8
# Ours: a port without a rate has no bit time; it takes quanta to be those of 100 Gbit/s.
NOMINAL_RATE = 100_000_000_000


def pause_time(quanta: int, rate: int | None) -> Ns:
    """Return how long a pause lasts, rounded up to a nanosecond."""
    return -(-quanta * QUANTUM_BITS * S // (rate or NOMINAL_RATE))


class Pauses:
    """The pauses that a port obeys, by priority."""

    def __init__(self) -> None:
        self.until: list[Ns] = [0] * PRIORITIES
        self.latest: Ns = 0  # no priority is paused from then on
        self._total: list[Ns] = [0] * PRIORITIES

    def set(self, priority: int, time: Ns, now: Ns) -> None:
        """Stop a priority for `time` from now on, in place of what was said before."""
        left = max(0, self.until[priority] - now)
        self._total[priority] += time - left
        self.until[priority] = now + time
        self.latest = max(self.until)

    def total(self, priority: int, now: Ns) -> Ns:
        """Return for how long a priority has been paused up to `now`."""
        return self._total[priority] - max(0, self.until[priority] - now)


class LosslessClass:
    """One lossless class at one ingress port: its memory, and what its sender was told."""

    def __init__(self, port: str, index: int, priority: int, account: IngressAccount) -> None:
        self.port = port
        self.index = index
        self.priority = priority
        self.account = account
        self.is_pausing = False  # the sender has been told to pause, or will be at once
        self.refresh_at: Ns = 0  # when it is told again
        self.drops = 0
        self.drop_bytes = 0

    def quanta(self) -> int | None:
        """Return what the sender must be told because of the account's state, if anything."""
        account = self.account
        if account.is_off == self.is_pausing:
            return None
        self.is_pausing = account.is_off
        return account.plan.quanta if account.is_off else 0


class PauseSender:
    """What a port has to tell its peer."""

    def __init__(self, mac: bytes) -> None:
        self._mac = mac
        self.pending: dict[int, int] = {}  # priority -> quanta
        self.sent = [0] * PRIORITIES  # frames that named the priority
        self.frames = 0

    def frame(self) -> bytes:
        """Return one frame that says all that is pending."""
        frame = pfc_frame(self._mac, Pfc.of(self.pending))
        self.frames += 1
        for priority in self.pending:
            self.sent[priority] += 1
        self.pending.clear()
        return frame
