"""P13 and P09: our packets in scapy, and scapy in another namespace.

In processes of their own: importing the layers changes what scapy makes of a packet, and the
other tests ask scapy as it is.
"""

import importlib
import select
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.all import conf, sendp
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from netem.kernel.namespaces import inside
from tests.netem.conftest import IPS, MAC, roce, udp_frame
from tests.netem.kernel.labs import at, build, planned
from tests.sandboxed import in_sandbox
from tests.wire.strategies import mrc_packets
from wire.mrc.bth import MrcBth
from wire.mrc.eths import Meth, Tseth
from wire.mrc.opcodes import MrcOpcode
from wire.mrc.packet import MrcPacket
from wire.roce.bth import Bth
from wire.roce.eths import (
    Aeth,
    AtomicAckEth,
    AtomicEth,
    Deth,
    Feth,
    Ieth,
    ImmDt,
    Rdeth,
    Reth,
    Xrceth,
)
from wire.roce.icrc import ICRC, icrc
from wire.roce.opcodes import OPCODES, Family, Opcode
from wire.roce.packet import RocePacket

pytestmark = [pytest.mark.needs("netns"), pytest.mark.slow]

HEADERS = {
    Reth: Reth(0x1122334455667788, 0x99AABBCC, 0x400),
    AtomicEth: AtomicEth(0x1122334455667788, 0x99AABBCC, 0x0102, 0x1112),
    Aeth: Aeth.ack(0x123456),
    AtomicAckEth: AtomicAckEth(0x2122),
    Deth: Deth(0x11111111, 0x123456),
    Rdeth: Rdeth(0x654321),
    Xrceth: Xrceth(0xABCDEF),
    ImmDt: ImmDt(0xDEADBEEF),
    Ieth: Ieth(0x14AB),
    Feth: Feth(1, 3),
}
# Of each header: scapy's name for the layer, a field there, and what it must read.
READ = {
    Reth: ("RETH", "dmalen", 0x400),
    AtomicEth: ("AtomicETH", "compare", 0x1112),
    Aeth: ("AETH", "msn", 0x123456),
    AtomicAckEth: ("AtomicAckETH", "original", 0x2122),
    Deth: ("DETH", "srcqp", 0x123456),
    Rdeth: ("RDETH", "eecnxt", 0x654321),
    Xrceth: ("XRCETH", "xrcsrq", 0xABCDEF),
    ImmDt: ("IMMDT", "imm", 0xDEADBEEF),
    Ieth: ("IETH", "rkey", 0x14AB),
    Feth: ("FETH", "plt", 3),
}
PAYLOAD = b"payload!"


def every_opcode_read_and_built_again():
    importlib.import_module("netem.scapy_layers")
    for info in OPCODES.values():
        if info.family is Family.CNP:
            continue
        headers = [HEADERS[header] for header in info.headers]
        packet = RocePacket.make(Bth(info.opcode, 0x22, 7), *headers, payload=PAYLOAD)
        frame = roce("h0", "h1", packet)
        read = Ether(frame)
        layer = read["BTH"]
        for header in info.headers:
            name, field, value = READ[header]
            layer = layer.payload
            assert layer.__class__.__name__ == name, info.name
            assert layer.getfieldval(field) == value, info.name
        assert bytes(layer.payload) == PAYLOAD, info.name
        assert bytes(read) == frame, info.name
        del read["BTH"].icrc
        assert bytes(read) == frame, "scapy makes the same ICRC"
        assert "BTH" in read.show(dump=True)


def test_scapy_shows_and_builds_every_header_of_ours():
    """P13."""
    in_sandbox(every_opcode_read_and_built_again)


# Fields of ours that scapy's layers call otherwise
OTHERWISE = {"r_key": "rkey", "dma_length": "dmalen"}
OF_BTH = {"dest_qp": "dqpn", "ack_req": "ackreq", "mig_req": "migreq", "pad_count": "padcount",
          "p_key": "pkey"}  # fmt: skip


def fields_of(header, layer, names=OTHERWISE):
    """Return what a header of ours says, by the names of a layer's fields."""
    has = {field.name for field in layer.fields_desc}
    pairs = ((names.get(name, name), value) for name, value in header._asdict().items())
    return {name: int(value) for name, value in pairs if name in has}


def crafted(layers, packet, frame):
    """Return the packet as a user would build it, with the addresses of `frame`."""
    bth = layers.MrcBTH(**fields_of(packet.bth, layers.MrcBTH, OF_BTH))
    built = Ether(frame[:14]) / Ether(frame)[1].copy()
    built[UDP].remove_payload()
    built = built / bth
    for header in packet.headers:
        layer = getattr(layers, type(header).__name__.upper())
        built = built / layer(**fields_of(header, layer))
    rest = bytes(packet.payload) + bytes(packet.bth.pad_count)
    return built / rest if rest else built


def every_packet_of_mrc_read_and_crafted():
    layers = importlib.import_module("netem.scapy_layers")

    @settings(max_examples=40, database=None)
    @given(mrc_packets, st.sampled_from([4, 6]))
    def check(packet, family):
        frame = udp_frame("h0", "h1", packet.pack() + bytes(4), family=family)
        ICRC.pack_into(frame, len(frame) - 4, icrc(memoryview(frame)[14:-4]))
        frame = bytes(frame)
        read = Ether(frame)
        layer = read[layers.MrcBTH]
        assert layer.psn == packet.bth.psn
        for header in packet.headers:
            layer = layer.payload
            assert type(layer).__name__ == type(header).__name__.upper()
            for name, value in fields_of(header, layer).items():
                assert layer.getfieldval(name) == value, name
        assert bytes(read) == frame
        assert bytes(crafted(layers, packet, frame)) == frame, "and its ICRC is ours"

    check()


def test_mrc_in_scapy_is_mrc_in_our_codecs_byte_for_byte():
    """P13: `show()` on a SACK, and a SACK of one's own."""
    in_sandbox(every_packet_of_mrc_read_and_crafted)


def trimmed_packets_read():
    layers = importlib.import_module("netem.scapy_layers")
    bth = MrcBth(MrcOpcode.WRITE_MIDDLE, 0x22, 7)
    write = MrcPacket.make(bth, Meth(1, 2), Tseth(9), HEADERS[Reth], payload=bytes(256))
    mrc = bytes(udp_frame("h0", "h1", write.pack() + bytes(4)))
    middle = RocePacket.make(
        Bth(Opcode.RC_WRITE_FIRST, 0x22, 7), HEADERS[Reth], payload=bytes(256)
    )
    for frame, name in ((mrc, "TrimmedMrcBTH"), (roce("h0", "h1", middle), "TrimmedBTH")):
        for keep in range(74, 130):
            read = Ether(frame[:keep])
            layer = read[getattr(layers, name)]
            assert layer.psn == 7
            assert "icrc" not in layer.fields
            assert bytes(read) == frame[:keep], keep
    assert Ether(mrc[:82])[layers.TSETH].tx_timestamp == 9
    assert layers.RETH not in Ether(mrc[:82])
    sack = layers.SETH(cack_psn=5, sack_bitmap=0b101, verdict="SKIP_ONCE")
    assert "SKIP_ONCE" in (layers.MrcBTH() / sack).show(dump=True)
    for message in (b"\x01\0\0\0" + bytes(144), b"\x04\0\0\0" + bytes(28)):
        assert bytes(layers.Wireguard(message)) == message


def test_what_a_switch_left_of_a_packet_has_no_icrc_and_its_headers_as_far_as_they_go():
    in_sandbox(trimmed_packets_read)


TWO = """
topology:
  nodes: {a: {}, b: {}}
  links: [{endpoints: ["a:p0", "b:p1"]}]
"""


def scapy_sends_from_another_namespace():
    layers = importlib.import_module("netem.scapy_layers")
    pids = build(planned(TWO))
    heard = at(pids["a"], listening, "p0")
    before = set(conf.ifaces.data)
    with inside(pids["b"]):
        assert "p1" not in before
        layers.reload_interfaces()
        bth = layers.BTH(opcode=int(Opcode.RC_SEND_ONLY), dqpn=0x22, psn=7)
        ips = {name: socket.inet_ntop(socket.AF_INET6, ip) for name, ip in IPS[6].items()}
        frame = (
            Ether(src=MAC["h1"].hex(":"), dst=MAC["h0"].hex(":"))
            / IPv6(src=ips["h1"], dst=ips["h0"])
            / UDP(sport=0xC000, dport=4791)
            / bth
            / PAYLOAD
        )
        sendp(frame, iface="p1", verbose=False)
    assert select.select([heard], [], [], 10)[0]
    return heard.recv(2000), bytes(frame)


def listening(interface):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind((interface, 3))
    return sock


def test_scapy_sends_from_a_namespace_entered_after_its_import():
    """P09: its list of interfaces is that of another namespace until it is read again."""
    heard, sent = in_sandbox(scapy_sends_from_another_namespace)
    assert heard == sent
