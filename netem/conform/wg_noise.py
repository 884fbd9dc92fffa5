"""What WireGuard's handshake is made of: the primitives of Noise, in the paper's words (5.4).

Over `cryptography` and hashlib; nothing here is the product's.
"""

import hashlib
import hmac
from hashlib import blake2s

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from wire.codec import DecodeError


def public(private: bytes) -> bytes:
    """Return the public key of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def dh(private: bytes, other: bytes) -> bytes:
    """Return what two keys agree on, one private and one public."""
    own = X25519PrivateKey.from_private_bytes(private)
    return own.exchange(X25519PublicKey.from_public_bytes(other))


def hash_(*parts: bytes) -> bytes:
    """Return the hash of parts, one behind the other."""
    return blake2s(b"".join(parts)).digest()


def kdf(key: bytes, data: bytes, count: int) -> list[bytes]:
    """Return `count` keys of 32 bytes that HKDF makes."""
    secret = hmac.new(key, data, hashlib.blake2s).digest()
    made, last = [], b""
    for number in range(1, count + 1):
        last = hmac.new(secret, last + bytes((number,)), hashlib.blake2s).digest()
        made.append(last)
    return made


def seal(key: bytes, counter: int, text: bytes, ad: bytes = b"") -> bytes:
    """Return ciphertext and tag; the counter is the nonce."""
    return ChaCha20Poly1305(key).encrypt(_nonce(counter), text, ad)


def open_(key: bytes, counter: int, text: bytes, ad: bytes = b"") -> bytes:
    """Return the plain text. DecodeError for what does not open."""
    try:
        return ChaCha20Poly1305(key).decrypt(_nonce(counter), text, ad)
    except InvalidTag:
        raise DecodeError("a message that does not open with the keys it should") from None


def _nonce(counter: int) -> bytes:
    return bytes(4) + counter.to_bytes(8, "little")


def mac(key: bytes, data: bytes) -> bytes:
    """Return the keyed hash of sixteen bytes."""
    return blake2s(data, digest_size=16, key=key).digest()
