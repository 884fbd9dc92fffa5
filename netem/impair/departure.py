"""What goes into an egress beside a frame, and what comes out of it."""

from enum import Enum
from typing import NamedTuple

from transports.clock import Ns
from wire.codec import ReadBuffer


class FrameMeta(NamedTuple):
    """What the sender of a frame knows about it and its bytes do not say."""

    qp_num: int = 0
    psn: int = 0
    transmission: int = 0  # 1: sent for the first time; 0: not known
    why: str = ""  # of a retransmission: "timeout", "NAK", "RNR", "implied NAK", "duplicate"
    tag: object = None  # the caller's own, handed back with the departure
    comment: str = ""  # what a switch did to it, for the capture
    killed: bool = False  # it died in its node: to be recorded, not to be sent


NO_META = FrameMeta()


class Fate(Enum):
    """What became of a frame."""

    SENT = "sent"
    DROPPED = "dropped"


class Departure(NamedTuple):
    """A frame that left the egress, or died in it, at `at`.

    `comment` is for the capture: empty, or phrases joined by "; " of which each starts with one
    of `dropped corrupted duplicated delayed marked retransmission`.
    """

    at: Ns
    frame: ReadBuffer
    fate: Fate
    comment: str = ""
    meta: FrameMeta = NO_META

    @property
    def transmission(self) -> int:
        """1 for a frame sent for the first time, 0 where nobody knows."""
        return self.meta.transmission


def remark(meta: FrameMeta) -> str:
    """Return what the capture says about a frame that nothing happened to on its link."""
    if meta.transmission > 1 or meta.why:
        return join(meta.comment, f"retransmission: {meta.why or 'reason unknown'}")
    return meta.comment


def join(*phrases: str) -> str:
    """Return the phrases of a comment as one, without the empty ones."""
    return "; ".join(phrase for phrase in phrases if phrase)
