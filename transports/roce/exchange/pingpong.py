"""The exchange of the libibverbs examples: ibv_rc_pingpong, _uc_, _ud_, _srq_.

As rdma-core 44 does it, over TCP, port 18515. Each side says one line per queue pair, always
52 bytes: LID, QPN and PSN in hexadecimal digits with colons between, the GID in 32 digits, NUL.
The client speaks first; the server has its queue pair in RTS before it answers; the client says
"done" and then brings its own to RTS. ibv_srq_pingpong says 256 lines, however many queue pairs
it has; those behind the last are all zero.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

from transports.roce.exchange.dialogue import HOLD, Dialogue, Script, Want
from transports.roce.exchange.digits import unpack_fields
from wire.codec import DecodeError, ReadBuffer, TruncatedError, check_size, check_uint

PORT = 18515
LINE_SIZE = 52
SRQ_LINES = 256
DONE = b"done\0"
UD_Q_KEY = 0x11111111

_WIDTHS = (4, 6, 6, 32)  # digits of LID, QPN, PSN and GID


class Address(NamedTuple):
    """Where to find a queue pair, and the PSN that it starts with."""

    qpn: int
    psn: int
    gid: bytes
    lid: int = 0  # of InfiniBand

    def pack(self) -> bytes:
        """Return the line of 52 bytes."""
        check_uint("lid", self.lid, 16)
        check_uint("qpn", self.qpn, 24)
        check_uint("psn", self.psn, 24)
        check_size("gid", self.gid, 16)
        return f"{self.lid:04x}:{self.qpn:06x}:{self.psn:06x}:{self.gid.hex()}\0".encode()

    @classmethod
    def unpack(cls, line: ReadBuffer) -> Self:
        """Raise DecodeError for what is no such line."""
        if len(line) < LINE_SIZE:
            raise TruncatedError("address", LINE_SIZE, len(line))
        text = line[:LINE_SIZE]
        lid, qpn, psn, gid = unpack_fields(text, _WIDTHS, "LID:QPN:PSN:GID")
        return cls(qpn, psn, gid.to_bytes(16, "big"), lid)


_NOBODY = Address(0, 0, bytes(16))


@dataclass(frozen=True, slots=True)
class PeerKnown:
    """The peer's queue pairs: bring ours to RTS, then `proceed`."""

    addresses: tuple[Address, ...]


class PingPong(Dialogue[PeerKnown]):
    """One side of the exchange."""

    def __init__(
        self, addresses: tuple[Address, ...], *, is_client: bool, lines: int = 1
    ) -> None:
        """Say the `addresses` of our queue pairs in that many `lines`."""
        if not 0 < len(addresses) <= lines:
            raise ValueError(f"{len(addresses)} addresses, legal is 1 to {lines}")
        self._ours = addresses + (_NOBODY,) * (lines - len(addresses))
        self._is_client = is_client
        super().__init__()

    def _script(self) -> Script:
        if self._is_client:
            self._say_ours()
            yield from self._hear_theirs()
            self._say(DONE)
            yield HOLD
            return
        yield from self._hear_theirs()
        yield HOLD
        self._say_ours()
        done = yield Want(len(DONE), '"done"')
        if done != DONE:
            raise DecodeError(f'{done!r} is not "done"')

    def _say_ours(self) -> None:
        for address in self._ours:
            self._say(address.pack())

    def _hear_theirs(self) -> Script:
        found = []
        for _ in self._ours:
            address = Address.unpack((yield Want(LINE_SIZE, "an address")))
            if address.qpn:
                found.append(address)
        if not found:
            raise DecodeError("no line has a queue pair: every QPN is zero")
        self._tell(PeerKnown(tuple(found)))
