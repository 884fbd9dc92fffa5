"""Who spoke RoCE or MRC with whom, and which packets of it a person wants to see.

Of thousands of packets a few tell the story. A *turn* of it is a packet that was killed or
changed, a NAK, an RNR NAK, a CNP, or the first of several sent again; the packet before and the
packet after belong to it. What is left of the room is for the packets at the *edges* of
messages and what answers them. Everything else is counted.

A packet that crosses several links is recorded on each: by its number those records become one
packet, which left when the first was recorded, with the remarks of all.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from netem.analysis.frames import Roce, describe
from netem.analysis.mrc import Mrc
from netem.analysis.names import Names
from netem.analysis.reader import KILLED, Captured
from transports.clock import Ns
from transports.roce.psn import psn_distance
from wire.roce.eths import AethKind
from wire.roce.opcodes import Family, Position

AGAIN = "retransmission"
_CHANGED = ("corrupted", "duplicated", "trimmed", "marked", "reconstructed")
_TOLD_BY_LATER_HOPS = ("corrupted at ", "trimmed at ")
_EDGES = frozenset({Position.FIRST, Position.LAST, Position.ONLY})

# Ours: packets of one capture that are looked at; some 400 bytes of memory each.
MOST = 250_000
TURNS_SHARE = 2 / 3  # of the room, so that the edges of messages stay in sight under much loss


class Packet(NamedTuple):
    """One packet of RoCE or MRC between two nodes, on however many links it was seen."""

    number: int  # in the capture, of its first record
    at: Ns  # Unix time
    source: str
    target: str
    name: str  # "WRITE_MIDDLE", "ACK", "NAK"
    text: str  # "WRITE_MIDDLE psn 0x12 1024 B"
    psn: int
    dest_qp: int
    is_edge: bool  # at the edge of a message, or the answer to one
    is_refusal: bool  # NAK, RNR NAK, CNP
    is_again: bool  # sent before
    killed_at: str = ""  # the port that dropped it
    remarks: tuple[str, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Say whether something happened to it on the way that let it live."""
        return any(
            remark.startswith(_CHANGED) or (remark.startswith("delayed") and " by " in remark)
            for remark in self.remarks
        )


class Gap(NamedTuple):
    """Packets that are not shown, by what they are, in the order of their first."""

    counts: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        return sum(count for _, count in self.counts)


Step = Packet | Gap


@dataclass(slots=True)
class Conversation:
    """All packets between two nodes; `left` sent the first that is of a queue pair."""

    left: str
    right: str
    packets: list[Packet] = field(default_factory=list)
    left_out: int = 0  # packets of the capture, in whatever conversation, beyond MOST

    def steps(self, limit: int) -> list[Step]:
        """Return about `limit` packets that matter, with what lies between them counted."""
        return list(_with_gaps(self.packets, _chosen(self.packets, limit)))


def conversations(captured: Iterable[Captured], names: Names) -> list[Conversation]:
    """Sort the RoCE packets of a capture by the two nodes they go between.

    `names` learns from the capture: the node whose port first sent from an address has it.
    """
    collector = _Collector(names)
    for record in captured:
        collector.add(record)
    return list(collector.by_name().values())


class _Found(NamedTuple):
    """A packet whose ends are addresses still: who has them may be known only later."""

    source: bytes
    target: bytes
    packet: Packet


class _Collector:
    """Reads records one by one; memory is bounded by MOST packets."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._found: list[_Found] = []
        self._left_out = 0
        self._places: dict[int, int] = {}  # packet number -> index in _found
        self._highest: dict[tuple[bytes, bytes, int, bool], int] = {}
        self._ends: dict[bytes, set[int]] = {}  # PSNs that end messages, by who sent them

    def add(self, record: Captured) -> None:
        if record.packet is not None and (index := self._places.get(record.packet)) is not None:
            self._found[index] = _with_hop(self._found[index], record)
            return
        if record.packet is None and self._places and not record.remarks:
            return  # a later hop of who knows what: its first record is there
        source, target, text, roce, mrc = describe(record.frame)
        if roce is None and mrc is None:
            return
        self._names.learn(source, record.port.partition(":")[0])
        if len(self._found) == MOST:
            self._left_out += 1
            return
        if mrc is not None:
            packet = _mrc_packet(record, mrc)
        else:
            assert roce is not None
            packet = self._packet(record, roce, source, target, text)
        if record.packet is not None:
            self._places[record.packet] = len(self._found)
        self._found.append(_Found(source, target, packet))

    def by_name(self) -> dict[frozenset[str], Conversation]:
        """Return the conversations between nodes, however many addresses they have."""
        conversations: dict[frozenset[str], Conversation] = {}
        firsts: dict[frozenset[str], tuple[str, str]] = {}
        for source, target, packet in self._found:
            ends = self._names(source), self._names(target)
            if not packet.name.startswith("ENDPOINT_"):  # MRC hosts greet, in any order
                firsts.setdefault(frozenset(ends), ends)
        for source, target, packet in self._found:
            left, right = self._names(source), self._names(target)
            pair = frozenset({left, right})
            if pair not in conversations:
                conversations[pair] = Conversation(*firsts.get(pair, (left, right)))
            conversations[pair].packets.append(packet._replace(source=left, target=right))
        for conversation in conversations.values():
            conversation.left_out = self._left_out
        return conversations

    def _packet(
        self, record: Captured, roce: Roce, source: bytes, target: bytes, text: str
    ) -> Packet:
        info, bth, aeth = roce.info, roce.packet.bth, roce.packet.aeth
        refuses = aeth is not None and aeth.kind in {AethKind.NAK, AethKind.RNR_NAK}
        is_ack = info.family is Family.ACK
        name = info.name
        if is_ack and aeth is not None:
            plain = "ACK" if roce.packet.atomic_ack_eth is None else "ATOMIC_ACK"
            name = {AethKind.NAK: "NAK", AethKind.RNR_NAK: "RNR_NAK"}.get(aeth.kind, plain)
        if info.is_request and info.position in {Position.LAST, Position.ONLY}:
            self._ends.setdefault(source, set()).add(bth.psn)
        is_again = any(remark.startswith(AGAIN) for remark in record.remarks)
        if not is_ack and not record.is_killed:
            is_again |= self._seen_before((source, target, bth.dest_qp, info.is_request), roce)
        return Packet(
            record.number,
            record.at,
            "",
            "",
            name,
            text,
            bth.psn,
            bth.dest_qp,
            is_edge=bth.psn in self._ends.get(target, ())
            if is_ack
            else info.position in _EDGES,
            is_refusal=refuses or info.family is Family.CNP,
            is_again=is_again,
            killed_at=record.port or "?" if record.is_killed else "",
            remarks=record.remarks,
        )

    def _seen_before(self, flow: tuple[bytes, bytes, int, bool], roce: Roce) -> bool:
        """Say whether a PSN is not new, which is how a retransmission looks from outside.

        Not asked about a packet that was killed: that happens when it is offered to the link,
        and those before it may still wait there.
        """
        psn = roce.packet.bth.psn
        highest = self._highest.get(flow)
        if highest is not None and psn_distance(highest, psn) <= 0:
            return roce.info.family is not Family.CNP
        self._highest[flow] = psn
        return False


def _mrc_packet(record: Captured, mrc: Mrc) -> Packet:
    """Return an MRC packet: it says itself whether it was sent before."""
    return Packet(
        record.number,
        record.at,
        "",
        "",
        mrc.name,
        mrc.text,
        mrc.psn,
        mrc.dest_qp,
        is_edge=mrc.is_edge,
        is_refusal=mrc.is_refusal,
        is_again=mrc.is_again,
        killed_at=record.port or "?" if record.is_killed else "",
        remarks=record.remarks,
    )


def _with_hop(found: _Found, record: Captured) -> _Found:
    """Return a packet with what a later hop says about it."""
    packet = found.packet
    new = tuple(
        remark
        for remark in record.remarks
        if remark not in packet.remarks and not remark.startswith(_TOLD_BY_LATER_HOPS)
    )
    if not new:
        return found
    killed_at = record.port if record.is_killed else packet.killed_at
    remarks = packet.remarks + new
    return found._replace(packet=packet._replace(remarks=remarks, killed_at=killed_at))


def _is_turn(packet: Packet, before: Packet | None) -> bool:
    """Say whether the story takes a turn here; of a run of losses or repeats only the first."""
    if packet.is_refusal:
        return True
    if packet.killed_at:
        return before is None or not before.killed_at or before.name != packet.name
    if packet.is_again:
        return before is None or not before.is_again
    return packet.is_changed


def _turns(packets: Sequence[Packet]) -> Iterator[int]:
    """Yield the indices at which the story takes a turn."""
    last: dict[str, Packet] = {}  # by who sent it
    for index, packet in enumerate(packets):
        if _is_turn(packet, last.get(packet.source)):
            yield index
        last[packet.source] = packet


def _chosen(packets: Sequence[Packet], limit: int) -> list[int]:
    """Return the indices of the packets to show, in order: some more than `limit` at most."""
    turns = list(_turns(packets))
    room = limit * TURNS_SHARE
    share = max(room / max(len({packets[index].dest_qp for index in turns}), 1), 3)
    chosen: set[int] = set()
    spent: Counter[int] = Counter()
    for most in (share, room):  # each queue pair tells its story first, then whoever has more
        for index in turns:
            context = set(range(max(index - 1, 0), min(index + 2, len(packets)))) - chosen
            qp = packets[index].dest_qp
            if spent[qp] + len(context) <= most and len(chosen) + len(context) <= room:
                spent[qp] += len(context)
                chosen |= context
    for index, packet in enumerate(packets):
        if len(chosen) >= limit:
            break
        if packet.is_edge and not packet.is_again:
            chosen.add(index)
    # To say that one packet is missing takes as much room as to show it.
    chosen.update(index - 1 for index in list(chosen) if index - 2 in chosen)
    return sorted(chosen)


def _with_gaps(packets: Sequence[Packet], chosen: Sequence[int]) -> Iterator[Step]:
    start = 0
    for index in (*chosen, len(packets)):
        counts = Counter(_kind(packet) for packet in packets[start:index])
        if counts:
            yield Gap(tuple(counts.items()))
        if index < len(packets):
            yield packets[index]
        start = index + 1


def _kind(packet: Packet) -> str:
    if packet.killed_at:
        return f"{packet.name} {KILLED}"
    return f"{packet.name} again" if packet.is_again else packet.name
