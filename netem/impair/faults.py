"""Faults by meaning: this packet, exactly as often as written.

A fault of the lab file counts the frames of one port's egress that match its `where`, from 0,
and fires on numbers `skip` to `skip + count - 1`; before and after it only looks. Several
faults count independently, and a frame may be struck by more than one. A frame that a fault
cannot act on (a `mark` on what is not IP) is no match of it.

`op` is an opcode's name without its service, as ladders print it (WRITE_MIDDLE), or with it
(RC_WRITE_MIDDLE), or a family::

    SEND WRITE      every packet of such a message, with or without immediate
    READ            requests and responses
    ATOMIC          requests and ATOMIC_ACKNOWLEDGE
    ACK             acknowledgements that say yes, ATOMIC_ACKNOWLEDGE included
    NAK             acknowledgements that do not: NAK and RNR NAK
    RNR_NAK         only these
    CNP             congestion notifications
    SACK NACK PROBE those of MRC, whose WRITEs and ACKNOWLEDGE go by the names above

`psn` compares BTH.PSN: absolute, or as a distance from the first PSN of the queue pair whose
requests the packet carries or answers. `retransmission` is what the sender said of the frame;
where it said nothing (a program of somebody else) it is worked out: a request or a read
response whose PSN is not after the highest one seen of its kind on its queue pair was sent
before. An ACKNOWLEDGE is never a retransmission: the standard answers again, it does not send
again.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from netem.impair.departure import FrameMeta
from netem.impair.describe import describe_fault, describe_where
from netem.impair.sight import PROTOS, Sight, look
from netem.impair.streams import Stream
from netem.impair.trim import trimmed
from netem.topology.names import is_of
from netem.topology.outcome import FaultReport
from netem.topology.plan import FaultPlan, Where
from wire.codec import ReadBuffer
from wire.mrc.opcodes import WRITES, MrcOpcode
from wire.roce.eths import AethKind
from wire.roce.opcodes import OPCODES, Family

_PSN_MASK = 0xFFFFFF
_HALF = 1 << 23

# Limit: 4096 directions of queue pairs, the oldest forgotten first: more than the widest lab
# puts through one port. What is forgotten starts anew, as first transmissions.
_MOST_TRACKED = 4096


class QpNote(NamedTuple):
    """What the plan knows about the queue pair a packet is for."""

    flow: str
    first_request: int  # first PSN of the requests that this port sends to it
    first_response: int  # first PSN of the requests that this port answers


QpNotes = Mapping[tuple[bytes, int], QpNote]  # by destination address and DestQP


# Opcodes of MRC; where RC has the operation, they have its name.
MRC_NAMES = {int(opcode): opcode.name for opcode in MrcOpcode}


def legal_ops() -> list[str]:
    """Return every word that `op` may be."""
    infos = OPCODES.values()
    names = {*MRC_NAMES.values(), *(info.name for info in infos)}
    names |= {info.opcode.name for info in infos}
    return [*_FAMILIES, *sorted(names - set(_FAMILIES))]


_ACKS = frozenset(int(op) for op, info in OPCODES.items() if info.family is Family.ACK)
_ACKS |= {int(MrcOpcode.ACKNOWLEDGE)}


def _family(family: Family) -> frozenset[int]:
    return frozenset(op for op, info in OPCODES.items() if info.family is family)


_ATOMIC_ACKS = frozenset(
    op for op, info in OPCODES.items() if info.name == "ATOMIC_ACKNOWLEDGE"
)
_ANY_AETH = frozenset(AethKind) | {None}
_FAMILIES: dict[str, tuple[frozenset[int], frozenset[AethKind | None]]] = {
    "SEND": (_family(Family.SEND), _ANY_AETH),
    "WRITE": (_family(Family.WRITE) | WRITES, _ANY_AETH),
    "READ": (_family(Family.READ), _ANY_AETH),
    "ATOMIC": (_family(Family.ATOMIC) | _ATOMIC_ACKS, _ANY_AETH),
    "ACK": (_ACKS, frozenset({AethKind.ACK})),
    "NAK": (_ACKS, frozenset({AethKind.NAK, AethKind.RNR_NAK})),
    "RNR_NAK": (_ACKS, frozenset({AethKind.RNR_NAK})),
    "CNP": (_family(Family.CNP), _ANY_AETH),
}


def _resolve(op: str) -> tuple[frozenset[int], frozenset[AethKind | None]]:
    """Return the opcodes and the kinds of AETH that `op` stands for; ValueError for none."""
    word = op.upper()
    if word in _FAMILIES:
        return _FAMILIES[word]
    found = frozenset(
        code for code, info in OPCODES.items() if word in {info.name, info.opcode.name}
    ) | {code for code, name in MRC_NAMES.items() if name == word}
    if not found:
        raise ValueError(f"op {op} is no opcode; legal: {', '.join(legal_ops())}")
    return found, _ANY_AETH


class Matcher:
    """Says whether a frame is one that `where` means."""

    def __init__(self, where: Where, notes: QpNotes) -> None:
        if where.proto is not None and where.proto not in PROTOS:
            raise ValueError(f"proto {where.proto} is unknown; legal: {', '.join(PROTOS)}")
        self._where = where
        self._notes = notes
        self._op = _resolve(where.op) if where.op is not None else None
        fields = (where.op, where.psn, where.dest_qp, where.flow, where.retransmission)
        self._needs_roce = any(field is not None for field in fields)
        self.needs_tracking = where.retransmission is not None

    def matches(self, sight: Sight, is_retransmission: bool) -> bool:
        """Return True where every condition given holds."""
        if not self._is_proto(sight):
            return False
        return not self._needs_roce or self._is_packet(sight, is_retransmission)

    def _is_proto(self, sight: Sight) -> bool:
        match self._where.proto:
            case None | "any":
                return True
            case "udp":
                return sight.proto in {"udp", "roce"}
            case proto:
                return sight.proto == proto

    def _is_packet(self, sight: Sight, is_retransmission: bool) -> bool:
        where = self._where
        if not sight.is_roce:
            return False
        if self._op is not None and (
            sight.opcode not in self._op[0] or sight.aeth not in self._op[1]
        ):
            return False
        if where.dest_qp is not None and sight.dest_qp != where.dest_qp:
            return False
        if where.retransmission is not None and is_retransmission != where.retransmission:
            return False
        return self._is_psn(sight) and self._is_flow(sight)

    def _is_psn(self, sight: Sight) -> bool:
        where = self._where
        if where.psn is None:
            return True
        if not where.psn_relative:
            return sight.psn == where.psn & _PSN_MASK
        note = self._notes.get((sight.destination, sight.dest_qp))
        if note is None:
            return False
        first = note.first_request if sight.is_request else note.first_response
        return (sight.psn - first - where.psn) & _PSN_MASK == 0

    def _is_flow(self, sight: Sight) -> bool:
        flow = self._where.flow
        if flow is None:
            return True
        note = self._notes.get((sight.destination, sight.dest_qp))
        return note is not None and is_of(note.flow, flow)


class Tracker:
    """Works out which packets were sent before, from their PSNs.

    Limit: a READ Request is known by its first PSN only, so one that asks again for the rest of
    a longer READ counts as new.
    """

    def __init__(self) -> None:
        self._highest: dict[tuple[bytes, int, bool], int] = {}

    def is_retransmission(self, sight: Sight) -> bool:
        """Take one packet into account and say whether its PSN was passed before."""
        if not sight.is_roce or sight.opcode not in OPCODES:
            return False
        if OPCODES[sight.opcode].family in {Family.ACK, Family.CNP}:
            return False
        key = sight.destination, sight.dest_qp, sight.is_request
        highest = self._highest.get(key)
        if highest is None:
            if len(self._highest) >= _MOST_TRACKED:
                del self._highest[next(iter(self._highest))]
        elif (highest - sight.psn) & _PSN_MASK < _HALF:
            return True
        self._highest[key] = sight.psn
        return False


class Fault:
    """One fault of the lab file and how far it has got."""

    def __init__(self, plan: FaultPlan, notes: QpNotes, draws: Stream) -> None:
        self.plan = plan
        self._draws = draws
        self.text = describe_fault(plan)
        self.matcher = Matcher(plan.where, notes)
        self.matched = 0
        self.fired = 0

    @property
    def is_live(self) -> bool:
        """True while it may still fire."""
        return self.fired < self.plan.count

    def strikes(self, sight: Sight, is_retransmission: bool) -> bool:
        """Count a match and say whether the fault fires on it."""
        if not self.can_act_on(sight) or not self.matcher.matches(sight, is_retransmission):
            return False
        self.matched += 1
        if self.matched <= self.plan.skip or not self.is_live:
            return False
        self.fired += 1
        return True

    def can_act_on(self, sight: Sight) -> bool:
        """Return False for a mark on what is not IP, a corruption or a cut of nothing."""
        match self.plan.do:
            case "mark":
                return sight.ip is not None
            case "corrupt":
                return bool(sight.target)
            case "trim":
                assert self.plan.trim is not None
                return trimmed(sight.frame, self.plan.trim) is not None
            case _:
                return True

    def draw(self) -> int:
        """Return the 32 random bits of this firing."""
        return self._draws.word(self.fired - 1)

    @property
    def by(self) -> str:
        """Return what a comment says after "dropped by" and the like."""
        return f"fault {self.plan.index} ({describe_where(self.plan.where)})"

    def report(self) -> FaultReport:
        """Return how often it fired beside how often it was to."""
        return FaultReport(self.plan.index, self.text, self.fired, self.plan.count)


class Faults:
    """The faults of one direction."""

    def __init__(
        self, plans: Iterable[FaultPlan], notes: QpNotes, seed: int, direction: str
    ) -> None:
        self._notes = notes
        self._seed = seed
        self._direction = direction
        self._all: list[Fault] = []
        self._tracker = Tracker()
        self._retire()
        for plan in plans:
            self.add(plan)

    def add(self, plan: FaultPlan) -> None:
        """Let one more fault watch, from the next frame on; ValueError for an unknown word."""
        draws = Stream(self._seed, self._direction, f"fault {plan.index}")
        self._all.append(Fault(plan, self._notes, draws))
        self._retire()

    def _retire(self) -> None:
        self._live = [fault for fault in self._all if fault.is_live]
        self._tracks = any(fault.matcher.needs_tracking for fault in self._live)
        self.is_live = bool(self._live)

    def strike(self, frame: ReadBuffer, meta: FrameMeta) -> tuple[Sight, list[Fault]]:
        """Return what was seen and which faults fire, in the order of the lab file."""
        sight = look(frame)
        is_retransmission = meta.transmission > 1
        if self._tracks and not meta.transmission:
            is_retransmission = self._tracker.is_retransmission(sight)
        fired = [fault for fault in self._live if fault.strikes(sight, is_retransmission)]
        if fired:
            self._retire()
        return sight, fired

    def reports(self) -> list[FaultReport]:
        """Return one report for each fault, fired or not."""
        return [fault.report() for fault in self._all]
