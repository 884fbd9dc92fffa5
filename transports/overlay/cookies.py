"""mac1, mac2 and cookies: what a message must carry before work is done for it. Section 5.4.7.

mac1 proves that the sender knows the public key of the one it speaks to. mac2 proves, to one
under load, that the sender receives what is sent to its address: it is made with the cookie
that came in a cookie reply. `Macs` is the side that sends handshake messages, `CookieChecker`
the side that judges them.
"""

import hmac
from collections.abc import Callable

from transports.clock import Ns
from transports.overlay import xchacha
from transports.overlay.endpoint import Endpoint
from transports.overlay.limits import Limits
from transports.overlay.noise import hash_of, mac_of
from wire.codec import ReadBuffer
from wire.wireguard import MAC_SIZE, MACS_SIZE, CookieReply

LABEL_MAC1 = b"mac1----"
LABEL_COOKIE = b"cookie--"

_SECRET_SIZE = 32


class Macs:
    """What we send to one peer gets its macs here; the peer's cookie is kept here."""

    def __init__(self, receiver: bytes, limits: Limits) -> None:
        """`receiver` is the public key of the peer."""
        self._limits = limits
        self._mac1_key = hash_of(LABEL_MAC1, receiver)
        self._cookie_key = hash_of(LABEL_COOKIE, receiver)
        self._cookie: bytes | None = None
        self._cookie_at: Ns = 0
        self._last_mac1: bytes | None = None  # a reply is sealed to the message it answers

    def add(self, message: bytearray, now: Ns) -> None:
        """Write the macs of a whole initiation or response."""
        end = len(message)
        mac1 = mac_of(self._mac1_key, memoryview(message)[: end - MACS_SIZE])
        message[end - MACS_SIZE : end - MAC_SIZE] = mac1
        self._last_mac1 = mac1
        if self._cookie is not None and now - self._cookie_at < self._limits.cookie_use_time:
            mac2 = mac_of(self._cookie, memoryview(message)[: end - MAC_SIZE])
            message[end - MAC_SIZE :] = mac2

    def receive(self, reply: CookieReply, now: Ns) -> bool:
        """Take the cookie, once per message sent. Nothing is sent now: the retry has mac2."""
        if self._last_mac1 is None:
            return False
        cookie = xchacha.decrypt(
            self._cookie_key, reply.nonce, reply.encrypted_cookie, self._last_mac1
        )
        if cookie is None:
            return False
        self._cookie, self._cookie_at = cookie, now
        self._last_mac1 = None
        return True


class CookieChecker:
    """The macs of what comes in, and the cookies that we hand out."""

    def __init__(self, me: bytes, entropy: Callable[[int], bytes], limits: Limits) -> None:
        """`me` is our public key; `entropy` gives secrets and nonces."""
        self._limits = limits
        self._entropy = entropy
        self._mac1_key = hash_of(LABEL_MAC1, me)
        self._cookie_key = hash_of(LABEL_COOKIE, me)
        self._secret: bytes | None = None
        self._secret_at: Ns = 0

    def mac1_is_good(self, message: ReadBuffer) -> bool:
        """Judge mac1 of a whole initiation or response."""
        view = memoryview(message)
        mac1 = mac_of(self._mac1_key, view[:-MACS_SIZE])
        return hmac.compare_digest(mac1, view[-MACS_SIZE:-MAC_SIZE])

    def mac2_is_good(self, message: ReadBuffer, source: Endpoint, now: Ns) -> bool:
        """Judge mac2: whether the sender got a cookie of ours at this very address and port."""
        view = memoryview(message)
        mac2 = mac_of(self._cookie(source, now), view[:-MAC_SIZE])
        return hmac.compare_digest(mac2, view[-MAC_SIZE:])

    def reply(
        self, message: ReadBuffer, receiver_index: int, source: Endpoint, now: Ns
    ) -> CookieReply:
        """Return the answer to a whole initiation or response from `source`."""
        nonce = self._entropy(xchacha.NONCE_SIZE)
        mac1 = bytes(memoryview(message)[-MACS_SIZE:-MAC_SIZE])
        cookie = self._cookie(source, now)
        sealed = xchacha.encrypt(self._cookie_key, nonce, cookie, mac1)
        return CookieReply(receiver_index, nonce, sealed)

    def _cookie(self, source: Endpoint, now: Ns) -> bytes:
        """Return the cookie of an address and port, which is never kept anywhere.

        The port must be in it: behind one address there may be many that do not trust another.
        """
        fresh = (
            self._secret is not None and now - self._secret_at < self._limits.cookie_secret_time
        )
        if self._secret is None or not fresh:
            self._secret = self._entropy(_SECRET_SIZE)
            self._secret_at = now
        return mac_of(self._secret, source.address + source.port.to_bytes(2, "big"))
