"""The reaction point of DCQCN: CNPs in, a rate out. Zhu et al., SIGCOMM 2015, section 3.

Of a queue pair we know the current rate R_C, the target rate R_T that it came from, and alpha,
the estimate of how congested the way is. Without a CNP there is no state, and packets leave at
the rate of the line. The first CNP starts with R_C = R_T = line rate.

    a CNP       R_T = R_C;  R_C = R_C (1 - alpha/2);  alpha = (1-g) alpha + g
                stage counters 0, all clocks start anew
    no CNP for dce_tcp_rtt                              alpha = (1-g) alpha
    each rpg_time_reset   raises the stage T   }  and then increases:
    each rpg_byte_reset   raises the stage B   }
        max(T, B) <= rpg_threshold    fast recovery     R_C = (R_T + R_C) / 2
        min(T, B) >  rpg_threshold    hyper increase    R_T += i rpg_hai_rate, then the same;
                                                        i = min(T, B) - rpg_threshold
        else                          additive          R_T += rpg_ai_rate, then the same

The stage is raised before it is compared, so there are rpg_threshold steps of fast recovery.
When R_C is back at line rate the limit is gone and the state forgotten.

**Law mlx** is the adapters', as modelled for HPCC. Two clocks run freely from the first CNP on:
each dce_tcp_rtt, alpha takes in whether a CNP came since the last time; each
rate_reduce_monitor_period the rate is cut if one came. There is one stage, which time and bytes
both raise; additive increase is its one step at rpg_threshold + 1, every later one is hyper, by
rpg_hai_rate alone. Without clamp_tgt_rate a cut leaves R_T as it is unless an increase came
between it and the cut before.

Nothing here wakes anybody: what the clocks would have done is made up for when somebody asks,
in the order of time. Rates are whole bit/s; halves are rounded up, so that a gap closes.
"""

from transports.clock import Ns
from transports.roce.congestion.parameters import ONE, Dcqcn, Law


class ReactionPoint:
    """The side of one queue pair that sends data, on a line of `line_rate` bit/s."""

    def __init__(self, config: Dcqcn, line_rate: int) -> None:
        self._config = config
        self.line_rate = min(config.rpg_max_rate or line_rate, line_rate)
        self._min_rate = min(config.rpg_min_rate, self.line_rate)
        self._keep = config.dce_tcp_g / ONE
        self._depth = ONE / (1 << config.rpg_gd)  # of a cut with alpha 1
        self.cnps = 0
        self.cuts = 0
        self._now: Ns = 0
        self._forget()

    def _forget(self) -> None:
        """Limit nothing, and know of no congestion."""
        self.is_active = False
        self.rate = self.target = self.line_rate
        self._alpha = 0.0  # at `_alpha_at`, less a step
        self._was_raised = True  # since the last cut
        self._has_cnp = False  # in this period of the rate's clock (mlx)
        self._has_mark = False  # in this step of alpha's (mlx)
        self._stages = [0, 0]  # by time, by bytes
        self._bytes = 0  # since the byte counter began
        self._alpha_at: Ns = 0  # the step of alpha that comes next
        self._raise_at: Ns = 0  # the next increase by time
        self._cut_at: Ns = 0  # the end of a period of the rate's clock (mlx)

    # -- what happens ----------------------------------------------------------------------

    def receive_cnp(self, now: Ns) -> None:
        """Take note of a CNP."""
        self.advance(now)
        self.cnps += 1
        if not self.is_active:
            self._begin(now)
        if self._config.law is Law.MLX:
            if not self._has_cnp:
                period = self._config.rate_reduce_monitor_period
                self._cut_at += max(0, (now - self._cut_at) // period + 1) * period
            self._age(now)
            self._has_cnp = self._has_mark = True
        else:
            self._cut(now)
            self._alpha = self._keep * self._alpha + 1 - self._keep
            self._alpha_at = now + self._config.dce_tcp_rtt

    def _begin(self, now: Ns) -> None:
        config = self._config
        self.is_active = True
        self._alpha = config.initial_alpha_value / ONE
        if config.rate_to_set_on_first_cnp:
            self.rate = self.target = self._bounded(config.rate_to_set_on_first_cnp)
        self._alpha_at = now + config.dce_tcp_rtt
        self._raise_at = now + config.rpg_time_reset
        self._cut_at = now + config.rate_reduce_monitor_period

    def sent(self, size: int, now: Ns) -> None:
        """Count bytes on the wire: enough of them increase the rate."""
        every = self._config.rpg_byte_reset
        if not self.is_active or not every:
            return
        self.advance(now)
        self._bytes += size
        while self._bytes >= every:
            self._bytes -= every
            self._increase(by_bytes=True)

    def advance(self, now: Ns) -> None:
        """Make up for what the clocks did up to `now`."""
        self._now = now
        while self.is_active and (at := self.next_change) <= now:
            if self._has_cnp and at == self._cut_at:
                self._cut(at)
            else:
                self._raise_at = at + self._config.rpg_time_reset
                self._increase(by_bytes=False)

    @property
    def alpha(self) -> float:
        """How congested the way is, 0 to 1, as of the last call."""
        return self._aged(self._steps(self._now)) if self.is_active else 0.0

    @property
    def next_change(self) -> Ns:
        """When a clock changes the rate next; only of use while `is_active`."""
        return min(self._cut_at, self._raise_at) if self._has_cnp else self._raise_at

    # -- the three laws --------------------------------------------------------------------

    def _age(self, now: Ns) -> None:
        """Let alpha take its steps up to `now`: when it is used, and else never.

        So it does not depend on who asks for it meanwhile, not even in its last digit.
        """
        steps = self._steps(now)
        if steps:
            self._alpha = self._aged(steps)
            self._has_mark = False
            self._alpha_at += steps * self._config.dce_tcp_rtt

    def _steps(self, now: Ns) -> int:
        return max(0, (now - self._alpha_at) // self._config.dce_tcp_rtt + 1)

    def _aged(self, steps: int) -> float:
        alpha = self._alpha
        if steps and self._has_mark:
            alpha = self._keep * alpha + 1 - self._keep
            steps -= 1
        return alpha * _power(self._keep, steps)

    def _cut(self, now: Ns) -> None:
        self._age(now)
        config = self._config
        if config.clamp_tgt_rate or self._was_raised:
            self.target = self.rate
        cut = int(self.rate * (1 - self._alpha * self._depth))
        floor = self.rate * config.rpg_min_dec_fac // 100
        self.rate = self._bounded(max(cut, floor))
        self.cuts += 1
        self._was_raised = self._has_cnp = False
        self._stages = [0, 0]
        self._bytes = 0
        self._raise_at = now + config.rpg_time_reset

    def _increase(self, *, by_bytes: bool) -> None:
        config = self._config
        self._was_raised = True
        if config.law is Law.MLX:
            self._stages[0] += 1
            beyond = self._stages[0] - config.rpg_threshold
            step = config.rpg_hai_rate if beyond > 1 else config.rpg_ai_rate * (beyond == 1)
        else:
            self._stages[by_bytes] += 1
            hyper = min(self._stages) - config.rpg_threshold
            is_recovery = max(self._stages) <= config.rpg_threshold
            step = (
                0
                if is_recovery
                else hyper * config.rpg_hai_rate
                if hyper > 0
                else config.rpg_ai_rate
            )
        self.target = self._bounded(self.target + step)
        self.rate = self._bounded((self.target + self.rate + 1) // 2)
        if self.rate == self.line_rate and not self._has_cnp:
            self._forget()

    def _bounded(self, rate: int) -> int:
        return min(max(rate, self._min_rate), self.line_rate)


def _power(base: float, exponent: int) -> float:
    """Return a power by products alone, which every host rounds alike."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result
