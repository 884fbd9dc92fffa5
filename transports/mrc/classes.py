"""Traffic classes: six roles of DSCPs, OCP MRC 1.0 (as cited); numbers of mrc-emu/1, 12.6."""

from enum import IntEnum

ECT0, CE = 2, 3  # the ECN field: data is ECT(0), control is not capable


class Dscp(IntEnum):
    """What a packet is, to switches and to who receives it."""

    NO_TRIM = 0  # a WRITE that must not be trimmed, a probe of such a queue pair
    TRIMMABLE = 4
    TRIMMABLE_RETX = 8
    TRIMMED = 12  # at a hop inside the fabric
    TRIMMED_LASTHOP = 16  # at a port that faces the host
    CONTROL = 46


TRIMMED = frozenset({Dscp.TRIMMED, Dscp.TRIMMED_LASTHOP})
