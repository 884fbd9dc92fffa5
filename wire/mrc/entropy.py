"""Entropy values (EV): the bits of a packet that choose its path.

OCP MRC 1.0 (as cited) and the public controller API: up to 32 bits in the flow label and the
UDP source port of IPv6; 16 in the port alone over IPv4.
"""

from wire.codec import check_uint
from wire.mrc.options import EvSplit


def split(ev: int, order: EvSplit = EvSplit.LABEL_HIGH) -> tuple[int, int]:
    """Return the flow label, whose top four bits stay zero, and the UDP source port."""
    check_uint("ev", ev, 32)
    high, low = ev >> 16, ev & 0xFFFF
    return (high, low) if order is EvSplit.LABEL_HIGH else (low, high)


def join(flow_label: int, port: int, order: EvSplit = EvSplit.LABEL_HIGH) -> int:
    """Return the EV of an IPv6 packet; over IPv4 the port alone is the EV.

    The top four bits of the label are no part of it.
    """
    label = flow_label & 0xFFFF
    return label << 16 | port if order is EvSplit.LABEL_HIGH else port << 16 | label
