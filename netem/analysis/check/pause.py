"""PFC frames, as frames. IEEE 802.1Qbb; 802.3, annex 31D."""

from netem.analysis.check.findings import Findings
from netem.analysis.check.packet import Packet
from wire.pfc import DESTINATION, MIN_FRAME, OPCODE, PFC

_ETHERNET = 14


class PauseJudge:
    """Counts PFC frames and judges their form; the PAUSE of annex 31B is left alone."""

    def __init__(self, findings: Findings) -> None:
        self.packets = 0
        self._findings = findings

    def take(self, packet: Packet, start: int) -> None:
        """Judge the MAC control frame whose opcode is at `start`."""
        data = packet.data
        if int.from_bytes(data[start : start + 2], "big") != OPCODE:
            return
        self.packets += 1
        wrong = []
        if data[:6] != DESTINATION:
            wrong.append(f"goes to {data[:6].hex(':')}")
        if start != _ETHERNET:
            wrong.append("is tagged")
        if packet.original < MIN_FRAME:
            wrong.append(f"has {packet.original} bytes, {MIN_FRAME} is the least")
        if wrong:
            text = f"PFC frame that {' and '.join(wrong)}"
            self._findings.violation(packet.number, "pfc/P1", text)
        if len(data) < start + PFC.size:
            if packet.original <= len(data):
                self._findings.violation(packet.number, "pfc/P1", "PFC frame without its times")
            return
        _, vector, *times = PFC.unpack_from(data, start)
        if vector >> 8:
            text = f"PFC frame with reserved bits in its enable vector {vector:#06x}"
            self._findings.violation(packet.number, "pfc/P2", text)
        if any(time for n, time in enumerate(times) if not vector >> n & 1):
            text = "PFC frame with times of classes that are not enabled"
            self._findings.warning(packet.number, "pfc/P2", text)
