"""The handshake: Noise IKpsk2 in two messages. WireGuard paper, sections 5.4.2 to 5.4.5.

    initiator                                     responder
    initiate   -- e, es, s, ss, {timestamp} -->   open_static, open_timestamp
    complete   <-- e, ee, se, psk, {} ---------   respond

Functions of keys and messages without memory of their own: what is refused comes back as None,
and what was handed in is as it was. Each takes its ephemeral key from outside.
"""

from dataclasses import dataclass

from transports.overlay.keys import PrivateKey, Secret
from transports.overlay.noise import CONSTRUCTION, IDENTIFIER, SymmetricState
from wire.wireguard import Initiation, Response


@dataclass(frozen=True, slots=True, repr=False)
class TransportKeys:
    """What both have when the handshake is done; each sends with what the other receives."""

    send: bytes
    receive: bytes


@dataclass(frozen=True, slots=True, repr=False)
class Initiated:
    """What an initiator keeps until the response comes."""

    state: SymmetricState
    ephemeral: PrivateKey


@dataclass(frozen=True, slots=True, repr=False)
class Opened:
    """An initiation that was meant for us; its sender is not yet proven."""

    state: SymmetricState
    static: bytes  # public key of the initiator, as it says
    ephemeral: bytes


def initiate(
    me: PrivateKey,
    responder: bytes,
    *,
    static_static: bytes,
    ephemeral: PrivateKey,
    timestamp: bytes,
    sender_index: int,
    prologue: bytes = IDENTIFIER,
) -> tuple[Initiation, Initiated] | None:
    """Return the first message, still without macs, or None if the responder's key is zero.

    `static_static` is DH(me, responder), which the owner works out once for a peer.
    """
    state = SymmetricState.start(CONSTRUCTION, prologue)
    state.mix_hash(responder)
    state.mix_hash(ephemeral.public)
    state.mix_chain(ephemeral.public)
    if (shared := ephemeral.dh(responder)) is None:
        return None
    static = state.encrypt_and_hash(state.mix_key(shared), me.public)
    stamp = state.encrypt_and_hash(state.mix_key(static_static), timestamp)
    message = Initiation(sender_index, ephemeral.public, static, stamp)
    return message, Initiated(state, ephemeral)


def open_static(
    me: PrivateKey, message: Initiation, prologue: bytes = IDENTIFIER
) -> Opened | None:
    """Find out who sends `message`. Costs one DH, before anything about a peer is known."""
    state = SymmetricState.start(CONSTRUCTION, prologue)
    state.mix_hash(me.public)
    state.mix_hash(message.ephemeral)
    state.mix_chain(message.ephemeral)
    if (shared := me.dh(message.ephemeral)) is None:
        return None
    static = state.decrypt_and_hash(state.mix_key(shared), message.encrypted_static)
    if static is None:
        return None
    return Opened(state, static, message.ephemeral)


def open_timestamp(opened: Opened, static_static: bytes, message: Initiation) -> bytes | None:
    """Return the timestamp: the initiator has the private key of the static key it shows."""
    key = opened.state.mix_key(static_static)
    return opened.state.decrypt_and_hash(key, message.encrypted_timestamp)


def respond(
    opened: Opened,
    *,
    receiver_index: int,
    preshared_key: Secret,
    ephemeral: PrivateKey,
    sender_index: int,
    payload: bytes = b"",
) -> tuple[Response, TransportKeys] | None:
    """Return the second message, still without macs, and the keys of the session."""
    state = opened.state.copy()
    state.mix_hash(ephemeral.public)
    state.mix_chain(ephemeral.public)
    ee, se = ephemeral.dh(opened.ephemeral), ephemeral.dh(opened.static)
    if ee is None or se is None:
        return None
    state.mix_chain(ee)
    state.mix_chain(se)
    key = state.mix_key_and_hash(preshared_key.reveal())
    nothing = state.encrypt_and_hash(key, payload)
    theirs, ours = state.split()
    message = Response(sender_index, receiver_index, ephemeral.public, nothing)
    return message, TransportKeys(send=ours, receive=theirs)


def complete(
    initiated: Initiated, me: PrivateKey, preshared_key: Secret, message: Response
) -> TransportKeys | None:
    """Return the keys of the session, or None for a response that is not our responder's.

    `initiated` stays as it is, so a forgery cannot spoil a handshake under way.
    """
    state = initiated.state.copy()
    state.mix_hash(message.ephemeral)
    state.mix_chain(message.ephemeral)
    ee, se = initiated.ephemeral.dh(message.ephemeral), me.dh(message.ephemeral)
    if ee is None or se is None:
        return None
    state.mix_chain(ee)
    state.mix_chain(se)
    key = state.mix_key_and_hash(preshared_key.reveal())
    if state.decrypt_and_hash(key, message.encrypted_nothing) is None:
        return None
    ours, theirs = state.split()
    return TransportKeys(send=ours, receive=theirs)
