"""Rows N8 to N10 of the conformance list: what a switch has to do with congestion.

Each row once, through a whole switch; test_marking.py and test_pause.py go into the details.
"""

from math import sqrt

import pytest

from netem.topology.switch_plan import ClassifyPlan, EcnPlan, PfcPlan, QueuePlan
from tests.netem.switch.rig import GBIT, bench, of_size, pause
from wire.pfc import Pfc, pfc_frame

SIZE = 1000
KMIN, KMAX = 10_000, 30_000
CE = 3


def ecn_of(frame):
    return frame[15] >> 4 & 3


def dscp_of(frame):
    return int.from_bytes(frame[14:16], "big") >> 6 & 0x3F


@pytest.mark.parametrize("ecn", [2, 1, 0])
def test_n8_the_chance_of_a_mark_is_none_then_linear_then_sure_and_not_ect_is_left_alone(ecn):
    """Kmin 10 and Kmax 30 frames, Pmax 40 %: the n-th frame finds n - 1 waiting before it."""
    rounds, seen = 60, [0] * 50
    rig = bench(rate=GBIT, queues=(QueuePlan(ecn=EcnPlan(KMIN, KMAX, 0.4)),))
    for _ in range(rounds):
        rig.sent.clear()
        rig.offer("e0", of_size(1, SIZE, ecn=ecn))  # the one that the line takes at once
        for _ in seen:
            rig.offer("e0", of_size(1, SIZE, ecn=ecn))
        rig.finish()
        for n, row in enumerate(rig.out("e1")[1:]):
            seen[n] += ecn_of(row.frame) == CE
    if ecn == 0:
        assert not any(seen)
        return
    assert not any(seen[:11])  # up to Kmin, inclusive
    assert set(seen[31:]) == {rounds}
    slope = seen[11:31]
    expected = [0.4 * (n - 10) / 20 for n in range(11, 31)]
    deviation = sqrt(rounds * sum(p * (1 - p) for p in expected))
    assert abs(sum(slope) - rounds * sum(expected)) <= 4 * deviation


def test_n9_a_pfc_frame_is_64_bytes_less_fcs_and_counts_in_quanta_of_512_bit_times():
    """IEEE 802.1Qbb: 0x0101, the enable vector, eight times; 0xFFFF at 1 Gbit/s is 33.55 ms."""
    source = bytes.fromhex("020000000001")
    frame = pfc_frame(source, Pfc.of({3: 0xFFFF, 6: 0}))
    assert frame == bytes.fromhex(
        "0180c2000001 020000000001 8808 0101 0048 0000 0000 0000 ffff 0000 0000 0000 0000"
    ) + bytes(26)
    rig = bench(rate=GBIT, queues=(QueuePlan(pfc=PfcPlan()),))
    rig.offer("e1", pause(0))
    rig.offer("e0", of_size(1, SIZE))
    rig.finish()
    (row,) = rig.out("e1")
    assert row.at == 0xFFFF * 512 + SIZE * 8


def test_n10_a_pause_stops_its_priority_after_the_frame_under_way_and_zero_resumes():
    queues = (QueuePlan(), QueuePlan(pfc=PfcPlan(), priority=3))
    rig = bench(rate=GBIT, queues=queues, classify=ClassifyPlan(dscp={26: 1}))
    for dscp in (26, 26, 0, 0):
        rig.offer("e0", of_size(1, SIZE, dscp=dscp))
    rig.offer("e1", pause(3), at=SIZE)  # an eighth of the first frame is out
    rig.run(100_000)
    assert [dscp_of(row.frame) for row in rig.out("e1")] == [26, 0, 0]
    rig.offer("e1", pause(3, 0), at=200_000)
    rig.finish()
    last = rig.out("e1")[3]
    assert (dscp_of(last.frame), last.at) == (26, 200_000 + SIZE * 8)
