"""The WRITEs of one MRC flow, judged by what their requestor may send."""

from collections.abc import Iterator
from ipaddress import ip_address
from itertools import islice
from typing import NamedTuple, Self

from netem.analysis.check.findings import Severity
from netem.analysis.check.requests import PSNS
from transports.clock import Ns
from wire.mrc.opcodes import MrcOpcode
from wire.mrc.packet import MrcPacket

REMEMBERED = 1 << 13  # Ours: packets, of some 300 bytes each
_MOST_EVS = 1 << 13

_STARTS = frozenset({MrcOpcode.WRITE_FIRST, MrcOpcode.WRITE_ONLY, MrcOpcode.WRITE_ONLY_IMM})
_ENDS = frozenset(
    {
        MrcOpcode.WRITE_LAST,
        MrcOpcode.WRITE_LAST_IMM,
        MrcOpcode.WRITE_ONLY,
        MrcOpcode.WRITE_ONLY_IMM,
    }
)
_FULL = frozenset({MrcOpcode.WRITE_FIRST, MrcOpcode.WRITE_MIDDLE})

Fault = tuple[str, Severity, str]


class Write(NamedTuple):
    """What matters of one packet."""

    psn: int
    opcode: int
    is_again: bool
    has_ack_req: bool
    msn: int
    va: int
    length: int  # of the message
    size: int  # of the payload
    ev: int
    frame: int

    @classmethod
    def of(cls, mrc: MrcPacket, ev: int, frame: int) -> Self:
        bth = mrc.bth
        assert mrc.meth is not None
        assert mrc.reth is not None
        return cls(
            bth.psn, bth.opcode, bth.rtx, bth.ack_req, mrc.meth.msn, mrc.reth.va,
            mrc.reth.dma_length, len(mrc.payload), ev, frame,
        )  # fmt: skip


class MrcFlow:
    """All packets of one host to one queue pair of another, by whatever plane."""

    def __init__(self, addresses: bytes, qp: int) -> None:
        half = len(addresses) // 2
        self.addresses = addresses  # of the packet that was first
        self.source, self.target, self.qp = addresses[:half], addresses[half:], qp
        self.name = f"{ip_address(self.source)} > {ip_address(self.target)} QP {qp:#x}"
        self.where = 0
        self.first = 0
        self.began: Ns = 0
        self.ended: Ns = 0
        self.packets = self.payload = self.again = self.naks = 0
        self.marked = self.damaged = self.killed = self.trimmed = 0
        self.peer: MrcFlow | None = None
        self.cacks: dict[int, int] = {}  # of SACKs, by interface
        self.is_at_sender = False  # it is seen as it leaves its sender
        self.evs: set[int] = set()
        self.has_forgotten_evs = False
        self.pmtu = 0
        self.first_psn = self.next_psn = -1
        self._sent: dict[int, Write] = {}  # the newest transmission of each PSN
        self._skipped: set[int] = set()  # PSNs of gaps
        self._has_lost = False  # more of them than are remembered
        self._is_from_start = False  # its lowest PSN begins its first message

    @property
    def is_whole(self) -> bool:
        """Say whether all that was sent so far has been seen, at the sender."""
        return (
            self.is_at_sender
            and self._is_from_start
            and not self._has_lost
            and not self._skipped
        )

    def use(self, evs: tuple[int, ...]) -> None:
        """Take the EV of a packet, in both its readings."""
        self.evs.update(evs)
        if len(self.evs) > _MOST_EVS:
            self.evs = set(islice(self.evs, _MOST_EVS // 2))
            self.has_forgotten_evs = True

    def is_beyond(self, psn: int) -> bool:
        """Say whether `psn` has not been sent yet."""
        return (psn - self.next_psn) % PSNS < PSNS // 2

    def has_sent(self, psn: int) -> bool:
        """Say whether `psn` is not beyond what was sent; before the capture is sent."""
        return not self.is_beyond(psn)

    def write(self, write: Write) -> Iterator[Fault]:
        """Yield the faults of one packet, with their clauses."""
        psn = write.psn
        if self.first_psn < 0:
            self.first_psn = self.next_psn = psn
            self._is_from_start = _begins(write)
        is_new = self.is_beyond(psn)
        before = self._sent.get(psn)
        if is_new:
            self._skip(self.next_psn, psn)
            self.next_psn = (psn + 1) % PSNS
        elif 0 < (self.first_psn - psn) % PSNS < PSNS // 2:  # another plane was faster
            self._skip((psn + 1) % PSNS, self.first_psn)
            self.first_psn = psn
            self._is_from_start = _begins(write)
        else:
            self._skipped.discard(psn)
        self.again += write.is_again
        yield from self._transmission(write, before, is_new=is_new)
        if write.opcode in _ENDS and not write.has_ack_req:
            yield "mrc/Q7", Severity.VIOLATION, "ends a message without AckReq"
        yield from self._placing(write)
        self._sent[psn] = write
        if len(self._sent) > 2 * REMEMBERED:
            for old in list(islice(self._sent, REMEMBERED)):
                del self._sent[old]

    def _skip(self, since: int, until: int) -> None:
        """Remember the PSNs that lie between: they have not been seen."""
        count = (until - since) % PSNS
        if count + len(self._skipped) > REMEMBERED:
            self._has_lost = True
        else:
            self._skipped.update((since + index) % PSNS for index in range(count))

    def _transmission(
        self, write: Write, before: Write | None, *, is_new: bool
    ) -> Iterator[Fault]:
        if is_new and write.is_again:
            yield "mrc/Q2", Severity.WARNING, "has rtx, and was not sent before"
        if before is None:
            return
        if not write.is_again and not before.is_again:
            yield "mrc/Q2", Severity.VIOLATION, f"is sent again without rtx, see {before.frame}"
        if before[4:8] != write[4:8]:
            yield (
                "mrc/Q2",
                Severity.VIOLATION,
                f"is sent again with another MSN, address or length than in {before.frame}",
            )
        # A set of two: each EV is there in two readings, one EV alone cannot be avoided.
        if write.is_again and before.ev == write.ev and len(self.evs) > 2:
            text = f"is sent again on EV {write.ev:#010x}, as in {before.frame}"
            yield "mrc/Q3", Severity.WARNING, text

    def _placing(self, write: Write) -> Iterator[Fault]:
        """Judge MSN and address by those of the packet before it."""
        if write.opcode in _FULL and not self.pmtu:
            self.pmtu = write.size
        last = self._sent.get((write.psn - 1) % PSNS)
        if last is None:
            return
        starts = write.opcode in _STARTS
        if (write.msn - last.msn) & 0xFFFF != starts:
            text = f"has MSN {write.msn:#x} behind {last.msn:#x}"
            yield "mrc/H3", Severity.VIOLATION, text
        elif not starts and (write.length, write.va) != (last.length, last.va + last.size):
            text = f"does not follow on the address or length of psn {last.psn:#x}"
            yield "mrc/H2", Severity.VIOLATION, text


def _begins(write: Write) -> bool:
    """Say whether a packet is the first that a queue pair sends."""
    return write.opcode in _STARTS and not write.msn
