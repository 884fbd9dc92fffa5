"""Which class a frame is in: DSCP, PCP, and what has neither."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.switch.classify import CONTROL, RUNT, Classifier
from netem.topology.switch_plan import ClassifyPlan
from tests.netem.switch.rig import HOST, mac, pause, v4, v6, v6_in_v6

DSCP = ClassifyPlan(dscp={4: 1, 46: 2}, pcp={5: 3})
PCP = ClassifyPlan(trust="pcp", dscp={4: 1, 46: 2}, pcp={5: 3})


def with_tags(frame, *tags):
    return frame[:12] + b"".join(tags) + frame[12:]


TAG_5 = bytes.fromhex("8100a000")
TAG_0 = bytes.fromhex("81000000")
PROVIDER_5 = bytes.fromhex("88a8a000")


@pytest.mark.parametrize(
    ("plan", "frame", "expected"),
    [
        pytest.param(DSCP, v6(1, b"", dscp=4), 1, id="IPv6"),
        pytest.param(DSCP, v6(1, b"", dscp=46), 2, id="IPv6, DSCP across both bytes"),
        pytest.param(DSCP, v4(1, b"", dscp=46), 2, id="IPv4"),
        pytest.param(DSCP, v4(1, b"", dscp=46, ecn=3), 2, id="ECN bits do not matter"),
        pytest.param(DSCP, v4(1, b"", dscp=5), 0, id="a DSCP that is not in the map"),
        pytest.param(DSCP, v6_in_v6(1, b"", dscp=4, inner_dscp=46), 1, id="the outer header"),
        pytest.param(DSCP, with_tags(v6(1, b"", dscp=4), TAG_5), 1, id="tagged, DSCP first"),
        pytest.param(PCP, with_tags(v6(1, b"", dscp=4), TAG_5), 3, id="tagged, PCP first"),
        pytest.param(PCP, with_tags(v6(1, b"", dscp=4), TAG_0), 0, id="a PCP not in the map"),
        pytest.param(PCP, v6(1, b"", dscp=4), 1, id="untagged, PCP first"),
        pytest.param(
            DSCP, with_tags(v4(1, b"", dscp=4), PROVIDER_5, TAG_0), 1, id="two tags, DSCP"
        ),
        pytest.param(
            PCP, with_tags(v4(1, b"", dscp=4), PROVIDER_5, TAG_0), 3, id="the outer tag's PCP"
        ),
        pytest.param(
            DSCP, mac(1) + HOST + TAG_5 + b"\x08\x06" + bytes(40), 3, id="tagged ARP by PCP"
        ),
        pytest.param(DSCP, mac(1) + HOST + b"\x08\x06" + bytes(40), 0, id="ARP"),
        pytest.param(DSCP, mac(1) + HOST + b"\x86\xdd", 0, id="ends behind the EtherType"),
        pytest.param(DSCP, mac(1) + HOST + TAG_5 + b"\x86\xdd", 3, id="ends behind the tag"),
        pytest.param(PCP, mac(1) + HOST + TAG_5[:2], 0, id="ends within the tag"),
        pytest.param(DSCP, pause(3), CONTROL, id="PFC"),
        pytest.param(DSCP, pause(3)[:14], CONTROL, id="MAC control without anything"),
        pytest.param(DSCP, v6(1, b"")[:13], RUNT, id="ends within the header"),
        pytest.param(DSCP, b"", RUNT, id="nothing"),
    ],
)
def test_class_of(plan, frame, expected):
    assert Classifier(plan, 4).classify(frame) == expected


@given(st.binary(max_size=40))
def test_any_bytes_have_a_class(frame):
    for plan in (DSCP, PCP):
        assert RUNT <= Classifier(plan, 4).classify(frame) < 4


def test_a_class_without_a_queue_is_refused():
    with pytest.raises(ValueError, match="there is no queue 3"):
        Classifier(DSCP, 3)
