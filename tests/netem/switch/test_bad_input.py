"""Bad input at a whole switch: each kind has its outcome and its counter, and stops nothing.

A routing switch with SIDs, a lossless class and trimming. Behind each bad frame comes a good
one, which passes; and the books add up.
"""

import pytest

from netem.switch.pipeline import Switch
from netem.topology.switch_plan import PfcPlan, QueuePlan, TrimPlan
from tests.netem.switch.forward.rig import forwarded, frame, ip6, node, packed, route, sid
from tests.netem.switch.rig import Bench
from wire.pfc import Pfc, pfc_frame

PEER = bytes.fromhex("02bb00000000")
GOOD = frame(ip6())
INNER = ip6("fd0b::1", src="fd0a::1")
ROUTING, OPTIONS, IPIP = 43, 60, 41
TO_SID = "fc00:1::"


def switch():
    queues = (
        QueuePlan(action="trim", limit=2000),
        QueuePlan(),
        QueuePlan(),
        QueuePlan(pfc=PfcPlan(xoff=8000, headroom=8000)),
    )
    plan = {
        "sids": (sid("fcbb:bb00:101::/48", "uN"), sid("fc00:1::/64", "End")),
        "queues": queues,
        "trim": TrimPlan(size=128, queue=1),
    }
    return Bench(Switch(node(route("fd00::/16", 2), route("fc00:3::/64", 2), **plan)))


def srh(*, kind=4, left=1, length=4, last=1):
    """An SRH of two segments, of which any byte may be wrong."""
    head = bytes((IPIP, length, kind, left, last, 0, 0, 0))
    return head + packed("fc00:3::") + packed("fc00:2::") + INNER


def to_sid(header):
    return frame(ip6(TO_SID, header, next_header=ROUTING))


ENDLESS = bytes((OPTIONS, 0, 1, 4, 0, 0, 0, 0)) * 200  # options that lead to options ...
CUT_OFF = bytes((OPTIONS, 31, 1, 4, 0, 0, 0, 0))  # ... and that say to be longer than all is


@pytest.mark.parametrize(
    ("bad", "counter"),
    [
        pytest.param(GOOD[:13], "dropped_runt", id="too short for Ethernet"),
        pytest.param(GOOD[:20], "dropped_malformed", id="too short for IPv6"),
        pytest.param(frame(ip6(hop_limit=0)), "dropped_ttl", id="hop limit 0"),
        pytest.param(to_sid(srh(left=3)), "dropped_srv6_segments_left", id="segments left"),
        pytest.param(to_sid(srh(last=2)), "dropped_srv6_last_entry", id="last entry"),
        pytest.param(to_sid(srh(length=200)), "dropped_srv6_truncated", id="SRH cut off"),
        pytest.param(to_sid(srh(kind=2)), "dropped_srv6_routing_type", id="routing type 2"),
        pytest.param(
            frame(ip6("fcbb:bb00:777::", INNER, next_header=IPIP)), "dropped_unknown_sid",
            id="a uSID that nobody owns",
        ),
        pytest.param(
            frame(ip6("fcbb:bb00:101:777::", INNER, next_header=IPIP)), "dropped_unknown_sid",
            id="a uSID behind ours that nobody owns",
        ),
        pytest.param(
            frame(ip6(TO_SID, ENDLESS, next_header=OPTIONS)), "dropped_srv6_chain",
            id="a chain that does not end, to a SID",
        ),
        pytest.param(
            frame(ip6(TO_SID, CUT_OFF, next_header=OPTIONS)), "dropped_srv6_truncated",
            id="a chain that is cut off, to a SID",
        ),
    ],
)  # fmt: skip
def test_it_is_dropped_with_a_reason_and_the_next_one_passes(bad, counter):
    rig = switch()
    rig.offer("e0", bad)
    rig.offer("e0", GOOD)
    counters = rig.counters
    reasons = {name: n for name, n in counters.items() if name.startswith("dropped_") and n}
    (found,) = reasons
    assert found.startswith(counter)
    assert (counters["dropped"], reasons[found]) == (1, 1)
    assert rig.out("e2")[-1].frame == forwarded(ip6(hop_limit=63), 2)
    rig.check_books()


@pytest.mark.parametrize("chain", [ENDLESS, CUT_OFF], ids=["endless", "cut off"])
def test_a_chain_that_does_not_end_is_the_business_of_who_it_is_for(chain):
    """RFC 8200, section 4: a router on the way reads none of it."""
    rig = switch()
    rig.offer("e0", frame(ip6(payload=chain, next_header=OPTIONS)))
    passed = forwarded(ip6(payload=chain, next_header=OPTIONS, hop_limit=63), 2)
    assert [row.frame for row in rig.out("e2")] == [passed]
    rig.check_books()


def test_a_pfc_frame_for_all_classes_with_zero_time_resumes_them():
    rig = switch()
    rig.offer("e2", pfc_frame(PEER, Pfc.of({3: 0xFFFF})))
    rig.offer("e2", pfc_frame(PEER, Pfc.of(dict.fromkeys(range(8), 0))))
    assert [rig.counters[f"e2.PfcRx{priority}"] for priority in range(8)] == [
        1, 1, 1, 2, 1, 1, 1, 1,
    ]  # fmt: skip
    rig.offer("e0", GOOD)
    assert len(rig.out("e2")) == 1
    rig.check_books()


@pytest.mark.parametrize(
    ("length", "passes"), [(0, 0), (20, 20), (24, 24), (25, 24), (4000, 24), (65535, 24)]
)
def test_a_trimmed_packet_whose_lengths_lie_passes_with_what_is_there(length, passes):
    """mrc.md 12.6: cut elsewhere, it may say how long it was. What it claims not is padding."""
    packet = bytearray(ip6(traffic_class=12 << 2))
    packet[4:6] = length.to_bytes(2, "big")
    rig = switch()
    rig.offer("e0", frame(bytes(packet)))
    rig.offer("e0", GOOD)
    first, second = rig.out("e2")
    want = bytearray(packet[: 40 + passes])
    want[7] = 63
    assert first.frame == forwarded(bytes(want), 2)
    assert second.frame == forwarded(ip6(hop_limit=63), 2)
    assert rig.counters["dropped"] == 0
    rig.check_books()
