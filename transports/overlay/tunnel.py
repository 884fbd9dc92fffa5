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
from collections.abc import Callable, Iterator, Sequence

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
from transports.overlay.limits import PADDING_MULTIPLE
from transports.overlay.noise import NONCE
from transports.overlay.peer import Peer
from transports.overlay.refusals import Refusal
from transports.overlay.runs import SealedRun, open_run, seal_run
from transports.overlay.session import Session
from transports.overlay.settings import Settings
from transports.overlay.state import (
    Arrival,
    Datagram,
    State,
    TunnelConfig,
    TunnelStats,
)
from transports.overlay.timers import Timer
from wire.codec import ReadBuffer
from wire.wireguard import MIN_TRANSPORT_SIZE, TRANSPORT, MessageType

_TRANSPORT = int(MessageType.TRANSPORT)
_HEADER = TRANSPORT.size
_ZEROS = [bytes(size) for size in range(PADDING_MULTIPLE)]
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
        self._mtu = config.mtu
        # The outer traffic class for each inner one.
        self._outer = bytes(
            inner.outer_traffic_class(mark, config.ecn, copy_dscp=config.copy_dscp)
            for mark in range(256)
        )

    @property
    def config(self) -> TunnelConfig:
        return self._state.config

    @property
    def refused(self) -> Counter[Refusal]:
        """What was dropped, by reason; it only grows."""
        return self._state.refused

    @property
    def stats(self) -> TunnelStats:
        """What went through; it only grows."""
        return self._state.stats

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
        if len(datagram) >= MIN_TRANSPORT_SIZE:
            word, index, counter = TRANSPORT.unpack_from(datagram)
            if word == _TRANSPORT:
                reason = self._receive_data(
                    datagram, index, counter, source, local, traffic_class, now
                )
                if reason is not None:
                    self._refuse(reason, source, index, counter)
                return
        self._handshakes.receive(datagram, Arrival(source, local, now))

    def send(self, packet: ReadBuffer) -> None:
        """Queue one inner IP packet, which is copied. It leaves with `transmit`."""
        state = self._state
        packet = bytes(packet)
        length = inner.length_of(packet)
        if length is None:
            state.refused[inner.fault_of(packet)] += 1
            return
        peer = state.allowed.lookup(inner.destination_of(packet))
        if peer is None or peer.endpoint is None:
            reason = Refusal.NO_PEER if peer is None else Refusal.NO_ENDPOINT
            state.refused[reason] += 1
            state.emit(Undeliverable(reason, packet[:_QUOTED]))
            return
        if len(peer.staged) >= state.limits.max_staged_packets:
            peer.staged.popleft()
            state.refused[Refusal.STAGED_FULL] += 1
        peer.staged.append(packet)
        if not peer.is_ready:
            state.note_ready(peer)

    def send_run(self, packets: Sequence[ReadBuffer], now: Ns) -> SealedRun | None:
        """Seal packets that belong together; None: nothing was done, `send` them."""
        return seal_run(self._state, self._outer, packets, now)

    def receive_run(
        self,
        data: memoryview,
        size: int,
        source: Endpoint,
        now: Ns,
        *,
        local: bytes | None = None,
        traffic_class: int = 0,
    ) -> list[bytes] | None:
        """Open datagrams that came together; None: nothing was done, `receive` them.

        What is returned makes no events.
        """
        return open_run(
            self._state, data, size, source, now, local=local, traffic_class=traffic_class
        )

    def transmit(self, now: Ns) -> Iterator[Datagram]:
        """Hand out what is to be sent now; may be drained in part and resumed."""
        state = self._state
        while True:
            while state.outgoing:
                yield state.outgoing.popleft()
            if not state.ready:
                return
            peer = state.ready[0]
            session = peer.slots.current
            if session is not None and peer.staged and session.can_send(now, state.limits):
                yield from self._seal_staged(peer, session, now)
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

    def endpoint_towards(self, address: bytes) -> Endpoint | None:
        """Return where packets for an inner address, 4 or 16 bytes, go; None: nowhere."""
        peer = self._state.allowed.lookup(address)
        return None if peer is None else peer.endpoint

    def table_sizes(self) -> dict[str, int]:
        """Return how long everything is that a peer or a stranger could make grow."""
        return {**super().table_sizes(), "sources": self._handshakes.sources}

    # -- data -------------------------------------------------------------------------------

    def _receive_data(  # noqa: PLR0911, PLR0917 - hot: keywords cost half a microsecond
        self,
        datagram: ReadBuffer,
        index: int,
        counter: int,
        source: Endpoint,
        local: bytes | None,
        traffic_class: int,
        now: Ns,
    ) -> Refusal | None:
        state = self._state
        found = state.sessions.get(index)
        if found is None:
            return Refusal.RECEIVER_INDEX
        session, peer = found
        if now >= session.reject_at:
            return Refusal.EXPIRED
        if counter >= state.limits.reject_after_messages:
            return Refusal.COUNTER_LIMIT
        try:
            open_ = session.open or session.make_open()
            packet = open_(NONCE.pack(counter), datagram[_HEADER:], None)
        except InvalidTag:
            return Refusal.TAG
        if not session.replay.accept(counter):
            return Refusal.REPLAYED
        # The peer was heard: from here on nothing is taken back.
        if source != peer.endpoint or local != peer.local:
            state.move(peer, source, local)
        if session is peer.slots.next:
            self._confirm(peer, session, now)
        peer.rx_bytes += len(datagram)
        current = peer.slots.current
        if current is not None and now >= current.last_minute_at:
            self._renew_in_the_last_minute(peer, current, now)
        peer.heard(now, is_data=bool(packet))
        if not packet:
            state.stats.keepalives_received += 1
            return None
        state.stats.data_received += 1
        return self._deliver(packet, peer, traffic_class)

    def _renew_in_the_last_minute(self, peer: Peer, current: Session, now: Ns) -> None:
        """Begin a handshake, once per session: what arrives is about to outlive its keys."""
        if current.may_send and not peer.last_minute_used:
            peer.last_minute_used = True
            self._handshakes.initiate(peer, now)

    def _confirm(self, peer: Peer, session: Session, now: Ns) -> None:
        """Use the session that we made as responder, since the initiator has."""
        state = self._state
        state.forget(peer.slots.confirm(session))
        peer.handshake_complete(state.epoch + now)
        state.emit(SessionBegun(peer.public, Role.RESPONDER))
        state.note_ready(peer)

    def _deliver(self, packet: bytes, peer: Peer, traffic_class: int) -> Refusal | None:
        """Hand out the inner packet, if it is one and its source is the peer's."""
        state = self._state
        length = inner.length_of(packet)
        if length is None:
            return inner.fault_of(packet)
        if state.allowed.lookup(inner.source_of(packet)) is not peer:
            return Refusal.INNER_SOURCE
        if length != len(packet):
            packet = packet[:length]
        if traffic_class & 3:
            marked = inner.decapsulated(packet, traffic_class, state.config.ecn)
            if marked is None:
                return Refusal.INNER_ECN
            packet = marked
        if len(state.events) >= state.limits.max_events:
            return Refusal.EVENTS_FULL
        state.events.append(Delivered(packet, peer.public))
        return None

    def _refuse(self, reason: Refusal, source: Endpoint, index: int, counter: int) -> None:
        """Count data that was dropped, and say whose it was."""
        session, peer = self._state.sessions.get(index, (None, None))
        if reason is Refusal.REPLAYED and session is not None and peer is not None:
            self._state.refuse_replay(source, peer, session, counter)
        else:
            self._state.refuse(reason, source, peer)

    def _seal_staged(self, peer: Peer, session: Session, now: Ns) -> Iterator[Datagram]:
        """Encrypt what waits for one peer, as long as the session may be used for it.

        What is the same for all of a run is looked at once: the timers know but one `now`.
        """
        state, staged, remote, mtu = self._state, peer.staged, session.remote_index, self._mtu
        seal = session.seal or session.make_seal()
        endpoint, local = peer.endpoint, peer.local
        assert endpoint is not None, "a session came from somewhere"
        limits, stats = state.limits, state.stats
        limit, renew_at = limits.reject_after_messages, limits.rekey_after_messages
        is_old = now >= session.rekey_at
        peer.authenticated_sent(now)
        noted = False
        while staged and session.counter < limit:
            packet = staged.popleft()
            counter = session.counter
            session.counter = counter + 1  # before anything else: it is the nonce
            if packet:
                stats.data_sent += 1
                if not noted:
                    peer.data_sent(now, state.jitter)
                    noted = True
                traffic_class = self._outer[inner.traffic_class(packet)]
                pad = inner.padding(len(packet), mtu)
                if pad:
                    packet += _ZEROS[pad]
            else:
                stats.keepalives_sent += 1
                traffic_class = 0
            payload = TRANSPORT.pack(_TRANSPORT, remote, counter) + seal(
                NONCE.pack(counter), packet, None
            )
            peer.tx_bytes += len(payload)
            if is_old or counter >= renew_at:
                self._handshakes.initiate(peer, now)
            yield Datagram(payload, endpoint, traffic_class, local)
            if not session.may_send or peer.slots.current is not session:
                return  # we were left, and something else was done in between

    # -- timers -----------------------------------------------------------------------------

    def _fire(self, peer: Peer, timer: Timer, now: Ns) -> None:
        state = self._state
        match timer:
            case Timer.RETRANSMIT:
                self._retry(peer, now)
            case Timer.KEEPALIVE:
                state.stage_keepalive(peer)
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
