"""Where the bitmap of a SACK begins. mrc-emu/1, 12.8, with our deviation for AckReq."""

import pytest

from transports.mrc.bitmap import ReceiveBitmap
from transports.mrc.sack import SackGenerator, Trigger


@pytest.fixture
def responder():
    """Return bitmap and generator; PSN 0 is missing from the start."""
    bitmap = ReceiveBitmap(0)
    return bitmap, SackGenerator(bitmap, (1, 2), threshold=16384, mpr=0)


def arrive(responder, psn, **flags):
    """Let a PSN arrive; return the SACKs that it makes."""
    bitmap, generator = responder
    bitmap.mark(psn)
    trigger = Trigger(psn, 0, 0, 0, **flags)
    generator.arrived(trigger, 1024)
    return generator.sacks(trigger, "test", 0)


def shown(sacks):
    """Return the PSNs that some SACKs say have arrived."""
    return {
        sack.seth.cack_psn + sack.seth.sack_offset + bit & 0xFFFFFF
        for sack in sacks
        for bit in range(64)
        if sack.seth.sack_bitmap >> bit & 1
    }


def test_with_a_hole_in_front_and_ackreq_on_all_every_packet_is_told(responder):
    """A window that a hole holds up asks with each packet: none may stay untold."""
    told = set()
    for psn in range(1, 200):
        told |= shown(arrive(responder, psn, ack_req=True))
    assert told == set(range(1, 200))


def test_ackreq_has_the_lowest_base_where_that_has_news(responder):
    for psn in (1, *range(3, 100)):
        arrive(responder, psn)
    (sack,) = arrive(responder, 2, ack_req=True)  # late, and within the first 64
    assert sack.seth.sack_offset == 1


def test_a_probe_has_the_lowest_base_whatever_is_new(responder):
    for psn in range(1, 100):
        arrive(responder, psn)
    _, generator = responder
    first, *_ = generator.sacks(Trigger(7, 0, 0, 0, is_probe=True), "probe", 0)
    assert first.seth.sack_offset == 1
