"""How often the requester tries again, and what it says when it gives up.

IBTA vol. 1, sections 9.7.6 and 9.9.2. Two budgets, both restored by any progress:

    retry_cnt   0 to 7: sendings again after a timeout, a sequence NAK or an implied NAK.
                Seven means seven (some implementations take it for endless).
    rnr_retry   0 to 6: sendings again after an RNR NAK; 7 is endless.
"""

from dataclasses import dataclass
from enum import Enum

from transports.clock import MS, US, Ns, S
from transports.roce.completion import WcStatus

ENDLESS_RNR = 7


class Cause(Enum):
    """Why something is sent again. The value is what captures and events say."""

    TIMEOUT = "timeout"
    NAK = "NAK"
    IMPLIED_NAK = "implied NAK"
    RNR = "RNR"


@dataclass(slots=True)
class Retries:
    """The two budgets, and since when and how often nothing has moved."""

    retry_cnt: int
    rnr_retry: int
    tries: int = 1  # sendings of the oldest unacknowledged packet, the first included
    since: Ns = 0  # of the first of them
    retries_left: int = 0
    rnr_left: int = 0

    def __post_init__(self) -> None:
        self.progress(0)

    def progress(self, now: Ns) -> None:
        """Something was acknowledged, or the first packet after an idle time was sent."""
        self.retries_left = self.retry_cnt
        self.rnr_left = self.rnr_retry
        self.tries = 1
        self.since = now

    def spend(self, cause: Cause) -> bool:
        """Take one from the budget of `cause`; say whether there was one."""
        if cause is Cause.RNR:
            if self.rnr_retry == ENDLESS_RNR:
                self.tries += 1
                return True
            if not self.rnr_left:
                return False
            self.rnr_left -= 1
        else:
            if not self.retries_left:
                return False
            self.retries_left -= 1
        self.tries += 1
        return True

    def verdict(self, cause: Cause) -> WcStatus:
        """Return the status of a request given up for `cause`."""
        if cause is Cause.RNR:
            return WcStatus.RNR_RETRY_EXC_ERR
        return WcStatus.RETRY_EXC_ERR

    def story(self, cause: Cause, qp_num: int, psn: int, now: Ns) -> str:
        """Return one line for a person: what was tried, how often and for how long."""
        what = _STORIES[cause]
        tries = "1 try" if self.tries == 1 else f"{self.tries} tries"
        elapsed = format_duration(now - self.since)
        return f"QP {qp_num:#x} PSN {psn:#08x}: {what}, {tries} in {elapsed}"


_STORIES = {
    Cause.TIMEOUT: "no answer",
    Cause.NAK: "sequence NAKs without progress",
    Cause.IMPLIED_NAK: "responses lost",
    Cause.RNR: "receiver not ready",
}


def format_duration(duration: Ns) -> str:
    """Return `duration` with three digits and the unit that suits it."""
    for unit, name in ((S, "s"), (MS, "ms"), (US, "us")):
        if duration >= unit:
            return f"{duration / unit:.3g} {name}"
    return f"{duration} ns"
