"""The requests of one direction, judged by what their sender may send.

PSNs count up by one a packet, by as many as there are responses behind a READ. Whatever has
been sent may be sent again, as it was. A message is ONLY, or FIRST, MIDDLE ... LAST with
nothing between. A gap is a fault of the sender only where the capture was made before anything
can be lost; elsewhere it is a note.
"""

from itertools import islice
from struct import Struct
from typing import NamedTuple, TypeAlias, TypeVar

from netem.analysis.check.findings import Finding, Findings, Severity
from netem.analysis.check.packet import Packet
from netem.analysis.check.rows import ATOMIC, FIRST, LAST, MIDDLE, ONLY, READ, WRITE
from transports.clock import Ns
from wire.roce.opcodes import Opcode

PSNS = 1 << 24
HALF = 1 << 23
MTUS = (256, 512, 1024, 2048, 4096)

# Ours: packets that are remembered to be compared when they come again, and to know what an
# acknowledgement covers; some 200 bytes of memory each.
REMEMBERED = 1 << 13
# Ours: a PSN so far from the one that is due belongs to another life of the queue pair.
FAR = 1 << 17

_RETH = Struct("!QII")
_LENGTH = Struct("!12xI")
_READ_REQUEST = int(Opcode.RC_READ_REQUEST)
T = TypeVar("T")

# One packet: its opcode, its payload in bytes, the messages that have ended with it (what MSN
# is when it is acknowledged), the frame that it was in last.
Sent: TypeAlias = tuple[int, int, int, int]


class Read(NamedTuple):
    """One READ that was asked for."""

    psn: int
    va: int
    length: int
    frame: int


class Requests:
    """State of one direction; `take` is called for each request packet, in order."""

    __slots__ = (
        "_findings", "_name", "acked", "again", "first", "has_gaps", "has_restarted",
        "is_complete", "is_open", "is_unsure", "left", "life", "may_restart", "messages",
        "missing", "next", "pmtu", "read_behind", "reads", "rnr", "sent", "waiting",
    )  # fmt: skip

    def __init__(self, findings: Findings, name: str) -> None:
        self._findings = findings
        self._name = name
        self.again = 0
        self.life = 0  # counts connections: they may be of the same numbers
        self.may_restart = False  # a new connection was asked for
        self.has_restarted = False  # something said so that may not be one
        self.has_gaps = False  # of this life or another
        self._forget()

    def _forget(self) -> None:
        """Begin anew, at whatever PSN comes."""
        self.first = -1  # PSN
        self.next = -1  # PSN that is due
        self.is_open = 0  # family of the message under way, 0 between messages
        self.is_unsure = True  # what is under way is not known: the capture begins here
        self.left = -1  # payload that a WRITE under way still has, -1 unknown
        self.pmtu = 0  # 0 unknown
        self.messages = 0
        self.is_complete = True  # there was no gap so far: `messages` counts all
        self.acked = -1  # PSN of the newest positive acknowledgement
        self.sent: dict[int, Sent] = {}
        self.missing: dict[int, int] = {}  # PSNs of gaps -> frame behind the gap
        self.reads: dict[int, Read] = {}
        self.waiting: dict[int, str] = {}  # PSN of a READ or atomic that is not answered
        self.read_behind: Read | None = None  # of unknown number of PSNs, before `next`
        self.rnr: tuple[int, Ns, Ns] | None = None  # PSN, when it was refused, the wait

    @property
    def is_doubtful(self) -> bool:
        """Say whether the capture has missed packets, or may have."""
        return self.has_gaps or self.has_restarted

    def has_sent(self, psn: int) -> bool:
        """Say whether `psn` lies between the first and the newest PSN."""
        if self.first < 0:
            return False
        return (psn - self.first) % PSNS < (self.next - self.first) % PSNS

    def is_beyond(self, psn: int) -> bool:
        """Say whether `psn` has not been sent yet."""
        return self.read_behind is None and (psn - self.next) % PSNS < HALF

    def begins_anew(self, psn: int) -> bool:
        """Say whether a request with `psn` is taken for one of a new connection."""
        if self.next < 0:
            return False
        return self.may_restart or FAR <= (psn - self.next) % PSNS <= PSNS - FAR

    def take(self, packet: Packet) -> None:  # noqa: C901, PLR0912 - `bench check`
        """Judge one packet."""
        psn = packet.psn
        if psn != self.next and self._is_old(packet):
            return
        row, size = packet.row, packet.size
        position, family = row.position, row.family
        if position == MIDDLE:
            if self.is_open != family:
                self._not_in_message(packet)
            elif self.left >= 0:
                self.left -= size
            if size != self.pmtu:
                self._pmtu(packet)
        elif position == ONLY:
            if self.is_open:
                self._inside(packet)
            self.messages += 1
            if family == READ:
                self._read(packet)
                return
            if family == ATOMIC:
                self.waiting[psn] = "atomic"
                _shrink(self.waiting)
            elif family == WRITE:
                (length,) = _LENGTH.unpack_from(packet.data, packet.behind_bth)
                if length != size:
                    self._violation(
                        packet, "roce/R49", f"has {size} bytes, its RETH says {length}"
                    )
            if self.pmtu and size > self.pmtu:
                self._pmtu(packet)
        elif position == FIRST:
            if self.is_open:
                self._inside(packet)
            self.is_open = family
            self.left = -1
            if family == WRITE:
                (length,) = _LENGTH.unpack_from(packet.data, packet.behind_bth)
                self.left = length - size
            if size != self.pmtu:
                self._pmtu(packet)
        elif position == LAST:
            self._last(packet)
        self.sent[psn] = (packet.opcode, size, self.messages, packet.number)
        if len(self.sent) > 2 * REMEMBERED:
            _shrink(self.sent)
        self.next = (psn + 1) & 0xFFFFFF
        self.is_unsure = False

    def learn_pmtu(self, pmtu: int) -> None:
        """Take the path MTU from a READ response; then it is known how many PSNs READs took."""
        if not self.pmtu and pmtu in MTUS:
            self.pmtu = pmtu
        if self.pmtu and (read := self.read_behind) is not None:
            self.read_behind = None
            self.next = (read.psn + packets_of(read.length, self.pmtu)) & 0xFFFFFF

    def read_with(self, psn: int) -> Read | None:
        """Return the READ that `psn` belongs to."""
        if (read := self.reads.get(psn)) is not None:
            return read
        for read in reversed(self.reads.values()):
            if (psn - read.psn) % PSNS < packets_of(read.length, self.pmtu or MTUS[0]):
                return read
        return None

    def end(self, *, is_at_sender: bool) -> None:
        """Say what is missing when the capture ends."""
        acked = self.acked
        lost = [
            (psn, frame)
            for psn, frame in self.missing.items()
            if acked < 0 or (acked - psn) % PSNS >= HALF
        ]
        is_missed = len(lost) < len(self.missing)  # what was acknowledged had been there
        if is_at_sender and lost and not is_missed:
            (psn, frame), *others = lost
            more = f", nor {len(others)} more" if others else ""
            text = f"{self._name}: psn {psn:#x} was never sent{more}"
            found = Finding(frame, "roce/Q39", Severity.VIOLATION, text)
            self._findings.unless(lambda: False, found)
        elif self.missing:
            psn, frame = next(iter(self.missing.items()))
            self._findings.note(
                frame,
                "",
                f"{self._name}: {len(self.missing)} packets are not in the capture, the first "
                f"psn {psn:#x}: lost before it, or by it",
            )

    # What is not as it was expected.

    def _violation(self, packet: Packet, clause: str, text: str) -> None:
        what = f"{packet.row.name} psn {packet.psn:#x}"
        self._findings.violation(packet.number, clause, f"{self._name}: {what} {text}")

    def _doubtful(self, packet: Packet, clause: str, text: str) -> None:
        """Add what is a violation unless the queue pair is another by now."""
        what = f"{self._name}: {packet.row.name} psn {packet.psn:#x} {text}"
        found = Finding(packet.number, clause, Severity.VIOLATION, what)
        self._findings.unless(lambda: self.has_restarted, found, needs_all=False)

    def _last(self, packet: Packet) -> None:
        size = packet.size
        self.messages += 1
        if self.is_open != packet.row.family:
            self._not_in_message(packet)
        elif self.left not in {-1, size}:
            self._violation(
                packet,
                "roce/R49",
                f"ends a WRITE whose length differs from its RETH's by {size - self.left}",
            )
        if size == 0:
            self._violation(packet, "roce/R48", "has no payload")
        elif self.pmtu and size > self.pmtu:
            self._pmtu(packet)
        self.is_open = 0

    def _pmtu(self, packet: Packet) -> None:
        """Learn the path MTU from the first full packet; what does not fit it is wrong."""
        row, size = packet.row, packet.size
        is_full = row.position in {FIRST, MIDDLE}
        if not self.pmtu and is_full and size in MTUS:
            self.pmtu = size
            return
        clause = "roce/R47"
        if is_full:
            clause = "roce/R45" if row.family == WRITE else "roce/R46"
        legal = f"the path MTU is {self.pmtu}" if self.pmtu else f"legal: {MTUS}"
        self._violation(packet, clause, f"has {size} bytes of payload; {legal}")

    def _not_in_message(self, packet: Packet) -> None:
        if self.is_unsure:  # it began before the capture, or in a gap
            self.is_open = packet.row.family
            self.left = -1
        elif self.is_open:
            self._violation(packet, "roce/R39", "is inside a message of another operation")
        else:
            self._violation(packet, "roce/R37", "belongs to a message that has no FIRST")

    def _inside(self, packet: Packet) -> None:
        if not self.is_unsure:
            self._violation(packet, "roce/R38", "is inside a message that has not ended")
        self.is_open = 0

    def _read(self, packet: Packet) -> None:
        psn = packet.psn
        va, length = _va_length(packet)
        if length > 1 << 31:
            self._violation(packet, "roce/R50", f"asks for {length} bytes, 2^31 is the most")
        read = self.reads[psn] = Read(psn, va, length, packet.number)
        self.waiting[psn] = "READ"
        _shrink(self.reads)
        _shrink(self.waiting)
        self.sent[psn] = (_READ_REQUEST, 0, self.messages, packet.number)
        self.is_unsure = False
        self.next = (psn + 1) & 0xFFFFFF
        if self.pmtu or length <= MTUS[0]:
            self.next = (psn + packets_of(length, self.pmtu or MTUS[0])) & 0xFFFFFF
        else:
            self.read_behind = read

    def _is_old(self, packet: Packet) -> bool:
        """Take a packet whose PSN is not the one due; say whether it was sent before."""
        psn = packet.psn
        if self.next < 0:
            self.first = self.next = psn
            return False
        ahead = (psn - self.next) % PSNS
        if self.read_behind is not None and ahead < HALF:
            self._after_read(psn)
            ahead = (psn - self.next) % PSNS
            if not ahead:
                return False
        if FAR <= ahead <= PSNS - FAR:
            self._findings.note(
                packet.number,
                "",
                f"{self._name}: psn {psn:#x} is far from {self.next:#x}, which was due: taken "
                "for a new connection",
            )
            self._begin_anew(psn)
            return False
        if self.may_restart:
            self._findings.note(
                packet.number, "", f"{self._name}: psn {psn:#x} is taken for a new connection"
            )
            self.has_restarted = True  # it may be one of the old connection, sent again
            self._begin_anew(psn)
            return False
        if ahead < HALF:
            for missing in range(self.next, self.next + min(ahead, REMEMBERED)):
                self.missing[missing % PSNS] = packet.number
            _shrink(self.missing)
            self.next = psn
            self.is_unsure = True
            self.is_complete = False
            self.has_gaps = True
            self.is_open = 0
            return False
        self._before(packet)
        return True

    def _begin_anew(self, psn: int) -> None:
        self._forget()
        self.life += 1
        self.may_restart = False
        self.first = self.next = psn

    def _before(self, packet: Packet) -> None:
        """Take a packet with a PSN that lies behind: sent again, or late."""
        psn, number = packet.psn, packet.number
        is_read = packet.row.family == READ
        if self.missing.pop(psn, None) is not None:
            self.sent[psn] = (packet.opcode, packet.size, -1, number)
            if is_read:
                self.reads[psn] = Read(psn, *_va_length(packet), number)
            return
        if (psn - self.first) % PSNS >= HALF:  # a resend of what was before the capture
            return
        self.again += 1
        self._after_rnr(packet)
        before = self.sent.get(psn)
        if before is not None:
            self.sent[psn] = (*before[:3], number)
        if is_read:
            self._read_again(packet)
        elif before is not None and before[:2] != (packet.opcode, packet.size):
            self._doubtful(
                packet,
                "roce/Q39",
                f"with {packet.size} bytes was sent before, with opcode {before[0]:#x} and "
                f"{before[1]} bytes, last in frame {before[3]}",
            )

    def _after_rnr(self, packet: Packet) -> None:
        """Judge whether a packet that was refused by an RNR NAK has waited."""
        if self.rnr is None or self.rnr[0] != packet.psn:
            return
        _, since, wait = self.rnr
        self.rnr = None
        if packet.at - since < wait:
            self._findings.warning(
                packet.number,
                "roce/Q17",
                f"{self._name}: psn {packet.psn:#x} sent again {(packet.at - since) / 1e6:.3f} "
                f"ms after its RNR NAK, which asked for {wait / 1e6:g} ms",
            )

    def _read_again(self, packet: Packet) -> None:
        """Judge a READ that is sent again: the same, or what is missing of it."""
        va, length = _va_length(packet)
        whole = self.reads.get(packet.psn)
        if whole is not None and (whole.va, whole.length) == (va, length):
            return
        read = self.read_with(packet.psn)
        if read is None:
            return
        skipped = ((packet.psn - read.psn) % PSNS) * self.pmtu
        if (va, length) != (read.va + skipped, read.length - skipped):
            self._doubtful(
                packet,
                "roce/Q26",
                f"asks again for {length} bytes at {va:#x}; what is left there of that in "
                f"frame {read.frame} is {read.length - skipped} at {read.va + skipped:#x}",
            )

    def _after_read(self, psn: int) -> None:
        """Settle which PSN was due behind a READ whose packets could not be counted."""
        read, self.read_behind = self.read_behind, None
        assert read is not None
        took = (psn - read.psn) % PSNS
        for pmtu in reversed(MTUS):
            if packets_of(read.length, pmtu) == took:
                self.next = psn
                return
        self.next = (read.psn + packets_of(read.length, MTUS[-1])) & 0xFFFFFF
        if (psn - self.next) % PSNS >= HALF:
            self.read_behind = read
            self.next = (read.psn + 1) & 0xFFFFFF


def packets_of(length: int, pmtu: int) -> int:
    """Return how many packets, and PSNs, a READ of `length` bytes takes."""
    return max(1, -(-length // pmtu))


def _va_length(packet: Packet) -> tuple[int, int]:
    va, _, length = _RETH.unpack_from(packet.data, packet.behind_bth)
    return va, length


def _shrink(memory: dict[int, T]) -> None:
    """Forget the oldest entries above REMEMBERED."""
    if len(memory) > REMEMBERED:
        for key in list(islice(memory, len(memory) - REMEMBERED)):
            del memory[key]
