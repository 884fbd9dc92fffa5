"""Traffic class and ECN across the end of a tunnel. RFC 6040, section 4.2; RFC 2983.

A switch marks the outer header, since it looks no deeper; whoever takes that header off decides
what is left of the marks.
"""

from enum import Enum

ECN = 0b11
NOT_ECT, ECT_1, ECT_0, CE = range(4)


class Marks(Enum):
    """What decapsulation does with the outer traffic class."""

    PIPE = "pipe"  # inner DSCP stays; ECN of both by RFC 6040
    UNIFORM = "uniform"  # outer DSCP comes in; ECN of both by RFC 6040
    # Deviation: nothing comes in and congestion marks are lost, against RFC 6040, as in Linux.
    INNER = "inner"


def combined_ecn(inner: int, outer: int) -> int | None:
    """Return the ECN field that goes on; None: drop. RFC 6040, figure 4."""
    if inner == NOT_ECT:
        return None if outer == CE else NOT_ECT
    if CE in {outer, inner}:
        return CE
    return ECT_1 if outer == ECT_1 else inner


def decapsulated_class(inner: int, outer: int, marks: Marks) -> int | None:
    """Return the traffic class that the inner packet goes on with; None: drop it."""
    if marks is Marks.INNER:
        return inner
    ecn = combined_ecn(inner & ECN, outer & ECN)
    if ecn is None:
        return None
    dscp = outer if marks is Marks.UNIFORM else inner
    return dscp & ~ECN | ecn
