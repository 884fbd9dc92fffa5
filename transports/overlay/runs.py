"""Many packets at once: what comes out is what comes out of one at a time, for less.

A run is packets that a driver knows to belong together: pieces of one TCP packet on their way
out, datagrams that the kernel has joined on their way in. What is the same for all is looked at
once: the peer, its session, its timers, which know but one `now` anyway.

Either function does everything or nothing, and then returns None: where anything is not as
usual, the packets go one by one, which defines what is right. So a run is refused for a
handshake that is due, a session that is new, old or nearly used up, packets that wait, one that
does not decrypt, was seen, is empty, or is not the peer's.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from cryptography.exceptions import InvalidTag

from transports.clock import Ns
from transports.overlay import inner
from transports.overlay.endpoint import Endpoint
from transports.overlay.limits import PADDING_MULTIPLE
from transports.overlay.noise import NONCE
from transports.overlay.session import Session
from transports.overlay.state import State
from wire.codec import ReadBuffer
from wire.wireguard import MIN_TRANSPORT_SIZE, TRANSPORT, MessageType

_TRANSPORT = int(MessageType.TRANSPORT)
_HEADER = TRANSPORT.size
_V4, _V6 = b"\x45", b"\x60"  # the first byte of nearly all packets
_V4_HEAD, _V6_HEAD = Struct("!BxH8x4s4x"), Struct("!B3xH2x16s16x")  # it, length, source
_V6_HEADER = 40
_NONCE, _COUNTER = NONCE.size, 8
_ZEROS = [bytes(size) for size in range(PADDING_MULTIPLE)]


class SealedRun(NamedTuple):
    """Datagrams to send, in order."""

    payloads: list[bytes]  # of each datagram two: its header, and what is sealed
    size: int  # of every datagram but the last, which is no larger
    destination: Endpoint
    traffic_class: int
    local: bytes | None


def seal_run(
    state: State, outer: bytes, packets: Sequence[ReadBuffer], now: Ns
) -> SealedRun | None:
    """Seal inner packets: all of one size but the last, which is no larger.

    They are whole IP packets with the same addresses and traffic class, which is their owner's
    to know; `outer` has the outer traffic class for each inner one.
    """
    first = bytes(packets[0][:40])
    peer = state.allowed.lookup(inner.destination_of(first))
    if peer is None or peer.endpoint is None or peer.staged or peer.is_ready:
        return None
    session, limits = peer.slots.current, state.limits
    if session is None or not session.can_send(now, limits) or now >= session.rekey_at:
        return None
    counter, count = session.counter, len(packets)
    end = counter + count
    if end >= min(limits.rekey_after_messages, limits.reject_after_messages):
        return None
    session.counter = end  # before anything else: they are the nonces
    seal = session.seal or session.make_seal()
    size, mtu = len(packets[0]), state.config.mtu
    pad = inner.padding(size, mtu)
    # What a counter is in a nonce, it is in a header: 8 bytes, little endian.
    prefix = TRANSPORT.pack(_TRANSPORT, session.remote_index, 0)[:-_COUNTER]
    nonces = _nonces(count).pack(*range(counter, end))
    payloads: list[bytes] = []
    at = 0
    for packet in packets:  # bench: overlay
        nonce = nonces[at : at + _NONCE]
        at += _NONCE
        if pad or at == len(nonces):
            zeros = _ZEROS[inner.padding(len(packet), mtu)]
            packet = b"".join((packet, zeros))  # noqa: PLW2901
        payloads += prefix + nonce[-_COUNTER:], seal(nonce, packet, None)
    state.stats.data_sent += count
    peer.tx_bytes += sum(map(len, payloads))
    peer.authenticated_sent(now)
    peer.data_sent(now, state.jitter)
    mark = outer[inner.traffic_class(first)]
    whole = size + pad + MIN_TRANSPORT_SIZE
    return SealedRun(payloads, whole, peer.endpoint, mark, peer.local)


@lru_cache(maxsize=256)
def _nonces(count: int) -> Struct:
    """Return what packs so many nonces at once."""
    return Struct("<" + "4xQ" * count)


def open_run(
    state: State,
    data: memoryview,
    size: int,
    source: Endpoint,
    now: Ns,
    *,
    local: bytes | None = None,
    traffic_class: int = 0,
) -> list[bytes] | None:
    """Open datagrams of one source, each of `size` but the last; return the inner packets."""
    if size < MIN_TRANSPORT_SIZE or len(data) < size:
        return None
    _, index, first = TRANSPORT.unpack_from(data)
    found = state.sessions.get(index)
    if found is None:
        return None
    session, peer = found
    current = peer.slots.current
    is_new_or_old = session is peer.slots.next or now >= session.reject_at
    if is_new_or_old or (current is not None and now >= current.last_minute_at):
        return None
    opened = _opened(session, data, size, (index, first))
    packets = None if opened is None else _inner(state, peer, opened, traffic_class)
    if packets is None or not session.replay.accept_run(first, len(packets)):
        return None
    if source != peer.endpoint or local != peer.local:
        state.move(peer, source, local)
    peer.rx_bytes += len(data)
    peer.heard(now, is_data=True)
    state.stats.data_received += len(packets)
    return packets


def _opened(
    session: Session, data: memoryview, size: int, begin: tuple[int, int]
) -> list[bytes] | None:
    """Return what is in datagrams of one session whose counters follow each other."""
    open_ = session.open or session.make_open()
    index, counter = begin
    count = -(-len(data) // size)
    if counter + count > session.replay.limit:
        return None
    prefix = TRANSPORT.pack(_TRANSPORT, index, 0)[:-_COUNTER]
    nonces = _nonces(count).pack(*range(counter, counter + count))
    opened: list[bytes] = []
    at = 0
    try:
        for n in range(0, len(nonces), _NONCE):  # bench: overlay
            nonce = nonces[n : n + _NONCE]
            if data[at : at + _HEADER] != prefix + nonce[-_COUNTER:]:
                return None
            opened.append(open_(nonce, data[at + _HEADER : at + size], None))
            at += size
    except InvalidTag:
        return None
    return opened


def _inner(
    state: State, peer: object, opened: Sequence[bytes], traffic_class: int
) -> list[bytes] | None:
    """Return what is delivered of what was opened, if all of it is."""
    packets: list[bytes] = []
    lookup, ecn = state.allowed.lookup, state.config.ecn
    read = _V4_HEAD if opened[0][:1] == _V4 else _V6_HEAD
    unpack, least, more = read.unpack_from, read.size, 0 if read is _V4_HEAD else _V6_HEADER
    known: tuple[int, bytes] | None = None  # first byte and source of a packet that is right
    for packet in opened:  # bench: overlay
        if known is not None and len(packet) >= least:
            first, length, source = unpack(packet)
            # Most are as the one before: from the same address, and without padding.
            if (first, source) == known and length + more == len(packet):
                packets.append(packet)
                continue
        length = inner.length_of(packet)
        if length is None or lookup(inner.source_of(packet)) is not peer:
            return None
        if not traffic_class & 3 and packet[:1] in {_V4, _V6}:
            known = packet[0], inner.source_of(packet)
        whole: bytes | None = packet if length == len(packet) else packet[:length]
        if traffic_class & 3 and whole is not None:
            whole = inner.decapsulated(whole, traffic_class, ecn)
        if whole is None:
            return None
        packets.append(whole)
    return packets
