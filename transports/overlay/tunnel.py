"""One WireGuard interface with its peers. WireGuard paper, sections 2, 5 and 6.

    inner packets -- send -->  staged, per peer  -- transmit -->  datagrams
    inner packets <- events --  checks, sessions  <- receive ---  datagrams

`send` queues a packet at the peer that its destination belongs to, at most
`max_staged_packets`, the oldest dropped first; `transmit` seals what is queued where there is a
session, and begins a handshake where there is none. So a driver fetches at least once in that
many calls of `send`. Counters, which are nonces, are given in the order of the queue.

**Data that comes in**: session by index, its age, the cipher, and only then the window, so that
a forger cannot move it. Then the peer was heard, which sets its endpoint and its timers, and
which nothing that is wrong with the packet *inside* undoes. Refusals are silent and counted.

**Where we differ** from the Linux module:

* There is no queue of handshakes, so load is what its length would be (`load.py`).
* mac1 is judged before load is, so what fails it is no load.
* Our timestamps rise even if the wall clock is set back while we run, so a peer never takes a
  new initiation for a replay. After a restart there is nothing to rise from: a clock that was
  set back in between locks us out until the peer forgets us, as with all implementations.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator

from cryptography.exceptions import InvalidTag

from transports.clock import Ns
from transports.overlay import inner
from transports.overlay.endpoint import Endpoint
from transports.overlay.events import (
    Delivered,
    Event,
    GaveUp,
    KeysWiped,
    Role,
    SessionBegun,
    Undeliverable,
)
from transports.overlay.handshakes import Handshakes
from transports.overlay.inner import Ecn
from transports.overlay.noise import NONCE
from transports.overlay.peer import Peer
from transports.overlay.refusals import Refusal
from transports.overlay.session import Session
from transports.overlay.settings import Settings
from transports.overlay.state import Arrival, Datagram, State, TunnelConfig
from transports.overlay.timers import Timer
from wire.codec import ReadBuffer
from wire.wireguard import MIN_TRANSPORT_SIZE, TRANSPORT, MessageType

_TRANSPORT = int(MessageType.TRANSPORT)
_QUOTED = 1280  # bytes of an undeliverable packet: as much as an ICMP error may quote


class Tunnel(Settings):
    """A machine: datagrams and inner packets in, datagrams and events out."""

    def __init__(
        self,
        config: TunnelConfig,
        rng: random.Random,
        entropy: Callable[[int], bytes],
        *,
        epoch: Ns = 0,
    ) -> None:
        """Take what is not in the packets.

        `rng` draws jitter, `entropy` returns that many bytes of key material, indices and
        nonces, `epoch` is the time since 1970 at which `now` is 0.
        """
        state = State(config, rng, entropy, epoch)
        super().__init__(state)
        self._handshakes = Handshakes(state)

    @property
    def config(self) -> TunnelConfig:
        return self._state.config

    @property
    def refused(self) -> Counter[Refusal]:
        """What was dropped, by reason; it only grows."""
        return self._state.refused

    @property
    def dropped_events(self) -> int:
        """How many events nobody fetched in time."""
        return self._state.dropped_events

    def set_epoch(self, epoch: Ns) -> None:
        """Follow the wall clock. No rule reads it but timestamps of initiations."""
        self._state.epoch = epoch

    # -- the machine ------------------------------------------------------------------------

    def receive(
        self,
        datagram: ReadBuffer,
        source: Endpoint,
        now: Ns,
        *,
        local: bytes | None = None,
        traffic_class: int = 0,
    ) -> None:
        """Take one UDP payload from `source`, sent to our address `local`.

        `traffic_class` is that of its outer header. No view is kept.
        """
        arrival = Arrival(source, local, traffic_class, now)
        if len(datagram) >= MIN_TRANSPORT_SIZE:
            word, index, counter = TRANSPORT.unpack_from(datagram)
            if word == _TRANSPORT:
                self._receive_data(memoryview(datagram), index, counter, arrival)
                return
        self._handshakes.receive(datagram, arrival)

    def send(self, packet: ReadBuffer) -> None:
        """Queue one inner IP packet, which is copied. It leaves with `transmit`."""
        state = self._state
        found = inner.addresses(packet)
        if isinstance(found, Refusal):
            state.refused[found] += 1
            return
        peer = state.allowed.lookup(found.destination)
        if peer is None or peer.endpoint is None:
            reason = Refusal.NO_PEER if peer is None else Refusal.NO_ENDPOINT
            state.refused[reason] += 1
            state.emit(Undeliverable(reason, bytes(packet[:_QUOTED])))
            return
        if len(peer.staged) >= state.limits.max_staged_packets:
            peer.staged.popleft()
            state.refused[Refusal.STAGED_FULL] += 1
        peer.staged.append(bytes(packet))
        state.note_ready(peer)

    def transmit(self, now: Ns) -> Iterator[Datagram]:
        """Hand out what is to be sent now; may be drained in part and resumed."""
        state = self._state
        while True:
            if state.outgoing:
                yield state.outgoing.popleft()
            elif not state.ready:
                return
            else:
                peer = state.ready[0]
                session = peer.slots.current
                if session is not None and peer.staged and session.can_send(now, state.limits):
                    yield self._seal(peer, session, peer.staged.popleft(), now)
                else:
                    state.ready.popleft()
                    peer.is_ready = False
                    if peer.staged:
                        self._handshakes.initiate(peer, now)

    def expire(self, now: Ns) -> None:
        """Let time pass."""
        agenda = self._state.agenda
        while (first := agenda.first()) is not None and first[0] <= now:
            peer = first[1]
            for timer in peer.timers.take_due(now):
                self._fire(peer, timer, now)

    @property
    def deadline(self) -> Ns | None:
        first = self._state.agenda.first()
        return None if first is None else first[0]

    def events(self) -> Iterator[Event]:
        """Hand out what the owner should know, each once, in order."""
        events = self._state.events
        while events:
            yield events.popleft()

    def table_sizes(self) -> dict[str, int]:
        """Return how long everything is that a peer or a stranger could make grow."""
        return {**super().table_sizes(), "sources": self._handshakes.sources}

    # -- data -------------------------------------------------------------------------------

    def _receive_data(
        self, datagram: memoryview, index: int, counter: int, arrival: Arrival
    ) -> None:
        state, now = self._state, arrival.now
        found = state.sessions.get(index)
        if found is None:
            state.refuse(Refusal.RECEIVER_INDEX, arrival.source)
            return
        session, peer = found
        if now >= session.reject_at:
            state.refuse(Refusal.EXPIRED, arrival.source, peer)
            return
        if counter >= state.limits.reject_after_messages:
            state.refuse(Refusal.COUNTER_LIMIT, arrival.source, peer)
            return
        try:
            open_ = session.open or session.make_open()
            packet = open_(NONCE.pack(counter), datagram[TRANSPORT.size :], None)
        except InvalidTag:
            state.refuse(Refusal.TAG, arrival.source, peer)
            return
        if not session.replay.accept(counter):
            state.refuse_replay(arrival.source, peer, session, counter)
            return
        # The peer was heard: from here on nothing is taken back.
        if arrival.source != peer.endpoint or arrival.local != peer.local:
            state.move(peer, arrival.source, arrival.local)
        if session is peer.slots.next:
            self._confirm(peer, session, now)
        peer.rx_bytes += len(datagram)
        if peer.wants_last_minute_handshake(now):
            self._handshakes.initiate(peer, now)
        peer.authenticated_received(now)
        if packet:  # else it was a keepalive
            peer.data_received(now)
            self._deliver(packet, peer, arrival)

    def _confirm(self, peer: Peer, session: Session, now: Ns) -> None:
        """Use the session that we made as responder, since the initiator has."""
        state = self._state
        state.forget(peer.slots.confirm(session))
        peer.handshake_complete(state.epoch + now)
        state.emit(SessionBegun(peer.public, Role.RESPONDER))
        state.note_ready(peer)

    def _deliver(self, packet: bytes, peer: Peer, arrival: Arrival) -> None:
        """Hand out the inner packet, if it is one and its source is the peer's."""
        state = self._state
        found = inner.addresses(packet)
        if isinstance(found, Refusal):
            state.refuse(found, arrival.source, peer)
            return
        if state.allowed.lookup(found.source) is not peer:
            state.refuse(Refusal.INNER_SOURCE, arrival.source, peer)
            return
        if found.length != len(packet):
            packet = packet[: found.length]
        outer = arrival.traffic_class
        if outer & 3 and state.config.ecn is not Ecn.OFF:
            marked = inner.decapsulated(packet, outer, state.config.ecn)
            if marked is None:
                state.refuse(Refusal.INNER_ECN, arrival.source, peer)
                return
            packet = marked
        if len(state.events) >= state.limits.max_events:
            state.refuse(Refusal.EVENTS_FULL, arrival.source, peer)
            return
        state.events.append(Delivered(packet, peer.public))

    def _seal(self, peer: Peer, session: Session, packet: bytes, now: Ns) -> Datagram:
        """Encrypt one packet, or nothing for a keepalive, on the current session."""
        state, config = self._state, self._state.config
        counter = session.counter
        session.counter = counter + 1
        traffic_class = 0
        plaintext = packet
        if packet:
            pad = inner.padding(len(packet), config.mtu)
            if pad:
                plaintext = packet + bytes(pad)
            traffic_class = inner.outer_traffic_class(
                inner.traffic_class(packet), config.ecn, copy_dscp=config.copy_dscp
            )
        seal = session.seal or session.make_seal()
        payload = TRANSPORT.pack(_TRANSPORT, session.remote_index, counter) + seal(
            NONCE.pack(counter), plaintext, None
        )
        assert peer.endpoint is not None, "a session came from somewhere"
        datagram = Datagram(payload, peer.endpoint, traffic_class, peer.local)
        peer.tx_bytes += len(payload)
        peer.authenticated_sent(now)
        if packet:
            peer.data_sent(now, state.jitter)
        if peer.wants_rekey(now):
            self._handshakes.initiate(peer, now)
        return datagram

    # -- timers -----------------------------------------------------------------------------

    def _fire(self, peer: Peer, timer: Timer, now: Ns) -> None:
        state = self._state
        match timer:
            case Timer.RETRANSMIT:
                self._retry(peer, now)
            case Timer.KEEPALIVE:
                state.stage_keepalive(peer)
                peer.keepalive_sent_by_timer(now)
            case Timer.NEW_HANDSHAKE:
                peer.local = None  # perhaps it is our address that is wrong
                self._handshakes.initiate(peer, now)
            case Timer.WIPE:
                state.wipe(peer)
                state.emit(KeysWiped(peer.public))
            case Timer.PERSISTENT:
                if peer.endpoint is None:
                    peer.traversed(now)  # nowhere to send it to: later, perhaps
                else:
                    state.stage_keepalive(peer)

    def _retry(self, peer: Peer, now: Ns) -> None:
        """Send another initiation, or give up."""
        state = self._state
        if not peer.may_send_handshake(now):  # a response went out since: a little later
            peer.put_off_retry(state.jitter())
            return
        if peer.retries <= state.limits.max_retries:
            peer.retries += 1
            peer.local = None
            self._handshakes.initiate(peer, now, is_retry=True)
            return
        peer.timers.stop(Timer.KEEPALIVE)
        dropped = sum(1 for packet in peer.staged if packet)
        peer.staged.clear()
        if dropped:
            state.refused[Refusal.GAVE_UP] += dropped
        if not peer.timers.is_running(Timer.WIPE):
            peer.session_made(now)
        state.emit(GaveUp(peer.public, peer.retries + 1, dropped))
