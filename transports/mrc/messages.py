"""Messages as they arrive: when one is complete, and what that does. mrc-emu/1, 12.12.

Packets come in any order and are placed at once; a message is complete when all its PSNs are
there. Completions are told in the order of MSNs, whatever came first: a Transport ACK counts
them, and a WRITE with Immediate takes a receive only when everything before it is complete. An
immediate value that is early waits with its message; so does an error: a message that violates
the rules is poisoned, and its NAK is sent when all before it is complete.

Limits: as many messages as the window has PSNs; `max_imms` with an immediate value.
"""

from dataclasses import dataclass

from transports.mrc.serials import unwrap16
from wire.mrc.opcodes import MrcOpcode
from wire.roce.eths import NakCode

IMMEDIATES = frozenset({MrcOpcode.WRITE_LAST_IMM, MrcOpcode.WRITE_ONLY_IMM})
_LASTS = IMMEDIATES | {MrcOpcode.WRITE_LAST, MrcOpcode.WRITE_ONLY}
_ONLY = frozenset({MrcOpcode.WRITE_ONLY, MrcOpcode.WRITE_ONLY_IMM})


@dataclass(slots=True)
class Poison:
    """What is wrong with a message."""

    code: NakCode
    why: str


@dataclass(slots=True)
class InMessage:
    """One message of which a packet has come."""

    length: int  # DMALen
    packets: int
    low_psn: int  # of what has come; unwrapped
    high_psn: int
    left: int  # packets that have not come
    has_imm: bool = False
    rqmsn: int = 0  # unwrapped
    imm: int = 0
    solicited: bool = False
    poison: Poison | None = None


class InMessages:
    """The messages of one responder that are not counted yet."""

    def __init__(self, mtu: int, max_imms: int, most: int) -> None:
        self.completed = 0  # how many, in order: the MSN that is next
        self.last_psn = 0  # of the last one completed; unwrapped
        self.next_rqmsn = 0
        self._mtu = mtu
        self._max_imms = max_imms
        self._most = most
        self._open: dict[int, InMessage] = {}  # by unwrapped MSN

    def __len__(self) -> int:
        return len(self._open)

    def unwrap(self, msn: int) -> int:
        return unwrap16(msn, self.completed)

    def open_one(self, msn: int) -> InMessage | None:
        """Return a message of which a packet has come, by its 16 bits."""
        completed = self.completed
        return self._open.get(completed + (msn - completed & 0xFFFF))

    def violation(self, opcode: int, payload: int, length: int) -> str | None:
        """Return how a packet by itself breaks the rules. 12.8, step 4."""
        mtu = self._mtu
        if payload > mtu:
            return f"{payload} bytes, the path MTU is {mtu}"
        if opcode in _ONLY:
            if payload != length:
                return f"{payload} bytes of DMALen {length} in one packet"
        elif length <= mtu:
            return f"DMALen {length} needs one packet of MTU {mtu}"
        elif opcode in _LASTS:
            last = (length - 1) % mtu + 1
            if payload != last:
                return f"{payload} bytes, the last packet of {length} has {last}"
        elif payload != mtu:
            return f"{payload} bytes in mid-message, the path MTU is {mtu}"
        return None

    def place(self, msn: int, psn: int, length: int) -> InMessage | Poison:
        """Count a packet, whose PSN is new, for its message; or say why it has none."""
        message = self._open.get(msn)
        if message is None:
            if msn < self.completed:
                return Poison(NakCode.INVALID_REQUEST, f"MSN {msn & 0xFFFF} is complete")
            if len(self._open) >= self._most:
                return Poison(NakCode.INVALID_REQUEST, f"{self._most} messages are open")
            packets = max(1, -(-length // self._mtu))
            message = self._open[msn] = InMessage(length, packets, psn, psn, packets)
        elif length != message.length:
            text = f"DMALen {length} and {message.length} in one message"
            message.poison = Poison(NakCode.INVALID_REQUEST, text)
        message.low_psn = min(message.low_psn, psn)
        message.high_psn = max(message.high_psn, psn)
        if message.high_psn - message.low_psn >= message.packets:
            text = f"PSNs of one message of {message.packets} packets are too far apart"
            message.poison = Poison(NakCode.INVALID_REQUEST, text)
        message.left -= 1
        return message

    def stash(self, message: InMessage, rqmsn: int, imm: int, *, solicited: bool) -> None:
        """Keep the immediate value of a message until its turn."""
        message.has_imm, message.imm, message.solicited = True, imm, solicited
        message.rqmsn = unwrap16(rqmsn, self.next_rqmsn)
        if not 0 <= message.rqmsn - self.next_rqmsn < self._max_imms:
            text = f"RQMSN {rqmsn}, next is {self.next_rqmsn & 0xFFFF}: more than max_wimm"
            message.poison = Poison(
                NakCode.INVALID_REQUEST, f"{text} {self._max_imms} are unfinished"
            )

    def next_done(self) -> InMessage | None:
        """Return the message whose turn it is, if it is complete or poisoned; it stays."""
        message = self._open.get(self.completed)
        if message is None or not (message.left <= 0 or message.poison):
            return None
        if not message.poison and message.has_imm and message.rqmsn != self.next_rqmsn:
            message.poison = Poison(
                NakCode.INVALID_REQUEST,
                f"RQMSN {message.rqmsn & 0xFFFF} in its turn, next is"
                f" {self.next_rqmsn & 0xFFFF}",
            )
        return message

    def complete(self, message: InMessage) -> None:
        """Count the message that `next_done` returned."""
        del self._open[self.completed]
        self.completed += 1
        self.last_psn = message.high_psn
        self.next_rqmsn += message.has_imm

    def clear(self) -> None:
        self._open.clear()
