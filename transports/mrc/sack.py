"""When a responder reports, and what. OCP MRC 1.0, section 7.5 (as cited); mrc-emu/1, 12.8.

Five triggers: enough bytes since the last SACK; AckReq; a congestion mark; a retransmission; a
probe. And a sixth of ours: nothing stays unreported for longer than half a round trip.

    first PSN of the bitmap
    all that is marked fits behind cack      cack + 1
    a probe; AckReq with news there          cack + 1
    otherwise                                the lowest that was not reported, or further up,
                                             so that the highest received PSN is covered

If there are marks beyond the bitmap, the next SACK follows at once: four in a row at most.

A duplicate that was reported before gets one SACK more, which has it: the peer would not have
sent it again, had the earlier one arrived. What is still to be reported waits as before.
"""

from collections import OrderedDict
from typing import NamedTuple

from transports.clock import Ns
from transports.mrc.bitmap import ReceiveBitmap
from transports.mrc.serials import MASK16
from transports.roce.psn import MASK
from wire.mrc.eths import TICK_NS
from wire.mrc.reliability import BITMAP_BITS, RCVD_BYTES_UNIT, PathVerdict, Seth

MIN_COUNTED = 1024  # bytes that a packet counts for at least
MAX_BURST = 4
FARTHEST_TRIGGER = 0x8000  # PSNs behind cack: what ack_psn_offset holds
_MAX_OOO = 0x7FFF
MAX_RUNS = 1024  # EVs whose marks in a row are counted


class Trigger(NamedTuple):
    """What a SACK reflects of the packet that made it: a WRITE or a probe."""

    psn: int  # unwrapped; of a probe, its id
    ev: int
    stamp: int
    arrived: Ns
    rtx: bool = False
    is_marked: bool = False
    ack_req: bool = False
    is_probe: bool = False


class Sack(NamedTuple):
    """One SACK to send: its header, and BTH.rtx of its trigger."""

    seth: Seth
    rtx: bool
    why: str


class SackGenerator:
    """Triggers and contents of the SACKs of one responder."""

    def __init__(
        self,
        bitmap: ReceiveBitmap,
        numbers: tuple[int, int],  # low 16 bits of our QP number and of the peer's
        *,
        threshold: int,
        mpr: int,  # 0 unless dynamic
        always_skip_run: int | None = None,
        service_time: bool = False,
    ) -> None:
        self.mpr = mpr
        self.rcvd_bytes = 0  # nominal, each PSN once
        self.penalty = 0  # of 128
        self.restores = False
        self._bitmap = bitmap
        self._spdcid, self._dpdcid = numbers
        self._threshold = threshold
        self._run_limit = always_skip_run
        self.counts_runs = always_skip_run is not None
        self._service_time = service_time
        self._counter = 0  # bytes since the last SACK
        self.unreported_since: Ns | None = None
        self._last: Trigger | None = None
        self._runs: OrderedDict[int, int] = OrderedDict()  # EV to marks in a row

    def arrived(self, trigger: Trigger, payload: int) -> bool:
        """Count a new packet that was marked; say whether a SACK is due."""
        self._last = trigger
        if self.unreported_since is None:
            self.unreported_since = trigger.arrived
        self._counter += max(payload, MIN_COUNTED)
        return (
            self._counter >= self._threshold
            or trigger.ack_req
            or trigger.is_marked
            or trigger.rtx
        )

    def path_told(self, ev: int, *, congested: bool) -> None:
        """Count marks and trims in a row on an EV, where ALWAYS_SKIP is switched on."""
        if self._run_limit is None:
            return
        runs = self._runs
        if not congested:
            runs.pop(ev, None)
            return
        runs[ev] = runs.pop(ev, 0) + 1
        if len(runs) > MAX_RUNS:
            runs.popitem(last=False)

    def flush_due(self, base_rtt: Ns) -> Ns | None:
        """Return when what is unreported must be reported."""
        since = self.unreported_since
        return None if since is None else since + base_rtt // 2

    def flush(self, now: Ns) -> list[Sack]:
        """Report what is unreported, with the last packet as the trigger."""
        assert self._last is not None
        return self.sacks(self._last, "flush", now)

    def sacks(self, trigger: Trigger, why: str, now: Ns) -> list[Sack]:
        """Return what reports the state, `trigger` being the cause.

        Nothing, if the trigger is too far behind for its offset.
        """
        bitmap = self._bitmap
        if not trigger.is_probe and bitmap.cack - trigger.psn > FARTHEST_TRIGGER:
            return []
        self._counter = 0
        self.unreported_since = None
        out: list[Sack] = []
        is_only_ack_req = trigger.ack_req and not (trigger.is_marked or trigger.rtx)
        for _ in range(1 if is_only_ack_req else MAX_BURST):
            base = self._base(trigger, is_first=not out)
            out.append(self._sack(trigger, base, why, now))
            if bitmap.reported(base) is None:
                break
        else:
            self.unreported_since = now
        return out

    def again(self, trigger: Trigger, now: Ns) -> Sack | None:
        """Return the SACK for a duplicate above cack; None where that of `sacks` has it."""
        usual = self._base(trigger, is_first=True)
        if usual <= trigger.psn < usual + BITMAP_BITS:
            return None
        base = min(trigger.psn, self._bitmap.max_rcv - BITMAP_BITS + 1)
        return self._sack(trigger, base, "duplicate", now)

    def _base(self, trigger: Trigger, *, is_first: bool) -> int:
        bitmap = self._bitmap
        lowest = bitmap.cack + 1
        if bitmap.max_rcv - bitmap.cack <= BITMAP_BITS:
            return lowest
        if is_first and trigger.is_probe:
            return lowest
        # Deviation: by the profile a packet with A always has this base. A window that is held
        # up by a hole has A on every packet, and what arrived beyond the bitmap would be told
        # by none of them: so the base is there only where it has news.
        if is_first and trigger.ack_req and bitmap.lowest_unsacked < lowest + BITMAP_BITS:
            return lowest
        return max(lowest, min(bitmap.lowest_unsacked, bitmap.max_rcv - BITMAP_BITS + 1))

    def _sack(self, trigger: Trigger, base: int, why: str, now: Ns) -> Sack:
        bitmap = self._bitmap
        offset = trigger.psn - bitmap.cack
        if trigger.is_probe:
            offset = trigger.psn - 0x10000 if trigger.psn >= 0x8000 else trigger.psn
        stamp = trigger.stamp
        if self._service_time:
            stamp = stamp + (now - trigger.arrived) // TICK_NS & MASK16
        return Sack(
            Seth(
                bitmap.cack & MASK,
                offset,
                base - bitmap.cack,
                bitmap.bits(base),
                trigger.ev,
                self._spdcid,
                self._dpdcid,
                self._verdict(trigger),
                trigger.is_probe,
                self.mpr,
                stamp,
                min(bitmap.ooo_count, _MAX_OOO),
                self.restores,
                self.penalty,
                -(-self.rcvd_bytes // RCVD_BYTES_UNIT) & 0xFFFFFF,
            ),
            trigger.rtx,
            why,
        )

    def _verdict(self, trigger: Trigger) -> PathVerdict:
        if self._run_limit is not None and self._runs.get(trigger.ev, 0) >= self._run_limit:
            return PathVerdict.ALWAYS_SKIP
        return PathVerdict.SKIP_ONCE if trigger.is_marked else PathVerdict.NONE
