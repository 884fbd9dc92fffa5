"""XChaCha20-Poly1305, which `cryptography` does not have. draft-irtf-cfrg-xchacha-03.

HChaCha20 is the ChaCha20 block function without its last step, the addition of the state that
it began with, and without the words in the middle. So it is had from a block of key stream by
subtracting what was added: the eight words concerned are constants and nonce, known to us.
"""

from struct import Struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

NONCE_SIZE = 24

_WORDS = Struct("<4I")
_CONSTANTS = _WORDS.unpack(b"expand 32-byte k")
_BLOCK = bytes(64)


def hchacha20(key: bytes, nonce: bytes) -> bytes:
    """Return the subkey of `key` (32 bytes) and `nonce` (16 bytes). Section 2.2."""
    stream = Cipher(ChaCha20(key, nonce), mode=None).encryptor().update(_BLOCK)
    first = _minus(_WORDS.unpack_from(stream), _CONSTANTS)
    last = _minus(_WORDS.unpack_from(stream, 48), _WORDS.unpack(nonce))
    return first + last


def encrypt(key: bytes, nonce: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """Return ciphertext and tag. Section 2.3; `nonce` is 24 bytes."""
    cipher, short = _cipher(key, nonce)
    return cipher.encrypt(short, plaintext, associated)


def decrypt(key: bytes, nonce: bytes, ciphertext: bytes, associated: bytes) -> bytes | None:
    """Return the plaintext, or None for a forgery."""
    cipher, short = _cipher(key, nonce)
    try:
        return cipher.decrypt(short, ciphertext, associated)
    except InvalidTag:
        return None


def _cipher(key: bytes, nonce: bytes) -> tuple[ChaCha20Poly1305, bytes]:
    return ChaCha20Poly1305(hchacha20(key, nonce[:16])), bytes(4) + nonce[16:]


def _minus(words: tuple[int, ...], added: tuple[int, ...]) -> bytes:
    return _WORDS.pack(*((a - b) & 0xFFFFFFFF for a, b in zip(words, added, strict=True)))
