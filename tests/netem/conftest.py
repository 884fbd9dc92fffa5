"""RoCE frames by hand, for all tests of this folder."""

from ipaddress import ip_address

import pytest

from wire.ethernet import Ethernet, EtherType, Vlan
from wire.ipv4 import Ipv4, Protocol
from wire.ipv6 import Ipv6
from wire.roce.bth import Bth
from wire.roce.eths import Aeth, AtomicAckEth, AtomicEth, Reth
from wire.roce.icrc import ICRC, icrc
from wire.roce.opcodes import Opcode
from wire.roce.packet import UDP_PORT, RocePacket, cnp
from wire.udp import Udp, checksum

MAC = {"h0": bytes.fromhex("020000000001"), "h1": bytes.fromhex("020000000002")}
IPS = {
    4: {"h0": ip_address("198.18.0.1").packed, "h1": ip_address("198.18.0.2").packed},
    6: {"h0": ip_address("fd00::1").packed, "h1": ip_address("fd00::2").packed},
}
QP = {"h0": 0x11, "h1": 0x22}


def udp_frame(source, target, payload, *, family=6, port=UDP_PORT, vlan=None):
    """Return an Ethernet frame with a UDP datagram; the UDP checksum is left zero."""
    source_ip, target_ip = IPS[family][source], IPS[family][target]
    length = 8 + len(payload)
    ethertype = EtherType.IPV6 if family == 6 else EtherType.IPV4
    ethernet = Ethernet(MAC[target], MAC[source], ethertype, vlan)
    if family == 6:
        ip = Ipv6(source_ip, target_ip, Protocol.UDP, length)
    else:
        ip = Ipv4(source_ip, target_ip, Protocol.UDP, 20 + length)
    frame = bytearray(ethernet.size + ip.size + 8)
    ethernet.pack_into(frame)
    ip.pack_into(frame, ethernet.size)
    Udp(0xC001, port, length).pack_into(frame, ethernet.size + ip.size)
    return frame + payload


def roce(source, target, packet, *, family=6, vlan=None):
    """Return a whole frame of a RocePacket, with its ICRC."""
    body = packet.pack()
    frame = udp_frame(source, target, body + bytes(4), family=family, vlan=vlan)
    ip = 14 if vlan is None else 18
    ICRC.pack_into(frame, len(frame) - 4, icrc(memoryview(frame)[ip:-4]))
    udp = ip + (40 if family == 6 else 20)
    addresses = IPS[family][source], IPS[family][target]
    frame[udp + 6 : udp + 8] = checksum(*addresses, frame[udp:]).to_bytes(2, "big")
    return bytes(frame)


class Make:
    """Frames between h0 and h1; a method per kind."""

    roce = staticmethod(roce)
    udp = staticmethod(udp_frame)
    Vlan = Vlan

    def request(self, opcode, psn, payload=b"", source="h0", qp=None, **options):
        target = "h1" if source == "h0" else "h0"
        headers = []
        if opcode in (Opcode.RC_WRITE_FIRST, Opcode.RC_WRITE_ONLY, Opcode.RC_READ_REQUEST):
            headers.append(Reth(0x1000, 0x77, 4096))
        if opcode in (Opcode.RC_FETCH_ADD, Opcode.RC_CMP_SWAP):
            headers.append(AtomicEth(0x1000, 0x77, 1))
        bth = Bth(opcode, QP[target] if qp is None else qp, psn)
        return roce(source, target, RocePacket.make(bth, *headers, payload=payload), **options)

    def write(self, position, psn, size=1024, **options):
        opcode = Opcode[f"RC_WRITE_{position}"]
        return self.request(opcode, psn, bytes(size), **options)

    def answer(self, aeth, psn, source="h1", **options):
        target = "h0" if source == "h1" else "h1"
        packet = RocePacket.make(Bth(Opcode.RC_ACKNOWLEDGE, QP[target], psn), aeth)
        return roce(source, target, packet, **options)

    def ack(self, psn, **options):
        return self.answer(Aeth.ack(1), psn, **options)

    def nak(self, psn, code=0, **options):
        return self.answer(Aeth.nak(1, code), psn, **options)

    def rnr(self, psn, timer=12, **options):
        return self.answer(Aeth.rnr_nak(1, timer), psn, **options)

    def answer_read(self, psn, payload):
        bth = Bth(Opcode.RC_READ_RESPONSE_ONLY, QP["h0"], psn)
        return roce("h1", "h0", RocePacket.make(bth, Aeth.ack(1), payload=payload))

    def atomic_ack(self, psn):
        bth = Bth(Opcode.RC_ATOMIC_ACKNOWLEDGE, QP["h0"], psn)
        return roce("h1", "h0", RocePacket.make(bth, Aeth.ack(1), AtomicAckEth(5)))

    def cnp(self):
        return roce("h1", "h0", cnp(QP["h0"]))


@pytest.fixture(scope="session")
def make():
    return Make()
