"""MRC: WRITEs as they leave their requestor, and what the responder says of them.

The requestor's packets go out by several planes, each an address and mostly an interface of its
own. So a flow is known by its addresses without the plane (bytes 2 and 3 in `fd00:PLANE::/32`,
the upper bits of 198.18.0.0/15; as labs and mrc-emu/1 number them) and by the queue pair. A
SACK or NACK names both queue pairs by their low 16 bits.

Planes have queues of their own: what left by two of them may be recorded in another order than
it was made in. Order is judged on one interface.

What an answer says of packets that were not sent is a fault only where all that its peer sent
was seen: from the first message on, as it left its sender, without a gap. Elsewhere another
plane, or the time before the capture, may have it: a warning.
"""

from netem.analysis.check.findings import Finding, Findings, Severity
from netem.analysis.check.lengths import overlong
from netem.analysis.check.packet import Packet
from netem.analysis.check.requests import PSNS
from netem.analysis.check.roce_icrc import LEAST, is_intact
from netem.analysis.check.writes import MrcFlow, Write
from netem.analysis.records import Interface
from wire.codec import DecodeError
from wire.mrc import entropy
from wire.mrc.opcodes import ENDPOINT_QP, WRITES
from wire.mrc.options import EvSplit
from wire.mrc.packet import MrcPacket, TrimmedWrite
from wire.mrc.reliability import NackReason, Neth, Seth

_MOST_FLOWS = 50_000
_PRIVATE = b"\xfd\x00"


class MrcJudge:
    """All MRC flows of a capture."""

    def __init__(self, findings: Findings, interfaces: list[Interface]) -> None:
        self.flows: dict[bytes, MrcFlow] = {}
        self.packets = 0
        self.unchecked = 0
        self._findings = findings
        self._interfaces = interfaces
        self._places: dict[bytes, int] = {}
        self._between: dict[bytes, list[MrcFlow]] = {}
        self._has_forgotten = False  # flows, or where they are seen first

    def take(self, packet: Packet, ip: int, udp: int) -> None:  # noqa: C901, PLR0912
        """Judge one packet."""
        self.packets += 1
        data = packet.data
        is_v6 = udp - ip == 40
        addresses = data[ip + 8 : udp] if is_v6 else data[ip + 12 : udp]
        end = udp + (data[udp + 4] << 8 | data[udp + 5])
        if len(self._places) > _MOST_FLOWS:
            self._places.clear()
            self._has_forgotten = True
        is_first_hop = self._places.setdefault(addresses, packet.where) == packet.where
        if end > len(data):
            self.unchecked += 1
            self._short(packet, addresses, ip, udp)
            return
        if end - udp < LEAST or not is_intact(data, ip, udp, end):
            if "corrupted" not in packet.comment and "trimmed" not in packet.comment:
                there = data[max(end - 4, 0) : end].hex()
                text = f"ICRC {there} is not that of the packet's bytes"
                self._violation(packet, "mrc/H4", text)
            if is_first_hop:
                self._flow(packet, addresses, data[udp + 13 : udp + 16]).damaged += 1
            return
        flow = self._flow(packet, addresses, data[udp + 13 : udp + 16])
        if (data[ip + 1] >> 4 if is_v6 else data[ip + 1]) & 3 == 3:
            flow.marked += 1
        if not is_first_hop:
            return
        flow.packets += 1
        flow.ended = packet.at
        flow.killed += packet.comment.startswith("dropped")
        if "duplicated" in packet.comment:  # the link's doing
            return
        try:
            mrc = MrcPacket.unpack(memoryview(data)[udp + 8 : end - 4])
        except DecodeError as error:
            self._violation(packet, "mrc/H1", str(error))
            return
        packet.psn = mrc.bth.psn
        if mrc.bth.opcode in WRITES:
            self._write(packet, mrc, ip, udp, flow)
        elif mrc.peth is not None:
            flow.use(_evs(data, ip, udp))
        elif mrc.seth is not None:
            self._sack(packet, mrc, mrc.seth, flow)
        elif mrc.neth is not None:
            self._nack(packet, mrc.neth, flow)
        elif mrc.aeth is not None and flow.peer is not None:
            flow.naks += mrc.aeth.syndrome >> 5 == 3
            if not flow.peer.has_sent(mrc.bth.psn):
                text = f"{flow.name}: ACK of psn {mrc.bth.psn:#x}, which was not sent"
                self._doubtful(packet, "mrc/P10", text, flow.peer)
        elif (mrc.erth or mrc.eeth) and mrc.bth.dest_qp != ENDPOINT_QP:
            text = f"endpoint message to QP {mrc.bth.dest_qp:#x}, not {ENDPOINT_QP}"
            self._violation(packet, "mrc/E6", text)

    def _violation(self, packet: Packet, clause: str, text: str) -> None:
        self._findings.add(packet.number, clause, Severity.VIOLATION, text)

    def _doubtful(self, packet: Packet, clause: str, text: str, sender: MrcFlow) -> None:
        """Add what is a violation if all that `sender` has sent was seen."""
        found = Finding(packet.number, clause, Severity.VIOLATION, text)
        self._findings.unless(lambda: self._has_forgotten or not sender.is_whole, found)

    def _short(self, packet: Packet, addresses: bytes, ip: int, udp: int) -> None:
        """Take a packet without its end: cut by the capture, or trimmed by a switch."""
        data = packet.data
        if packet.original > len(data):
            return
        is_told = "trimmed" in packet.comment
        wrong = overlong(packet, ip, udp)
        if wrong is not None:
            text = f"UDP length is larger than the {len(data) - udp} bytes that are there"
            if wrong is Severity.WARNING:
                text += ": too long, or trimmed by a switch whose DSCP is not known here"
            self._findings.add(packet.number, "mrc/H1", wrong, text)
            if wrong is Severity.VIOLATION:
                return
        try:
            TrimmedWrite.unpack(data[udp + 8 :])
        except DecodeError as error:
            severity = Severity.VIOLATION if is_told else Severity.WARNING
            text = f"trimmed to what says too little: {error}"
            self._findings.add(packet.number, "trim/T1", severity, text)
            return
        self._flow(packet, addresses, data[udp + 13 : udp + 16]).trimmed += 1

    def _flow(self, packet: Packet, addresses: bytes, qp: bytes) -> MrcFlow:
        half = len(addresses) // 2
        ends = _without_plane(addresses[:half]) + _without_plane(addresses[half:])
        key = ends + qp
        flow = self.flows.get(key)
        if flow is None:
            if len(self.flows) >= _MOST_FLOWS:
                self.flows.clear()
                self._has_forgotten = True
                self._between.clear()
            flow = self.flows[key] = MrcFlow(addresses, int.from_bytes(qp, "big"))
            flow.where, flow.first, flow.began = packet.where, packet.number, packet.at
            place = self._interfaces[packet.where]
            flow.is_at_sender = bool(place.leads_to) and not place.forwards
            self._between.setdefault(ends, []).append(flow)
        return flow

    def _write(self, packet: Packet, mrc: MrcPacket, ip: int, udp: int, flow: MrcFlow) -> None:
        evs = _evs(packet.data, ip, udp)
        flow.use(evs)
        flow.payload += len(mrc.payload)
        for clause, severity, text in flow.write(Write.of(mrc, evs[0], packet.number)):
            what = f"{flow.name}: WRITE psn {mrc.bth.psn:#x} {text}"
            if clause == "mrc/Q2" and severity is Severity.VIOLATION:
                self._doubtful(packet, clause, what, flow)
            else:
                self._findings.add(packet.number, clause, severity, what)

    def _peer(self, flow: MrcFlow, responder: int) -> MrcFlow | None:
        """Return the flow whose requests are answered: its queue pair ends as `responder`."""
        if flow.peer is None:
            half = len(flow.addresses) // 2
            there, here = flow.addresses[:half], flow.addresses[half:]
            ends = _without_plane(here) + _without_plane(there)
            found = [one for one in self._between.get(ends, ()) if one.qp & 0xFFFF == responder]
            if len(found) == 1 and found[0].first_psn >= 0:
                flow.peer = found[0]
        return flow.peer

    def _sack(self, packet: Packet, mrc: MrcPacket, seth: Seth, flow: MrcFlow) -> None:
        name, cack = flow.name, seth.cack_psn
        if mrc.bth.psn != cack:
            text = f"{name}: SACK to {cack:#x} with {mrc.bth.psn:#x} in its BTH"
            self._violation(packet, "mrc/H8", text)
        newest = flow.cacks.get(packet.where)
        if newest is not None and 0 < (newest - cack) % PSNS < PSNS // 2:
            text = f"{name}: SACK to {cack:#x} behind one to {newest:#x}"
            is_late = bool(packet.comment) or not flow.is_at_sender or self._has_forgotten
            found = Finding(packet.number, "mrc/P8", Severity.VIOLATION, text)
            self._findings.unless(lambda: is_late, found)
        flow.cacks[packet.where] = cack
        peer = self._peer(flow, seth.spdcid)
        if peer is None:
            return
        if peer.is_beyond(cack):
            text = f"{name}: SACK to {cack:#x}; {peer.next_psn:#x} is next to be sent"
            self._doubtful(packet, "mrc/P8", text, peer)
            return
        base, bitmap = cack + seth.sack_offset, seth.sack_bitmap
        if bitmap and peer.is_beyond(base + bitmap.bit_length() - 1):
            text = f"{name}: SACK says that {(base + bitmap.bit_length() - 1) % PSNS:#x} came"
            text += f"; {peer.next_psn:#x} is next to be sent"
            self._doubtful(packet, "mrc/P7", text, peer)
        above = bitmap if seth.sack_offset > 0 else bitmap >> 1 - seth.sack_offset
        if above.bit_count() > seth.ooo_count:
            text = f"{name}: SACK with ooo_count {seth.ooo_count} and {above.bit_count()} bits"
            self._violation(packet, "mrc/P17", text)
        if not seth.probe and peer.is_beyond(cack + seth.ack_psn_offset):
            text = f"{name}: SACK for a packet that was not sent"
            self._doubtful(packet, "mrc/P5", text, peer)
        self._reflected(packet, seth.entropy, peer, name)

    def _nack(self, packet: Packet, neth: Neth, flow: MrcFlow) -> None:
        flow.naks += 1
        if packet.psn != neth.nack_psn:
            text = f"{flow.name}: NACK of {neth.nack_psn:#x} with {packet.psn:#x} in its BTH"
            self._violation(packet, "mrc/H9", text)
        if neth.reason not in NackReason.__members__.values():
            text = f"{flow.name}: NACK with reason {neth.reason:#x}, which MRC does not have"
            self._findings.warning(packet.number, "mrc/P3", text)
        peer = self._peer(flow, neth.spdcid)
        if peer is None:
            return
        if peer.is_beyond(neth.nack_psn):
            text = f"{flow.name}: NACK of psn {neth.nack_psn:#x}, which was not sent"
            self._doubtful(packet, "mrc/P11", text, peer)
        self._reflected(packet, neth.entropy, peer, flow.name)

    def _reflected(self, packet: Packet, ev: int, peer: MrcFlow, name: str) -> None:
        if ev not in peer.evs and not peer.has_forgotten_evs:
            text = f"{name}: reflects EV {ev:#010x}, by which nothing was sent"
            self._doubtful(packet, "mrc/P5", text, peer)


def _without_plane(address: bytes) -> bytes:
    if len(address) == 16:
        is_ours = address[:2] == _PRIVATE
        return address[:2] + b"\0\0" + address[4:] if is_ours else address
    is_ours = address[0] == 198 and address[1] & 0xFE == 18
    return bytes((198, 18, address[2] & 0x1F, address[3])) if is_ours else address


def _evs(data: bytes, ip: int, udp: int) -> tuple[int, ...]:
    """Return the EV of a packet, in both readings of which half is where."""
    port = data[udp] << 8 | data[udp + 1]
    if udp - ip == 20:
        return (port,)
    label = int.from_bytes(data[ip + 1 : ip + 4], "big") & 0xFFFFF
    return entropy.join(label, port), entropy.join(label, port, EvSplit.LABEL_LOW)
