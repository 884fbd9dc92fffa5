"""Cookies of WireGuard, from their papers alone: nothing here is the product's.

A cookie reply (paper, section 5.4.7) is sealed by XChaCha20-Poly1305, which is
ChaCha20-Poly1305 under a key that HChaCha20 makes of the first sixteen bytes of a nonce of 24
(draft-irtf-cfrg-xchacha-03, sections 2.2 and 2.3; quarter rounds as in RFC 8439, section 2.1).
"""

from hashlib import blake2s
from struct import Struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

_BLOCK = Struct("<16I")
_KEY = Struct("<8I")
# Columns, then diagonals, of the four by four words.
_QUARTERS = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip


def seal(receiver: bytes, nonce: bytes, cookie: bytes, mac1: bytes) -> bytes:
    """Return a cookie as the one with the public key `receiver` seals it, bound to `mac1`."""
    return _cipher(receiver, nonce).encrypt(_short(nonce), cookie, mac1)


def open_(receiver: bytes, nonce: bytes, sealed: bytes, mac1: bytes) -> bytes | None:
    """Return the cookie of a reply of `receiver`; None where it does not open."""
    try:
        return _cipher(receiver, nonce).decrypt(_short(nonce), sealed, mac1)
    except InvalidTag:
        return None


def _cipher(receiver: bytes, nonce: bytes) -> ChaCha20Poly1305:
    key = blake2s(b"cookie--" + receiver).digest()
    return ChaCha20Poly1305(hchacha20(key, nonce[:16]))


def _short(nonce: bytes) -> bytes:
    return bytes(4) + nonce[16:]


def hchacha20(key: bytes, nonce: bytes) -> bytes:
    """Return the 32 bytes that a key of 32 and a nonce of 16 make."""
    words = [*_BLOCK.unpack(b"expand 32-byte k" + key + nonce)]
    for _ in range(10):
        for quarter in _QUARTERS:
            _turn(words, *quarter)
    return _KEY.pack(*words[:4], *words[12:])


def _turn(words: list[int], a: int, b: int, c: int, d: int) -> None:
    for left, right, mixed, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        words[left] = words[left] + words[right] & 0xFFFFFFFF
        turned = words[mixed] ^ words[left]
        words[mixed] = (turned << by | turned >> 32 - by) & 0xFFFFFFFF
