"""The messages of handshakes: judged, answered, begun. WireGuard paper, sections 5.4 and 6.

**The order of checks** spares work: type and length, mac1, under load mac2 and the rate of the
source, and only then the first DH. A refusal changes nothing: work is done on locals and
committed at the end.

A peer has one handshake under way. To answer its initiation gives up our own, whose response
is then not accepted. When both begin at once each answers the other and neither gets a session;
the jitter of the retries, 5 s later, decides. The Linux module is like that, and two slots
would make two sessions of it.

What the module keeps as states of a handshake is over here within one call: between calls there
is an initiation of ours that waits (`Peer.pending`), or nothing.
"""

from transports.clock import Ns
from transports.overlay import handshake, tai64n
from transports.overlay.endpoint import Endpoint
from transports.overlay.events import KeyLog, Role, SessionBegun
from transports.overlay.keys import PrivateKey, to_base64
from transports.overlay.load import Load, RateLimiter
from transports.overlay.peer import Peer, Pending
from transports.overlay.refusals import Refusal
from transports.overlay.session import Session
from transports.overlay.state import Arrival, Datagram, State
from wire import wireguard
from wire.codec import DecodeError, FieldError, ReadBuffer
from wire.wireguard import CookieReply, Initiation, Response, TransportData


class _RefusedError(Exception):
    """A message is dropped; caught once, in `receive`."""

    def __init__(self, reason: Refusal, peer: Peer | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.peer = peer


class Handshakes:
    """The part of a tunnel that makes sessions."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._load = Load(state.limits)
        self._rates = RateLimiter(state.limits)

    @property
    def sources(self) -> int:
        """How many addresses are in the rate limiter."""
        return len(self._rates)

    # -- in ---------------------------------------------------------------------------------

    def receive(self, datagram: ReadBuffer, arrival: Arrival) -> None:
        """Take one datagram that is not data."""
        try:
            message = _unpacked(datagram)
            if isinstance(message, CookieReply):
                self._receive_cookie(message, arrival.now)
                self._state.stats.handshakes_received += 1
                return
            arrival = self._admit(datagram, message.sender_index, arrival)
            if isinstance(message, Initiation):
                self._receive_initiation(message, arrival)
            else:
                self._receive_response(message, arrival)
            self._state.stats.handshakes_received += 1
        except _RefusedError as refused:
            self._state.refuse(refused.reason, arrival.source, refused.peer)

    def _admit(self, datagram: ReadBuffer, sender_index: int, arrival: Arrival) -> Arrival:
        """Judge the macs: what a message must show before anything is worked out for it."""
        state, now = self._state, arrival.now
        checker = state.checker
        if checker is None:
            raise _RefusedError(Refusal.NO_PRIVATE_KEY)
        if not checker.mac1_is_good(datagram):
            raise _RefusedError(Refusal.MAC1)
        if not arrival.source.port:
            raise _RefusedError(Refusal.SOURCE)
        source = Endpoint.of(*arrival.source)
        if not self._load.arrive(now):
            return arrival._replace(source=source)
        if not checker.mac2_is_good(datagram, source, now):
            if len(state.outgoing) >= state.limits.max_outgoing:
                raise _RefusedError(Refusal.REPLIES_FULL)
            reply = checker.reply(datagram, sender_index, source, now)
            payload = bytes(wireguard.packed(reply))
            state.outgoing.append(Datagram(payload, source, 0, arrival.local))
            state.stats.handshakes_sent += 1
            raise _RefusedError(Refusal.COOKIE_SENT)
        if not self._rates.allow(source, now):
            raise _RefusedError(Refusal.SOURCE_RATE)
        return arrival._replace(source=source)

    def _receive_cookie(self, reply: CookieReply, now: Ns) -> None:
        """Keep the cookie. Neither endpoint nor timers change, and nothing is sent at once."""
        state, index = self._state, reply.receiver_index
        peer = state.pending.get(index)
        if peer is None and index in state.sessions:  # it may answer a response of ours
            peer = state.sessions[index][1]
        if peer is None:
            raise _RefusedError(Refusal.NO_HANDSHAKE)
        if not peer.macs.receive(reply, now):
            raise _RefusedError(Refusal.COOKIE, peer)

    def _receive_initiation(self, message: Initiation, arrival: Arrival) -> None:
        state, now = self._state, arrival.now
        peer, opened, timestamp = self._opened(message, now)
        ephemeral = PrivateKey(state.entropy(32))
        index = state.new_index()
        made = handshake.respond(
            opened,
            receiver_index=message.sender_index,
            preshared_key=peer.preshared_key,
            ephemeral=ephemeral,
            sender_index=index,
        )
        if made is None:
            raise _RefusedError(Refusal.LOW_ORDER, peer)
        response, keys = made
        peer.greatest_timestamp = timestamp
        peer.initiation_at = now
        peer.rx_bytes += message.size
        state.drop_pending(peer)
        state.move(peer, arrival.source, arrival.local)
        session = Session(
            keys, index, message.sender_index, now, state.limits, is_initiator=False
        )
        state.forget(peer.slots.responded(session))
        state.sessions[index] = session, peer
        peer.session_made(now)
        self._log_keys(peer, ephemeral, now)
        self._send(peer, response, now)
        peer.heard(now, is_data=False)

    def _opened(self, message: Initiation, now: Ns) -> tuple[Peer, handshake.Opened, bytes]:
        """Return whose initiation it is, if that is proven and it is new. Paper, 5.4.2."""
        state = self._state
        assert state.private is not None, "there was a checker of macs"
        if not self._load.admit(now):
            raise _RefusedError(Refusal.BUSY)
        opened = handshake.open_static(state.private, message)
        if opened is None:
            raise _RefusedError(Refusal.STATIC)
        peer = state.peers.get(opened.static)
        if peer is None:
            raise _RefusedError(Refusal.UNKNOWN_PEER)
        if peer.static_static is None:
            raise _RefusedError(Refusal.LOW_ORDER, peer)
        timestamp = handshake.open_timestamp(opened, peer.static_static, message)
        if timestamp is None:
            raise _RefusedError(Refusal.TIMESTAMP, peer)
        if timestamp <= peer.greatest_timestamp:
            raise _RefusedError(Refusal.REPLAYED_INITIATION, peer)
        last = peer.initiation_at
        if last is not None and now - last < state.limits.initiation_gap:
            raise _RefusedError(Refusal.INITIATION_FLOOD, peer)
        return peer, opened, timestamp

    def _receive_response(self, message: Response, arrival: Arrival) -> None:
        state, now = self._state, arrival.now
        assert state.private is not None, "there was a checker of macs"
        peer = state.pending.get(message.receiver_index)
        if peer is None or peer.pending is None:
            raise _RefusedError(Refusal.NO_HANDSHAKE)
        if not self._load.admit(now):
            raise _RefusedError(Refusal.BUSY, peer)
        index, initiated = peer.pending
        keys = handshake.complete(initiated, state.private, peer.preshared_key, message)
        if keys is None:
            raise _RefusedError(Refusal.RESPONSE, peer)
        peer.rx_bytes += message.size
        state.drop_pending(peer)
        state.move(peer, arrival.source, arrival.local)
        session = Session(
            keys, index, message.sender_index, now, state.limits, is_initiator=True
        )
        state.forget(peer.slots.initiated(session))
        state.sessions[index] = session, peer
        peer.session_made(now)
        peer.handshake_complete(state.epoch + now)
        state.emit(SessionBegun(peer.public, Role.INITIATOR))
        # Something must be sent: only then may the responder use the session.
        state.stage_keepalive(peer)
        peer.heard(now, is_data=False)

    # -- out --------------------------------------------------------------------------------

    def initiate(self, peer: Peer, now: Ns, *, is_retry: bool = False) -> None:
        """Begin a handshake, unless one was begun or answered within REKEY_TIMEOUT."""
        state = self._state
        if not is_retry:
            peer.retries = 0
        if state.private is None or peer.static_static is None or peer.endpoint is None:
            return
        if not peer.may_send_handshake(now):
            return
        stamped = state.epoch + now
        if peer.stamped is not None:
            stamped = max(stamped, tai64n.next_tick(peer.stamped))
        ephemeral = PrivateKey(state.entropy(32))
        index = state.new_index()
        made = handshake.initiate(
            state.private,
            peer.public,
            static_static=peer.static_static,
            ephemeral=ephemeral,
            timestamp=tai64n.stamp(stamped),
            sender_index=index,
        )
        if made is None:
            return
        message, initiated = made
        peer.stamped = stamped
        state.drop_pending(peer)
        peer.pending = Pending(index, initiated)
        state.pending[index] = peer
        self._log_keys(peer, ephemeral, now)
        self._send(peer, message, now)
        peer.initiation_sent(now, state.jitter())

    def _send(self, peer: Peer, message: Initiation | Response, now: Ns) -> None:
        state = self._state
        assert peer.endpoint is not None, "checked, or where the initiation came from"
        buf = wireguard.packed(message)
        peer.macs.add(buf, now)
        peer.handshake_sent_at = now
        traffic_class = state.config.handshake_traffic_class
        state.outgoing.append(Datagram(bytes(buf), peer.endpoint, traffic_class, peer.local))
        peer.tx_bytes += len(buf)
        state.stats.handshakes_sent += 1
        peer.authenticated_sent(now)

    def _log_keys(self, peer: Peer, ephemeral: PrivateKey, now: Ns) -> None:
        """Hand out the secrets of a handshake, if asked to. Wireshark's key log format."""
        state = self._state
        if not state.config.key_log or state.private is None:
            return
        lines = [
            ("LOCAL_STATIC_PRIVATE_KEY", state.private.reveal()),
            ("REMOTE_STATIC_PUBLIC_KEY", peer.public),
            ("LOCAL_EPHEMERAL_PRIVATE_KEY", ephemeral.reveal()),
        ]
        if not peer.preshared_key.is_zero:
            lines.append(("PRESHARED_KEY", peer.preshared_key.reveal()))
        text = "".join(f"{name} = {to_base64(key)}\n" for name, key in lines)
        state.emit(KeyLog(now, text))


def _unpacked(datagram: ReadBuffer) -> Initiation | Response | CookieReply:
    try:
        message = wireguard.unpack(datagram)
    except FieldError as error:
        of_type = error.field == "WireGuard.type"
        raise _RefusedError(Refusal.TYPE if of_type else Refusal.LENGTH) from None
    except DecodeError:
        raise _RefusedError(Refusal.LENGTH) from None
    assert not isinstance(message, TransportData), "data was taken before"
    return message
