"""What a requestor writes: messages, their packets, and when they complete. mrc-emu/1, 12.12.

A message is numbered when its first packet is sent: MSN, and RQMSN where it carries an
immediate value. It completes when a Transport ACK has counted it: all in the order of posting.
"""

from collections import deque

from transports.mrc.serials import MAX_UNACKNOWLEDGED
from transports.roce.memory import ScatterGather
from transports.roce.work import SendWr, WrOpcode
from wire.codec import ReadBuffer
from wire.mrc.opcodes import MrcOpcode


class OutMessage:
    """One WRITE, and the packets that it makes."""

    __slots__ = ("_data", "_mtu", "first_psn", "has_imm", "length", "msn", "packets", "rqmsn",
                 "started", "view", "wr")  # fmt: skip

    def __init__(self, wr: SendWr, data: ScatterGather | bytes, mtu: int) -> None:
        self.wr = wr
        self._data = data
        self._mtu = mtu
        # All bytes, where they lie in one place
        self.view = memoryview(data) if isinstance(data, bytes) else data.single
        self.has_imm = wr.opcode is WrOpcode.RDMA_WRITE_WITH_IMM
        self.length = wr.length
        self.packets = max(1, -(-self.length // mtu))
        self.started = 0  # packets that were sent at least once
        self.first_psn = 0  # unwrapped
        self.msn = 0  # unwrapped
        self.rqmsn = 0  # unwrapped

    @property
    def last_psn(self) -> int:
        return self.first_psn + self.packets - 1

    @property
    def is_sent(self) -> bool:
        return self.started == self.packets

    def opcode(self, index: int) -> MrcOpcode:
        """Return the opcode of a packet."""
        if index < self.packets - 1:
            return MrcOpcode.WRITE_FIRST if index == 0 else MrcOpcode.WRITE_MIDDLE
        if index == 0:
            return MrcOpcode.WRITE_ONLY_IMM if self.has_imm else MrcOpcode.WRITE_ONLY
        return MrcOpcode.WRITE_LAST_IMM if self.has_imm else MrcOpcode.WRITE_LAST

    def payload(self, index: int) -> ReadBuffer:
        """Return the bytes of a packet, as they are now."""
        start = index * self._mtu
        size = min(self._mtu, self.length - start)
        if self.view is not None:
            return self.view[start : start + size]
        assert not isinstance(self._data, bytes)
        return self._data.read(start, size)

    def payload_size(self, index: int) -> int:
        return min(self._mtu, self.length - index * self._mtu)

    def va(self, index: int) -> int:
        """Return the address that a packet is for."""
        return self.wr.remote_addr + index * self._mtu


class OutMessages:
    """The send queue: messages that are posted, under way, and waiting to be counted.

    Limit: `max_send_wr` in all; 2^15 - 1 sent without a Transport ACK, as MSNs have 16 bits.
    """

    def __init__(self, start_psn: int) -> None:
        self._posted: deque[OutMessage] = deque()  # not begun
        self._sent: deque[OutMessage] = deque()  # begun and not counted, oldest first
        # The one that was begun last, unless it is counted
        self.begun: OutMessage | None = None
        self.acknowledged = 0  # messages that a Transport ACK has counted: the next one's MSN
        self.last_acknowledged_psn = start_psn - 1
        self._next_msn = 0
        self._next_rqmsn = 0
        self._imms = 0  # begun, with an immediate value, and not counted

    def __len__(self) -> int:
        return len(self._posted) + len(self._sent)

    def post(self, message: OutMessage) -> None:
        self._posted.append(message)

    def current(self, max_imms: int) -> OutMessage | None:
        """Return the message whose next packet is new data; None where there is none.

        One with an immediate value does not begin while `max_imms` are unfinished.
        """
        if self._sent and not self._sent[-1].is_sent:
            return self._sent[-1]
        if not self._posted or len(self._sent) >= MAX_UNACKNOWLEDGED:
            return None
        message = self._posted[0]
        if message.has_imm and self._imms >= max_imms:
            return None
        return message

    def begin(self, message: OutMessage, psn: int) -> None:
        """Give the message that `current` returned its numbers; it begins with `psn`."""
        self._posted.popleft()
        message.first_psn = psn
        message.msn = self._next_msn
        self._next_msn += 1
        if message.has_imm:
            message.rqmsn = self._next_rqmsn
            self._next_rqmsn += 1
            self._imms += 1
        self._sent.append(message)
        self.begun = message

    @property
    def has_new_data(self) -> bool:
        """Say whether something was posted that has not been sent once."""
        return bool(self._posted) or bool(self._sent and not self._sent[-1].is_sent)

    @property
    def is_waiting(self) -> bool:
        """Say whether a message is sent, in part at least, and not counted."""
        return bool(self._sent)

    @property
    def wholly_sent(self) -> int:
        """Return how many messages, from the first on, are sent whole: what can be counted."""
        partly = bool(self._sent) and not self._sent[-1].is_sent
        return self._next_msn - partly

    def count(self, upto: int) -> list[OutMessage]:
        """Remove and return what a Transport ACK of `upto` messages completes."""
        done = []
        while self.acknowledged < upto:
            message = self._sent.popleft()
            self._imms -= message.has_imm
            self.acknowledged += 1
            self.last_acknowledged_psn = message.last_psn
            done.append(message)
        if not self._sent:
            self.begun = None
        return done

    def end_of(self, counted: int) -> int:
        """Return the last PSN of so many messages: from `acknowledged` to `wholly_sent`."""
        if counted == self.acknowledged:
            return self.last_acknowledged_psn
        return self._sent[counted - self.acknowledged - 1].last_psn

    def find(self, msn: int) -> OutMessage | None:
        """Return a message that is begun and not counted."""
        place = msn - self.acknowledged
        return self._sent[place] if 0 <= place < len(self._sent) else None

    def empty(self) -> list[OutMessage]:
        """Remove and return all, in the order of posting."""
        rest = [*self._sent, *self._posted]
        self._sent.clear()
        self._posted.clear()
        self._imms = 0
        self.begun = None
        return rest
