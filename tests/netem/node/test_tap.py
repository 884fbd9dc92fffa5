"""Which frames are the machine's and which the kernel's, at a port with `stack: kernel`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.dns import DNS
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrHopByHop
from scapy.layers.l2 import ARP, Dot1Q, Ether

from netem.node.tap import is_for_machine

ROCE = UDP(sport=0xC000, dport=4791) / bytes(20)
MRC = UDP(sport=0xC000, dport=4971) / bytes(20)

OURS = [
    pytest.param(Ether() / IPv6() / ROCE, id="RoCE over IPv6"),
    pytest.param(Ether() / IP() / ROCE, id="RoCE over IPv4"),
    pytest.param(Ether() / Dot1Q(vlan=7) / IPv6() / ROCE, id="RoCE, tagged"),
    pytest.param(Ether() / Dot1Q(vlan=7) / IP() / MRC, id="MRC over IPv4, tagged"),
    pytest.param(Ether() / IPv6() / MRC, id="MRC over IPv6"),
    pytest.param(Ether() / IP(options=b"\x01\x01\x01\x01") / ROCE, id="IPv4 with options"),
]
KERNELS = [
    pytest.param(Ether() / ARP(), id="ARP"),
    pytest.param(Ether() / IPv6() / ICMPv6EchoRequest(), id="ping over IPv6"),
    pytest.param(Ether() / IP() / ICMP() / bytes(60), id="ping over IPv4"),
    pytest.param(Ether() / IPv6() / TCP(dport=4791) / bytes(20), id="TCP to 4791"),
    pytest.param(Ether() / IPv6() / UDP(sport=4791, dport=53) / DNS(), id="UDP from 4791"),
    pytest.param(Ether() / IP(frag=5, flags="MF") / ROCE, id="a later fragment"),
    pytest.param(Ether() / IPv6() / IPv6ExtHdrHopByHop() / ROCE, id="extension header"),
    pytest.param(
        Ether() / IP() / ICMP(type=3, code=3) / IP() / ROCE, id="unreachable about RoCE"
    ),
    pytest.param(Ether(type=0x8915) / bytes(60), id="RoCE v1"),
]


@pytest.mark.parametrize("frame", OURS)
def test_a_datagram_for_our_ports_is_the_machines(frame):
    assert is_for_machine(memoryview(bytes(frame)))


@pytest.mark.parametrize("frame", KERNELS)
def test_everything_else_is_the_kernels(frame):
    assert not is_for_machine(memoryview(bytes(frame)))


@pytest.mark.parametrize("frame", OURS)
def test_a_frame_cut_before_its_port_is_the_kernels(frame):
    whole = bytes(frame)
    port = whole.index((0xC000).to_bytes(2, "big")) + 2
    assert not any(is_for_machine(whole[:size]) for size in range(port + 2))


@given(st.binary(max_size=80))
def test_any_bytes_get_an_answer(frame):
    assert is_for_machine(frame) in {True, False}


@given(
    st.sampled_from([case.values[0] for case in OURS]), st.integers(0, 500), st.integers(0, 255)
)
def test_any_byte_of_a_good_frame_changed_gets_an_answer(frame, position, value):
    raw = bytearray(bytes(frame))
    raw[position % len(raw)] = value
    assert is_for_machine(raw) in {True, False}
