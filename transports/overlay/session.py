"""A session and its three places. WireGuard paper, sections 6.1 and 6.3.

Data is received on all three, and sent on `current` only. Who answered a handshake has the new
session as `next`: it may not send on it before the initiator has, since only that proves that
the initiator got the response and is not a replay.

    initiator, response accepted:    previous <- next or current;  current <- new
    responder, response sent:        previous is dropped;          next <- new
    responder, first data on next:   previous <- current <- next
"""

from collections.abc import Callable
from typing import TypeAlias

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from transports.clock import Ns
from transports.overlay.handshake import TransportKeys
from transports.overlay.limits import Limits
from transports.overlay.replay import ReplayWindow
from wire.codec import ReadBuffer

NEVER: Ns = 1 << 63

_Cipher: TypeAlias = Callable[
    [bytes, ReadBuffer, None], bytes
]  # nonce, data, no associated data


class Session:
    """One pair of keys, with the counter of one direction and the window of the other.

    The keys are in the ciphers, and in a value that does not show them.
    """

    __slots__ = (
        "_keys",
        "counter", "is_initiator", "last_minute_at", "local_index", "may_send",
        "open", "reject_at", "rekey_at", "remote_index", "replay", "seal",
    )  # fmt: skip

    def __init__(
        self,
        keys: TransportKeys,
        local_index: int,
        remote_index: int,
        now: Ns,
        limits: Limits,
        *,
        is_initiator: bool,
    ) -> None:
        self.seal: _Cipher | None = None
        self.open: _Cipher | None = None
        self._keys = keys
        self.local_index = local_index
        self.remote_index = remote_index
        self.counter = 0  # of the next packet to send; it is the nonce
        self.replay = ReplayWindow(limits.replay_window, limits.reject_after_messages)
        self.is_initiator = is_initiator
        self.may_send = True  # until our private key changes
        self.reject_at = now + limits.reject_after_time
        # Only the initiator renews a session for its age, or both would at the same time.
        self.rekey_at = now + limits.rekey_after_time if is_initiator else NEVER
        self.last_minute_at = now + limits.last_minute if is_initiator else NEVER

    # A cipher costs as much as a tenth of the handshake, and a responder may make many sessions
    # that the initiator never uses: so each is made when it is needed.

    def make_seal(self) -> _Cipher:
        self.seal = ChaCha20Poly1305(self._keys.send).encrypt
        return self.seal

    def make_open(self) -> _Cipher:
        self.open = ChaCha20Poly1305(self._keys.receive).decrypt
        return self.open

    def can_send(self, now: Ns, limits: Limits) -> bool:
        return (
            self.may_send
            and now < self.reject_at
            and self.counter < limits.reject_after_messages
        )


class Slots:
    """The sessions of one peer."""

    __slots__ = ("current", "next", "previous")

    def __init__(self) -> None:
        self.previous: Session | None = None
        self.current: Session | None = None
        self.next: Session | None = None

    def all(self) -> list[Session]:
        slots = self.previous, self.current, self.next
        return [session for session in slots if session is not None]

    def initiated(self, new: Session) -> list[Session]:
        """Place a session whose response we accepted; return those that are dropped."""
        before = self.all()
        self.previous = self.next or self.current
        self.next = None
        self.current = new
        return self._dropped(before)

    def responded(self, new: Session) -> list[Session]:
        """Place a session whose response we sent; return those that are dropped."""
        before = self.all()
        self.previous = None
        self.next = new
        return self._dropped(before)

    def confirm(self, session: Session) -> list[Session]:
        """Note the first good packet on `session`, which is next; return the dropped ones.

        Packets on the other two, late ones for instance, change nothing.
        """
        assert session is self.next
        before = self.all()
        self.previous, self.current, self.next = self.current, self.next, None
        return self._dropped(before)

    def forbid_sending(self) -> None:
        """Our private key has changed: what is made with the old one is not used any more."""
        for session in (self.current, self.next):
            if session is not None:
                session.may_send = False

    def wipe(self) -> list[Session]:
        before = self.all()
        self.previous = self.current = self.next = None
        return before

    def _dropped(self, before: list[Session]) -> list[Session]:
        kept = self.all()
        return [session for session in before if session not in kept]
