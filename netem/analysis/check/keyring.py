"""What opens tunnels: keys of sessions, from the key log that a capture carries.

Wireshark's key log has, for each handshake that an end took part in, its static and ephemeral
private keys and the other end's public key. With those of either end the handshake can be gone
through again, and gives the keys of the session. WireGuard paper, sections 5.4.2 to 5.4.5.
"""

from typing import NamedTuple

from transports.overlay.handshake import (
    Initiated,
    complete,
    open_static,
    open_timestamp,
    respond,
)
from transports.overlay.keys import PrivateKey, Secret, from_base64
from transports.overlay.noise import CONSTRUCTION, IDENTIFIER, SymmetricState
from wire.wireguard import Initiation, Response

_NO_KEY = Secret(bytes(32))


class _End(NamedTuple):
    """One end of a handshake."""

    static: PrivateKey
    remote: bytes
    ephemeral: PrivateKey
    preshared: Secret


class SessionKeys(NamedTuple):
    """Of each direction of a session."""

    from_initiator: bytes
    from_responder: bytes


class KeyRing:
    """All that the key logs of a capture say."""

    def __init__(self) -> None:
        self._ends: dict[bytes, _End] = {}  # by the public ephemeral key

    def session(self, initiation: Initiation, response: Response) -> SessionKeys | None:
        """Return the keys of the session that these messages begin, None without the keys."""
        if (end := self._ends.get(initiation.ephemeral)) is not None:
            return _as_initiator(end, initiation, response)
        if (end := self._ends.get(response.ephemeral)) is not None:
            return _as_responder(end, initiation, response)
        return None

    def add(self, log: bytes) -> None:
        """Take the keys of a log; lines that are none are passed over, as Wireshark does."""
        static: PrivateKey | None = None
        remote = b""
        newest = b""
        for line in log.decode(errors="replace").splitlines():
            name, _, text = line.partition("=")
            try:
                key = from_base64(text.strip())
            except ValueError:
                continue
            match name.strip():
                case "LOCAL_STATIC_PRIVATE_KEY":
                    static = PrivateKey(key)
                case "REMOTE_STATIC_PUBLIC_KEY":
                    remote = key
                case "LOCAL_EPHEMERAL_PRIVATE_KEY" if static is not None and remote:
                    ephemeral = PrivateKey(key)
                    newest = ephemeral.public
                    self._ends[newest] = _End(static, remote, ephemeral, _NO_KEY)
                case "PRESHARED_KEY" if newest:
                    self._ends[newest] = self._ends[newest]._replace(preshared=Secret(key))


def _as_initiator(end: _End, initiation: Initiation, response: Response) -> SessionKeys | None:
    """Go through the handshake with the initiator's keys: what it sent is in the message."""
    es, ss = end.ephemeral.dh(end.remote), end.static.dh(end.remote)
    if es is None or ss is None:
        return None
    state = SymmetricState.start(CONSTRUCTION, IDENTIFIER)
    state.mix_hash(end.remote)
    state.mix_hash(initiation.ephemeral)
    state.mix_chain(initiation.ephemeral)
    state.mix_key(es)
    state.mix_hash(initiation.encrypted_static)
    state.mix_key(ss)
    state.mix_hash(initiation.encrypted_timestamp)
    keys = complete(Initiated(state, end.ephemeral), end.static, end.preshared, response)
    return None if keys is None else SessionKeys(keys.send, keys.receive)


def _as_responder(end: _End, initiation: Initiation, response: Response) -> SessionKeys | None:
    opened = open_static(end.static, initiation)
    ss = end.static.dh(end.remote)
    if opened is None or ss is None or opened.static != end.remote:
        return None
    if open_timestamp(opened, ss, initiation) is None:
        return None
    made = respond(
        opened,
        receiver_index=response.receiver_index,
        preshared_key=end.preshared,
        ephemeral=end.ephemeral,
        sender_index=response.sender_index,
    )
    if made is None or made[0].encrypted_nothing != response.encrypted_nothing:
        return None
    return SessionKeys(made[1].receive, made[1].send)
