"""Handshakes byte for byte: kernels', ours, and Noise's own vectors."""

from itertools import pairwise

import pytest

from tests.transports.overlay.vectors import load, needs_vectors
from transports.overlay import handshake
from transports.overlay.cookies import CookieChecker, Macs
from transports.overlay.endpoint import Endpoint
from transports.overlay.keys import NO_PRESHARED_KEY, PrivateKey, Secret
from transports.overlay.limits import Limits
from transports.overlay.noise import CONSTRUCTION, IDENTIFIER, SymmetricState
from wire import wireguard
from wire.wireguard import Initiation, Response

h = bytes.fromhex
OWN = load("messages_own.json")
KERNEL = load("kernel_captures.json")
LIVE = load("cookie_live_wireguard_go.json")
NOISE = [
    row for row in load("noise_ik.json").get("vectors", []) if "psk2" in row["protocol_name"]
]


def with_macs(message, receiver, cookie=None):
    macs = Macs(receiver, Limits())
    macs._cookie = cookie  # what a cookie reply would bring; test_cookies.py has it brought
    buf = wireguard.packed(message)
    macs.add(buf, now=0)
    return bytes(buf)


def test_the_state_that_every_handshake_begins_with():
    """wireguard.md, section 2: check these first."""
    state = SymmetricState.start(CONSTRUCTION, IDENTIFIER)
    assert state.chaining_key == h(
        "60e26daef327efc02ec335e2a025d2d016eb4206f87277f52d38d1988b78cd36"
    )
    assert state.hash == h("2211b361081ac566691243db458ad5322d9c6c662293e8b70ee19c65ba079ef3")


@needs_vectors
@pytest.mark.parametrize("row", OWN.get("vectors", []), ids=lambda row: row["name"])
def test_known_answers_of_both_sides(row):
    i, r = PrivateKey(h(row["static_private_i"])), PrivateKey(h(row["static_private_r"]))
    e_i, e_r = (
        PrivateKey(h(row["ephemeral_private_i"])),
        PrivateKey(h(row["ephemeral_private_r"])),
    )
    psk = Secret(h(row["preshared_key"]))
    assert (i.public, r.public) == (h(row["static_public_i"]), h(row["static_public_r"]))
    trace = {step["step"]: step for step in row["trace"]}
    cookies = [
        h(row[name]) if row[name] else None
        for name in ("cookie_for_initiation", "cookie_for_response")
    ]

    message, initiated = handshake.initiate(
        i, r.public, static_static=i.dh(r.public), ephemeral=e_i,
        timestamp=h(row["timestamp"]), sender_index=row["sender_index_i"],
    )  # fmt: skip
    assert with_macs(message, r.public, cookies[0]) == h(row["initiation"])
    assert initiated.state.chaining_key == h(trace["ss"]["ck"])
    assert initiated.state.hash == h(trace["timestamp"]["h"])

    arrived = wireguard.unpack(h(row["initiation"]))
    opened = handshake.open_static(r, arrived)
    assert opened.static == i.public
    assert handshake.open_timestamp(opened, r.dh(i.public), arrived) == h(row["timestamp"])
    response, theirs = handshake.respond(
        opened, receiver_index=arrived.sender_index, preshared_key=psk, ephemeral=e_r,
        sender_index=row["sender_index_r"],
    )  # fmt: skip
    assert with_macs(response, i.public, cookies[1]) == h(row["response"])

    ours = handshake.complete(initiated, i, psk, wireguard.unpack(h(row["response"])))
    keys = trace["transport keys"]
    assert (ours.send, ours.receive) == (
        h(keys["initiator_send"]),
        h(keys["initiator_receive"]),
    )
    assert (theirs.send, theirs.receive) == (ours.receive, ours.send)


def kernel_handshakes():
    for name in ("ping_tcp", "psk"):
        packets = KERNEL.get(name, [])
        for first, second in pairwise(packets):
            if first["type"] == 1 and second["type"] == 2:
                yield pytest.param(first, second, id=f"{name} frame {first['frame']}")


@needs_vectors
@pytest.mark.parametrize(("first", "second"), list(kernel_handshakes()))
def test_handshakes_of_the_linux_module_are_rebuilt_to_the_byte(first, second):
    a, b = PrivateKey(h(KERNEL["static_private_a"])), PrivateKey(h(KERNEL["static_private_b"]))
    i, r = (a, b) if first["src"] == "10.9.0.1" else (b, a)
    psk = Secret(h(second["preshared_key"]))
    message, initiated = handshake.initiate(
        i, r.public, static_static=i.dh(r.public),
        ephemeral=PrivateKey(h(first["ephemeral_private"])),
        timestamp=h(first["timestamp"]), sender_index=first["sender_index"],
    )  # fmt: skip
    assert with_macs(message, r.public) == h(first["udp_payload"])
    assert initiated.state.chaining_key == h(first["chaining_key"])
    assert initiated.state.hash == h(first["hash"])
    opened = handshake.open_static(r, message)
    handshake.open_timestamp(opened, r.dh(i.public), message)
    response, theirs = handshake.respond(
        opened, receiver_index=message.sender_index, preshared_key=psk,
        ephemeral=PrivateKey(h(second["ephemeral_private"])),
        sender_index=second["sender_index"],
    )  # fmt: skip
    assert with_macs(response, i.public) == h(second["udp_payload"])
    ours = handshake.complete(initiated, i, psk, response)
    assert (ours.send, ours.receive) == (theirs.receive, theirs.send)
    assert ours.send == h(second["initiator_send_key"])
    assert ours.receive == h(second["responder_send_key"])


@needs_vectors
@pytest.mark.parametrize("row", NOISE, ids=lambda row: row["origin"])
def test_noise_vectors_of_the_same_pattern(row):
    """Other prologues and payloads than WireGuard's, by implementations of plain Noise."""
    i, r = PrivateKey(h(row["init_static"])), PrivateKey(h(row["resp_static"]))
    (psk,) = row["init_psks"]
    first, second = row["messages"][:2]
    prologue = h(row["init_prologue"])
    message, initiated = handshake.initiate(
        i, r.public, static_static=i.dh(r.public),
        ephemeral=PrivateKey(h(row["init_ephemeral"])),
        timestamp=h(first["payload"]), sender_index=1, prologue=prologue,
    )  # fmt: skip
    _, ephemeral, static, payload, *_ = message
    assert ephemeral + static + payload == h(first["ciphertext"])
    opened = handshake.open_static(r, message, prologue)
    assert handshake.open_timestamp(opened, r.dh(i.public), message) == h(first["payload"])
    response, theirs = handshake.respond(
        opened, receiver_index=1, preshared_key=Secret(h(psk)), sender_index=2,
        ephemeral=PrivateKey(h(row["resp_ephemeral"])), payload=h(second["payload"]),
    )  # fmt: skip
    assert response.ephemeral + response.encrypted_nothing == h(second["ciphertext"])
    ours = handshake.complete(initiated, i, Secret(h(psk)), response)
    assert ours.send == theirs.receive == h(row["derived"]["initiator_send_key"])
    assert ours.receive == theirs.send == h(row["derived"]["responder_send_key"])


# -- what is refused ---------------------------------------------------------------------------

INITIATOR, RESPONDER, E1, E2 = (PrivateKey(bytes([n]) * 32) for n in (1, 2, 3, 4))
LOW_ORDER = [
    h(row["public"]) for row in load("x25519.json").get("vectors", []) if not row["valid"]
]


def first_message():
    return handshake.initiate(
        INITIATOR, RESPONDER.public, static_static=INITIATOR.dh(RESPONDER.public),
        ephemeral=E1, timestamp=bytes(12), sender_index=1,
    )  # fmt: skip


def second_message(psk=NO_PRESHARED_KEY):
    message, initiated = first_message()
    opened = handshake.open_static(RESPONDER, message)
    handshake.open_timestamp(opened, RESPONDER.dh(INITIATOR.public), message)
    response, keys = handshake.respond(
        opened, receiver_index=1, preshared_key=psk, ephemeral=E2, sender_index=2
    )
    return initiated, response, keys


@pytest.mark.parametrize("field", ["ephemeral", "encrypted_static"])
def test_an_initiation_with_any_field_forged_is_not_opened(field):
    message, _ = first_message()
    forged = bytearray(getattr(message, field))
    forged[3] ^= 1
    assert handshake.open_static(RESPONDER, message._replace(**{field: bytes(forged)})) is None


def test_a_forged_timestamp_is_not_opened():
    message, _ = first_message()
    opened = handshake.open_static(RESPONDER, message)
    assert (
        handshake.open_timestamp(
            opened,
            RESPONDER.dh(INITIATOR.public),
            message._replace(encrypted_timestamp=bytes(28)),
        )
        is None
    )


def test_trap_3_a_preshared_key_on_one_side_only_is_refused_by_the_initiator():
    initiated, response, _ = second_message(Secret(b"p" * 32))
    assert handshake.complete(initiated, INITIATOR, NO_PRESHARED_KEY, response) is None


@pytest.mark.parametrize("field", ["ephemeral", "encrypted_nothing"])
def test_a_forged_response_does_not_spoil_the_handshake_under_way(field):
    initiated, response, keys = second_message()
    before = initiated.state.chaining_key, initiated.state.hash
    forged = bytearray(getattr(response, field))
    forged[0] ^= 1
    assert handshake.complete(
        initiated, INITIATOR, NO_PRESHARED_KEY, response._replace(**{field: bytes(forged)})
    ) is None  # fmt: skip
    assert (initiated.state.chaining_key, initiated.state.hash) == before
    done = handshake.complete(initiated, INITIATOR, NO_PRESHARED_KEY, response)
    assert (done.send, done.receive) == (keys.receive, keys.send)


@needs_vectors
@pytest.mark.parametrize("low", LOW_ORDER, ids=lambda low: low.hex()[:12])
def test_trap_5_a_key_of_low_order_gets_no_handshake_in_any_place(low):
    assert RESPONDER.dh(low) is None  # static with static
    assert (
        handshake.initiate(
            INITIATOR,
            low,
            static_static=bytes(32),
            ephemeral=E1,
            timestamp=bytes(12),
            sender_index=1,
        )
        is None
    )
    message = Initiation(1, low, bytes(48), bytes(28))
    assert handshake.open_static(RESPONDER, message) is None
    initiated, response, _ = second_message()
    spoiled = response._replace(ephemeral=low)
    assert handshake.complete(initiated, INITIATOR, NO_PRESHARED_KEY, spoiled) is None
    opened = handshake.open_static(RESPONDER, first_message()[0])
    for bad in (
        handshake.Opened(opened.state, low, opened.ephemeral),
        handshake.Opened(opened.state, opened.static, low),
    ):
        assert (
            handshake.respond(
                bad,
                receiver_index=1,
                preshared_key=NO_PRESHARED_KEY,
                ephemeral=E2,
                sender_index=2,
            )
            is None
        )


def test_nothing_of_a_handshake_shows_its_keys():
    initiated, _, keys = second_message()
    opened = handshake.open_static(RESPONDER, first_message()[0])
    said = repr((initiated, keys, opened, initiated.state))
    assert "\\x" not in said
    assert keys.send.hex()[:8] not in said


# -- cookies -----------------------------------------------------------------------------------


class Counting:
    """Entropy for tests: what is given first, then bytes that count up."""

    def __init__(self, *given):
        self.given = list(given)
        self.count = 0

    def __call__(self, size):
        if self.given:
            return self.given.pop(0)
        self.count += 1
        return self.count.to_bytes(size, "big")


@needs_vectors
@pytest.mark.parametrize("row", OWN.get("cookies", []), ids=lambda row: row["name"])
def test_known_cookies_are_made_sealed_opened_and_used(row):
    vector = OWN["vectors"][0]
    responder = h(vector["static_public_r"])
    initiation = h(row["initiation"])
    source = Endpoint(h(row["source_ip"]), row["source_port"])
    # The nonce is drawn before the secret of the cookies.
    checker = CookieChecker(
        responder, Counting(h(row["nonce"]), h(row["cookie_secret"])), Limits()
    )
    assert checker.mac1_is_good(initiation)
    reply = checker.reply(initiation, vector["sender_index_i"], source, now=0)
    assert bytes(wireguard.packed(reply)) == h(row["cookie_reply"])
    assert not checker.mac2_is_good(initiation, source, now=0)

    macs = Macs(responder, Limits())
    buf = bytearray(initiation)
    macs.add(buf, now=0)
    assert buf == initiation
    assert macs.receive(wireguard.unpack(h(row["cookie_reply"])), now=0)
    macs.add(buf, now=1)
    assert buf == h(row["initiation_with_mac2_same_message"])
    assert checker.mac2_is_good(bytes(buf), source, now=2)


@needs_vectors
def test_a_cookie_of_wireguard_go_is_opened_and_used_as_it_was_accepted():
    macs = Macs(h(LIVE["static_public_r"]), Limits())
    buf = bytearray(h(LIVE["initiation"]))
    macs.add(buf, now=0)
    assert buf == h(LIVE["initiation"])
    assert macs.receive(wireguard.unpack(h(LIVE["cookie_reply"])), now=0)
    accepted = bytearray(h(LIVE["initiation_with_mac2"]))
    want = bytes(accepted)
    accepted[-32:] = bytes(32)
    macs.add(accepted, now=1)
    assert accepted == want


def cookie_of(checker, macs, source, now=0):
    """Send an initiation and take the cookie reply to it; return the message's bytes."""
    buf = wireguard.packed(first_message()[0])
    macs.add(buf, now)
    assert macs.receive(checker.reply(buf, 1, source, now), now)
    macs.add(buf, now)
    return buf


HERE = Endpoint(bytes([192, 0, 2, 1]), 1000)


def test_trap_15_a_cookie_is_good_at_its_address_and_port_only():
    checker, macs = (
        CookieChecker(RESPONDER.public, Counting(), Limits()),
        Macs(RESPONDER.public, Limits()),
    )
    buf = cookie_of(checker, macs, HERE)
    assert checker.mac2_is_good(buf, HERE, now=0)
    assert not checker.mac2_is_good(buf, HERE._replace(port=1001), now=0)
    assert not checker.mac2_is_good(buf, Endpoint(bytes([192, 0, 2, 2]), 1000), now=0)


def test_a_cookie_is_used_115_seconds_and_known_120():
    limits = Limits()
    checker, macs = (
        CookieChecker(RESPONDER.public, Counting(), limits),
        Macs(RESPONDER.public, limits),
    )
    buf = cookie_of(checker, macs, HERE)
    assert checker.mac2_is_good(buf, HERE, now=limits.cookie_secret_time - 1)
    assert not checker.mac2_is_good(buf, HERE, now=limits.cookie_secret_time)
    macs.add(buf, now=limits.cookie_use_time - 1)
    assert any(buf[-16:])
    fresh = wireguard.packed(first_message()[0])
    macs.add(fresh, now=limits.cookie_use_time)
    assert not any(fresh[-16:])


def test_trap_17_one_reply_is_taken_for_one_message():
    checker, macs = (
        CookieChecker(RESPONDER.public, Counting(), Limits()),
        Macs(RESPONDER.public, Limits()),
    )
    buf = wireguard.packed(first_message()[0])
    assert not macs.receive(checker.reply(buf, 1, HERE, 0), 0)  # nothing was sent yet
    macs.add(buf, 0)
    late = checker.reply(buf, 1, HERE, 0)
    buf[8] ^= 1  # another initiation, so another mac1
    macs.add(buf, 1)
    assert not macs.receive(late, 1)  # answers the message before
    reply = checker.reply(buf, 1, HERE, 1)
    assert not macs.receive(reply._replace(encrypted_cookie=bytes(32)), 1)
    assert macs.receive(reply, 1)
    assert not macs.receive(reply, 1)


def test_a_message_for_another_public_key_has_no_good_mac1():
    checker = CookieChecker(INITIATOR.public, Counting(), Limits())
    assert not checker.mac1_is_good(with_macs(first_message()[0], RESPONDER.public))
    _, response, _ = second_message()
    assert checker.mac1_is_good(with_macs(response, INITIATOR.public))
    assert isinstance(response, Response)
