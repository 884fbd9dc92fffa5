"""A message of the send queue, and how it becomes packets. IBTA vol. 1, section 9.7.3.

    SEND, WRITE    FIRST MIDDLE* LAST in units of the path MTU, or ONLY; as many PSNs as packets
    READ           one request; as many PSNs as its response will have packets
    atomic         one request, one PSN
    bind and such  none: they are executed at home

Packet i of a message is always the same bytes, whenever and however often it is sent: so a
message is resumed anywhere, with MIDDLE or LAST at that place. A READ is resumed by asking for
its tail: later address, less length, later PSN (section 9.7.6).
"""

from dataclasses import dataclass, field

from transports.roce.bursts import Burst
from transports.roce.local_work import check
from transports.roce.memory import ScatterGather
from transports.roce.psn import MASK
from transports.roce.work import KINDS, Kind, SendWr, WrOpcode
from wire.roce.eths import ATOMIC_ETH, IETH, IMMDT, RETH


def packet_count(length: int, mtu: int) -> int:
    """Return the packets, and so the PSNs, of a message of `length` bytes."""
    return max(1, -(-length // mtu))


@dataclass(slots=True, eq=False)
class Message:
    """One work request with its place in the PSN order. `start` and `stop` are unwrapped.

    Raise ValueError for one that does not say what to do.
    """

    wr: SendWr
    length: int
    mtu: int
    start: int  # PSN of its first packet
    ack_every: int  # AckReq on every so manyth packet, and on the last
    data: ScatterGather | None = None  # resolved when it is first sent
    kind: Kind = field(init=False)
    stop: int = field(init=False)
    waits_for_response: bool = field(init=False)  # READ or atomic
    started: bool = False
    asked: int = 0  # READ: PSN of the newest request, unwrapped
    requests: int = 0  # READ and atomic: requests sent

    def __post_init__(self) -> None:
        self.kind = kind = KINDS[self.wr.opcode]
        self.waits_for_response = kind.is_read or kind.is_atomic
        if kind.is_local:
            check(self.wr)
            self.stop = self.start
        elif kind.is_atomic:
            self.stop = self.start + 1
        else:
            packets = 1 if self.length <= self.mtu else packet_count(self.length, self.mtu)
            self.stop = self.start + packets

    def burst(self, psn: int, limit: int, transmission: int, why: str) -> Burst:
        """Return the packets from the unwrapped `psn` on: as many as are alike, up to `limit`.

        A burst ends with the packet that carries AckReq.
        """
        if self.waits_for_response:
            return self._request(psn, why)
        assert self.data is not None
        kind = self.kind
        index = psn - self.start
        packets = self.stop - self.start
        mtu = self.mtu
        if packets == 1:
            extension = self._reth() if kind.is_write else b""
            if kind.has_imm or kind.has_inv:
                extension += self._trailer()
            return Burst(
                kind.only, psn & MASK, 1, extension, self.data.read(0, self.length), mtu, True,
                self.wr.solicited, transmission, why,
            )  # fmt: skip
        if index == 0:
            return Burst(
                kind.first, psn & MASK, 1, self._reth(), self.data.read(0, mtu), mtu,
                self.ack_every == 1, False, transmission, why,
            )  # fmt: skip
        if index == packets - 1:
            offset = index * mtu
            return Burst(
                kind.last, psn & MASK, 1, self._trailer(),
                self.data.read(offset, self.length - offset), mtu, True, self.wr.solicited,
                transmission, why,
            )  # fmt: skip
        every = self.ack_every
        to_ack = every - index % every
        count = min(limit, packets - 1 - index, to_ack)
        return Burst(
            kind.first + 1, psn & MASK, count, b"", self.data.read(index * mtu, count * mtu),
            mtu, count == to_ack, False, transmission, why,
        )  # fmt: skip

    def _request(self, psn: int, why: str) -> Burst:
        """Return the request of a READ, for what is missing from `psn` on, or of an atomic."""
        wr, kind = self.wr, self.kind
        if kind.is_read:
            done = (psn - self.start) * self.mtu
            va = (wr.remote_addr + done) & 0xFFFFFFFFFFFFFFFF
            extension = RETH.pack(va, wr.r_key, self.length - done)
            self.asked = psn
        else:
            compare = wr.compare if wr.opcode is WrOpcode.ATOMIC_CMP_AND_SWP else 0
            extension = ATOMIC_ETH.pack(wr.remote_addr, wr.r_key, wr.swap_add, compare)
        self.requests += 1
        return Burst(
            kind.only, psn & MASK, 1, extension, b"", self.mtu, True, False, self.requests, why
        )

    def _reth(self) -> bytes:
        if not self.kind.is_write:
            return b""
        wr = self.wr
        return RETH.pack(wr.remote_addr, wr.r_key, self.length)

    def _trailer(self) -> bytes:
        if self.kind.has_imm:
            return IMMDT.pack(self.wr.imm)
        if self.kind.has_inv:
            return IETH.pack(self.wr.invalidate_r_key)
        return b""
