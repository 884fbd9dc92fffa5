"""What IP, UDP and BTH of a packet say beside what it does: rules for its sender's NIC.

IPv4 with DF, one UDP source port for a queue pair, a UDP checksum that is none or right, a
P_Key that its receiver has, reserved bits that are zero. Annex A17; IBTA vol. 1, 9.2 and 10.9.
A packet whose ICRC is wrong does not come here.
"""

from netem.analysis.check.findings import Finding, Findings, Severity
from netem.analysis.check.flow import Flow
from netem.analysis.check.packet import Packet
from netem.analysis.check.rows import CNP, DATAGRAM, REQUEST
from wire.checksum import internet_checksum, pseudo_header_sum

LEAST_PORT = 0xC000
_DF = 0x40
_UDP = 17
_FULL, _NUMBER = 0x8000, 0x7FFF  # of a P_Key: full member, and the partition
_GSI = b"\0\0\x01"  # takes packets of any partition


def judge_headers(findings: Findings, packet: Packet, flow: Flow, ip: int, udp: int) -> None:
    """Judge the headers at `ip` and `udp`, up to the DestQP; the row is known."""
    row = packet.row
    data, number = packet.data, packet.number
    if udp - ip == 20:
        if not data[ip + 6] & _DF:
            text = f"{flow.name}: {row.name} over IPv4 without DF"
            findings.violation(number, "roce/W12", text)
        there = data[ip + 10] << 8 | data[ip + 11]
        if there and internet_checksum(data[ip:udp]):  # 0: left to a NIC behind the capture
            text = f"{flow.name}: IPv4 header checksum {there:#06x} is wrong"
            findings.warning(number, "", text)
    checksum = data[udp + 6] << 8 | data[udp + 7]
    if checksum and not _is_right(data, ip, udp, checksum):
        text = f"{flow.name}: UDP checksum {checksum:#06x} is neither right nor 0"
        findings.warning(number, "roce/W8", text)
    if reserved := data[udp + 12] & 0x3F:
        text = f"{flow.name}: {row.name} with reserved bits {reserved:#x} beside FECN and BECN"
        findings.violation(number, "roce/W6", text)
    key = data[udp + 10] << 8 | data[udp + 11]
    if not key & _NUMBER:
        text = f"{flow.name}: P_Key {key:#06x}, and there is no partition 0"
        findings.violation(number, "roce/W19", text)
    elif flow.where == packet.where and row.kind != CNP:
        _constants(findings, packet, flow, udp, key)


def judge_reserved(findings: Findings, packet: Packet, flow: Flow) -> None:
    """Judge the seven bits beside AckReq, which the ICRC covers."""
    if bits := packet.bth_psn >> 24 & 0x7F:
        text = f"{flow.name}: {packet.row.name} with reserved bits {bits:#x} beside AckReq"
        findings.violation(packet.number, "roce/W7", text)


def judge_pair(findings: Findings, packet: Packet, flow: Flow, peer: Flow) -> None:
    """Judge the P_Keys of both directions, one of which has a packet."""
    if flow.key < 0 or peer.key < 0:
        return
    both = f"{flow.name}: P_Key {flow.key:#06x}, the other way {peer.key:#06x}"
    if (flow.key ^ peer.key) & _NUMBER:
        findings.violation(packet.number, "roce/W19", f"{both}: other partitions")
    elif not (flow.key | peer.key) & _FULL:
        text = f"{both}: two limited members, who may not talk"
        findings.violation(packet.number, "roce/W20", text)


def _constants(findings: Findings, packet: Packet, flow: Flow, udp: int, key: int) -> None:
    """Judge what stays the same as long as a queue pair lives."""
    data, row, peer = packet.data, packet.row, flow.peer
    port = data[udp] << 8 | data[udp + 1]
    lives = flow.requests.life, 0 if peer is None else peer.requests.life
    psn = int.from_bytes(data[udp + 17 : udp + 20], "big")
    is_new = row.kind == REQUEST and flow.requests.begins_anew(psn)
    if flow.key < 0 or is_new or lives != flow.lives:
        flow.key, flow.lives = key, (lives[0] + is_new, lives[1])
        if row.kind != DATAGRAM:
            flow.port = port
            if port < LEAST_PORT:
                text = f"{flow.name}: UDP source port {port}, it is one from {LEAST_PORT} on"
                findings.warning(packet.number, "roce/W10", text)
        return
    if (key ^ flow.key) & _NUMBER and data[udp + 13 : udp + 16] != _GSI:
        text = f"{flow.name}: {row.name} with P_Key {key:#06x}, it was {flow.key:#06x} before"
        if row.kind == DATAGRAM:  # of another sender, perhaps: who is not told by the flow
            findings.warning(packet.number, "roce/W19", text)
        else:
            found = Finding(packet.number, "roce/W19", Severity.VIOLATION, text)
            requests = flow.requests
            findings.unless(lambda: requests.has_restarted, found, needs_all=False)
    if row.kind != DATAGRAM and port != flow.port >= 0:
        text = f"{flow.name}: {row.name} from UDP port {port}, it was {flow.port} before"
        findings.warning(packet.number, "roce/W10", text)
        flow.port = port  # one finding for a change, not one for each packet behind it


def _is_right(data: bytes, ip: int, udp: int, checksum: int) -> bool:
    """Say whether a UDP checksum is that of its datagram, or cannot be judged."""
    length = data[udp + 4] << 8 | data[udp + 5]
    if udp + length > len(data):
        return True
    half = 4 if udp - ip == 20 else 16
    ends = data[udp - 2 * half : udp]
    initial = pseudo_header_sum(ends[:half], ends[half:], _UDP, length)
    if not internet_checksum(data[udp : udp + length], initial):
        return True
    # What a kernel leaves to its NIC to finish: the sum of the pseudo-header alone.
    return checksum == 0xFFFF - internet_checksum(b"", initial)
