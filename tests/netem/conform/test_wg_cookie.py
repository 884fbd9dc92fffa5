"""The suite's own cookies of WireGuard: by the draft's vector, and against the product's."""

from netem.conform import wg_cookie
from transports.overlay import xchacha
from transports.overlay.noise import hash_of

RECEIVER, NONCE, COOKIE, MAC1 = bytes(range(32)), bytes(range(24)), bytes(16), b"\7" * 16


def test_hchacha20_is_that_of_the_draft():  # draft-irtf-cfrg-xchacha-03, section 2.2.1
    made = wg_cookie.hchacha20(
        bytes(range(32)), bytes.fromhex("000000090000004a0000000031415927")
    )
    assert made.hex() == "82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc"


def test_a_cookie_opens_for_its_message_alone():
    sealed = wg_cookie.seal(RECEIVER, NONCE, COOKIE, MAC1)
    assert wg_cookie.open_(RECEIVER, NONCE, sealed, MAC1) == COOKIE
    assert wg_cookie.open_(RECEIVER, NONCE, sealed, b"\6" * 16) is None
    key = hash_of(b"cookie--", RECEIVER)
    assert xchacha.encrypt(key, NONCE, COOKIE, MAC1) == sealed
