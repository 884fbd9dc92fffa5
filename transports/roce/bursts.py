"""A burst: packets of one message that are alike but for PSN and payload.

Requester and responder decide in bursts; the device turns one into packets, either one by one
(`templates`) or as a train (`train`). A single packet is a burst of one.
"""

from functools import lru_cache
from typing import NamedTuple

from transports.roce.attributes import Peer
from wire.codec import ReadBuffer
from wire.ipv6 import IPV6
from wire.roce.bth import BTH
from wire.roce.icrc import ICRC
from wire.udp import UDP


class Burst(NamedTuple):
    """`packets` packets with consecutive PSNs and the same headers behind the BTH.

    Each carries `size` bytes of `data`, the last one what remains.
    """

    opcode: int
    psn: int  # of the first, as on the wire
    packets: int
    extension: bytes  # all extension headers
    data: ReadBuffer
    size: int
    ack_req: bool = False  # on the last packet
    solicited: bool = False
    transmission: int = 1  # 1: sent for the first time
    why: str = ""  # it is sent again
    to: Peer | None = None  # where it goes, if not to the one peer of its queue pair


MAX_BURST = 64  # packets: bounds what is rendered ahead of a driver that stops draining

# A train is what UDP segmentation offload cuts: packets of one size, the last maybe shorter.
MAX_SEGMENTS = 64  # the kernel's limit
# The receiver's kernel joins what stays below 64 KiB with its headers; one segment more would
# come to its reader by itself.
MAX_TRAIN = (1 << 16) - 1 - IPV6.size - UDP.size
# Ours: trains of a burst. They are made one by one, so nothing is rendered ahead.
TRAINS = 4
OVERHEAD = BTH.size + ICRC.size  # bytes of a packet without extension headers and payload


@lru_cache(maxsize=4096)  # no longer ones
def max_packets(segment: int) -> int:
    """Return how many segments of this size one train may have."""
    return max(1, min(MAX_SEGMENTS, MAX_TRAIN // segment))


def max_burst(mtu: int, *, in_trains: bool) -> int:
    """Return how many full packets one burst may have: whole trains, if not a single one."""
    train = max_packets(OVERHEAD + mtu)
    return TRAINS * train if in_trains else MAX_BURST - MAX_BURST % train
