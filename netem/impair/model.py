"""What one direction of a link does to frames: the parameters, in netem's words.

The names, defaults and meaning are those of tc-netem(8); probabilities are 0 to 1, times are
emulated nanoseconds, `rate` is bit/s and `limit` is *bytes* of queue (tc counts packets).
"""

from typing import Literal

from msgspec import Struct

from transports.clock import Ns

Distribution = Literal["uniform", "normal", "pareto", "paretonormal"]


class RandomLoss(Struct, frozen=True, tag="random", forbid_unknown_fields=True):
    """Each frame is lost with probability `p`; `correlation` ties it to the last decision."""

    p: float
    correlation: float = 0.0


class GilbertElliott(Struct, frozen=True, tag="gemodel", forbid_unknown_fields=True):
    """Good loses `loss_good` (1-k), bad `loss_bad` (1-h); p enters bad, r leaves it."""

    p: float
    r: float
    loss_bad: float = 1.0
    loss_good: float = 0.0


class FourState(Struct, frozen=True, tag="state", forbid_unknown_fields=True):
    """The four-state Markov model; p13 is required, the rest default as `tc` does."""

    p13: float
    p31: float
    p32: float = 0.0
    p23: float = 1.0
    p14: float = 0.0


Loss = RandomLoss | GilbertElliott | FourState


class Slot(Struct, frozen=True, forbid_unknown_fields=True):
    """Frames leave in bursts: a slot, so many packets and bytes, the next slot.

    From one to the next it takes `min_delay` to `max_delay`, or what a table of tc says around
    `dist_delay`. The names are the kernel's, `tc_netem_slot`. For the kernel's netem alone.
    """

    min_delay: Ns = 0
    max_delay: Ns = 0
    distribution: str = ""  # a table of tc, in place of the two
    dist_delay: Ns = 0
    dist_jitter: Ns = 0
    max_packets: int = 0  # in one slot; 0: any number
    max_bytes: int = 0


class Impairment(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that one direction of a link does; the default does nothing at all."""

    delay: Ns = 0
    jitter: Ns = 0
    delay_corr: float = 0.0
    distribution: Distribution = "uniform"
    loss: Loss | None = None
    ecn: bool = False  # mark CE instead of losing, where the packet is ECT
    corrupt: float = 0.0
    corrupt_corr: float = 0.0
    duplicate: float = 0.0
    duplicate_corr: float = 0.0
    reorder: float = 0.0
    reorder_corr: float = 0.0
    gap: int = 0
    rate: int | None = None  # bit/s
    overhead: int = 0  # bytes added to each frame when its time on the wire is worked out
    limit: int | None = None  # bytes queued; None: worked out from rate and delay
    keep_order: bool = False  # jitter never reorders
    corrupt_from: int | None = None  # first byte that may be hit; None: after Ethernet and tags
    slot: Slot | None = None

    @property
    def is_neutral(self) -> bool:
        """True where a frame passes untouched and at once."""
        return self == NEUTRAL


NEUTRAL = Impairment()
