"""One fault planted in a conversation is found, by the clause that it breaks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.analysis.check.requests import packets_of
from netem.analysis.check.roce_icrc import _v4_prefix, _v6_prefix
from wire.checksum import internet_checksum
from wire.roce.bth import Bth
from wire.roce.eths import Aeth, Deth, Reth
from wire.roce.icrc import crc32, icrc
from wire.roce.opcodes import Opcode
from wire.roce.packet import RocePacket, cnp

KIB = bytes(1024)


def whole(talk):
    """A WRITE of three packets, a READ of two, a SEND, an atomic."""
    return (
        talk.ask("WRITE_FIRST", 5, KIB, length=2148)
        .ask("WRITE_MIDDLE", 6, KIB)
        .ask("WRITE_LAST", 7, bytes(100), ack_req=True)
        .ack(7, 1)
        .ask("READ_REQUEST", 8, length=1500)
        .answer("READ_RESPONSE_FIRST", 8, Aeth.ack(2), KIB)
        .answer("READ_RESPONSE_LAST", 9, Aeth.ack(2), bytes(476))
        .ask("SEND_ONLY", 10, b"hello")
        .ask("FETCH_ADD", 11)
        .answer("ATOMIC_ACKNOWLEDGE", 11, Aeth.ack(4))
    )


def test_what_is_right_passes(talk):
    found = whole(talk).verdict()
    assert found.verdict == "pass"
    assert found.findings == []
    there, back = found.flows
    assert (there.service, there.packets, there.payload) == ("RC", 6, 2153)
    assert (back.service, back.packets, back.payload) == ("RC", 4, 1500)


@pytest.mark.parametrize("family", [4, 6])
def test_a_bit_changed_behind_the_icrc_is_found_and_one_in_mutable_fields_is_not(talk, family):
    """R01, R03: W1, W3, W4, W6."""
    ip, udp = 14, 34 if family == 4 else 54

    def mutable(frame):
        for offset in (1, 8) if family == 4 else (1, 2, 3, 7):
            frame[ip + offset] ^= 0x01
        frame[udp + 12] ^= 0xC0  # FECN, BECN

    talk.ask("WRITE_ONLY", 5, bytes(64), family=family).change(0, mutable)
    assert talk.clauses() == []
    talk.change(0, lambda frame: frame.__setitem__(udp + 40, 0x80))
    assert talk.clauses() == ["roce/W1"]


def test_what_the_capture_calls_corrupted_is_no_fault_of_its_sender(talk):
    talk.ask("WRITE_ONLY", 5, bytes(64), comment="corrupted bit 3 by corrupt 1%")
    talk.change(0, lambda frame: frame.__setitem__(90, 0x80))
    found = talk.ask("WRITE_ONLY", 5, bytes(64), comment="retransmission: timeout").verdict()
    assert (found.verdict, found.flows[0].damaged) == ("pass", 1)


def faults():
    """Each is (clause, what makes a conversation with it)."""
    yield "roce/W26", lambda t: t.ask("WRITE_ONLY", 5, b"data").ack(5, 1, ack_req=True)
    yield "roce/W26", lambda t: t.ask("WRITE_ONLY", 5, b"data").ack(5, 1, solicited=True)
    yield "roce/R3", lambda t: t.ask("WRITE_ONLY", 5, b"data").ack(6, 2)
    yield (
        "roce/R5",
        lambda t: (
            t.ask("WRITE_ONLY", 5, b"data").ack(5, 1).ask("WRITE_ONLY", 6, b"data").ack(6, 3)
        ),
    )
    yield (
        "roce/R5",
        lambda t: (
            t.ask("WRITE_ONLY", 5, b"data").ack(5, 7).ask("WRITE_ONLY", 6, b"data").ack(6, 6)
        ),
    )
    yield (
        "roce/R13",
        lambda t: (
            t.ask("SEND_ONLY", 5, b"x").ack(5, 1).answer("ACKNOWLEDGE", 6, Aeth.rnr_nak(1, 12))
        ),
    )
    yield "roce/R16", lambda t: t.ask("WRITE_ONLY", 5, b"data").ack(5, 1).nak(5, 1)
    yield "roce/R16", lambda t: t.ask("WRITE_ONLY", 5, b"data").ack(5, 1).nak(6, 1)
    yield "roce/R17", lambda t: (
        t.ask("WRITE_ONLY", 5, b"a").ack(5, 1).ask("WRITE_ONLY", 6, b"b")
        .ask("WRITE_ONLY", 7, b"c").nak(6, 1).nak(6, 1)
    )  # fmt: skip
    yield (
        "roce/R22",
        lambda t: t.ask("READ_REQUEST", 5, length=100).answer(
            "READ_RESPONSE_ONLY", 5, Aeth.ack(1), bytes(99)
        ),
    )
    yield (
        "roce/R22",
        lambda t: (
            t.ask("READ_REQUEST", 5, length=1500)
            .answer("READ_RESPONSE_FIRST", 5, Aeth.ack(1), KIB)
            .answer("READ_RESPONSE_MIDDLE", 6, None, KIB)
        ),
    )
    yield "roce/R37", lambda t: t.ask("SEND_ONLY", 4).ask("WRITE_MIDDLE", 5, KIB)
    yield "roce/R38", lambda t: t.ask("SEND_FIRST", 5, KIB).ask("SEND_ONLY", 6)
    yield "roce/R39", lambda t: t.ask("WRITE_FIRST", 5, KIB).ask("SEND_LAST", 6, b"x")
    yield "roce/R43", lambda t: t.ask("WRITE_ONLY", 5, b"data").ack(5, 1).nak(6, 1, 2)
    yield "roce/R44", lambda t: t.ask("WRITE_ONLY", 5, b"data").nak(5, 0, 2).ack(5, 0)
    yield "roce/R45", lambda t: t.ask("WRITE_FIRST", 5, bytes(1000), length=2000)
    yield (
        "roce/R46",
        lambda t: (
            t.ask("SEND_FIRST", 5, KIB)
            .ask("SEND_MIDDLE", 6, bytes(512))
            .ask("SEND_LAST", 7, b"x")
        ),
    )
    yield (
        "roce/R47",
        lambda t: (
            t.ask("SEND_FIRST", 5, KIB)
            .ask("SEND_LAST", 6, b"x")
            .ask("SEND_ONLY", 7, bytes(2000))
        ),
    )
    yield "roce/R48", lambda t: t.ask("SEND_FIRST", 5, KIB).ask("SEND_LAST", 6)
    yield "roce/R49", lambda t: t.ask("WRITE_ONLY", 5, b"data", length=5)
    yield (
        "roce/R49",
        lambda t: t.ask("WRITE_FIRST", 5, KIB, length=1500).ask("WRITE_LAST", 6, bytes(400)),
    )
    yield "roce/R50", lambda t: t.ask("READ_REQUEST", 5, length=(1 << 31) + 1)
    yield (
        "roce/R52",
        lambda t: t.ask("WRITE_ONLY", 5, b"x").answer(
            "READ_RESPONSE_ONLY", 5, Aeth.ack(1), b"data"
        ),
    )
    yield (
        "roce/R52",
        lambda t: t.ask("WRITE_ONLY", 5, b"x").answer("ATOMIC_ACKNOWLEDGE", 5, Aeth.ack(1)),
    )
    yield (
        "roce/R60",
        lambda t: t.ask("READ_REQUEST", 5, length=10).ask("WRITE_ONLY", 6, b"x").ack(6, 2),
    )
    yield "roce/R60", lambda t: t.ask("FETCH_ADD", 5).ask("WRITE_ONLY", 6, b"x").ack(6, 2)
    yield "roce/Q23", lambda t: t.ask("WRITE_ONLY", 5, b"x").nak(5, 0, 7)
    yield (
        "roce/Q23",
        lambda t: t.ask("WRITE_ONLY", 5, b"x").answer("ACKNOWLEDGE", 5, Aeth(0x9F, 1)),
    )
    yield (
        "roce/Q26",
        lambda t: (
            t.ask("READ_REQUEST", 5, b"", Reth(0x1000, 1, 3000))
            .answer("READ_RESPONSE_FIRST", 5, Aeth.ack(1), KIB)
            .ask("READ_REQUEST", 6, b"", Reth(0x1000, 1, 3000))
        ),
    )
    yield "roce/Q39", lambda t: t.ask("WRITE_ONLY", 5, b"data").ask("SEND_ONLY", 5, b"data")
    yield "roce/Q39", lambda t: t.ask("WRITE_ONLY", 5, b"data").ask("WRITE_ONLY", 7, b"data")


@pytest.mark.parametrize(("clause", "plant"), [*faults()])
def test_a_planted_fault_is_found_by_its_clause(talk, clause, plant):
    assert plant(talk).clauses() == [clause]


def test_bits_of_the_header_and_the_pad(talk, make):
    def with_new_icrc(change):
        def changed(frame):
            change(frame)
            frame[-4:] = icrc(memoryview(frame)[14:-4]).to_bytes(4, "little")

        return changed

    def one(offset, value, payload=b"data!"):
        talk.rows.clear()
        talk.ask("SEND_ONLY", 5, payload)
        talk.change(0, with_new_icrc(lambda frame: frame.__setitem__(offset, value)))
        return talk.clauses()

    assert one(63, 0x31) == ["roce/W15"]  # TVer
    assert one(62, 0x15) == ["roce/W16"]
    assert one(-5, 1) == ["roce/W14"]
    assert one(62, 0x06, b"") == ["roce/W22"]  # no room for a RETH

    def with_slack(frame):
        frame[19] += 4
        frame[-4:] = icrc(memoryview(frame)[14:-4]).to_bytes(4, "little")
        frame.extend(bytes(4))

    talk.rows.clear()
    assert talk.ask("SEND_ONLY", 5, b"x").change(0, with_slack).clauses() == ["roce/W22"]


def test_lengths_that_cannot_be(talk):
    talk.ask("SEND_ONLY", 5, bytes(40))
    whole_frame = talk.rows[0][1]
    talk.change(0, lambda frame: frame.__delitem__(slice(-8, None)))
    assert talk.clauses() == ["roce/W22"]
    talk.rows[0] = ("h0:p0", whole_frame[:60], "")
    assert talk.clauses() == ["roce/W22"]
    talk.rows[0] = ("h0:p0", whole_frame, "")
    talk.change(0, lambda frame: frame.__setitem__(59, frame[59] - 1))
    assert talk.clauses() == ["roce/W14"]


@pytest.mark.parametrize("family", [4, 6])
def test_a_udp_length_beyond_its_ip_packet_is_told_from_trimming(talk, family):
    """The ICRC is there, so nothing was cut: over the length as it is, or as it was."""
    udp = 34 if family == 4 else 54

    def longer(frame):
        frame[udp + 5] += 8

    def sent_longer(frame):
        longer(frame)
        frame[-4:] = icrc(memoryview(frame)[14:-4]).to_bytes(4, "little")

    def cut(frame):
        """As a switch does: the end is gone, and IP says so."""
        at, size = (16, 20) if family == 4 else (18, 0)
        del frame[-24:]
        frame[at : at + 2] = (len(frame) - udp + size).to_bytes(2, "big")

    for change, severity in (
        (longer, "violation"),
        (sent_longer, "violation"),
        (cut, "warning"),
    ):
        talk.rows.clear()
        talk.ask("SEND_ONLY", 5, bytes(64), family=family).change(0, change)
        found = talk.verdict(ours=False)
        assert [(one.clause, one.severity) for one in found.findings] == [
            ("roce/W22", severity)
        ]


BTH4 = 34 + 8  # over IPv4


def resealed(change):
    """Return a change of an IPv4 frame that leaves its checksum right and its ICRC, too."""

    def changed(frame):
        change(frame)
        frame[24:26] = bytes(2)
        frame[24:26] = internet_checksum(frame[14:34]).to_bytes(2, "big")
        frame[40:42] = bytes(2)
        frame[-4:] = icrc(memoryview(frame)[14:-4]).to_bytes(4, "little")

    return changed


def rules():
    """Each is (clause, severity, what is changed of an IPv4 frame)."""

    def bits(offset, value, mask=0xFF):
        return lambda frame: frame.__setitem__(offset, frame[offset] & ~mask | value)

    yield "roce/W6", "violation", bits(BTH4 + 4, 0x01, 0x3F)
    yield "roce/W6", "violation", bits(BTH4 + 4, 0x20, 0x3F)
    yield "roce/W7", "violation", bits(BTH4 + 8, 0x01, 0x7F)
    yield "roce/W7", "violation", bits(BTH4 + 8, 0x40, 0x7F)
    yield "roce/W12", "violation", bits(20, 0, 0x40)
    yield "roce/W12", "violation", bits(20, 0x60)  # more fragments
    yield "roce/W19", "violation", lambda f: f.__setitem__(slice(44, 46), b"\x80\0")
    yield "roce/W19", "violation", bits(BTH4 + 3, 0xFE)
    yield "roce/W10", "warning", bits(35, 0x77)
    yield "roce/W10", "warning", bits(34, 0x3F)


@pytest.mark.parametrize(("clause", "severity", "change"), [*rules()])
@pytest.mark.parametrize("index", [1, 2, 3])
def test_rules_of_ip_udp_and_the_bth(talk, clause, severity, change, index):
    talk.ask("WRITE_FIRST", 5, KIB, length=3172, family=4)
    talk.ask("WRITE_MIDDLE", 6, KIB, family=4).ask("WRITE_MIDDLE", 7, KIB, family=4)
    talk.ask("WRITE_LAST", 8, bytes(100), family=4, ack_req=True)
    assert talk.verdict().findings == []
    talk.change(index, resealed(change))
    found = {(one.clause, str(one.severity)) for one in talk.verdict(ours=False).findings}
    assert (clause, severity) in found
    assert found - {(clause, severity)} <= {("roce/W10", "warning"), ("", "note")}


def test_checksums_that_are_there_are_right(talk):
    """W8: UDP's, which the ICRC does not cover, and IPv4's."""
    talk.ask("SEND_ONLY", 5, b"data", family=4)
    talk.change(0, lambda frame: frame.__setitem__(40, frame[40] ^ 1))
    (found,) = talk.verdict().findings
    assert (found.clause, found.severity) == ("roce/W8", "warning")
    talk.change(0, lambda frame: frame.__setitem__(slice(40, 42), bytes(2)))
    assert talk.verdict().findings == []
    talk.change(0, lambda frame: frame.__setitem__(24, frame[24] ^ 1))
    (found,) = talk.verdict().findings
    assert "IPv4 header checksum" in found.text


def test_a_new_connection_may_have_another_port_and_partition(talk):
    change = resealed(lambda f: f.__setitem__(slice(BTH4 + 2, BTH4 + 4), b"\x80\x07"))
    talk.ask("SEND_ONLY", 5, family=4).ask("SEND_ONLY", 6, family=4)
    talk.ask("SEND_ONLY", 0x800000, family=4).ask("SEND_ONLY", 0x800001, family=4)
    for index in (2, 3):
        talk.change(index, change)
        talk.change(index, resealed(lambda f: f.__setitem__(35, 0x99)))
    assert (talk.clauses(), talk.clauses("warning")) == ([], [])
    talk.change(3, resealed(lambda f: f.__setitem__(35, 0x01)))
    assert talk.clauses("warning") == ["roce/W10"]


@pytest.mark.parametrize(
    ("there", "back", "clauses"),
    [
        (0xFFFF, 0x7FFF, []),
        (0x7FFF, 0x7FFF, ["roce/W20"]),
        (0xFFFF, 0x8007, ["roce/W19"]),
    ],
)
def test_both_ends_of_a_connection_are_of_one_partition(talk, there, back, clauses):
    def keyed(key):
        def change(frame):
            frame[60:62] = bytes(2)
            frame[64:66] = key.to_bytes(2, "big")
            frame[-4:] = icrc(memoryview(frame)[14:-4]).to_bytes(4, "little")

        return change

    talk.ask("SEND_ONLY", 5, b"x", ack_req=True).ack(5, 1)
    talk.change(0, keyed(there)).change(1, keyed(back))
    assert talk.clauses() == clauses


def test_ethernet_padding_behind_a_short_packet_is_nothing(talk):
    """W23."""
    talk.ask("SEND_ONLY", 5, family=4).change(0, lambda frame: frame.extend(b"\xaa" * 6))
    assert talk.verdict().verdict == "pass"


def test_a_cnp_has_the_form_that_it_has(talk, make):
    """R04: N2; and N1: there is a cause for it."""
    talk.ask("SEND_ONLY", 5, b"x").change(0, lambda f: f.__setitem__(15, f[15] | 0x30))
    talk.rows.append(("h1:p0", make.cnp()))
    assert talk.verdict().findings == []
    talk.rows[1] = ("h1:p0", make.roce("h1", "h0", cnp(0x11)._replace(payload=b"x" * 16)))
    assert talk.clauses() == ["roce/N2"]
    wrong = cnp(0x11)
    wrong = wrong._replace(bth=wrong.bth._replace(becn=False, psn=3, ack_req=True))
    talk.rows[1] = ("h1:p0", make.roce("h1", "h0", wrong))
    found = talk.verdict().findings
    assert "BECN is 0, PSN is 0x3, AckReq is 1" in found[0].text
    talk.rows[0:1] = []
    talk.rows[0] = ("h1:p0", make.cnp())
    assert talk.clauses("warning") == ["roce/N1"]


def test_a_gap_that_is_nobodys_fault_is_a_note(talk):
    talk.ask("WRITE_ONLY", 5, b"data").ask("WRITE_ONLY", 7, b"data")
    assert talk.clauses(ours=False) == []
    assert "1 packets are not in the capture" in talk.verdict(ours=False).findings[0].text
    talk.ack(7, 2)  # it was there, the capture alone has missed it
    assert talk.clauses() == []


def test_a_go_back_is_retransmission_and_no_fault(talk):
    for psn in (5, 6, 7, 8):
        talk.ask("WRITE_ONLY", psn, b"data", comment="dropped by loss" if psn == 6 else "")
    talk.ack(5, 1).nak(6, 1)
    for psn in (6, 7, 8):
        talk.ask("WRITE_ONLY", psn, b"data", comment="retransmission: NAK")
    found = talk.ack(8, 4).verdict()
    assert found.findings == []
    assert (found.flows[0].retransmissions, found.flows[0].dropped) == (3, 1)
    assert found.flows[1].naks == 1


def test_what_a_link_does_to_answers_is_not_held_against_who_sent_them(talk):
    """Duplicated or late by impairment: the capture says so."""
    for psn in (5, 6, 7, 8):
        talk.ask("WRITE_ONLY", psn, b"data", comment="dropped by loss" if psn == 6 else "")
    talk.nak(6, 1)
    talk.rows.append((*talk.rows[-1][:2], "duplicated by duplicate 1%"))
    talk.ask("WRITE_ONLY", 6, b"data").ask("WRITE_ONLY", 7, b"data").ack(7, 3)
    talk.ack(5, 1, comment="delayed 3us by fault 1")
    assert talk.verdict().findings == []


def test_a_resend_before_the_rnr_timer_is_a_warning(talk):
    talk.ask("SEND_ONLY", 5, b"x").answer("ACKNOWLEDGE", 5, Aeth.rnr_nak(0, 12))
    assert talk.ask("SEND_ONLY", 5, b"x").clauses("warning") == ["roce/Q17"]


def test_psns_and_msns_wrap(talk):
    """R63, R64."""
    talk.ask("WRITE_FIRST", 0xFFFFFF, KIB, length=1030).ask("WRITE_LAST", 0, bytes(6))
    talk.ack(0, 1).ask("READ_REQUEST", 1, length=8).answer(
        "READ_RESPONSE_ONLY", 1, Aeth.ack(2), bytes(8)
    )
    assert talk.verdict().findings == []


def test_two_connections_of_equal_psns_are_not_taken_for_each_other(talk, make):
    """Who answers whom is not said by a packet: where it is not sure, nothing is judged."""
    for qp in (0x22, 0x23):
        talk.rows.append(("h0:p0", make.request(0x0A, 5, bytes(4096), qp=qp)))
    assert talk.ack(5, 9).ack(5, 2).clauses() == []


@given(st.integers(0, 1 << 20), st.sampled_from([256, 1024, 4096]))
def test_a_read_takes_as_many_psns_as_packets(length, pmtu):
    assert packets_of(length, pmtu) == max(1, (length + pmtu - 1) // pmtu)


@given(st.binary(min_size=60, max_size=100), st.sampled_from([4, 6]))
def test_the_masks_are_those_of_the_codec(data, version):
    data = bytes([version << 4 | data[0] & 15]) + data[1:]
    at, prefix = (36, _v4_prefix) if version == 4 else (56, _v6_prefix)
    assert crc32(data[at:], prefix(data, 0)) == icrc(data)


ORDER = {"R3", "R5", "R13", "R16", "R17", "R22", "R43", "R44", "R52", "R60"}


@pytest.mark.parametrize(("clause", "plant"), [one for one in faults() if one[0][5:] in ORDER])
def test_what_a_missing_packet_may_explain_is_a_warning(talk, clause, plant):
    """In a capture made beside the sender, or one that has gaps."""
    plant(talk)
    assert (talk.clauses(ours=False), talk.clauses("warning", ours=False)) == ([], [clause])
    talk.ask("SEND_ONLY", 20)  # what was before it is not there
    assert clause not in talk.clauses()
    assert clause in talk.clauses("warning")


def connect(talk, make, attribute=0x10):
    """A MAD of the communication manager, from h0."""
    mad = bytes([1, 7, 2, 3]) + bytes(12) + attribute.to_bytes(2, "big") + bytes(238)
    bth = Bth(Opcode.UD_SEND_ONLY, 1, 0)
    packet = RocePacket.make(bth, Deth(0x80010000, 1), payload=mad)
    talk.rows.append(("h0:p0", make.roce("h0", "h1", packet), ""))


def test_a_new_connection_may_have_the_numbers_of_the_old_one(talk, make):
    """Far from the old PSNs; near to them, after a request to connect; near, by its MSN."""
    for psn in range(5, 9):
        talk.ask("WRITE_ONLY", psn, b"data").ack(psn, psn - 4)
    talk.nak(8, 4, 2)
    before = list(talk.rows)
    talk.ask("SEND_ONLY", 0x800000, b"new").ack(0x800000, 1)
    talk.ask("SEND_ONLY", 0x800001, b"new").ack(0x800001, 2)
    assert (talk.clauses(), talk.clauses("warning")) == ([], [])
    for base in (6, 12):
        talk.rows = list(before)
        connect(talk, make)
        talk.ask("SEND_ONLY", base, b"new").ack(base, 1)
        talk.ask("SEND_ONLY", base + 1, b"new").ack(base + 1, 2)
        assert (talk.clauses(), talk.clauses("warning")) == ([], [])
    talk.rows = [*before, *talk.ask("SEND_ONLY", 6, b"new").ack(6, 1).rows[-2:]]
    assert talk.clauses() == []
    assert "roce/Q39" in talk.clauses("warning")
    talk.rows = list(before)
    connect(talk, make, attribute=0x15)
    assert talk.ask("SEND_ONLY", 6, b"new").clauses() == ["roce/Q39"]
