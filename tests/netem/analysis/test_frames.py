"""One line for any frame: from our codecs, and for any bytes at all."""

from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.analysis.frames import describe, one_line
from netem.analysis.names import Names
from netem.analysis.reader import read_capture
from netem.topology.plan import NodePlan, Plan, PortPlan
from wire.pfc import Pfc, pfc_frame
from wire.roce.bth import Bth
from wire.roce.eths import Aeth, Deth
from wire.roce.opcodes import OPCODES, Opcode
from wire.roce.packet import RocePacket

CAPTURES = Path(__file__).parents[3] / ".." / "shared" / "captures" / "rxe-6.1"
NAMES = Names({ip_address(f"fd00::{n + 1}").packed: f"h{n}" for n in range(2)})


def test_the_line_of_the_docs(make):
    frame = make.write("FIRST", 0x12)
    assert one_line(frame, NAMES) == "h0 > h1 WRITE_FIRST psn 0x12 1024 B"


@pytest.mark.parametrize("family", [4, 6])
def test_without_names_addresses_are_given(make, family):
    text = one_line(make.write("MIDDLE", 0x13, family=family))
    source, target = ("198.18.0.1", "198.18.0.2") if family == 4 else ("fd00::1", "fd00::2")
    assert text == f"{source} > {target} WRITE_MIDDLE psn 0x13 1024 B"


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("ack", {}, "ACK psn 0x5"),
        ("nak", {}, "NAK PSN_SEQUENCE_ERROR psn 0x5"),
        ("nak", {"code": 2}, "NAK REMOTE_ACCESS_ERROR psn 0x5"),
        ("nak", {"code": 0x1E}, "NAK 0x1e psn 0x5"),
        ("rnr", {}, "RNR_NAK psn 0x5 wait 0.64 ms"),
        ("rnr", {"timer": 0}, "RNR_NAK psn 0x5 wait 655.36 ms"),
        ("atomic_ack", {}, "ATOMIC_ACK psn 0x5"),
    ],
)
def test_an_answer_says_what_it_means(make, name, options, text):
    assert describe(getattr(make, name)(0x5, **options)).text == text


def test_a_read_request_says_how_much_it_asks_for(make):
    assert (
        describe(make.request(Opcode.RC_READ_REQUEST, 7)).text == "READ_REQUEST psn 0x7 4096 B"
    )


def test_a_message_of_no_bytes_says_so(make):
    assert describe(make.write("ONLY", 7, 0)).text == "WRITE_ONLY psn 0x7 0 B"


def test_a_cnp_names_the_queue_pair_it_slows_down(make):
    assert describe(make.cnp()).text == "CNP qp 0x11"


def test_a_service_other_than_rc_is_named(make):
    packet = RocePacket.make(Bth(Opcode.UD_SEND_ONLY, 1, 3), Deth(1, 2), payload=b"1234")
    assert describe(make.roce("h0", "h1", packet)).text == "UD SEND_ONLY psn 0x3 4 B"


def test_a_corrupted_packet_has_a_bad_icrc(make):
    frame = bytearray(make.write("MIDDLE", 0x13))
    frame[-10] ^= 0x40
    assert describe(frame).text == "WRITE_MIDDLE psn 0x13 1024 B bad ICRC"


def test_a_tag_is_told(make):
    frame = make.write("MIDDLE", 0x13, vlan=make.Vlan(100))
    assert describe(frame).text == "WRITE_MIDDLE psn 0x13 1024 B vlan 100"


def test_every_opcode_has_a_line(make):
    for info in OPCODES.values():
        headers = [header(*[0] * len(header._fields)) for header in info.headers]
        packet = RocePacket.make(Bth(info.opcode, 1, 2), *headers)
        text = describe(make.roce("h0", "h1", packet)).text
        assert "malformed" not in text
        assert info.name in text or Aeth in info.headers, info


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (
            "ffffffffffff 020000000001 0806 0001 0800 06 04 0001"
            "020000000001 c6120001 000000000000 c6120002",
            "ARP who has 198.18.0.2? tell 198.18.0.1",
        ),
        (
            "020000000001 020000000002 0806 0001 0800 06 04 0002"
            "020000000002 c6120002 020000000001 c6120001",
            "ARP 198.18.0.2 is at 02:00:00:00:00:02",
        ),
        ("020000000002 020000000001 88b5 0102030405", "EtherType 0x88b5 5 B"),
        ("020000000002 02", "malformed: Ethernet needs 14 bytes, 7 are there"),
    ],
)
def test_frames_without_ip(frame, text):
    assert describe(bytes.fromhex(frame)).text == text


def ipv4(protocol, payload):
    data = bytes.fromhex(payload)
    header = bytearray.fromhex(
        f"4500 {20 + len(data):04x} 0000 4000 40 {protocol:02x} 0000 c6120001 c6120002"
    )
    total = sum(header[n] << 8 | header[n + 1] for n in range(0, 20, 2))
    total = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    header[10:12] = total.to_bytes(2, "big")
    return bytes.fromhex("020000000002 020000000001 0800") + header + data


@pytest.mark.parametrize(
    ("protocol", "payload", "text"),
    [
        (1, "0800 0000 0001 0007" + "00" * 8, "ICMP echo request seq 7"),
        (1, "0303 0000 0000 0000", "ICMP destination unreachable code 3"),
        (1, "0b00 0000 0000 0000", "ICMP time exceeded"),
        (1, "0d00 0000 0000 0000", "ICMP type 13 code 0"),
        (1, "0800", "ICMP cut to 2 B"),
        (58, "8700 0000 0000 0000", "ICMPv6 neighbour solicitation"),
        (6, "c350 4853 00000000 00000000 5002 0000 00000000", "TCP 50000 > 18515 SYN 0 B"),
        (
            6,
            "c350 4853 00000000 00000000 5018 0000 00000000 3132",
            "TCP 50000 > 18515 PSH ACK 2 B",
        ),
        (6, "c350", "TCP cut to 2 B"),
        (17, "c350 0035 000c 0000 31323334", "UDP 50000 > 53 4 B"),
        (89, "0000", "IP protocol 89 2 B"),
        (
            17,
            "c350 12b7 000c 0000 31323334",
            "malformed: UDP.Length is 0xc, legal is 0x18 to 0xc",
        ),
    ],
)
def test_frames_above_ip(protocol, payload, text):
    frame = ipv4(protocol, payload) + bytes(6)  # and link padding, which is no part of it
    assert one_line(frame) == f"198.18.0.1 > 198.18.0.2 {text}"


@given(st.binary(max_size=120))
def test_any_bytes_give_a_line(frame):
    assert "\n" not in one_line(frame)


@given(st.data())
def test_any_change_or_cut_of_a_good_frame_gives_a_line(make, data):
    good = data.draw(
        st.sampled_from(
            [
                make.write("FIRST", 0x12),
                make.nak(0x12, family=4),
                make.write("MIDDLE", 0x13, vlan=make.Vlan(100)),
                make.atomic_ack(0x14),
                ipv4(6, "c350 4853 00000000 00000000 5002 0000 00000000"),
            ]
        )
    )
    frame = bytearray(good)
    for _ in range(data.draw(st.integers(0, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(frame)))
    for part in (frame, frame[:cut]):
        assert one_line(part)
        assert "\n" not in one_line(part)


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="no shared captures beside this checkout")
def test_every_packet_of_the_foreign_captures_is_understood():
    for path in sorted(CAPTURES.glob("*.pcap")):
        with path.open("rb") as file:
            for record in read_capture(file):
                text = one_line(record.frame)
                assert "malformed" not in text, path
                assert "bad ICRC" not in text, path


def test_names_come_from_the_plan():
    port = PortPlan(
        "p0", "02:00:00:00:00:01", "l", "h1:p0", 1500, ipv6="fd00::1", ipv4="198.18.0.1"
    )
    names = Names.of_plan(
        Plan("x", 0, 1, 1.0, (NodePlan("h0", "host", 0, 0, ports=(port,)),), ())
    )
    for address in ("fd00::1", "198.18.0.1"):
        assert names(ip_address(address).packed) == "h0"
    assert names(bytes.fromhex("020000000001")) == "h0"
    names.learn(ip_address("fd00::1").packed, "other")
    names.learn(ip_address("fd00::9").packed, "h9")
    assert names(ip_address("fd00::1").packed) == "h0"
    assert names(ip_address("fd00::9").packed) == "h9"
    assert names(ip_address("fd00::8").packed) == "fd00::8"


def test_a_pfc_frame_says_what_it_pauses():
    frame = pfc_frame(bytes(6), Pfc.of({3: 65535, 5: 0}))
    assert describe(frame).text == "PFC pauses class 3 for 65535 quanta, class 5 no longer"
    assert describe(frame[:20]).text == "PFC cut to 6 B"
