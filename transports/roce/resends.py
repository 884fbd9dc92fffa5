"""What is sent again: why, and for the how manieth time."""

from transports.roce.retries import Cause


class Resends:
    """Counts the sendings of every packet in the window that was sent more than once.

    PSNs are unwrapped. Bounded by the window: what is acknowledged is forgotten.
    """

    def __init__(self) -> None:
        self.why = ""  # of the newest return to an earlier packet
        self.stop = 0  # what is before it was sent before
        self._times: dict[int, int] = {}  # PSN to sendings, where more than one

    def begin(self, stop: int, cause: Cause) -> None:
        """Note that everything before `stop` is about to be sent again because of `cause`."""
        self.why = cause.value
        self.stop = stop

    def next(self, psn: int, limit: int) -> tuple[int, int]:
        """Return which sending `psn` is about to have, and how many packets have the same."""
        times = self._times
        this = times.get(psn, 1) + 1
        most = min(limit, self.stop - psn)
        count = 1
        while count < most and times.get(psn + count, 1) + 1 == this:
            count += 1
        return this, count

    def sent(self, psn: int, packets: int, this: int) -> None:
        """Count a sending."""
        for again in range(psn, psn + packets):
            self._times[again] = this

    def acknowledged(self, una: int) -> None:
        """Forget what is before `una`."""
        times = self._times
        if not times:
            return
        if una >= self.stop:
            times.clear()
        else:
            for psn in [psn for psn in times if psn < una]:
                del times[psn]
