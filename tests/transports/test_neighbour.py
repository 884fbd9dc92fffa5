"""ARP, neighbour discovery and echo of one port. RFC 826, RFC 4861, RFC 4443, RFC 792.

The other side of each dialogue is scapy: its packets, its reading of ours.
"""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether

from transports.clock import S
from transports.neighbour import (
    LIFETIME,
    MAX_ANSWERS,
    MAX_ASKING,
    MAX_LEARNED,
    MAX_TRIES,
    MAX_WAITING,
    Resolver,
    Unresolved,
)

MAC, PEER_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
V4, PEER_V4 = "198.18.0.1", "198.18.0.2"
V6, PEER_V6 = "fd00::1", "fd00::2"
GROUP_MAC, GROUP = "33:33:ff:00:00:01", "ff02::1:ff00:1"
PEER_V4_BYTES = bytes([198, 18, 0, 2])
PEER_V6_BYTES = bytes.fromhex("fd00" + "00" * 13 + "02")
PACKET_V4 = bytes(IP(src=V4, dst=PEER_V4) / UDP(dport=4791) / b"data")
PACKET_V6 = bytes(IPv6(src=V6, dst=PEER_V6) / UDP(dport=4791) / b"data")


TO_US = IP(src=PEER_V4, dst=V4)
TO_US_6 = IPv6(src=PEER_V6, dst=V6)
NO_ECHO = {
    "to another": (IP(src=PEER_V4, dst="198.18.0.9") / ICMP(), "not_for_us"),
    "fragment": (IP(src=PEER_V4, dst=V4, flags="MF") / ICMP(), "not_spoken"),
    "reply": (TO_US / ICMP(type=0), "not_spoken"),
    "UDP": (TO_US / UDP(), "not_spoken"),
    "from a group": (IP(src="224.0.0.1", dst=V4) / ICMP(), "bad_address"),
    "from nobody": (IP(src="0.0.0.0", dst=V4) / ICMP(), "bad_address"),
    "checksum": (TO_US / ICMP(chksum=1), "malformed"),
    "cut short": (IP(src=PEER_V4, dst=V4, len=90) / ICMP(), "malformed"),
    "v6 to another": (IPv6(src=PEER_V6, dst="fd00::9") / ICMPv6EchoRequest(), "not_for_us"),
    "v6 to all": (IPv6(src=PEER_V6, dst="ff02::1") / ICMPv6EchoRequest(), "bad_address"),
    "v6 from nobody": (IPv6(src="::", dst=V6) / ICMPv6EchoRequest(), "bad_address"),
    "v6 reply": (TO_US_6 / ICMPv6EchoReply(), "not_spoken"),
    "v6 checksum": (TO_US_6 / ICMPv6EchoRequest(cksum=1), "malformed"),
    "v6 cut": (IPv6(src=PEER_V6, dst=V6, plen=99) / ICMPv6EchoRequest(), "malformed"),
}


def mac_bytes(text):
    return bytes.fromhex(text.replace(":", ""))


def resolver(**changes):
    settings = {
        "ipv4": bytes([198, 18, 0, 1]),
        "ipv6": bytes.fromhex("fd00" + "00" * 13 + "01"),
        "table": {},
    }
    return Resolver(mac_bytes(MAC), **settings | changes)


@pytest.fixture
def port():
    return resolver()


def sent(port, now=0):
    return [Ether(outgoing.frame) for outgoing in port.transmit(now)]


def arp_reply(mac=PEER_MAC, ip=PEER_V4):
    return bytes(
        Ether(src=mac, dst=MAC) / ARP(op="is-at", hwsrc=mac, psrc=ip, hwdst=MAC, pdst=V4)
    )


def solicitation(target=V6, src=PEER_V6, dst=GROUP, hop_limit=255, lladdr=PEER_MAC):
    packet = (
        Ether(src=PEER_MAC, dst=GROUP_MAC)
        / IPv6(src=src, dst=dst, hlim=hop_limit)
        / ICMPv6ND_NS(tgt=target)
    )
    return bytes(packet / ICMPv6NDOptSrcLLAddr(lladdr=lladdr) if lladdr else packet)


def advertisement(target=PEER_V6, mac=PEER_MAC, hop_limit=255, solicited=1, dst=V6):
    return bytes(
        Ether(src=PEER_MAC, dst=MAC)
        / IPv6(src=PEER_V6, dst=dst, hlim=hop_limit)
        / ICMPv6ND_NA(tgt=target, R=0, S=solicited, O=1)
        / ICMPv6NDOptDstLLAddr(lladdr=mac)
    )


class TestKnownNeighbours:
    """What the owner's table knows is never asked for and never overwritten."""

    def test_a_packet_to_one_leaves_at_once(self):
        port = resolver(table={PEER_V6_BYTES: mac_bytes(PEER_MAC)})
        port.send(PACKET_V6, PEER_V6_BYTES, 0, tag="mine")
        (outgoing,) = port.transmit(0)
        assert outgoing.frame == mac_bytes(PEER_MAC) + mac_bytes(MAC) + b"\x86\xdd" + PACKET_V6
        assert outgoing.tag == "mine"
        assert port.deadline is None

    def test_answers_do_not_change_its_row(self):
        port = resolver(table={PEER_V4_BYTES: mac_bytes(PEER_MAC)})
        port.receive(arp_reply(mac="02:00:00:00:00:99"), 0)
        request = ARP(op="who-has", hwsrc="02:00:00:00:00:99", psrc=PEER_V4, pdst=V4)
        port.receive(
            bytes(Ether(src="02:00:00:00:00:99", dst="ff:ff:ff:ff:ff:ff") / request), 0
        )
        assert port.lookup(PEER_V4_BYTES, 0) == mac_bytes(PEER_MAC)


class TestAsking:
    def test_an_unknown_ipv4_address_is_asked_for_by_broadcast(self, port):
        port.send(PACKET_V4, PEER_V4_BYTES, 0)
        (frame,) = sent(port)
        assert frame.dst == "ff:ff:ff:ff:ff:ff"
        assert (frame[ARP].op, frame[ARP].pdst, frame[ARP].hwdst) == (
            1,
            PEER_V4,
            "00:00:00:00:00:00",
        )
        assert (frame[ARP].psrc, frame[ARP].hwsrc) == (V4, MAC)

    def test_an_unknown_ipv6_address_is_asked_for_in_its_solicited_node_group(self, port):
        """RFC 4861, section 7.2.2."""
        port.send(PACKET_V6, PEER_V6_BYTES, 0)
        (frame,) = sent(port)
        assert (frame.dst, frame[IPv6].dst) == ("33:33:ff:00:00:02", "ff02::1:ff00:2")
        assert (frame[IPv6].src, frame[IPv6].hlim) == (V6, 255)
        assert frame[ICMPv6ND_NS].tgt == PEER_V6
        assert frame[ICMPv6NDOptSrcLLAddr].lladdr == MAC

    @pytest.mark.parametrize(
        ("packet", "ip", "answer"),
        [
            pytest.param(PACKET_V4, PEER_V4_BYTES, arp_reply(), id="ARP"),
            pytest.param(PACKET_V6, PEER_V6_BYTES, advertisement(), id="neighbour discovery"),
        ],
    )
    def test_what_waited_leaves_in_order_when_the_answer_comes(self, port, packet, ip, answer):
        for number in range(3):
            port.send(packet, ip, 0, tag=number)
        assert len(sent(port)) == 1  # one question for all
        port.receive(answer, 5)
        outgoing = list(port.transmit(5))
        assert [o.tag for o in outgoing] == [0, 1, 2]
        assert {o.frame[:6] for o in outgoing} == {mac_bytes(PEER_MAC)}
        assert {o.frame[14:] for o in outgoing} == {packet}
        assert port.deadline is None

    def test_it_asks_three_times_a_second_apart_and_then_says_so(self, port):
        """RFC 4861, section 10: MAX_MULTICAST_SOLICIT, RETRANS_TIMER."""
        port.send(PACKET_V6, PEER_V6_BYTES, 0)
        port.send(PACKET_V6, PEER_V6_BYTES, 0)
        questions = len(sent(port))
        while port.deadline is not None:
            at = port.deadline
            port.expire(at)
            questions += len(sent(port, at))
        assert (questions, at) == (MAX_TRIES, 3 * S)
        assert list(port.events()) == [Unresolved(PEER_V6_BYTES, 3, 2)]
        assert list(port.events()) == []
        assert port.counters["unresolved"] == 2

    def test_time_that_passes_early_or_twice_is_harmless(self, port):
        port.send(PACKET_V6, PEER_V6_BYTES, 0)
        port.expire(0)
        port.expire(S - 1)
        assert len(sent(port)) == 1
        port.expire(S)
        port.expire(S)
        assert len(sent(port)) == 1

    def test_an_answer_is_believed_for_a_while_without_any_timer(self, port):
        port.send(PACKET_V4, PEER_V4_BYTES, 0)
        port.receive(arp_reply(), 0)
        assert port.deadline is None
        assert port.lookup(PEER_V4_BYTES, LIFETIME - 1) == mac_bytes(PEER_MAC)
        assert port.lookup(PEER_V4_BYTES, LIFETIME) is None

    def test_a_port_without_an_address_of_the_family_does_not_ask(self):
        port = resolver(ipv4=None)
        port.send(PACKET_V4, PEER_V4_BYTES, 0)
        assert (sent(port), port.deadline) == ([], None)
        assert port.counters == {"no_address": 1}

    @pytest.mark.parametrize(
        ("frame", "why"),
        [
            pytest.param(arp_reply(), "not_asked", id="an ARP reply to no question"),
            pytest.param(advertisement(), "not_asked", id="an advertisement to no question"),
            pytest.param(advertisement(hop_limit=254), "hop_limit", id="one that was routed"),
            pytest.param(advertisement(mac="33:33:00:00:00:01"), "bad_address", id="group MAC"),
            pytest.param(advertisement(target="ff02::1"), "bad_address", id="group target"),
            pytest.param(
                advertisement(dst="ff02::1").replace(mac_bytes(MAC), b"\x33\x33\0\0\0\1", 1),
                "bad_address",
                id="solicited, but to all",
            ),
        ],
    )
    def test_an_answer_that_cannot_be_teaches_nothing(self, port, frame, why):
        port.receive(frame, 0)
        assert port.counters == {why: 1}
        assert port.lookup(PEER_V4_BYTES, 0) is port.lookup(PEER_V6_BYTES, 0) is None


class TestBounds:
    def test_a_full_queue_takes_no_more(self, port):
        for number in range(MAX_WAITING + 2):
            port.send(PACKET_V4, PEER_V4_BYTES, 0, tag=number)
        list(port.transmit(0))
        port.receive(arp_reply(), 0)
        assert [o.tag for o in port.transmit(0)] == list(range(MAX_WAITING))
        assert port.counters["queue_full"] == 2

    def test_so_many_addresses_are_asked_for_at_once_and_no_more(self, port):
        for number in range(MAX_ASKING + 1):
            port.send(PACKET_V4, bytes([10, 0, number >> 8, number & 255]), 0)
        assert len(sent(port)) == MAX_ASKING
        assert port.counters["table_full"] == 1

    def test_so_many_addresses_are_learned_and_no_more(self, port):
        for number in range(MAX_LEARNED + 1):
            ip = f"10.0.{number >> 8}.{number & 255}"
            ask = ARP(op="who-has", hwsrc=PEER_MAC, psrc=ip, pdst=V4)
            port.receive(bytes(Ether(src=PEER_MAC, dst="ff:ff:ff:ff:ff:ff") / ask), 0)
            list(port.transmit(0))
        assert port.lookup(bytes([10, 0, 0, 0]), 0) is None
        assert port.lookup(bytes([10, 0, 0, 1]), 0) is not None

    def test_a_flood_of_questions_gets_so_many_answers_and_no_more(self, port):
        for _ in range(MAX_ANSWERS + 3):
            port.receive(solicitation(), 0)
        assert len(sent(port)) == MAX_ANSWERS
        assert port.counters["flood"] == 3
        port.receive(solicitation(), 0)
        assert len(sent(port)) == 1


class TestAnswering:
    def test_arp_for_our_address(self, port):
        ask = ARP(op="who-has", hwsrc=PEER_MAC, psrc=PEER_V4, pdst=V4)
        port.receive(bytes(Ether(src=PEER_MAC, dst="ff:ff:ff:ff:ff:ff") / ask), 0)
        (frame,) = sent(port)
        assert frame.dst == PEER_MAC
        assert (frame[ARP].op, frame[ARP].hwsrc, frame[ARP].psrc) == (2, MAC, V4)
        assert (frame[ARP].hwdst, frame[ARP].pdst) == (PEER_MAC, PEER_V4)
        assert port.lookup(PEER_V4_BYTES, 0) == mac_bytes(PEER_MAC)  # RFC 826: merged

    def test_a_solicitation_for_our_address(self, port):
        """RFC 4861, section 7.2.4."""
        port.receive(solicitation(), 0)
        (frame,) = sent(port)
        assert (frame.dst, frame[IPv6].dst, frame[IPv6].hlim) == (PEER_MAC, PEER_V6, 255)
        answer = frame[ICMPv6ND_NA]
        assert (answer.tgt, answer.S, answer.O, answer.R) == (V6, 1, 1, 0)
        assert frame[ICMPv6NDOptDstLLAddr].lladdr == MAC
        assert port.lookup(PEER_V6_BYTES, 0) == mac_bytes(PEER_MAC)

    def test_one_who_looks_whether_our_address_is_free_is_told_by_a_group(self, port):
        """RFC 4862, section 5.4.3: the answer goes to all nodes and is not solicited."""
        port.receive(solicitation(src="::", lladdr=None), 0)
        (frame,) = sent(port)
        assert (frame.dst, frame[IPv6].dst, frame[ICMPv6ND_NA].S) == (
            "33:33:00:00:00:01", "ff02::1", 0,
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("frame", "why"),
        [
            pytest.param(solicitation(hop_limit=64), "hop_limit", id="routed"),
            pytest.param(solicitation(target="fd00::9"), "not_for_us", id="for another"),
            pytest.param(solicitation(lladdr=None), "bad_address", id="no way to answer"),
            pytest.param(solicitation(src="::"), "bad_address", id="a probe with an option"),
            pytest.param(
                solicitation(src="::", dst=V6, lladdr=None), "bad_address", id="probe to us"
            ),
            pytest.param(solicitation(lladdr="33:33:0:0:0:1"), "bad_address", id="group MAC"),
            pytest.param(solicitation(src=V6), "bad_address", id="from our own address"),
        ],
    )
    def test_a_question_that_cannot_be_is_not_answered(self, port, frame, why):
        port.receive(frame, 0)
        assert (sent(port), port.counters) == ([], {why: 1})

    def test_ping(self, port):
        """RFC 792: identifier, sequence and data come back."""
        ask = IP(src=PEER_V4, dst=V4, tos=0x88) / ICMP(id=7, seq=9) / (b"payload" * 30)
        port.receive(bytes(Ether(src=PEER_MAC, dst=MAC) / ask), 0)
        (frame,) = sent(port)
        assert (frame.dst, frame[IP].src, frame[IP].dst) == (PEER_MAC, V4, PEER_V4)
        assert (frame[ICMP].type, frame[ICMP].id, frame[ICMP].seq) == (0, 7, 9)
        assert bytes(frame[ICMP].payload) == b"payload" * 30
        assert frame[IP].tos == 0x88
        assert_checksums_hold(frame)

    def test_ping6(self, port):
        """RFC 4443, section 4.2."""
        ask = IPv6(src=PEER_V6, dst=V6) / ICMPv6EchoRequest(id=7, seq=9, data=b"abc")
        port.receive(bytes(Ether(src=PEER_MAC, dst=MAC) / ask), 0)
        (frame,) = sent(port)
        assert (frame.dst, frame[IPv6].src, frame[IPv6].dst) == (PEER_MAC, V6, PEER_V6)
        answer = frame[ICMPv6EchoReply]
        assert (answer.id, answer.seq, answer.data) == (7, 9, b"abc")
        assert_checksums_hold(frame)

    def test_a_short_frame_is_padded_by_others_and_the_pad_is_not_echoed(self, port):
        ask = Ether(src=PEER_MAC, dst=MAC) / IP(src=PEER_V4, dst=V4) / ICMP() / b"abc"
        port.receive(bytes(ask).ljust(60, b"\xff"), 0)
        (frame,) = sent(port)
        assert bytes(frame[ICMP].payload) == b"abc"

    def test_ping_leaves_no_trace_but_a_count(self, port):
        ask = IPv6(src="fd00::77", dst=V6) / ICMPv6EchoRequest()
        port.receive(bytes(Ether(src=PEER_MAC, dst=MAC) / ask), 0)
        sent(port)
        assert port.lookup(bytes.fromhex("fd00" + "00" * 13 + "77"), 0) is None
        assert port.counters == {"echo_answers": 1}

    @pytest.mark.parametrize(("packet", "why"), NO_ECHO.values(), ids=NO_ECHO)
    def test_what_is_no_echo_request_to_us_is_dropped_with_its_reason(self, port, packet, why):
        port.receive(bytes(Ether(src=PEER_MAC, dst=MAC) / packet), 0)
        assert (sent(port), port.counters) == ([], {why: 1})


def test_a_frame_for_another_mac_is_not_ours(port):
    frame = Ether(src=PEER_MAC, dst="02:00:00:00:00:77") / IP(src=PEER_V4, dst=V4) / ICMP()
    port.receive(bytes(frame), 0)
    assert port.counters == {"not_for_us": 1}


def test_in_a_vlan_everything_that_is_sent_carries_its_tag():
    """W27: 802.1Q; the priority is that of the packet's class."""
    port = resolver(vlan=100)
    ask = IPv6(src=PEER_V6, dst=V6, tc=0xB8) / ICMPv6EchoRequest()
    port.receive(bytes(Ether(src=PEER_MAC, dst=MAC) / Dot1Q(vlan=100) / ask), 0)
    port.send(PACKET_V4, PEER_V4_BYTES, 0, pcp=3)
    echo, question = sent(port)
    assert (echo[Dot1Q].vlan, echo[Dot1Q].prio) == (100, 5)
    assert (question[Dot1Q].vlan, question[Dot1Q].prio, question[ARP].pdst) == (100, 0, PEER_V4)
    port.receive(arp_reply(), 0)
    (packet,) = sent(port)
    assert (packet[Dot1Q].vlan, packet[Dot1Q].prio) == (100, 3)


def test_an_idle_port_is_silent(port):
    """P07: nothing is sent that nobody asked for."""
    assert (sent(port), port.deadline) == ([], None)
    port.expire(3600 * S)
    assert (sent(port, 3600 * S), port.deadline) == ([], None)


GOOD = [
    arp_reply(),
    solicitation(),
    advertisement(),
    bytes(Ether(src=PEER_MAC, dst=MAC) / IP(src=PEER_V4, dst=V4) / ICMP() / b"abc"),
    bytes(Ether(src=PEER_MAC, dst=MAC) / IPv6(src=PEER_V6, dst=V6) / ICMPv6EchoRequest()),
]
MACS = st.sampled_from([mac_bytes(mac) for mac in (MAC, GROUP_MAC, "ff:ff:ff:ff:ff:ff")])
TYPES = st.sampled_from([b"\x08\x06", b"\x08\x00", b"\x86\xdd", b"\x81\x00\x00\x64\x86\xdd"])
FRAMES = st.one_of(
    st.binary(max_size=120),
    st.tuples(MACS, st.binary(min_size=6, max_size=6), TYPES, st.binary(max_size=90)).map(
        b"".join
    ),
    st.sampled_from(GOOD).flatmap(
        lambda frame: st.integers(0, len(frame)).map(lambda stop: frame[:stop])
    ),
    st.tuples(st.sampled_from(GOOD), st.integers(0, 500), st.integers(1, 255)).map(
        lambda hit: flipped(*hit)
    ),
)


def flipped(frame, at, bits):
    changed = bytearray(frame)
    changed[at % len(frame)] ^= bits
    return bytes(changed)


@given(st.lists(FRAMES, max_size=20))
def test_any_frames_at_all_are_survived_and_each_is_accounted_for(frames):
    port = resolver()
    port.send(PACKET_V6, PEER_V6_BYTES, 0)
    for at, frame in enumerate(frames):
        before = copy.deepcopy(port.counters)
        port.receive(frame, at)
        assert sum(port.counters.values()) - sum(before.values()) <= 1
        for outgoing in port.transmit(at):
            Ether(outgoing.frame)


def assert_checksums_hold(frame):
    """Let scapy compute every checksum anew and compare the bytes."""
    again = frame.copy()
    for layer in (IP, ICMP):
        if layer in again:
            del again[layer].chksum
    if ICMPv6EchoReply in again:
        del again[ICMPv6EchoReply].cksum
    assert bytes(again) == bytes(frame)
