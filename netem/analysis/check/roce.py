"""RoCE v2, packet by packet, and connection by connection.

One datagram to port 4791 goes through here: its lengths, its ICRC, its header bits, and then
the flow that it belongs to. A capture of several links has a packet once per link; what is
about bytes is judged each time, what is about order only where its flow was seen first, which
in our captures is the port by which its sender sent it.
"""

from struct import Struct
from typing import TypeAlias

from netem.analysis.check.findings import Findings, Severity
from netem.analysis.check.flow import Flow, pair_up
from netem.analysis.check.headers import judge_headers, judge_pair, judge_reserved
from netem.analysis.check.lengths import overlong
from netem.analysis.check.packet import Packet
from netem.analysis.check.requests import REMEMBERED
from netem.analysis.check.roce_icrc import LEAST, prefix
from netem.analysis.check.rows import (
    ACK,
    ATOMIC_ACK,
    CNP,
    DATAGRAM,
    MIDDLE,
    MRC,
    READ_RESPONSE,
    REQUEST,
    ROWS,
    UNKNOWN,
    Row,
)
from netem.analysis.records import Interface
from wire.roce.icrc import RESIDUE, crc32

_HEAD = Struct("!4xHxxBBxxI")  # UDP: Length; BTH: OpCode, byte 1, DestQP with its flags
_U32 = Struct("!I")

# Ours: beginnings of packets that are known; a flow has some, for each hop and length.
_MOST_KNOWN = 1 << 14
# Flow, row, opcode, byte 1 of the BTH, its second word, payload, then the UDP length and the
# CRC up to DestQP; or the offset of the end and whether the ICRC is wrong.
_Known: TypeAlias = tuple[Flow, Row, int, int, int, int, int, int]
_Apart: TypeAlias = tuple[Flow, Row, int, int, int, int, int, bool]
_RESERVED = 0x7F000000  # of the BTH's third word: seven bits beside AckReq
_GSI_KEY = 0x80010000
# Of a MAD behind the DETH: the class of the communication manager, its ConnectRequest. IBTA
# vol. 1, 13.4.2 and 12.6.5.
_CM, _CONNECT = b"\x07", b"\x00\x10"
_CNP_LENGTH = LEAST + 16
MOST_FLOWS = 100_000  # some 2 kB of memory each
_RESPONSES = frozenset({ACK, ATOMIC_ACK, READ_RESPONSE})


class RoceJudge:
    """All flows of a capture."""

    def __init__(self, findings: Findings, interfaces: list[Interface]) -> None:
        self.flows: dict[bytes, Flow] = {}
        self.packets = 0
        self.unchecked = 0  # packets whose ICRC the capture does not hold
        self.left_out = 0  # packets of flows beyond MOST_FLOWS
        self._findings = findings
        self._interfaces = interfaces
        self._known: dict[bytes, _Known] = {}
        self._places: dict[bytes, int] = {}  # both addresses -> interface
        self._between: dict[bytes, list[Flow]] = {}

    def take(self, packet: Packet, ip: int, udp: int) -> int:  # noqa: C901, PLR0912 - `bench`
        """Judge the packet whose IP and UDP headers are there; return its opcode's kind.

        Packets that begin as others did, from the IP length to the queue pair, need not be
        taken apart again; of those in the middle of a message nothing else is asked.
        """
        data = packet.data
        known = self._known.get(data[ip + 4 : udp + 16])
        if known is not None and len(data) >= udp + known[6]:
            flow, row, opcode, bits, qp, size, length, crc = known
            kind, end = row[0], udp + length
            is_damaged = crc32(data[udp + 16 : end], crc) != RESIDUE
            self.packets += 1
        else:
            found = self._take_apart(packet, ip, udp)
            if not isinstance(found, tuple):
                return found
            flow, row, opcode, bits, qp, size, end, is_damaged = found
            kind = row[0]
            if not is_damaged and kind:
                packet.row = row
                judge_headers(self._findings, packet, flow, ip, udp)
        if (data[ip + 1] >> 4 if udp - ip == 40 else data[ip + 1]) & 3 == 3:
            flow.marked += 1
        if is_damaged:
            self._damaged(packet, end)
        if flow.where != packet.where:
            flow.seen_at(packet.where)
            return kind
        flow.packets += 1
        flow.ended = packet.at
        if is_damaged:
            flow.damaged += 1
            return kind
        if packet.comment:
            flow.killed += packet.comment.startswith("dropped")
            if "duplicated" in packet.comment:  # the link's doing
                return kind
        (word,) = _U32.unpack_from(data, udp + 16)
        psn = word & 0xFFFFFF
        if (
            row[4] == MIDDLE
            and kind == REQUEST
            and row[5]
            and not bits & 0x3F
            and not word & _RESERVED
        ):
            requests = flow.requests
            if (
                psn == requests.next
                and size == requests.pmtu
                and requests.is_open == row[3]
                and len(requests.sent) < 2 * REMEMBERED
            ):
                requests.sent[psn] = (opcode, size, requests.messages, packet.number)
                requests.next = (psn + 1) & 0xFFFFFF
                if requests.left >= 0:
                    requests.left -= size
                flow.payload += size
                return kind
        packet.row, packet.opcode, packet.bits = row, opcode, bits
        packet.qp, packet.bth_psn, packet.psn = qp, word, psn
        packet.behind_bth, packet.end, packet.size = udp + 20, end, size
        self._judge(packet, flow)
        return kind

    def _take_apart(self, packet: Packet, ip: int, udp: int) -> int | _Apart:  # noqa: C901
        """Return what a packet's headers say; its kind alone where that is all there is."""
        data = packet.data
        if len(data) < udp + 20:
            self.packets += 1
            self._short(packet, ip, udp)
            return UNKNOWN
        head: tuple[int, int, int, int] = _HEAD.unpack_from(data, udp)
        length, opcode, bits, qp = head
        row: Row = ROWS[opcode]
        if row.kind == MRC:
            return MRC
        self.packets += 1
        end = udp + length
        is_there = end <= len(data)
        if not is_there:
            if not self._is_readable(packet, ip, udp, length):
                return row.kind
        elif length < LEAST or length & 3:
            clause = "roce/W22" if length < LEAST else "roce/W14"
            text = f"UDP length {length}; it is a multiple of 4 from {LEAST} on"
            if "trimmed" not in packet.comment:  # by who rewrites lengths: `trims`
                self._violation(packet, clause, text)
            return row.kind
        is_v6 = udp - ip == 40
        addresses = data[ip + 8 : udp] if is_v6 else data[ip + 12 : udp]
        flow = self.flows.get(addresses + data[udp + 13 : udp + 16])
        if flow is None:
            flow = self._new_flow(packet, addresses, qp & 0xFFFFFF)
            if flow is None:
                return row.kind
        size = length - LEAST - row.headers - (bits >> 4 & 3)
        is_damaged = False
        if is_there:
            crc = prefix(data, ip, udp)
            is_damaged = crc32(data[udp + 16 : end], crc) != RESIDUE
            in_ip = data[ip + 2] << 8 | data[ip + 3]
            slack = (
                (data[ip + 4] << 8 | data[ip + 5]) - length if is_v6 else in_ip - 20 - length
            )
            if slack and not is_damaged:
                text = f"UDP length {length} leaves {slack} bytes of its IP packet"
                self._violation(packet, "roce/W22", text)
            is_usual = is_v6 and not slack and not bits & 0x3F and size >= 0 and row.kind
            if (
                is_usual and data[udp + 6 : udp + 8] == b"\0\0"
            ):  # a checksum is another each time
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[data[ip + 4 : udp + 16]] = (
                    flow, row, opcode, bits, qp, size, length, crc,
                )  # fmt: skip
        return flow, row, opcode, bits, qp, size, end, is_damaged

    def _short(self, packet: Packet, ip: int, udp: int) -> None:
        """Take a packet without a whole BTH."""
        self.unchecked += 1
        severity = None if packet.original > len(packet.data) else overlong(packet, ip, udp)
        if severity is not None:
            there = len(packet.data) - udp
            text = f"{there} bytes are no UDP header and BTH"
            self._findings.add(packet.number, "roce/W22", severity, text)

    def _is_readable(self, packet: Packet, ip: int, udp: int, length: int) -> bool:
        """Say whether a packet whose end is not there may be judged by its headers."""
        self.unchecked += 1
        if packet.original > len(packet.data):
            return True  # cut by the capture
        severity = overlong(packet, ip, udp)
        if severity is not None:
            there = len(packet.data) - udp
            text = f"UDP length {length}, {there} bytes are there"
            if severity is Severity.WARNING:
                text += ": too long, or trimmed by a switch whose DSCP is not known here"
            self._findings.add(packet.number, "roce/W22", severity, text)
        return False

    def _damaged(self, packet: Packet, end: int) -> None:
        if "corrupted" not in packet.comment and "trimmed" not in packet.comment:
            there = packet.data[end - 4 : end].hex()
            text = f"ICRC {there} is not that of the packet's bytes"
            self._findings.violation(packet.number, "roce/W1", text)

    def _new_flow(self, packet: Packet, addresses: bytes, qp: int) -> Flow | None:
        if len(self.flows) >= MOST_FLOWS:
            self.left_out += 1
            return None
        place = self._places.get(addresses)
        if place is None:
            place = self._places[addresses] = self._place(packet.where, addresses)
        flow = Flow(addresses, qp, place, self._interfaces[place], self._findings)
        flow.first, flow.began = packet.number, packet.at
        self.flows[addresses + qp.to_bytes(3, "big")] = flow
        self._between.setdefault(addresses, []).append(flow)
        return flow

    def _place(self, where: int, addresses: bytes) -> int:
        """Return where to judge what goes between two addresses, first seen at `where`.

        That is there: in captures of ours where it leaves its sender. In others it is where
        the other direction is judged, if that one was seen here before, too: of two capture
        points one must do for both, or an answer is seen before what it answers.
        """
        half = len(addresses) // 2
        back = addresses[half:] + addresses[:half]
        other = self._places.get(back, where)
        if other == where or self._interfaces[where].leads_to:
            return where
        is_here = any(where in flow.elsewhere for flow in self._between.get(back, ()))
        return other if is_here else where

    def _judge(self, packet: Packet, flow: Flow) -> None:
        """Judge a packet whose bytes are right by what its headers say."""
        row = packet.row
        kind = row.kind
        is_odd = packet.bits & 0x3F or packet.size < 0 or kind == UNKNOWN
        if is_odd and not self._is_well_formed(packet):
            return
        if packet.bth_psn & _RESERVED:
            judge_reserved(self._findings, packet, flow)
        if len(packet.data) < packet.behind_bth + row.headers:
            return
        flow.payload += packet.size
        if kind == REQUEST:
            if row.is_reliable:
                flow.service = "RC"
            else:
                flow.service = "UC"
                if packet.bth_psn >> 31:
                    self._violation(packet, "roce/U1", f"{row.name} of UC has AckReq")
            flow.requests.take(packet)
        elif kind in _RESPONSES:
            self._response(packet, flow)
        elif kind == DATAGRAM:
            flow.service = "UD"
            self._datagram(packet, flow)
        elif kind == CNP:
            self._cnp(packet, flow)

    def _is_well_formed(self, packet: Packet) -> bool:
        """Judge the header bits of a packet and its pad; say whether to go on with it."""
        row, bits = packet.row, packet.bits
        data = packet.data
        if bits & 0x0F:
            self._violation(packet, "roce/W15", f"BTH.TVer is {bits & 0x0F}, it must be 0")
            return False
        if row.kind == UNKNOWN:
            self._violation(packet, "roce/W16", f"BTH.OpCode {packet.opcode:#04x} is reserved")
            return False
        if packet.size < 0:
            text = f"UDP length is too little for the headers of {row.name}, pad and ICRC"
            self._violation(packet, "roce/W22", text)
            return False
        if bits & 0x30:
            pad = bits >> 4 & 3
            stop = packet.end - 4
            if stop <= len(data) and any(data[stop - pad : stop]):
                self._violation(packet, "roce/W14", f"the {pad} pad bytes are not zero")
        return True

    def _violation(self, packet: Packet, clause: str, text: str) -> None:
        self._findings.violation(packet.number, clause, text)

    def _response(self, packet: Packet, flow: Flow) -> None:
        row = packet.row
        if not row.is_reliable:
            self._violation(packet, "roce/U1", f"{row.name} of UC, which is never answered")
            return
        flow.service = "RC"
        if packet.bth_psn >> 31 or packet.bits & 0x80:
            name = "AckReq" if packet.bth_psn >> 31 else "SE"
            self._violation(packet, "roce/W26", f"{row.name} has {name} set")
        if "delayed" in packet.comment:  # the link has changed the order: what was it before?
            return
        peer = self._peer(packet, flow)
        if peer is None:
            return
        packet.aeth = -1
        if row.headers:
            (packet.aeth,) = _U32.unpack_from(packet.data, packet.behind_bth)
        if row.kind == READ_RESPONSE:
            flow.responses.read(packet, peer.requests)
            return
        if packet.size:
            text = f"{row.name} has {packet.size} bytes of payload"
            self._violation(packet, "roce/W14", text)
        if row.kind == ACK:
            flow.responses.acknowledge(packet, peer.requests)
        else:
            flow.responses.atomic(packet, peer.requests)

    def _peer(self, packet: Packet, flow: Flow) -> Flow | None:
        """Return the flow whose requests the responses in `flow` answer, if it is sure."""
        peer = flow.peer
        if peer is not None:
            if flow.responses.life == peer.requests.life:
                return peer
            flow.peer = peer.peer = None  # the queue pair is another's by now
        found = pair_up(flow, self._between.get(flow.target + flow.source, ()), packet.psn)
        if found is not None:
            flow.responses.begin(found.requests.life)
            judge_pair(self._findings, packet, flow, found)
        return found

    def _datagram(self, packet: Packet, flow: Flow) -> None:
        if packet.size > 4096:
            text = f"UD payload of {packet.size} bytes, the largest path MTU is 4096"
            self._violation(packet, "roce/U9", text)
        start = packet.behind_bth
        (key,) = _U32.unpack_from(packet.data, start)
        is_cm = packet.qp & 0xFFFFFF == 1 and packet.data[start + 9 : start + 10] == _CM
        if is_cm and packet.data[start + 24 : start + 26] == _CONNECT:
            both = flow.source + flow.target, flow.target + flow.source
            for one in (one for ends in both for one in self._between.get(ends, ())):
                one.requests.may_restart = True
        if packet.qp & 0xFFFFFF == 1 and key != _GSI_KEY:
            self._violation(packet, "roce/U13", f"QP1 with Q_Key {key:#x}, not {_GSI_KEY:#x}")

    def _cnp(self, packet: Packet, flow: Flow) -> None:
        flow.cnps += 1
        start = packet.behind_bth
        wrong = []
        if not packet.qp >> 30 & 1:
            wrong.append("BECN is 0")
        if packet.psn:
            wrong.append(f"PSN is {packet.psn:#x}")
        if packet.bth_psn >> 31:
            wrong.append("AckReq is 1")
        if packet.bits & 0x80:
            wrong.append("SE is 1")
        if packet.size != _CNP_LENGTH - LEAST:
            wrong.append(f"{packet.size} bytes are behind the BTH, not 16")
        elif any(packet.data[start : start + 16]):
            wrong.append("the reserved bytes are not zero")
        if wrong:
            self._violation(packet, "roce/N2", f"CNP: {', '.join(wrong)}")
        marked = self._between.get(flow.target + flow.source, ())
        if flow.is_at_sender and not any(one.marked for one in marked):
            text = f"{flow.name}: CNP, and no packet the other way had CE"
            self._findings.warning(packet.number, "roce/N1", text)

    def end(self) -> None:
        """Judge what only the end of the capture shows."""
        for flow in self.flows.values():
            flow.requests.end(is_at_sender=flow.is_at_sender and not flow.damaged)
