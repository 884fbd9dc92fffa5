"""Which packets of a conversation matter, and that the rest is counted."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netem.analysis.conversation import Gap, Packet, conversations
from netem.analysis.names import Names
from netem.analysis.reader import read_capture
from wire.roce.opcodes import Opcode


@pytest.fixture
def converse(capture):
    """Return the only conversation of a capture made of the given rows."""

    def read(*rows):
        with capture(*rows).open("rb") as file:
            (conversation,) = conversations(read_capture(file), Names())
        return conversation

    return read


def names(conversation, limit=40):
    """Tell the steps in short: names, or counts in brackets."""
    return [
        step.name
        if isinstance(step, Packet)
        else "[" + ", ".join(f"{n} {name}" for name, n in step.counts) + "]"
        for step in conversation.steps(limit)
    ]


def message(make, start, count, at=0.0, port="h0:p0"):
    """Return the rows of one WRITE of `count` packets."""
    positions = ["FIRST", *["MIDDLE"] * (count - 2), "LAST"]
    return [
        (at + n, port, make.write(position, start + n)) for n, position in enumerate(positions)
    ]


def test_nodes_are_named_by_the_ports_that_send_first(make, converse):
    conversation = converse((0, "h0:p0", make.write("ONLY", 1)), (1, "h1:p0", make.ack(1)))
    assert (conversation.left, conversation.right) == ("h0", "h1")
    assert [p.source for p in conversation.packets] == ["h0", "h1"]


def test_the_middle_of_a_message_is_counted(make, converse):
    rows = message(make, 1, 64)
    conversation = converse(*rows, (70, "h1:p0", make.ack(64)))
    assert names(conversation) == ["WRITE_FIRST", "[62 WRITE_MIDDLE]", "WRITE_LAST", "ACK"]


def test_an_ack_within_a_message_is_counted_too(make, converse):
    rows = message(make, 1, 8)
    rows[5:5] = [(4.5, "h1:p0", make.ack(4))]
    conversation = converse(*rows, (70, "h1:p0", make.ack(8)))
    assert names(conversation) == [
        "WRITE_FIRST", "[6 WRITE_MIDDLE, 1 ACK]", "WRITE_LAST", "ACK",
    ]  # fmt: skip


def test_a_loss_stands_in_its_context(make, converse):
    rows = message(make, 1, 16)
    rows[6] = (*rows[6], "dropped by fault 0")
    again = [(30 + at, port, frame, "retransmission: NAK") for at, port, frame in rows[7:]]
    again[:0] = [(29, "h0:p0", rows[6][2], "retransmission: NAK")]
    conversation = converse(
        *rows, (20, "h1:p0", make.nak(7)), *again, (60, "h1:p0", make.ack(16))
    )
    assert names(conversation) == [
        "WRITE_FIRST",
        "[4 WRITE_MIDDLE]",
        "WRITE_MIDDLE",
        "WRITE_MIDDLE",  # the lost one
        "WRITE_MIDDLE",
        "[7 WRITE_MIDDLE]",
        "WRITE_LAST",
        "NAK",
        "WRITE_MIDDLE",  # the first sent again
        "WRITE_MIDDLE",
        "[7 WRITE_MIDDLE again, 1 WRITE_LAST again]",
        "ACK",
    ]
    lost = [p for p in conversation.packets if p.killed_at]
    assert [(p.psn, p.killed_at) for p in lost] == [(7, "h0:p0")]


def test_packets_stand_in_the_order_of_time_whatever_was_lost(make, converse):
    """Two rounds of a retransmission: what the first one lost stays in the first one."""
    why = "retransmission: timeout"
    rows = [
        (0, "h0:p0", make.write("FIRST", 1), why),
        (1, "h0:p0", make.write("LAST", 2), f"{why}; dropped by link down (fault 1)"),
        (2, "h0:p0", make.write("FIRST", 1), why),
        (3, "h0:p0", make.write("LAST", 2), why),
    ]
    conversation = converse(*rows)
    assert [(p.psn, bool(p.killed_at)) for p in conversation.packets] == [
        (1, False), (2, True), (1, False), (2, False),
    ]  # fmt: skip


def test_without_comments_a_retransmission_is_known_by_its_psn(make, converse):
    psns = [0xFFFFFE, 0xFFFFFF, 0, 1, 0xFFFFFF]  # across the wrap
    conversation = converse(
        *((n, "h0:p0", make.write("MIDDLE", psn)) for n, psn in enumerate(psns))
    )
    assert [p.is_again for p in conversation.packets] == [False] * 4 + [True]


def test_both_directions_and_all_queue_pairs_count_apart(make, converse):
    conversation = converse(
        (0, "h0:p0", make.write("ONLY", 5)),
        (1, "h1:p0", make.write("ONLY", 5, source="h1")),
        (2, "h0:p0", make.write("ONLY", 5, qp=0x99)),
        (3, "h1:p0", make.request(Opcode.RC_READ_RESPONSE_MIDDLE, 4, b"1234", source="h1")),
    )
    assert not any(p.is_again for p in conversation.packets)


def test_records_of_one_packet_on_two_links_are_one(make, converse):
    frame = make.write("ONLY", 1)
    conversation = converse(
        (0, "h0:p0", frame, "corrupted bit 500", 1),
        (1, "b0:e1", frame, "corrupted at h0:p0", 1),
        (2, "h0:p0", frame, "retransmission: timeout", 2),
        (3, "b0:e1", frame, "dropped by queue limit 4KiB", 2),
        (4, "b0:e1", make.write("ONLY", 9)),
    )
    first, second = conversation.packets
    assert first.remarks == ("corrupted bit 500",)
    assert first.is_changed
    assert second.remarks == ("retransmission: timeout", "dropped by queue limit 4KiB")
    assert (second.killed_at, second.at - first.at) == ("b0:e1", 2000)


def test_of_many_losses_in_a_row_the_first_is_shown(make, converse):
    rows = [(n, "h0:p0", make.write("MIDDLE", n), "dropped by loss 100%") for n in range(30)]
    assert names(converse(*rows)) == [
        "WRITE_MIDDLE",
        "WRITE_MIDDLE",
        "[28 WRITE_MIDDLE dropped]",
    ]


def test_many_refusals_leave_room_for_nothing_but_a_count(make, converse):
    rows = []
    for n in range(100):
        comment = "retransmission: RNR" if n else ""
        rows.append((10 * n, "h0:p0", make.request(Opcode.RC_SEND_ONLY, 1, b"1234"), comment))
        rows.append((10 * n + 5, "h1:p0", make.rnr(1)))
    steps = converse(*rows).steps(30)
    shown = sum(isinstance(step, Packet) for step in steps)
    assert 20 <= shown <= 45  # one packet between two others is shown, not counted
    assert isinstance(steps[-1], Gap)
    assert shown + steps[-1].total == 200


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None
)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["FIRST", "MIDDLE", "LAST", "ack", "nak"]),
            st.integers(0, 20),
            st.sampled_from(["", "", "dropped by loss 1%", "retransmission: NAK"]),
        ),
        min_size=1,
        max_size=80,
    ),
    st.integers(3, 30),
)
def test_every_packet_is_shown_or_counted_once(make, converse, story, limit):
    rows = []
    for n, (kind, psn, comment) in enumerate(story):
        if kind in {"ack", "nak"}:
            rows.append((n, "h1:p0", getattr(make, kind)(psn), comment))
        else:
            rows.append((n, "h0:p0", make.write(kind, psn, 8), comment))
    steps = converse(*rows).steps(limit)
    shown = [step.number for step in steps if isinstance(step, Packet)]
    assert len(set(shown)) == len(shown) <= 2 * limit
    assert len(shown) + sum(step.total for step in steps if isinstance(step, Gap)) == len(rows)
    assert not any(
        isinstance(a, Gap) and isinstance(b, Gap) for a, b in itertools.pairwise(steps)
    )


def test_a_held_up_packet_is_a_turn_only_if_a_fault_held_it(make, converse):
    conversation = converse(
        (0, "h0:p0", make.write("MIDDLE", 1), "delayed 3us by fault 1"),
        (1, "h0:p0", make.write("MIDDLE", 2), "delayed 3us, overtaken"),
    )
    assert [p.is_changed for p in conversation.packets] == [True, False]


def test_what_is_not_roce_is_no_part_of_it(make, capture):
    path = capture((0, "h0:p0", bytes(make.udp("h0", "h1", b"1234", port=53))))
    with path.open("rb") as file:
        assert conversations(read_capture(file), Names()) == []
