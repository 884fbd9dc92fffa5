"""Conversations made by hand, and what `check` says of them."""

import io

import pytest

from netem.analysis.check.judge import Judge
from netem.analysis.check.report import report
from tests.netem.conftest import QP
from wire import pcapng
from wire.roce.bth import Bth
from wire.roce.eths import Aeth, AtomicAckEth, AtomicEth, Reth
from wire.roce.opcodes import OPCODES, Opcode
from wire.roce.packet import RocePacket

PORTS = ("h0:p0", "h1:p0")


def file_of(rows, *, ours=True, whole=True):
    """Return a capture of (port, frame[, comment]), one microsecond apart.

    One of ours ends with the counts of its packets, unless it is not `whole`.
    """
    data = pcapng.section_header()
    for port in PORTS:
        other = PORTS[port == PORTS[0]]
        link = f"link h0:p0--h1:p0, frames from {port} to {other}" if ours else ""
        data += pcapng.interface_block(port if ours else "eth0", link)
    counts, number = [0] * len(PORTS), 0
    for number, row in enumerate(rows, 1):
        port, frame, comment = (*row, "")[:3]
        counts[PORTS.index(port)] += 1
        data += pcapng.enhanced_packet(
            PORTS.index(port) if ours else 0,
            number * 1000,
            frame,
            comment=comment,
            packet_id=number if ours else None,
        )
    if ours and whole:
        for place, count in enumerate(counts):
            data += pcapng.interface_statistics(place, number * 1000, received=count, dropped=0)
    return data


def judged(data):
    judge = Judge(io.BytesIO(data))
    judge.run()
    return report(judge)


class Talk:
    """A requester at h0 and a responder at h1; each method appends what it sends."""

    def __init__(self, make, qp):
        self.make = make
        self.qp = qp
        self.rows = []

    def ask(self, opcode, psn, payload=b"", *headers, comment="", ack_req=False, **options):
        opcode = Opcode[f"RC_{opcode}"]
        wanted = OPCODES[opcode].headers
        given = {type(header) for header in headers}
        if Reth in wanted and Reth not in given:
            headers += (Reth(0x1000, 0x77, options.pop("length", len(payload))),)
        if AtomicEth in wanted and AtomicEth not in given:
            headers += (AtomicEth(0x1000, 0x77, 1),)
        bth = Bth(opcode, self.qp["h1"], psn, ack_req=ack_req)
        packet = RocePacket.make(bth, *headers, payload=payload)
        self.rows.append(("h0:p0", self.make.roce("h0", "h1", packet, **options), comment))
        return self

    def answer(self, opcode, psn, aeth=None, payload=b"", *headers, comment="", **bits):
        opcode = Opcode[f"RC_{opcode}"]
        headers += () if aeth is None else (aeth,)
        if AtomicAckEth in OPCODES[opcode].headers:
            headers += (AtomicAckEth(0),)
        bth = Bth(opcode, self.qp["h0"], psn, **bits)
        packet = RocePacket.make(bth, *headers, payload=payload)
        self.rows.append(("h1:p0", self.make.roce("h1", "h0", packet), comment))
        return self

    def ack(self, psn, msn, **options):
        return self.answer("ACKNOWLEDGE", psn, Aeth.ack(msn), **options)

    def nak(self, psn, msn, code=0):
        return self.answer("ACKNOWLEDGE", psn, Aeth.nak(msn, code))

    def change(self, index, change):
        """Change the bytes of one frame, without a new ICRC."""
        port, frame, comment = self.rows[index]
        changed = bytearray(frame)
        change(changed)
        self.rows[index] = (port, bytes(changed), comment)
        return self

    def verdict(self, **options):
        return judged(file_of(self.rows, **options))

    def clauses(self, severity="violation", **options):
        found = self.verdict(**options).findings
        return [one.clause for one in found if one.severity == severity]


@pytest.fixture
def talk(make):
    return Talk(make, QP)


@pytest.fixture
def verdict_of():
    return lambda rows, **options: judged(file_of(rows, **options))
