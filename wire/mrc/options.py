"""Where public sources of MRC contradict each other: one switch a point, both readings work.

The specification (OCP MRC 1.0) is known here through works that cite its tables. The defaults
are the readings that most of them share.
"""

from enum import StrEnum
from typing import NamedTuple

PORTS = (4791, 4971)  # UDP destination ports that sources name; receivers take both


class BthBitOrder(StrEnum):
    """The two top bits of BTH byte 1."""

    M_SE = "M, SE"
    SE_M = "SE, M"  # as the IBTA has them


class EvSplit(StrEnum):
    """How 32 bits of entropy lie in an IPv6 packet."""

    LABEL_HIGH = "label high"  # flow label EV[31:16], UDP source port EV[15:0]
    LABEL_LOW = "label low"


class WireOptions(NamedTuple):
    """One reading of everything disputed that has bytes."""

    udp_dport: int = PORTS[0]
    bth_bit_order: BthBitOrder = BthBitOrder.M_SE
    ev_split: EvSplit = EvSplit.LABEL_HIGH
    eeth_op_shift: int = 2  # or 4
    icrc: bool = True  # False: sent as ones, not checked
    port_mask_base: int = 0  # the bit of plane 0 in a port status mask, 0 or 1


DEFAULTS = WireOptions()
