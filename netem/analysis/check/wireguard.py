"""WireGuard from outside: forms of messages, whom they answer, and nonces. Paper, section 5.4.

What is encrypted stays so. A message is taken for WireGuard's if it goes between addresses and
ports that have exchanged a handshake, or if it is one: type, three zero bytes and exact size.
"""

from typing import TypeVar

from netem.analysis.check.findings import Findings
from netem.analysis.check.packet import Packet
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
_WINDOW = 1 << 13  # counters below the newest that are remembered, as receivers do
REJECT_AFTER = (1 << 64) - (1 << 13) - 1


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

    def __init__(self, findings: Findings) -> None:
        self.packets = 0
        self._findings = findings
        self._places: dict[bytes, int] = {}  # addresses and ports -> interface
        self._initiations: dict[int, int] = {}  # sender index -> frame
        self._counters: dict[tuple[bytes, int], _Counters] = {}

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
            self._initiations[message.sender_index] = packet.number
        elif isinstance(message, Response):
            if self._initiations and message.receiver_index not in self._initiations:
                text = f"response to index {message.receiver_index:#010x}, which nobody sent"
                self._findings.warning(packet.number, "wg/M3", text)
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
        if counters.is_used(message.counter) and "duplicated" not in packet.comment:
            text = f"nonce {message.counter} used again for index {key[1]:#010x}"
            self._findings.violation(packet.number, "wg/D1", text)
        if message.counter >= REJECT_AFTER:
            text = f"counter {message.counter} is beyond what a key may be used for"
            self._findings.violation(packet.number, "wg/T5", text)


def _is_handshake(data: bytes, start: int, length: int) -> bool:
    kind = _HANDSHAKES.get(length)
    return kind is not None and data[start : start + 4] == kind.to_bytes(4, "little")


def _bound(memory: dict[K, V]) -> None:
    """Forget the oldest where there are too many."""
    if len(memory) >= _MOST:
        del memory[next(iter(memory))]
