"""MRC: faults of requestors and responders, each by its clause."""

import pytest

from tests.netem.analysis.check.conftest import Talk
from tests.netem.conftest import QP, udp_frame
from wire.mrc.bth import MrcBth
from wire.mrc.eths import Meth, Tseth
from wire.mrc.opcodes import MrcOpcode
from wire.mrc.packet import MrcPacket
from wire.mrc.reliability import Neth, Peth, Seth
from wire.roce.eths import Aeth, Reth
from wire.roce.icrc import ICRC, icrc

EV = 0xC001  # the source port of udp_frame; the flow label is 0
START = 0xFFFFFE  # PSNs wrap in each of these


class Mrc(Talk):
    """A requestor at h0 and a responder at h1."""

    def send(self, source, packet, comment="", port=EV):
        target = "h1" if source == "h0" else "h0"
        frame = udp_frame(source, target, packet.pack() + bytes(4))
        frame[54:56] = port.to_bytes(2, "big")
        ICRC.pack_into(frame, len(frame) - 4, icrc(memoryview(frame)[14:-4]))
        self.rows.append((f"{source}:p0", bytes(frame), comment))
        return self

    def write(self, position, index, *, msn=0, va=None, rtx=False, a=None, port=EV, **fields):
        last = position in {"LAST", "ONLY"}
        bth = MrcBth(
            MrcOpcode[f"WRITE_{position}"], QP["h1"], (START + index) % (1 << 24),
            ack_req=last if a is None else a, rtx=rtx,
        )  # fmt: skip
        address = 0x1000 + 1024 * index if va is None else va
        reth = Reth(address, 7, fields.get("length", 3072))
        packet = MrcPacket.make(bth, Meth(0, msn), Tseth(5), reth, payload=bytes(1024))
        return self.send("h0", packet, port=port)

    def message(self):
        return self.write("FIRST", 0).write("MIDDLE", 1).write("LAST", 2)

    def sack(self, cack, *, base=1, bitmap=0, ooo=None, offset=0, ev=EV, psn=None):
        cack = (START + cack) % (1 << 24)
        ooo = bitmap.bit_count() if ooo is None else ooo
        seth = Seth(cack, offset, base, bitmap, ev, QP["h1"], QP["h0"], ooo_count=ooo)
        bth = MrcBth(MrcOpcode.SACK, QP["h0"], cack if psn is None else psn)
        return self.send("h1", MrcPacket.make(bth, seth))

    def nack(self, index, *, reason=1, psn=None):
        nacked = (START + index) % (1 << 24)
        neth = Neth(nacked, reason, EV, QP["h1"], QP["h0"])
        bth = MrcBth(MrcOpcode.NACK, QP["h0"], nacked if psn is None else psn)
        return self.send("h1", MrcPacket.make(bth, neth))

    def ack(self, index, msn=1):
        bth = MrcBth(MrcOpcode.ACKNOWLEDGE, QP["h0"], (START + index) % (1 << 24))
        return self.send("h1", MrcPacket.make(bth, Aeth.ack(msn)))


@pytest.fixture
def mrc(make):
    return Mrc(make, QP)


def test_what_is_right_passes(mrc):
    mrc.message().sack(0, bitmap=0b10, offset=2).nack(1)
    mrc.write("MIDDLE", 1, rtx=True, port=EV + 1).sack(2).ack(2)
    mrc.send("h0", MrcPacket.make(MrcBth(MrcOpcode.PROBE, QP["h1"], 0), Peth(1)), port=EV + 9)
    mrc.sack(2, ev=EV + 9)
    found = mrc.verdict()
    assert (found.verdict, found.findings) == ("pass", [])
    there, back = found.flows
    assert (there.service, there.packets, there.retransmissions) == ("MRC", 5, 1)
    assert back.naks == 1


FAULTS = [
    ("mrc/H2", lambda m: m.write("FIRST", 0).write("MIDDLE", 1, va=0x1000)),
    ("mrc/H2", lambda m: m.write("FIRST", 0).write("LAST", 1, length=2048)),
    ("mrc/H3", lambda m: m.write("FIRST", 0).write("LAST", 1, msn=1)),
    ("mrc/H3", lambda m: m.write("ONLY", 0).write("ONLY", 1)),
    ("mrc/H8", lambda m: m.message().sack(2, psn=7)),
    ("mrc/H9", lambda m: m.message().nack(2, psn=7)),
    ("mrc/P5", lambda m: m.message().sack(2, ev=0x1234)),
    ("mrc/P5", lambda m: m.message().sack(2, offset=1)),
    ("mrc/P7", lambda m: m.message().sack(1, bitmap=0b110)),
    ("mrc/P8", lambda m: m.message().sack(3)),
    ("mrc/P8", lambda m: m.message().sack(2).sack(1)),
    ("mrc/P10", lambda m: m.message().sack(2).ack(3)),
    ("mrc/P11", lambda m: m.message().nack(3)),
    ("mrc/P17", lambda m: m.message().sack(0, bitmap=0b11, ooo=1)),
    ("mrc/Q2", lambda m: m.message().write("MIDDLE", 1)),
    ("mrc/Q2", lambda m: m.message().write("MIDDLE", 1, rtx=True, va=0, port=EV + 1)),
    ("mrc/Q7", lambda m: m.write("ONLY", 0, a=False)),
]


@pytest.mark.parametrize(("clause", "plant"), FAULTS)
def test_a_planted_fault_is_found_by_its_clause(mrc, clause, plant):
    assert clause in plant(mrc).clauses()


def test_a_retransmission_on_the_same_ev_is_a_warning_where_there_are_others(mrc):
    mrc.message().write("MIDDLE", 1, rtx=True)
    assert mrc.clauses("warning") == []
    mrc.write("MIDDLE", 1, rtx=True, port=EV + 1).write("MIDDLE", 1, rtx=True, port=EV + 1)
    assert mrc.clauses("warning") == ["mrc/Q3"]


def test_a_wrong_icrc_and_headers_that_are_none(mrc):
    mrc.message().change(1, lambda frame: frame.__setitem__(90, 1))
    assert mrc.clauses() == ["mrc/H4"]

    def without_ftype(frame):
        frame[81] = 0
        frame[-4:] = icrc(memoryview(frame)[14:-4]).to_bytes(4, "little")

    mrc.rows.clear()
    assert mrc.write("ONLY", 0).change(0, without_ftype).clauses() == ["mrc/H1"]


def test_a_trimmed_write_is_no_fault_and_another_that_is_trimmed_is(mrc):
    mrc.message()
    port, frame, _ = mrc.rows[1]
    mrc.rows[1] = (port, frame[: 54 + 8 + 20], "trimmed from 1122 B")
    found = mrc.verdict()
    assert (found.violations, found.icrc_unchecked) == (0, 1)
    mrc.rows[1] = (port, frame[: 54 + 8 + 20], "")
    assert mrc.clauses() == ["mrc/H1"]
    port, frame, _ = mrc.sack(2).rows.pop()
    mrc.rows[1] = (port, frame[:-20], "trimmed from 114 B")
    assert mrc.clauses() == ["trim/T1"]


def trimmed(row, size=128, dscp=0):
    """Return a row as a switch of ours leaves it: the IP length is that of what is left."""
    port, frame, _ = row
    short = bytearray(frame[: 14 + size])
    short[18:20] = (size - 40).to_bytes(2, "big")
    short[14] |= dscp >> 2
    short[15] |= (dscp & 3) << 6
    return port, bytes(short), ""


@pytest.mark.parametrize("is_updated", [True, False], ids=["updated", "stale"])
def test_a_trimmed_write_is_known_in_a_capture_that_does_not_say_so(mrc, is_updated):
    """By its DSCP, whether or not the switch has updated the IP length."""
    row = trimmed(mrc.message().rows[1], dscp=12)
    if not is_updated:
        whole = bytearray(row[1])
        whole[18:20] = mrc.rows[1][1][18:20]
        row = (row[0], bytes(whole), "")
    mrc.rows[1] = row
    found = mrc.verdict(ours=False)
    assert (found.verdict, found.findings, found.icrc_unchecked) == ("pass", [], 1)
    mrc.sack(2)
    mrc.rows[-1] = trimmed(mrc.rows[-1], size=64, dscp=12)
    assert mrc.clauses(ours=False) == []
    assert mrc.clauses("warning", ours=False) == ["trim/T1"]


def test_what_may_be_trimmed_or_too_long_is_a_warning(mrc):
    """Its IP length is that of what is there, and its DSCP is nobody's whom we know."""
    mrc.rows[1] = trimmed(mrc.message().rows[1])
    found = mrc.verdict(ours=False)
    assert (found.violations, found.icrc_unchecked) == (0, 1)
    assert [one.clause for one in found.findings] == ["mrc/H1"]
    assert "too long, or trimmed" in found.findings[0].text


UNSEEN = [
    lambda m: m.sack(2, ev=0x1234),
    lambda m: m.sack(2, offset=1),
    lambda m: m.sack(1, bitmap=0b110),
    lambda m: m.sack(3),
    lambda m: m.sack(2).ack(3),
    lambda m: m.nack(3),
    lambda m: m.write("MIDDLE", 1),
]


@pytest.mark.parametrize("plant", UNSEEN)
def test_what_a_capture_may_not_have_seen_is_a_warning(mrc, plant):
    """Begun in the middle, of one plane, or made elsewhere than at the sender."""
    plant(mrc.message())
    clauses = mrc.clauses()
    assert clauses
    assert (mrc.clauses(ours=False), mrc.clauses("warning", ours=False)) == ([], clauses)
    mrc.write("ONLY", 5, msn=3, va=0)  # what lies between went elsewhere
    assert (mrc.clauses(), mrc.clauses("warning")) == ([], clauses)

    later = Mrc(mrc.make, mrc.qp)
    later.write("FIRST", 0, msn=9).write("MIDDLE", 1, msn=9).write("LAST", 2, msn=9)
    plant(later)
    assert later.clauses("violation") in ([], ["mrc/H3"])
    assert set(clauses) <= set(later.clauses("warning"))


def test_planes_that_overtake_each_other_are_whole(mrc):
    """The capture has the second packet first: nothing is missing for that."""
    mrc.write("MIDDLE", 1).write("FIRST", 0).write("LAST", 2).sack(3)
    mrc.write("FIRST", 0, rtx=True, port=EV + 1)
    assert mrc.clauses() == ["mrc/P8"]
    mrc.rows.clear()
    mrc.write("MIDDLE", 1).write("LAST", 2).sack(3)
    assert mrc.clauses() == []


def test_evs_that_were_forgotten_are_not_missed(mrc, monkeypatch):
    monkeypatch.setattr("netem.analysis.check.writes._MOST_EVS", 4)
    mrc.write("FIRST", 0, length=1 << 14)
    for index in range(1, 6):
        mrc.write("MIDDLE", index, length=1 << 14, port=EV + index)
    for index in range(6):
        mrc.sack(0, ev=EV + index)
    assert mrc.clauses() == []
