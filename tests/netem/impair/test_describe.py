"""Impairments and faults in words."""

import pytest

from netem.impair.describe import describe, describe_fault, describe_where
from netem.impair.model import NEUTRAL, FourState, GilbertElliott, Impairment, RandomLoss, Slot
from netem.topology.plan import FaultPlan, Where
from transports.clock import MS, US


@pytest.mark.parametrize(
    ("impairment", "words"),
    [
        (NEUTRAL, "none"),
        (
            Impairment(delay=MS, jitter=200 * US, loss=RandomLoss(0.01)),
            "delay 1ms jitter 200us loss 1%",
        ),
        (
            Impairment(jitter=MS, delay_corr=0.25, distribution="normal", keep_order=True),
            "jitter 1ms 25% distribution normal keep_order",
        ),
        (Impairment(loss=RandomLoss(0.001, 0.5), ecn=True), "loss 0.1% 50% ecn"),
        (Impairment(loss=GilbertElliott(0.01, 0.1)), "loss gemodel 1% 10%"),
        (
            Impairment(loss=GilbertElliott(0.01, 0.1, 0.7, 0.001)),
            "loss gemodel 1% 10% 70% 0.1%",
        ),
        (Impairment(loss=FourState(0.01, 0.99)), "loss state 1% 99%"),
        (
            Impairment(loss=FourState(0.01, 0.5, 0.1, 0.2, 0.005)),
            "loss state 1% 50% 10% 20% 0.5%",
        ),
        (Impairment(loss=RandomLoss(0.0)), "loss 0%"),
        (
            Impairment(corrupt=0.001, corrupt_corr=0.1, corrupt_from=0, duplicate=0.01),
            "corrupt 0.1% 10% corrupt_from 0B duplicate 1%",
        ),
        (
            Impairment(delay=10 * MS, reorder=0.25, reorder_corr=0.5, gap=5),
            "delay 10ms reorder 25% 50% gap 5",
        ),
        (
            Impairment(rate=100 * 10**9, overhead=24, limit=64 << 10),
            "rate 100gbit overhead 24B limit 64KiB",
        ),
    ],
)
def test_an_impairment_reads_as_in_a_lab_file(impairment, words):
    assert describe(impairment) == words


def test_every_field_of_an_impairment_has_its_words():
    """A field that `describe` forgets would be a link that lies about itself."""
    full = Impairment(
        delay=1, jitter=2, delay_corr=0.1, distribution="pareto", keep_order=True,
        loss=RandomLoss(0.2), ecn=True, corrupt=0.3, corrupt_corr=0.4, corrupt_from=6,
        duplicate=0.5, duplicate_corr=0.6, reorder=0.7, reorder_corr=0.8, gap=3,
        rate=1000, overhead=4, limit=5, slot=Slot(6, 7, max_packets=8, max_bytes=9),
    )  # fmt: skip
    assert all(getattr(full, name) != getattr(NEUTRAL, name) for name in full.__struct_fields__)
    assert describe(full) == (
        "delay 1ns jitter 2ns 10% distribution pareto keep_order loss 20% ecn"
        " corrupt 30% 40% corrupt_from 6B duplicate 50% 60% reorder 70% 80% gap 3"
        " rate 1kbit overhead 4B limit 5B slot 6ns 7ns packets 8 bytes 9B"
    )
    table = Slot(distribution="normal", dist_delay=1, dist_jitter=2)
    assert describe(Impairment(slot=table)) == "slot normal 1ns 2ns"


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (Where(), "any frame"),
        (Where(proto="any"), "any frame"),
        (
            Where(op="WRITE_MIDDLE", psn=7, psn_relative=True, retransmission=False),
            "WRITE_MIDDLE psn +7 not retransmitted",
        ),
        (
            Where(psn=0x12, dest_qp=0x11, retransmission=True),
            "psn 0x12 dest_qp 0x11 retransmitted",
        ),
        (Where(proto="tcp"), "tcp"),
        (Where(op="ACK", flow="0/h0->h1/0"), "ACK flow 0/h0->h1/0"),
    ],
)
def test_a_match_reads_as_written(where, words):
    assert describe_where(where) == words


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            FaultPlan(0, "drop", "h0:p0", Where(op="SEND"), 0, 2),
            "drop SEND, matches 0 to 1 on h0:p0",
        ),
        (
            FaultPlan(0, "hold", "h0:p0", Where(), 3, 1, MS),
            "hold 1ms any frame, match 3 on h0:p0",
        ),
    ],
)
def test_a_fault_reads_on_one_line(fault, words):
    assert describe_fault(fault) == words
