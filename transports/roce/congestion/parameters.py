"""The constants of DCQCN, under the names that NVIDIA's tools and Linux's mlx5 driver have.

Two columns of numbers exist. The default, `PAPER`, is that of Zhu et al., "Congestion Control
for Large-Scale RDMA Deployments", SIGCOMM 2015. What adapters do unless told otherwise differs,
in its numbers and in its clocks; `MLX` is that, after NVIDIA's parameter pages and the model of
it that comes with HPCC (alibaba-edu/High-Precision-Congestion-Control).
"""

from dataclasses import dataclass
from enum import Enum

from transports.clock import US, Ns

ONE = 1024  # what adapters write for 1: alpha and its gain are fixed point, 10 bits
_MBIT = 1_000_000

# Inclusive. The adapters' registers, as far as their widths are known; else what makes sense.
RANGES = {
    "min_time_between_cnps": (0, 1 << 40),
    "cnp_dscp": (0, 63),
    "initial_alpha_value": (1, ONE),
    "dce_tcp_g": (1, ONE - 1),
    "dce_tcp_rtt": (1, 1 << 40),
    "rate_reduce_monitor_period": (0, 1 << 40),
    "rpg_gd": (10, 15),
    "rpg_min_dec_fac": (0, 100),
    "rpg_min_rate": (1, 1 << 50),
    "rpg_max_rate": (0, 1 << 50),
    "rpg_threshold": (1, 31),
    "rpg_time_reset": (1, 1 << 40),
    "rpg_byte_reset": (0, 1 << 50),
    "rpg_ai_rate": (1, 1 << 50),
    "rpg_hai_rate": (1, 1 << 50),
    "rate_to_set_on_first_cnp": (0, 1 << 50),
}


class Law(Enum):
    """When the reaction point looks at what has come."""

    PAPER = "paper"  # at each CNP; time without one lets alpha decay
    MLX = "mlx"  # on two clocks of its own, which ask whether a CNP has come since


@dataclass(frozen=True, slots=True)
class Dcqcn:
    """Both ends of DCQCN. Times in nanoseconds, rates in bit/s, sizes in bytes.

    Raise ValueError for a value out of range.
    """

    law: Law = Law.PAPER
    # Notification point
    min_time_between_cnps: Ns = 50 * US  # of one queue pair
    cnp_dscp: int = 48
    # Reaction point: alpha, the estimate of congestion
    initial_alpha_value: int = ONE  # of 1024
    dce_tcp_g: int = ONE - 4  # of 1024: what alpha keeps in one step, so g is 1/256
    dce_tcp_rtt: Ns = 55 * US  # one step
    # ... what a CNP costs
    rate_reduce_monitor_period: Ns = 0  # MLX: at most one cut in it
    rpg_gd: int = 11  # the rate is cut by alpha * 1024 / 2^rpg_gd, so by alpha / 2
    rpg_min_dec_fac: int = 50  # percent of the rate that one cut leaves at least
    rpg_min_rate: int = 1 * _MBIT
    clamp_tgt_rate: bool = True  # each cut sets the target; else the first after an increase
    rate_to_set_on_first_cnp: int = 0  # 0: the line's
    # ... and how the rate comes back
    rpg_max_rate: int = 0  # 0: the line's
    rpg_threshold: int = 5  # steps of fast recovery
    rpg_time_reset: Ns = 55 * US  # a step each ...
    rpg_byte_reset: int = 10_000_000  # ... and one each so many bytes; 0: none
    rpg_ai_rate: int = 40 * _MBIT
    rpg_hai_rate: int = 200 * _MBIT  # "a few times" the one above

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}, legal is {low} to {high}")
        if self.law is Law.MLX and not self.rate_reduce_monitor_period:
            raise ValueError("rate_reduce_monitor_period is 0, the mlx law needs one")


PAPER = Dcqcn()
MLX = Dcqcn(
    law=Law.MLX,
    min_time_between_cnps=4 * US,
    initial_alpha_value=1023,
    dce_tcp_g=1019,
    dce_tcp_rtt=1 * US,
    rate_reduce_monitor_period=4 * US,
    clamp_tgt_rate=False,
    rpg_threshold=1,
    rpg_time_reset=300 * US,
    rpg_byte_reset=32767 * 64,
    rpg_ai_rate=5 * _MBIT,
    rpg_hai_rate=50 * _MBIT,
)
PROFILES = {"paper": PAPER, "mlx": MLX}
