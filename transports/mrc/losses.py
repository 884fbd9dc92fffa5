"""Which packets are lost, as far as one can infer. mrc-emu/1, 12.8.

    L1  a NACK names the latest transmission, by its timestamp
    L2  one SACK shows what was sent later on the same EV as received and this PSN as missing: a
        path is first in, first out. What was sent more than once cannot be the later packet,
        since nobody knows which of its transmissions arrived
    L3  more packets arrived out of order than paths of different lengths explain: everything
        below the highest acknowledged PSN that is older than four round trips
    L4  its timer
    L5  a probe was answered without delay: what was sent long before it and is not there

L1 and L4 are facts that the requestor is told; the rules here look at the scoreboard. A clear
bit alone says nothing.
"""

from collections.abc import Iterator

from transports.clock import Ns
from transports.mrc.scoreboard import Scoreboard, Sent
from wire.mrc.reliability import BITMAP_BITS

_ALL = (1 << BITMAP_BITS) - 1
MIN_REORDERING = 5  # packets
OLD = 4  # base RTTs


def later_on_path(board: Scoreboard, cack: int, base: int, bitmap: int) -> Iterator[Sent]:
    """Return what rule L2 infers from one SACK."""
    gap = board.find(cack + 1)
    suspects = [] if gap is None or not gap.is_in_flight or not bitmap else [gap]
    missing = ~bitmap & ((1 << bitmap.bit_length()) - 1)
    suspects += (
        sent for sent in board.shown(base, missing) if sent.is_in_flight and sent is not gap
    )
    if not suspects:
        return
    latest: dict[int, int] = {}  # EV to the last order that arrived on it
    for sent in board.shown(base, bitmap):
        if sent.transmissions == 1:
            latest[sent.ev] = sent.order  # by PSN is by order, where all were sent once
    for sent in suspects:
        if latest.get(sent.ev, 0) > sent.order:
            yield sent


def reordering_limit(cwnd: int, max_cwnd: int, packet: int) -> int:
    """Return how many packets out of order are still no sign of loss, by rule L3."""
    return max(MIN_REORDERING, min(cwnd + cwnd // 2, max_cwnd) // packet)


def below_the_highest(board: Scoreboard, base_rtt: Ns, now: Ns) -> Iterator[Sent]:
    """Return what rule L3 infers, once there is too much out of order."""
    for sent in board.holes(board.highest_acked):
        if sent.is_in_flight and now - sent.sent_at > OLD * base_rtt:
            yield sent


def shown_by_probe(
    board: Scoreboard, cack: int, base: int, bitmap: int, sent_before: Ns
) -> Iterator[Sent]:
    """Return what rule L5 infers: sent before that time and missing in the answer."""
    gap = board.find(cack + 1)
    if gap is not None and gap.is_in_flight and gap.sent_at < sent_before:
        yield gap
    for sent in board.shown(base, ~bitmap & _ALL):
        if sent is not gap and sent.is_in_flight and sent.sent_at < sent_before:
            yield sent
