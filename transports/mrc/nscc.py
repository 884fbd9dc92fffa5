"""Congestion control of MRC: a window at the sender, NSCC. Ultra Ethernet 1.0, section 3.6.

One controller per destination. Three things move its window `cwnd`:

    newly received bytes     a counter in each SACK: how far the receiver has come
    delay                    RTT of an unambiguous sample, less the smallest one: queues
    marks                    a SACK whose packet came with CE; move packets to other paths,
                             and cut the window only while the delay is long on average, too

                    delay below target                       delay at target or above
    no mark    grow, faster the emptier the queue is;     grow a little (fair increase)
               after a window of no delay: fast
    mark       nothing, the path changes                  once per RTT: cut, by up to half

What grows is collected and put into the window every 8 packets of bytes or every RTT. A lost or
trimmed packet takes its size off. Quick adapt looks once per R + T at what arrived in that
time: if something was lost or the delay is very long, and little arrived, the window becomes
just that.

The constants are Ultra Ethernet's, as functions of rate, RTT and packet size; `mrc-emu/1`,
12.10, takes M = path MTU + 64 for a packet and the rates of all planes together.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from transports.clock import US, Ns, S
from wire.mrc.reliability import RCVD_BYTES_UNIT

REFERENCE_BDP = 150_000  # bytes: 100 Gb/s for 12 us
REFERENCE_RTT = 12 * US
GAMMA = 0.8
MAX_MD_JUMP = 0.5
QA_GATE = 3
AVERAGE_WEIGHT = 0.0125
ADJUST_PACKETS = 8
# Ours: how far base RTT may fall, of what it began with. Timers and probes go by it, and a peer
# that takes more than its own time off a timestamp would make them run away.
LEAST_RTT = 1 / 4
PENALTY_UNITS = 128
MAX_EVENTS = 1024  # more are counted

_COUNTER = 1 << 24  # of received bytes, in units of 256


@dataclass(frozen=True)
class NsccConfig:
    """What the constants come from. Raise ValueError for what makes no window."""

    rate: int  # bits per second, of all planes together
    base_rtt: Ns = REFERENCE_RTT
    packet: int = 4096 + 64  # bytes: M
    trimming: bool = True
    quick_adapt: bool = True
    about_zero: Ns = US  # delays below count as none

    def __post_init__(self) -> None:
        if self.rate <= 0 or self.base_rtt <= 0 or self.packet <= 0:
            what = f"rate {self.rate}, base RTT {self.base_rtt} ns, packet {self.packet} B"
            raise ValueError(f"{what}: all are to be above 0")

    @cached_property
    def bdp(self) -> float:
        """Bytes under way when the network is just full."""
        return self.rate * self.base_rtt / 8 / S

    @cached_property
    def max_cwnd(self) -> float:
        """The largest window, and the first; a packet at least."""
        return max(1.5 * self.bdp, self.packet)

    @cached_property
    def least_rtt(self) -> Ns:
        """The smallest base RTT that samples lead to."""
        return max(1, int(self.base_rtt * LEAST_RTT))

    @cached_property
    def target(self) -> Ns:
        """The queueing delay to aim at: T."""
        return self.base_rtt * 3 // 4 if self.trimming else self.base_rtt

    @cached_property
    def scaling_a(self) -> float:
        return self.bdp / REFERENCE_BDP

    @cached_property
    def scaling_b(self) -> float:
        return self.target / REFERENCE_RTT

    @cached_property
    def alpha(self) -> float:
        """Bytes per microsecond that the delay is below the target."""
        return 4 * self.scaling_a * self.scaling_b * self.packet / (self.target / US)

    @cached_property
    def fi(self) -> float:
        """Fair increase, bytes."""
        return 5 * self.packet * self.scaling_a

    @cached_property
    def fi_scale(self) -> float:
        """Fast increase: of each byte, without delay."""
        return 0.25 * self.scaling_a

    @cached_property
    def eta(self) -> float:
        """Bytes that the window grows each RTT, whatever happens."""
        return 0.15 * self.packet * self.scaling_a

    @cached_property
    def adjust_bytes(self) -> int:
        return ADJUST_PACKETS * self.packet

    @cached_property
    def qa_threshold(self) -> Ns:
        """The delay that makes quick adapt look; with trimming, losses alone do."""
        return 4 * self.target


class NsccEvent(NamedTuple):
    """The window moved. What it grew since the event before is told as one."""

    at: Ns
    old: int  # bytes
    new: int
    cause: str


@dataclass(slots=True)
class NsccCounters:
    """How often the window was made smaller, and why."""

    decreases: int = 0  # marks with a long delay
    quick_adapts: int = 0
    losses: int = 0
    trims: int = 0
    penalties: int = 0
    restores: int = 0
    overtaken: int = 0  # SACKs whose counter was older than one seen before
    unbelieved: int = 0  # SACKs whose counter says more than was sent
    events_dropped: int = 0


class Nscc:
    """The window towards one destination. `inflight` is the bytes under way after a call."""

    def __init__(self, config: NsccConfig) -> None:
        self.config = config
        self.base_rtt = config.base_rtt  # falls with smaller samples
        self.target = config.target
        self.counters = NsccCounters()
        self.average_delay = 0.0  # ns
        self._cwnd = float(config.max_cwnd)
        self._told = self._cwnd  # the window of the last event
        self._events: deque[NsccEvent] = deque()
        self.tell: Callable[[], None] | None = None  # whom to call when there is one
        self._rcvd = 0  # newest value of the peer's counter
        self._arrived = 0  # bytes that it has told of in all
        self._increase = 0.0  # collected, square bytes
        self._collected = 0  # bytes since the last adjustment
        self._idle_bytes = 0  # received while there was no delay
        self._last_adjust: Ns | None = None
        self._last_decrease: Ns | None = None
        self._saved: float | None = None  # window before the first penalty
        # Quick adapt
        self._armed = False
        self._achieved = 0
        self._qa_end: Ns | None = None
        self._ignored = 0  # bytes left whose congestion signals are ignored

    @property
    def cwnd(self) -> int:
        """The window in bytes: a packet may be sent if inflight and its size fit."""
        return int(self._cwnd)

    @property
    def max_cwnd(self) -> int:
        return int(self.config.max_cwnd)

    # What comes in

    def on_sack(  # noqa: PLR0917 (in the order of the SACK's fields)
        self,
        rcvd_bytes: int,
        rtt_ns: Ns | None,
        marked: bool,
        penalty: int,
        restore: bool,
        inflight: int,
        offered: int,
        now: Ns,
    ) -> None:
        """Take what a SACK says.

        `rcvd_bytes` is its counter as it stands there, in units of 256; `rtt_ns` None where the
        sample would be ambiguous; `marked`: m says SKIP_ONCE; `penalty` 0 to 127 and `restore`
        are the receiver's; `offered`: nominal bytes of all that was ever sent, each packet
        once, and a counter ahead of that is not believed. Unclear: what a SACK without a sample
        means for the window. We take the average delay, which neither cuts nor grows it fast.
        """
        received = self._newly_received(rcvd_bytes, offered)
        sample = rtt_ns is not None
        if rtt_ns is not None:
            self.base_rtt = min(self.base_rtt, max(rtt_ns, self.config.least_rtt))
            delay = float(max(0, rtt_ns - self.base_rtt))
            self._average(delay, marked)
        else:
            delay = self.average_delay
        self._achieved += received
        self._ignored = max(0, self._ignored - received)
        self._credit(penalty, restore, received, now)
        if not self._quick_adapt(now, inflight, delay if sample else 0.0, loss=False):
            self._act(received, delay, sample, marked, now)
        self._adjust(received, now)

    def on_trimmed(self, size: int, inflight: int, now: Ns) -> None:
        """Take a NACK of reason TRIMMED, or TRIMMED_LASTHOP, for a packet of `size` bytes."""
        self.counters.trims += 1
        self._average(float(self.base_rtt), marked=True)
        self._lose(size, inflight, now, f"a packet of {size} B was trimmed")

    def on_lost(self, size: int, inflight: int, now: Ns) -> None:
        """Take a packet of `size` bytes that was declared lost."""
        self.counters.losses += 1
        self._lose(size, inflight, now, f"a packet of {size} B was lost")

    def events(self) -> Iterable[NsccEvent]:
        """Hand out, once and in order, what the window did and why."""
        while self._events:
            yield self._events.popleft()

    # What it means

    def _newly_received(self, counter: int, offered: int) -> int:
        newer = (counter - self._rcvd) % _COUNTER
        if newer >= _COUNTER // 2:  # a SACK that another one has overtaken
            self.counters.overtaken += 1
            return 0
        received = newer * RCVD_BYTES_UNIT
        if self._arrived + received >= offered + RCVD_BYTES_UNIT:  # the counter is rounded up
            # Else all SACKs up to there would count as overtaken, and the window stand still
            self.counters.unbelieved += 1
            return 0
        self._rcvd = counter
        self._arrived += received
        return received

    def _average(self, delay: float, marked: bool) -> None:
        if delay > self.target and not marked:
            delay = self.base_rtt / 4  # on the way back, or gone already
        self.average_delay += AVERAGE_WEIGHT * (delay - self.average_delay)

    def _act(self, received: int, delay: float, sample: bool, marked: bool, now: Ns) -> None:
        config = self.config
        if not sample or delay >= config.about_zero:
            self._idle_bytes = 0
        if marked:
            if delay >= self.target:
                self._decrease(now)
        elif delay >= self.target:
            self._increase += config.fi * received
        else:
            if sample and delay < config.about_zero:
                self._idle_bytes += received
            if self._idle_bytes > self._cwnd:
                self._set(self._cwnd + received * config.fi_scale)
            else:
                self._increase += config.alpha * received * (self.target - delay) / US

    def _decrease(self, now: Ns) -> None:
        average, last = self.average_delay, self._last_decrease
        if self._ignored or average <= self.target:
            return
        if last is not None and now - last < self.base_rtt:
            return
        self._last_decrease = now
        self.counters.decreases += 1
        factor = max(1 - GAMMA * (average - self.target) / average, MAX_MD_JUMP)
        cause = (
            f"marked, and the average delay is {average / US:.1f} us, above {self._target_us}"
        )
        self._move(self._cwnd * factor, now, cause)

    def _adjust(self, received: int, now: Ns) -> None:
        self._collected += received
        if self._last_adjust is None:
            self._last_adjust = now
        a_period = now - self._last_adjust >= self.base_rtt
        if self._collected < self.config.adjust_bytes and not a_period:
            return
        grown = self._cwnd + self._increase / self._cwnd
        if a_period:
            grown += self.config.eta
            self._last_adjust = now
        self._increase = 0.0
        self._collected = 0
        self._set(grown)

    def _lose(self, size: int, inflight: int, now: Ns, cause: str) -> None:
        self._armed = True
        if self._quick_adapt(now, inflight, 0.0, loss=True) or self._ignored:
            self._ignored = max(0, self._ignored - size)  # it is accounted for, too
            return
        self._move(self._cwnd - size, now, cause)

    def _quick_adapt(self, now: Ns, inflight: int, delay: float, *, loss: bool) -> bool:
        """Look at the time since the last look, if R + T have passed; say whether it acted."""
        config = self.config
        if not config.quick_adapt:
            return False
        if self._qa_end is None:
            self._qa_end = now + self.base_rtt + self.target
            return False
        if now < self._qa_end:
            return False
        achieved, armed = self._achieved, self._armed
        late = not config.trimming and delay > config.qa_threshold
        self._achieved, self._armed = 0, False
        self._qa_end = now + self.base_rtt + self.target
        if not (armed or loss or late) or achieved >= config.max_cwnd / (1 << QA_GATE):
            return False
        self.counters.quick_adapts += 1
        self._ignored = inflight
        self._increase = 0.0
        self._move(float(achieved), now, f"quick adapt: {achieved} B arrived in R + T")
        return True

    def _credit(self, penalty: int, restore: bool, received: int, now: Ns) -> None:
        if restore and self._saved is not None:
            self.counters.restores += 1
            self._move(self._saved, now, "the receiver takes its penalty back")
            self._saved = None
        elif penalty:
            self.counters.penalties += 1
            if self._saved is None:
                self._saved = self._cwnd
            less = received * penalty / PENALTY_UNITS
            self._move(self._cwnd - less, now, f"a penalty of {penalty} of the receiver")

    # The window

    def _set(self, cwnd: float) -> None:
        self._cwnd = min(max(cwnd, float(self.config.packet)), self.config.max_cwnd)

    def _move(self, cwnd: float, now: Ns, cause: str) -> None:
        """Set the window and tell why; first what it has grown since the last event."""
        if int(self._told) != self.cwnd:
            self._tell(NsccEvent(now, int(self._told), self.cwnd, "grew"))
        old = self.cwnd
        self._set(cwnd)
        self._told = self._cwnd
        if old != self.cwnd:
            self._tell(NsccEvent(now, old, self.cwnd, cause))

    def _tell(self, event: NsccEvent) -> None:
        if len(self._events) < MAX_EVENTS:
            self._events.append(event)
            if self.tell is not None:
                self.tell()
        else:
            self.counters.events_dropped += 1

    @property
    def _target_us(self) -> str:
        return f"{self.target / US:.1f} us"
