"""The primitives of the handshake, and Noise's symmetric state. Noise revision 34, section 5.2.

WireGuard paper, section 5.4: Hash is BLAKE2s, Mac is keyed BLAKE2s of 16 bytes, Hmac is the
ordinary HMAC with BLAKE2s (RFC 2104), which is not keyed BLAKE2s. Kdf is HKDF (RFC 5869) with
the chaining key as salt.
"""

from functools import lru_cache
from hashlib import blake2s
from struct import Struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from wire.codec import ReadBuffer

CONSTRUCTION = b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s"
IDENTIFIER = b"WireGuard v1 zx2c4 Jason@zx2c4.com"  # Noise calls it the prologue

NONCE = Struct("<4xQ")  # of the AEAD: four zero bytes and a counter (RFC 8439, section 2.3)

_NONCE_0 = bytes(NONCE.size)
_BLOCK = 64
_NUMBERS = (b"\x01", b"\x02", b"\x03")
_INNER_PAD = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD = bytes(byte ^ 0x5C for byte in range(256))


def hash_of(*parts: ReadBuffer) -> bytes:
    """Return Hash of the parts, one behind the other."""
    return blake2s(b"".join(parts)).digest()


def mac_of(key: bytes, data: ReadBuffer) -> bytes:
    """Return Mac(key, data), 16 bytes."""
    return blake2s(data, key=key, digest_size=16).digest()


def hmac_of(key: bytes, data: bytes) -> bytes:
    """Return Hmac(key, data).

    A third of the time of the standard library's `hmac`, whose twenty calls were a third of a
    handshake; the vectors hold the two together.
    """
    padded = (key if len(key) <= _BLOCK else blake2s(key).digest()).ljust(_BLOCK, b"\0")
    inner = blake2s(padded.translate(_INNER_PAD) + data).digest()
    return blake2s(padded.translate(_OUTER_PAD) + inner).digest()


def kdf(count: int, chaining_key: bytes, data: bytes) -> tuple[bytes, ...]:
    """Return the `count` outputs of Kdf, 32 bytes each. Paper, section 5.4."""
    secret = hmac_of(chaining_key, data).ljust(_BLOCK, b"\0")
    inner_pad, outer_pad = secret.translate(_INNER_PAD), secret.translate(_OUTER_PAD)
    outputs = []
    output = b""
    for number in _NUMBERS[:count]:  # each an Hmac with the same key
        output = blake2s(outer_pad + blake2s(inner_pad + output + number).digest()).digest()
        outputs.append(output)
    return tuple(outputs)


@lru_cache(maxsize=8)
def _initial(name: bytes, prologue: bytes) -> tuple[bytes, bytes]:
    """Return the chaining key and hash that every handshake of a protocol begins with."""
    chaining_key = name.ljust(32, b"\0") if len(name) <= 32 else hash_of(name)
    return chaining_key, hash_of(chaining_key, prologue)


class SymmetricState:
    """Chaining key and hash of one handshake; a copy is taken before what may fail."""

    __slots__ = ("chaining_key", "hash")

    def __init__(self, chaining_key: bytes, hash_: bytes) -> None:
        self.chaining_key = chaining_key
        self.hash = hash_

    @classmethod
    def start(cls, name: bytes, prologue: bytes) -> "SymmetricState":
        return cls(*_initial(name, prologue))

    def copy(self) -> "SymmetricState":
        return SymmetricState(self.chaining_key, self.hash)

    def mix_hash(self, data: bytes) -> None:
        self.hash = hash_of(self.hash, data)

    def mix_chain(self, data: bytes) -> None:
        """Take in `data` where the key that comes of it is not used."""
        (self.chaining_key,) = kdf(1, self.chaining_key, data)

    def mix_key(self, data: bytes) -> bytes:
        """Take in `data` and return the key for what comes next."""
        self.chaining_key, key = kdf(2, self.chaining_key, data)
        return key

    def mix_key_and_hash(self, data: bytes) -> bytes:
        """Take in a preshared key and return the key for what comes next."""
        self.chaining_key, tau, key = kdf(3, self.chaining_key, data)
        self.mix_hash(tau)
        return key

    def encrypt_and_hash(self, key: bytes, plaintext: bytes) -> bytes:
        ciphertext = ChaCha20Poly1305(key).encrypt(_NONCE_0, plaintext, self.hash)
        self.mix_hash(ciphertext)
        return ciphertext

    def decrypt_and_hash(self, key: bytes, ciphertext: bytes) -> bytes | None:
        """Return the plaintext, or None, and nothing taken in, if it is a forgery."""
        try:
            plaintext = ChaCha20Poly1305(key).decrypt(_NONCE_0, ciphertext, self.hash)
        except InvalidTag:
            return None
        self.mix_hash(ciphertext)
        return plaintext

    def split(self) -> tuple[bytes, bytes]:
        """Return the keys of the initiator's and of the responder's direction."""
        first, second = kdf(2, self.chaining_key, b"")
        return first, second
