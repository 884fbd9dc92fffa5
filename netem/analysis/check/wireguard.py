"""WireGuard: forms of messages, whom they answer, nonces, what is inside. Paper, section 5.4.

A message is taken for WireGuard's if it goes between addresses and ports that have exchanged a
handshake, or if it is one: type, three zero bytes and exact size. It is opened where the
capture has the keys and the handshake; what it carries is handed on.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from netem.analysis.check.findings import Finding, Findings, Severity
from netem.analysis.check.keyring import KeyRing
from netem.analysis.check.packet import Packet
from netem.analysis.records import Interface
from transports.overlay.limits import REJECT_AFTER_MESSAGES
from transports.overlay.noise import NONCE
from wire.codec import DecodeError
from wire.wireguard import (
    INITIATION,
    RESPONSE,
    Initiation,
    MessageType,
    Response,
    TransportData,
    unpack,
)

_HANDSHAKES = {INITIATION.size: MessageType.INITIATION, RESPONSE.size: MessageType.RESPONSE}
_MOST = 1 << 14  # Ours: ends and indices; some 300 bytes each
K = TypeVar("K")
V = TypeVar("V")
_MOST_DIGESTS = 1 << 16  # Ours: of messages; some 250 bytes each
_WINDOW = 1 << 13  # counters below the newest that are remembered, as receivers do


class _Counters:
    """Which counters of one receiver index have been used."""

    __slots__ = ("newest", "seen")

    def __init__(self) -> None:
        self.newest = -1
        self.seen = 0  # bit n: newest - n

    def is_used(self, counter: int) -> bool:
        """Say whether `counter` was used before, and note that it is."""
        ahead = counter - self.newest
        if ahead > 0:
            self.seen = (self.seen << min(ahead, _WINDOW) | 1) & ((1 << _WINDOW) - 1)
            self.newest = counter
            return False
        if -ahead >= _WINDOW:
            return False
        bit = 1 << -ahead
        is_used = bool(self.seen & bit)
        self.seen |= bit
        return is_used


class WireguardJudge:
    """All tunnels of a capture."""

    def __init__(
        self,
        findings: Findings,
        secrets: Sequence[bytes],
        interfaces: Sequence[Interface],
        inside: Callable[[Packet, bytes], None],
    ) -> None:
        """Hand what is inside to `inside`; `secrets` are key logs, which may still grow."""
        self.packets = 0
        self.opened = 0
        self._findings = findings
        self._places: dict[bytes, int] = {}  # addresses and ports -> interface
        self._secrets = secrets
        self._interfaces = interfaces
        self._inside = inside
        self._ring = KeyRing()
        self._read = 0  # key logs that are on the ring
        self._ciphers: dict[int, ChaCha20Poly1305] = {}  # by receiver index
        self._initiations: dict[int, Initiation] = {}  # by sender index
        self._counters: dict[tuple[bytes, int], _Counters] = {}
        self._digests: dict[tuple[bytes, int, int], int] = {}  # by ends, index and counter

    def begin_section(self) -> None:
        """Look at the same tunnels from another place: keys stay, what was seen there goes."""
        self._places.clear()
        self._counters.clear()
        self._digests.clear()

    def take(self, packet: Packet, addresses: bytes, udp: int) -> bool:
        """Judge a datagram; return whether it is WireGuard's."""
        data = packet.data
        start = udp + 8
        length = (data[udp + 4] << 8 | data[udp + 5]) - 8
        ends = addresses + data[udp : udp + 4]
        place = self._places.get(ends)
        if place is None:
            if not _is_handshake(data, start, length):
                return False
            self._meet(ends, packet.where)
        elif place < 0:
            self._places[ends] = packet.where
        self.packets += 1
        is_whole = len(data) >= start + length and "corrupted" not in packet.comment
        if self._places[ends] == packet.where and is_whole:
            self._judge(packet, data[start : start + length], ends)
        return True

    def _judge(self, packet: Packet, datagram: bytes, ends: bytes) -> None:
        """Judge a whole message where it was seen first."""
        try:
            message = unpack(datagram)
        except DecodeError as error:
            self._findings.violation(packet.number, "wg/M1", str(error))
            return
        if isinstance(message, Initiation):
            _bound(self._initiations)
            self._initiations[message.sender_index] = message
        elif isinstance(message, Response):
            if self._initiations and message.receiver_index not in self._initiations:
                text = f"response to index {message.receiver_index:#010x}, which nobody sent"
                self._findings.warning(packet.number, "wg/M3", text)
            self._begin(message)
        elif isinstance(message, TransportData):
            self._transport(packet, message, ends)

    def _meet(self, ends: bytes, where: int) -> None:
        """Know both directions between two ends, each where it is seen first."""
        half = (len(ends) - 4) // 2
        back = ends[half:-4] + ends[:half] + ends[-2:] + ends[-4:-2]
        _bound(self._places)
        self._places[ends] = where
        self._places.setdefault(back, -1)

    def _transport(self, packet: Packet, message: TransportData, ends: bytes) -> None:
        key = ends, message.receiver_index
        counters = self._counters.get(key)
        if counters is None:
            _bound(self._counters)
            counters = self._counters[key] = _Counters()
        self._nonce(packet, key, message, is_used=counters.is_used(message.counter))
        if message.counter >= REJECT_AFTER_MESSAGES:
            text = f"counter {message.counter} is beyond what a key may be used for"
            self._findings.violation(packet.number, "wg/T5", text)
        cipher = self._ciphers.get(message.receiver_index)
        if cipher is not None:
            self._open(packet, message, cipher)

    def _nonce(
        self, packet: Packet, key: tuple[bytes, int], message: TransportData, *, is_used: bool
    ) -> None:
        """Judge whether a nonce was used before, for another message.

        The same message twice is a duplicate of the network's, or of who captured it, but
        where it leaves its sender in a capture that has all.
        """
        digest = hash(bytes(message.encrypted_packet))
        before = self._digests.pop((*key, message.counter), None)
        self._digests[*key, message.counter] = digest
        if len(self._digests) > _MOST_DIGESTS:
            del self._digests[next(iter(self._digests))]
        if not is_used or "duplicated" in packet.comment:
            return
        text = f"nonce {message.counter} used again for index {key[1]:#010x}"
        if before is None:
            self._findings.warning(packet.number, "wg/D1", f"{text}, or a message seen twice")
        elif before != digest:
            self._findings.violation(packet.number, "wg/D1", text)
        elif self._interfaces[packet.where].leads_to:
            found = Finding(packet.number, "wg/D1", Severity.VIOLATION, text)
            self._findings.unless(lambda: False, found)

    def _begin(self, response: Response) -> None:
        """Make the ciphers of the session that a response begins, if its keys are there."""
        for log in self._secrets[self._read :]:
            self._ring.add(log)
        self._read = len(self._secrets)
        initiation = self._initiations.get(response.receiver_index)
        keys = None if initiation is None else self._ring.session(initiation, response)
        if keys is None:
            return
        _bound(self._ciphers)
        self._ciphers[response.sender_index] = ChaCha20Poly1305(keys.from_initiator)
        self._ciphers[response.receiver_index] = ChaCha20Poly1305(keys.from_responder)

    def _open(self, packet: Packet, message: TransportData, cipher: ChaCha20Poly1305) -> None:
        try:
            nonce = NONCE.pack(message.counter)
            inner = cipher.decrypt(nonce, bytes(message.encrypted_packet), None)
        except InvalidTag:
            text = f"message {message.counter} does not open with the keys of its session"
            self._findings.violation(packet.number, "wg/D5", text)
            return
        self.opened += 1
        size = _size_of(inner)
        if any(inner[size:]):
            self._findings.violation(packet.number, "wg/D2", "the padding is not zero")
        if size:
            self._inside(packet, inner[:size])


def _is_handshake(data: bytes, start: int, length: int) -> bool:
    kind = _HANDSHAKES.get(length)
    return kind is not None and data[start : start + 4] == kind.to_bytes(4, "little")


def _size_of(inner: bytes) -> int:
    """Return how long the IP packet inside says that it is; 0 for a keepalive or no packet."""
    if len(inner) >= 20 and inner[0] >> 4 == 4:
        return inner[2] << 8 | inner[3]
    if len(inner) >= 40 and inner[0] >> 4 == 6:
        return 40 + (inner[4] << 8 | inner[5])
    return 0


def _bound(memory: dict[K, V]) -> None:
    """Forget the oldest where there are too many."""
    if len(memory) >= _MOST:
        del memory[next(iter(memory))]
