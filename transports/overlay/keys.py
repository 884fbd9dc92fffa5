"""Keys: 32 bytes each. Those that are secret never show in a repr, a log or an error.

Public keys are plain bytes. They go into hashes as they are, so they are never brought into
another form, though X25519 ignores their highest bit (RFC 7748, section 5).

Limit: Python cannot overwrite `bytes`. Wiping a key here means that nothing refers to it.
"""

import hmac
from base64 import b64decode, b64encode
from functools import cached_property, lru_cache

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

KEY_SIZE = 32
_ZERO = bytes(KEY_SIZE)
_SHOWN = 40  # characters; base64 without its last sign has 43


class Secret:
    """32 secret bytes, of a preshared key for instance."""

    def __init__(self, raw: bytes) -> None:
        """Raise ValueError, which does not show `raw`, unless it is 32 bytes."""
        if len(raw) != KEY_SIZE:
            raise ValueError(f"a key is {KEY_SIZE} bytes, not {len(raw)}")
        self._raw = bytes(raw)

    def reveal(self) -> bytes:
        """Return the bytes: for cryptography, key files and `wg`, never for people."""
        return self._raw

    @property
    def is_zero(self) -> bool:
        """Whether this stands for no key at all."""
        return hmac.compare_digest(self._raw, _ZERO)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._raw, other._raw)

    __hash__ = None  # type: ignore[assignment] # a secret has no place in a table

    def __repr__(self) -> str:
        return f"{type(self).__name__}(hidden)"

    def __reduce__(self) -> str:
        raise TypeError(
            f"a {type(self).__name__} is not pickled: say reveal() where it must go"
        )


NO_PRESHARED_KEY = Secret(_ZERO)  # the paper: without one, 32 zero bytes are mixed in


class PrivateKey(Secret):
    """A static or ephemeral private key of X25519, clamped as RFC 7748, section 5, says."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        clamped = bytearray(raw)
        clamped[0] &= 248
        clamped[31] = clamped[31] & 127 | 64
        self._raw = bytes(clamped)
        self._key = X25519PrivateKey.from_private_bytes(self._raw)

    @cached_property
    def public(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    def dh(self, public: bytes) -> bytes | None:
        """Return DH(self, public), or None if it is zero, which a handshake must refuse.

        RFC 7748, section 6.1. A peer whose key is of low order gets no handshake, not an error.
        """
        try:
            return self._key.exchange(_loaded(public))
        except ValueError:
            return None


@lru_cache(maxsize=1024)
def _loaded(public: bytes) -> X25519PublicKey:
    """Return a public key as the library wants it: that costs a quarter of an exchange."""
    return X25519PublicKey.from_public_bytes(public)


def shown(text: str) -> str:
    """Return `text` for an error, unless a key may be in it that strayed to a wrong place."""
    runs = "".join(c if c.isalnum() or c in "+/=" else " " for c in text).split()
    return "what stands there" if any(len(run) > _SHOWN for run in runs) else repr(text)


def to_base64(raw: bytes) -> str:
    """Return a key as `wg` prints it."""
    return b64encode(raw).decode()


def from_base64(text: str) -> bytes:
    """Return the key that `text` spells; ValueError does not repeat it: it may be a secret."""
    try:
        raw = b64decode(text, validate=True)
    except ValueError:
        raw = b""
    # The two bits that base64 has to spare must be zero, or one key had four spellings.
    if len(raw) != KEY_SIZE or to_base64(raw) != text:
        raise ValueError("a key is 44 characters of base64, as `wg genkey` prints it") from None
    return raw


def from_hex(text: str) -> bytes:
    """Return the key that `text` spells in the manner of the UAPI."""
    try:
        raw = bytes.fromhex(text) if text.isalnum() else b""
    except ValueError:
        raw = b""
    if len(raw) != KEY_SIZE:
        raise ValueError("a key is 64 hexadecimal digits here") from None
    return raw
