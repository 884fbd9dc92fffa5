"""How large the memory regions of a flow are; what lies where in them is netem.host.layout."""

from typing import NamedTuple

from netem.topology.model import ATOMICS, RECEIVE_OPS, ItemSpec
from netem.topology.transport_model import TransportSpec

# Limits, ours.
MAX_MEMORY = 1 << 30  # bytes of all regions of a lab
MAX_SLOTS = 256  # messages that a region has room for; more are never in flight
BUDGET = 4 << 20  # bytes that a region may take for more than one message ...
SHARED_BUDGET = 256 << 20  # ... and all regions of a lab together
WORD = 8  # bytes; slots are whole words
ATOMIC_REGION = 64


class RegionSizes(NamedTuple):
    """Bytes of the requester's and of the responder's region of one flow."""

    requester: int
    responder: int


def budget(flows: int) -> int:
    """Return what each region of a lab of so many flows may take for more than one message."""
    return min(BUDGET, SHARED_BUDGET // (2 * max(1, flows)))


def region_sizes(item: ItemSpec, transport: TransportSpec, most_bytes: int) -> RegionSizes:
    """Return regions that hold as many messages as two windows of packets, within the budget.

    With an offset the responder's region holds one message and not a byte more, so that every
    offset leads out of it, unless the lab says how large the region is.
    """
    if item.op in ATOMICS:
        slots = min(messages(item), transport.max_rd_atomic)
        return RegionSizes(WORD * slots, item.region or ATOMIC_REGION)
    slot = whole_words(largest(item))
    row = slot if item.op in {"write", "write_imm", "read"} else 0
    if item.op in RECEIVE_OPS and item.recv_count != 0:
        row += whole_words(receive_size(item))
    row = row or WORD
    two_windows = max(2, 2 * transport.window_packets * transport.mtu // slot)
    wanted = 1 if item.remote_offset else min(messages(item), MAX_SLOTS, two_windows)
    slots = max(1, min(wanted, most_bytes // max(slot, row)))
    return RegionSizes(slot * slots, item.region or row * slots)


def receive_size(item: ItemSpec) -> int:
    """Return the bytes of each receive: room for a SEND, none for a WRITE with immediate."""
    if item.recv_size is not None:
        return item.recv_size
    return 0 if item.op == "write_imm" else largest(item)


def messages(item: ItemSpec) -> int:
    """Return how many messages each queue pair of the item carries."""
    return item.count * max(1, len(item.size))


def largest(item: ItemSpec) -> int:
    """Return the size of the item's largest message."""
    return max(item.size, default=0)


def whole_words(size: int) -> int:
    """Return the bytes of a slot for a message of `size`."""
    return max(WORD, -(-size // WORD) * WORD)
