"""The responses of one direction, judged by the requests that they answer.

What is wrong only because something else was, or was not, sent before it is sure where both
are seen as they leave their senders and no packet is missing between. Elsewhere the capture may
have lost, or reordered, what explains it: a warning.
"""

from netem.analysis.check.findings import Finding, Findings, Severity
from netem.analysis.check.packet import Packet
from netem.analysis.check.requests import HALF, PSNS, Read, Requests, packets_of
from netem.analysis.check.rows import FIRST, LAST, MIDDLE, ONLY
from wire.roce.eths import RNR_TIMER_NS, NakCode
from wire.roce.opcodes import Opcode

_ACK, _RNR, _NAK = 0, 1, 3  # the top bits of a syndrome
_FATAL = (
    NakCode.INVALID_REQUEST,
    NakCode.REMOTE_ACCESS_ERROR,
    NakCode.REMOTE_OPERATIONAL_ERROR,
)
_ATOMICS = frozenset({Opcode.RC_CMP_SWAP, Opcode.RC_FETCH_ADD})
_LIKE_READ = frozenset({Opcode.RC_READ_REQUEST, Opcode.RC_FLUSH, Opcode.RC_ATOMIC_WRITE})


class Responses:
    """What a responder has said so far."""

    __slots__ = (
        "_findings", "_is_sure", "_name", "base", "dead", "due", "is_first", "life", "msn",
        "nak", "naks", "newest", "rnrs", "stop",
    )  # fmt: skip

    def __init__(self, findings: Findings, name: str, *, is_sure: bool) -> None:
        """Take `is_sure` for responses seen as they leave, before anything can be lost."""
        self._findings = findings
        self._name = name
        self._is_sure = is_sure
        self.naks = 0
        self.rnrs = 0
        self.begin(0)

    def begin(self, life: int) -> None:
        """Forget what was said before: the queue pair of the requests has a new life."""
        self.life = life
        self.msn = -1  # the newest
        self.is_first = True
        self.base = -1  # MSN less the messages that the capture has seen, -1 unknown
        self.newest = -1  # PSN of the newest positive acknowledgement
        self.nak: tuple[int, int] | None = None  # PSN of the last NAK for a gap, its frame
        self.due = self.stop = -1  # PSNs of the READ under way: of the next, behind the last
        self.dead = 0  # frame of the NAK behind which nothing may come

    def acknowledge(self, packet: Packet, requests: Requests) -> None:
        """Judge an Acknowledge."""
        psn, syndrome = packet.psn, packet.aeth >> 24
        kind = syndrome >> 5
        if packet.aeth & 0xFFFFFF <= 1 < self.msn:
            # As with a new connection, which may have the PSNs of the old one.
            requests.has_restarted = True
        if self.dead:
            self._after_death(packet, requests)
        if kind not in {_ACK, _RNR, _NAK} or (kind == _NAK and syndrome & 0x1F > 4):
            self._violation(packet, "roce/Q23", f"syndrome {syndrome:#04x} is reserved")
            return
        if kind == _ACK and requests.is_beyond(psn):
            self._doubtful(packet, "roce/R3", requests, f"acknowledges {_not_sent(requests)}")
            return
        if kind == _ACK:
            self._covers_reads(packet, requests)
            if self.newest >= 0 and 0 < (self.newest - psn) % PSNS < HALF:
                text = f"comes behind one for psn {self.newest:#x}"
                self._find(packet, "roce/R20", Severity.WARNING, text)
                return
            self.newest = requests.acked = psn
            self._count(packet, psn, requests)
            return
        self._refuse(packet, syndrome, requests)
        self._count(packet, (psn - 1) % PSNS, requests)

    def read(self, packet: Packet, requests: Requests) -> None:  # noqa: C901 - `bench check`
        """Judge one response of a READ, or of what is answered as a READ is."""
        psn, size = packet.psn, packet.size
        if psn == self.due and packet.row.position == MIDDLE and size == requests.pmtu:
            self.due = psn + 1
            if self.due < self.stop:
                requests.acked = psn
                return
        if self.dead:
            self._after_death(packet, requests)
        if packet.row.position in {FIRST, MIDDLE} and size != requests.pmtu:
            if requests.pmtu:
                text = f"has {size} bytes, the path MTU is {requests.pmtu}"
                self._doubtful(packet, "roce/R22", requests, text)
            requests.learn_pmtu(size)
        asked = requests.read_with(psn)
        if asked is None:
            sent = requests.sent.get(psn)
            if sent is not None and sent[0] in _LIKE_READ:
                requests.waiting.pop(psn, None)
                requests.acked = psn
            elif sent is not None:
                self._doubtful(packet, "roce/R52", requests, "answers what was no READ")
            elif requests.is_beyond(psn):
                self._doubtful(packet, "roce/R52", requests, f"answers {_not_sent(requests)}")
            return
        if packet.aeth >= 0:
            if packet.aeth >> 29 != _ACK:
                text = f"has syndrome {packet.aeth >> 24:#04x}, which is no ACK"
                self._doubtful(packet, "roce/R22", requests, text)
            self._count(packet, asked.psn, requests)
        requests.acked = psn
        self._place(packet, asked, requests)

    def atomic(self, packet: Packet, requests: Requests) -> None:
        """Judge an ATOMIC Acknowledge."""
        if self.dead:
            self._after_death(packet, requests)
        psn = packet.psn
        sent = requests.sent.get(psn)
        if sent is None or sent[0] not in _ATOMICS:
            if sent is not None or requests.is_beyond(psn):
                self._doubtful(packet, "roce/R52", requests, "answers what was no atomic")
            return
        requests.waiting.pop(psn, None)
        requests.acked = psn
        self._count(packet, psn, requests)

    def _violation(self, packet: Packet, clause: str, text: str) -> None:
        self._find(packet, clause, Severity.VIOLATION, text)

    def _doubtful(self, packet: Packet, clause: str, requests: Requests, text: str) -> None:
        """Add what is a violation if nothing of the conversation is missing."""
        if not self._is_sure:
            self._find(packet, clause, Severity.WARNING, text)
            return
        what = f"{self._name}: {packet.row.name} psn {packet.psn:#x} {text}"
        found = Finding(packet.number, clause, Severity.VIOLATION, what)
        self._findings.unless(lambda: requests.is_doubtful, found)

    def _find(self, packet: Packet, clause: str, severity: Severity, text: str) -> None:
        what = f"{packet.row.name} psn {packet.psn:#x}"
        self._findings.add(packet.number, clause, severity, f"{self._name}: {what} {text}")

    def _refuse(self, packet: Packet, syndrome: int, requests: Requests) -> None:
        """Judge a NAK."""
        psn, code = packet.psn, syndrome & 0x1F
        is_beyond = requests.is_beyond(psn)
        if syndrome >> 5 == _RNR:
            self.rnrs += 1
            requests.rnr = (psn, packet.at, RNR_TIMER_NS[code])
            if is_beyond:
                self._doubtful(packet, "roce/R13", requests, f"refuses {_not_sent(requests)}")
            return
        self.naks += 1
        if code in _FATAL:
            self.dead, self.due = packet.number, -1
            if is_beyond:
                self._doubtful(packet, "roce/R43", requests, f"refuses {_not_sent(requests)}")
            return
        if is_beyond:
            text = "tells of a gap behind which nothing was sent"
            self._doubtful(packet, "roce/R16", requests, text)
        elif self.newest >= 0 and (self.newest - psn) % PSNS < HALF:
            text = "tells of a gap that was acknowledged before"
            self._doubtful(packet, "roce/R16", requests, text)
        last = requests.sent.get(psn)
        if self.nak is not None and self.nak[0] == psn and (
            last is None or last[3] < self.nak[1]
        ):  # fmt: skip
            text = f"tells of its gap again, after frame {self.nak[1]}, and it was not resent"
            self._doubtful(packet, "roce/R17", requests, text)
        self.nak = (psn, packet.number)

    def _covers_reads(self, packet: Packet, requests: Requests) -> None:
        """Judge whether all READs and atomics that an ACK covers have been answered."""
        while requests.waiting:
            first, what = next(iter(requests.waiting.items()))
            if (packet.psn - first) % PSNS >= HALF:
                return
            del requests.waiting[first]
            text = f"comes before the {what} of psn {first:#x} was answered"
            self._doubtful(packet, "roce/R60", requests, text)

    def _count(self, packet: Packet, psn: int, requests: Requests) -> None:
        """Judge the MSN with all up to `psn` executed: it counts each message once."""
        msn = packet.aeth & 0xFFFFFF
        if self.msn >= 0 and 0 < (self.msn - msn) % PSNS < HALF:
            text = f"has MSN {msn:#x} behind {self.msn:#x}; it never goes back"
            self._doubtful(packet, "roce/R5", requests, text)
        self.msn = msn
        sent = requests.sent.get(psn)
        if sent is None or not requests.is_complete:
            return
        if self.is_first:
            self.is_first = False
            if msn == sent[2]:
                self.base = 0  # the capture has seen all of this connection
        if self.base < 0:
            return
        least, most = sent[2], requests.messages
        if not least <= msn <= most:
            legal = f"{least:#x}" if most == least else f"{least:#x} to {most:#x}"
            text = f"has MSN {msn:#x}, messages make it {legal}"
            self._doubtful(packet, "roce/R5", requests, text)
            self.base = -1  # one finding, not one with each packet from here on

    def _place(self, packet: Packet, read: Read, requests: Requests) -> None:
        """Judge whether a response is what its place in the READ makes it."""
        pmtu, position = requests.pmtu, packet.row.position
        if not pmtu and position != ONLY:
            return
        count = packets_of(read.length, pmtu) if pmtu else 1
        index = (packet.psn - read.psn) % PSNS
        is_end = index == count - 1
        wanted = read.length - index * pmtu if is_end else pmtu
        if not is_end and pmtu:
            self.due, self.stop = packet.psn + 1, read.psn + count
        if is_end != (position in {LAST, ONLY}):
            text = f"is packet {index + 1} of {count} of its READ"
            self._doubtful(packet, "roce/R22", requests, text)
        elif packet.size != wanted:
            text = f"has {packet.size} bytes, its READ makes it {wanted}"
            self._doubtful(packet, "roce/R22", requests, text)
        if is_end:
            requests.waiting.pop(read.psn, None)

    def _after_death(self, packet: Packet, requests: Requests) -> None:
        text = f"comes after the fatal NAK in frame {self.dead}"
        self._doubtful(packet, "roce/R44", requests, text)
        self.dead = 0


def _not_sent(requests: Requests) -> str:
    return f"what was not sent: psn {requests.next:#x} is next"
