"""P13 and P09: our packets in scapy, and scapy in another namespace.

In processes of their own: importing the layers changes what scapy makes of a packet, and the
other tests ask scapy as it is.
"""

import importlib
import select
import socket

import pytest
from scapy.all import conf, sendp
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from netem.kernel.namespaces import inside
from tests.netem.conftest import IPS, MAC, roce
from tests.netem.kernel.labs import at, build, planned
from tests.sandboxed import in_sandbox
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
