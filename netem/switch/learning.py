"""A learning bridge: which ports a frame leaves by. IEEE 802.1D-2004, clauses 7.7 to 7.9.

Pure: a frame in at port p at time `now`; a list of ports out. There is no spanning tree, as
with a kernel bridge by default (`stp_state 0`): a loop in a lab is a storm here too.
"""

from collections.abc import Iterable
from struct import Struct

from transports.clock import Ns, S
from wire.codec import ReadBuffer

ADDRESSES = Struct("!6s6s")  # destination | source

# From the specification
AGEING_TIME: Ns = 300 * S  # table 7-5, the recommended default
RESERVED = b"\x01\x80\xc2\x00\x00"  # and 0x00 to 0x0F: never forwarded, table 7-10
# Ours: 4,096 addresses, four times the hosts of the largest lab; the oldest makes room
MAX_ADDRESSES = 4096


class LearningBridge:
    """Learns where addresses are from what they send, and floods what it does not know."""

    def __init__(
        self,
        ports: Iterable[str],
        *,
        ageing: Ns = AGEING_TIME,
        max_addresses: int = MAX_ADDRESSES,
    ) -> None:
        self.ports = tuple(ports)
        self.refused = 0  # too short, sent by a group address, or to a reserved address
        self.flooded = 0
        self._ageing = ageing
        self._max_addresses = max_addresses
        self._others = {
            port: tuple(other for other in self.ports if other != port) for port in self.ports
        }
        # address -> (port, when it was last heard); least recently heard first
        self._table: dict[bytes, tuple[str, Ns]] = {}

    def __len__(self) -> int:
        return len(self._table)

    def forward(self, port: str, frame: ReadBuffer, now: Ns) -> tuple[str, ...]:
        """Return the ports that `frame`, which came in by `port`, leaves by; maybe none."""
        if len(frame) < ADDRESSES.size + 2:
            self.refused += 1
            return ()
        dst, src = ADDRESSES.unpack_from(frame)
        if src[0] & 1 or (dst[:5] == RESERVED and dst[5] <= 0x0F):
            self.refused += 1
            return ()
        self._learn(src, port, now)
        known = self._table.get(dst)
        if known is None or now - known[1] > self._ageing:
            self.flooded += 1
            return self._others[port]
        return (known[0],) if known[0] != port else ()

    def forget(self, port: str) -> None:
        """Forget every address behind `port`: its link has gone down, or come up."""
        self._table = {mac: row for mac, row in self._table.items() if row[0] != port}

    def _learn(self, src: bytes, port: str, now: Ns) -> None:
        self._table.pop(src, None)  # so that it goes to the end, as the most recent
        self._table[src] = (port, now)
        if len(self._table) > self._max_addresses:
            del self._table[next(iter(self._table))]
