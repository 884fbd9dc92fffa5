"""WireGuard's messages: what kernels sent, scapy as the witness, and what is refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.wireguard import Wireguard

from tests.wire.strategies import moderate
from wire import wireguard
from wire.codec import DecodeError, FieldError, TruncatedError
from wire.wireguard import CookieReply, Initiation, Response, TransportData

VECTORS = Path(__file__).parents[2].parent / "shared" / "vectors" / "wireguard"
NO_VECTORS = "no shared vectors beside this checkout"


def captured():
    """What the Linux module sent, by a capture of Wireshark's own tests."""
    if not VECTORS.is_dir():
        return []
    captures = json.loads((VECTORS / "kernel_captures.json").read_text())
    return [*captures["ping_tcp"], *captures["psk"]]


def fields(message):
    return {name: getattr(message, name) for name in message._fields}


@pytest.mark.skipif(not VECTORS.is_dir(), reason=NO_VECTORS)
@pytest.mark.parametrize("packet", captured(), ids=lambda p: f"frame {p['frame']}")
def test_what_kernels_sent_unpacks_and_packs_to_the_same_bytes(packet):
    raw = bytes.fromhex(packet["udp_payload"])
    message = wireguard.unpack(raw)
    assert wireguard.packed(message) == raw
    got = fields(message)
    for name in ("sender_index", "receiver_index", "counter"):
        assert got.get(name) == packet.get(name)
    buf = b"\xff" * 7 + raw
    assert type(message).unpack_from(buf, 7) == message


@pytest.mark.skipif(not VECTORS.is_dir(), reason=NO_VECTORS)
def test_a_cookie_reply_of_wireguard_go_unpacks():
    live = json.loads((VECTORS / "cookie_live_wireguard_go.json").read_text())
    raw = bytes.fromhex(live["cookie_reply"])
    reply = wireguard.unpack(raw)
    assert reply == CookieReply(0xC00C1E01, raw[8:32], raw[32:])
    assert wireguard.unpack(bytes.fromhex(live["initiation"])).sender_index == 0xC00C1E01


MESSAGES = {
    1: Initiation(0x01020304, b"e" * 32, b"s" * 48, b"t" * 28, b"1" * 16, b"2" * 16),
    2: Response(0x01020304, 0x05060708, b"e" * 32, b"n" * 16, b"1" * 16, b"2" * 16),
    3: CookieReply(0x01020304, b"n" * 24, b"c" * 32),
    4: TransportData(0x01020304, 0x1112131415161718, b"p" * 48),
}
SIZES = {1: 148, 2: 92, 3: 64, 4: 64}


@pytest.mark.parametrize("kind", MESSAGES)
def test_scapy_sees_the_same_fields(kind):
    raw = bytes(wireguard.packed(MESSAGES[kind]))
    assert len(raw) == SIZES[kind]
    witness = Wireguard(raw)
    assert witness.message_type == kind
    seen = {
        name.replace("unencrypted_", ""): value
        for name, value in witness.payload.fields.items()
    }
    numbers = {name: v for name, v in fields(MESSAGES[kind]).items() if isinstance(v, int)}
    for name, value in numbers.items():
        assert seen[name] == value
    assert bytes(witness) == raw


@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("reserved", [1, 2, 3])
def test_a_reserved_byte_that_is_not_zero_is_refused(kind, reserved):
    """Both reference implementations compare type and reserved bytes as one word."""
    raw = wireguard.packed(MESSAGES[kind])
    raw[reserved] = 1
    with pytest.raises(FieldError, match=r"WireGuard\.type is 0x"):
        wireguard.unpack(raw)
    with pytest.raises(FieldError, match=r"WireGuard\.type is 0x"):
        type(MESSAGES[kind]).unpack_from(raw)


@pytest.mark.parametrize("word", [0, 5, 255])
def test_an_unknown_type_is_refused_and_the_legal_ones_are_named(word):
    with pytest.raises(FieldError, match="legal is 0x1 to 0x4"):
        wireguard.unpack(bytes([word, 0, 0, 0]) + bytes(144))


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_a_handshake_message_of_the_wrong_size_is_refused(kind):
    raw = wireguard.packed(MESSAGES[kind])
    with pytest.raises(FieldError, match=r"WireGuard\.length"):
        wireguard.unpack(raw + b"\0")
    with pytest.raises(TruncatedError):
        wireguard.unpack(raw[:-1])


def test_the_smallest_transport_message_is_a_keepalive_of_32_bytes():
    raw = bytes.fromhex("04000000 01000000 0000000000000000") + bytes(16)
    message = wireguard.unpack(raw)
    assert message.is_keepalive
    assert not MESSAGES[4].is_keepalive
    with pytest.raises(TruncatedError, match="needs 32 bytes"):
        wireguard.unpack(raw[:-1])


@moderate
@given(st.binary(max_size=200))
def test_any_datagram_gives_a_message_or_a_decode_error(raw):
    for kind in range(5):
        datagram = bytes([kind, 0, 0, 0]) + raw
        try:
            message = wireguard.unpack(datagram)
        except DecodeError:
            continue
        assert wireguard.packed(message) == datagram


def test_a_field_that_does_not_fit_is_the_callers_mistake():
    with pytest.raises(ValueError, match="mac1 is 15 bytes"):
        wireguard.packed(MESSAGES[1]._replace(mac1=bytes(15)))
    with pytest.raises(ValueError, match="no room for its tag"):
        wireguard.packed(TransportData(1, 1, bytes(15)))
    with pytest.raises(ValueError, match="counter is"):
        wireguard.packed(TransportData(1, 1 << 64, bytes(16)))
