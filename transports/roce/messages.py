"""A message of the send queue, and how it becomes packets. IBTA vol. 1, section 9.7.3.

    SEND, WRITE    FIRST MIDDLE* LAST in units of the path MTU, or ONLY; as many PSNs as packets
    READ           one request; as many PSNs as its response will have packets
    atomic         one request, one PSN

Packet i of a message is always the same bytes, whenever and however often it is sent: so a
message is resumed anywhere, with MIDDLE or LAST at that place. A READ is resumed by asking for
its tail: later address, less length, later PSN (section 9.7.6).
"""

from dataclasses import dataclass, field

from transports.roce.bursts import MAX_BURST, Burst
from transports.roce.memory import ScatterGather
from transports.roce.psn import MASK
from transports.roce.work import ATOMICS, TAKES_RECEIVE, WRITES, SendWr, WrOpcode
from wire.roce.eths import ATOMIC_ETH, IETH, IMMDT, RETH
from wire.roce.opcodes import Opcode

_SEND_ENDS = {
    WrOpcode.SEND: (Opcode.RC_SEND_LAST, Opcode.RC_SEND_ONLY),
    WrOpcode.SEND_WITH_IMM: (Opcode.RC_SEND_LAST_IMM, Opcode.RC_SEND_ONLY_IMM),
    WrOpcode.SEND_WITH_INV: (Opcode.RC_SEND_LAST_INV, Opcode.RC_SEND_ONLY_INV),
    WrOpcode.RDMA_WRITE: (Opcode.RC_WRITE_LAST, Opcode.RC_WRITE_ONLY),
    WrOpcode.RDMA_WRITE_WITH_IMM: (Opcode.RC_WRITE_LAST_IMM, Opcode.RC_WRITE_ONLY_IMM),
}


def packet_count(length: int, mtu: int) -> int:
    """Return the packets, and so the PSNs, of a message of `length` bytes."""
    return max(1, -(-length // mtu))


@dataclass(slots=True, eq=False)
class Message:
    """One work request with its place in the PSN order. `start` and `stop` are unwrapped."""

    wr: SendWr
    length: int
    mtu: int
    start: int  # PSN of its first packet
    ack_every: int  # AckReq on every so manyth packet, and on the last
    data: ScatterGather | None = None  # resolved when it is first sent
    stop: int = field(init=False)
    is_read: bool = field(init=False)
    is_atomic: bool = field(init=False)
    waits_for_response: bool = field(init=False)  # READ or atomic
    takes_receive: bool = field(init=False)
    started: bool = False
    asked: int = 0  # READ: PSN of the newest request, unwrapped
    requests: int = 0  # READ and atomic: requests sent
    _first: int = field(init=False)
    _last: int = field(init=False)
    _only: int = field(init=False)

    def __post_init__(self) -> None:
        opcode = self.wr.opcode
        self.is_read = opcode is WrOpcode.RDMA_READ
        self.is_atomic = opcode in ATOMICS
        self.waits_for_response = self.is_read or self.is_atomic
        self.takes_receive = opcode in TAKES_RECEIVE
        packets = 1 if self.is_atomic else packet_count(self.length, self.mtu)
        self.stop = self.start + packets
        self._first = (
            Opcode.RC_WRITE_FIRST if opcode in WRITES else Opcode.RC_SEND_FIRST
        ).value
        last, only = _SEND_ENDS.get(opcode, (Opcode.RC_SEND_LAST, Opcode.RC_SEND_ONLY))
        self._last, self._only = last.value, only.value

    @property
    def middle(self) -> int:
        """Return the opcode of its MIDDLE packets: it follows the one of FIRST."""
        return self._first + 1

    def burst(self, psn: int, limit: int, transmission: int, why: str) -> Burst:
        """Return the packets from the unwrapped `psn` on: as many as are alike, up to `limit`.

        A burst ends with the packet that carries AckReq.
        """
        if self.waits_for_response:
            return self._request(psn, why)
        assert self.data is not None
        index = psn - self.start
        packets = self.stop - self.start
        mtu = self.mtu
        if packets == 1:
            return Burst(
                self._only, psn & MASK, 1, self._reth() + self._trailer(),
                self.data.read(0, self.length), mtu, True, self.wr.solicited,
                transmission, why,
            )  # fmt: skip
        if index == 0:
            return Burst(
                self._first, psn & MASK, 1, self._reth(), self.data.read(0, mtu), mtu,
                self.ack_every == 1, False, transmission, why,
            )  # fmt: skip
        if index == packets - 1:
            offset = index * mtu
            return Burst(
                self._last, psn & MASK, 1, self._trailer(),
                self.data.read(offset, self.length - offset), mtu, True, self.wr.solicited,
                transmission, why,
            )  # fmt: skip
        every = self.ack_every
        to_ack = every - index % every
        count = min(limit, packets - 1 - index, to_ack, MAX_BURST)
        return Burst(
            self._first + 1, psn & MASK, count, b"", self.data.read(index * mtu, count * mtu),
            mtu, count == to_ack, False, transmission, why,
        )  # fmt: skip

    def _request(self, psn: int, why: str) -> Burst:
        """Return the request of a READ, for what is missing from `psn` on, or of an atomic."""
        wr = self.wr
        if self.is_read:
            opcode = Opcode.RC_READ_REQUEST.value
            done = (psn - self.start) * self.mtu
            va = (wr.remote_addr + done) & 0xFFFFFFFFFFFFFFFF
            extension = RETH.pack(va, wr.r_key, self.length - done)
            self.asked = psn
        elif wr.opcode is WrOpcode.ATOMIC_CMP_AND_SWP:
            opcode = Opcode.RC_CMP_SWAP.value
            extension = ATOMIC_ETH.pack(wr.remote_addr, wr.r_key, wr.swap_add, wr.compare)
        else:
            opcode = Opcode.RC_FETCH_ADD.value
            extension = ATOMIC_ETH.pack(wr.remote_addr, wr.r_key, wr.swap_add, 0)
        self.requests += 1
        return Burst(
            opcode, psn & MASK, 1, extension, b"", self.mtu, True, False, self.requests, why
        )

    def _reth(self) -> bytes:
        wr = self.wr
        if wr.opcode in WRITES:
            return RETH.pack(wr.remote_addr, wr.r_key, self.length)
        return b""

    def _trailer(self) -> bytes:
        wr = self.wr
        if wr.opcode in {WrOpcode.SEND_WITH_IMM, WrOpcode.RDMA_WRITE_WITH_IMM}:
            return IMMDT.pack(wr.imm)
        if wr.opcode is WrOpcode.SEND_WITH_INV:
            return IETH.pack(wr.invalidate_r_key)
        return b""
