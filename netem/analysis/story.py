"""The story of one packet: sent, lost or changed on the way, answered, sent again, complete.

Told from a capture alone, in sentences with the frames where they can be seen and the clauses
that they are about. What the capture does not show is not guessed: without an answer in it the
story ends so.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from netem.analysis.conversation import Conversation, Packet
from netem.analysis.reader import KILLED, Captured
from transports.clock import Ns
from transports.roce.psn import psn_distance

_ANSWERS = ("ACK", "NAK", "RNR_NAK", "ATOMIC_ACK", "READ_RESPONSE", "SACK", "NACK")
_NO_REQUEST = (*_ANSWERS, "CNP", "PROBE", "ENDPOINT", "PORT", "EV_")
_ONE_PSN = ("NAK", "RNR_NAK", "NACK", "READ_RESPONSE", "ATOMIC_ACK")  # are about one packet
_REFUSALS = (
    ("PSN_SEQUENCE_ERROR", "roce/R16"),
    ("RNR_NAK", "roce/R13"),
    ("INVALID_REQUEST", "roce/Q20"),
    ("REMOTE_ACCESS_ERROR", "roce/Q21"),
    ("REMOTE_OPERATIONAL_ERROR", "roce/Q22"),
    ("TRIMMED", "mrc/P11"),
    ("NACK", "mrc/L1"),
)
_MOST_HOPS = 40
_MOST_SENT = 20


class Line(NamedTuple):
    """One sentence."""

    at: Ns  # Unix time
    frame: int
    text: str
    clause: str = ""  # "roce/Q14"


class Story(NamedTuple):
    """What became of one packet."""

    title: str
    lines: tuple[Line, ...]
    is_complete: bool  # the capture shows that it was acknowledged


class Wanted(NamedTuple):
    """Which packet is meant; None is whichever."""

    frame: int | None = None
    psn: int | None = None
    qp: int | None = None


def subject_of(
    found: Sequence[Conversation], wanted: Wanted
) -> tuple[Conversation, Packet] | None:
    """Return the packet that is meant: of several that are, the one with most to tell.

    That is the first that was killed, else the first that was changed or sent again, else the
    first of all.
    """
    candidates = [
        (conversation, packet)
        for conversation in found
        for packet in conversation.packets
        if _is_wanted(packet, wanted)
    ]
    if not candidates:
        return None
    if wanted.frame is not None:
        # A later hop has the number of another record: the last packet that began before it.
        return max(candidates, key=lambda one: one[1].number)
    return min(candidates, key=lambda one: (_dullness(one[1]), one[1].number))


def _is_wanted(packet: Packet, wanted: Wanted) -> bool:
    if wanted.frame is not None:
        return packet.number == wanted.frame
    if wanted.psn is None and packet.name.startswith(_NO_REQUEST):
        return False
    return wanted.psn in {None, packet.psn} and wanted.qp in {None, packet.dest_qp}


def _dullness(packet: Packet) -> int:
    is_answered = not packet.name.startswith(_NO_REQUEST) and not _is_unreliable(packet)
    has_turn = packet.is_changed or packet.is_again
    return 3 * (not is_answered) + (0 if packet.killed_at else 1 if has_turn else 2)


def story(conversation: Conversation, subject: Packet, hops: Iterable[Captured]) -> Story:
    """Return the story of `subject`; `hops` are the records of all its transmissions."""
    sent = transmissions(conversation, subject)
    title = (
        f"{subject.name} psn {subject.psn:#x} from {subject.source} to QP "
        f"{subject.dest_qp:#x} of {subject.target}"
    )
    if subject.name.startswith(_NO_REQUEST):
        lines = tuple(_way([subject], hops))
        return Story(title, lines, is_complete=not subject.killed_at)
    answers = _answers(conversation, subject)
    told = [*_way(sent, hops), *_told(answers or [], sent)]
    end = next((one for one in answers or () if _completes(one, subject, sent)), None)
    if end is not None:
        took = (end.at - sent[0].at) / 1000
        text = f"with this it is complete, {took:,.3f} us after it was first sent"
        told = [line for line in told if line.at <= end.at]
        told.append(Line(end.at, end.number, text, _completion_clause(end)))
    else:
        last = sent[-1]
        times = "once" if len(sent) == 1 else f"{len(sent)} times"
        text = f"nothing in the capture acknowledges it; it was sent {times}"
        if _is_unreliable(subject):
            text = "this service is never answered: what became of it there nobody tells"
        elif answers is None:
            text = "what answers it cannot be told from what answers others"
        told.append(Line(last.at, last.number, text))
    told.sort(key=lambda line: (line.at, line.frame))
    return Story(title, tuple(told), is_complete=end is not None)


def transmissions(conversation: Conversation, subject: Packet) -> list[Packet]:
    """Return every time that the packet was sent, `subject` among them."""
    if subject.name.startswith(_NO_REQUEST):
        return [subject]
    return [
        packet
        for packet in conversation.packets
        if (packet.source, packet.dest_qp, packet.psn)
        == (subject.source, subject.dest_qp, subject.psn)
        and not packet.name.startswith(_NO_REQUEST)
    ][:_MOST_SENT]


def _way(sent: Sequence[Packet], hops: Iterable[Captured]) -> Iterator[Line]:
    """Tell where each transmission went, link by link."""
    firsts = {packet.number: packet for packet in sent}
    is_again = False
    told = 0
    for record in hops:
        if record.number in firsts:
            packet = firsts[record.number]
            yield Line(record.at, record.number, *_leaving(packet, record, is_again=is_again))
            is_again = True
        elif told < _MOST_HOPS:
            told += 1
            yield Line(record.at, record.number, *_passing(record))


def _leaving(packet: Packet, record: Captured, *, is_again: bool) -> tuple[str, str]:
    port = record.port or packet.source
    text = f"{port} sends {packet.text} to QP {packet.dest_qp:#x} of {packet.target}"
    clause = ""
    if is_again:
        why = [one for one in packet.remarks if one.startswith("retransmission: ")]
        text = f"{port} sends it again" + (f": {why[0].partition(': ')[2]}" if why else "")
        clause = "mrc/Q2" if _is_mrc(packet) else "roce/Q39"
    return text + _happened(record), clause


def _passing(record: Captured) -> tuple[str, str]:
    marked = any(remark.startswith("marked") for remark in record.remarks)
    trimmed = any(
        remark.startswith("trimmed ") and not remark.startswith("trimmed at")
        for remark in record.remarks
    )
    clause = "roce/N8" if marked else "trim/T1" if trimmed else ""
    return f"{record.port or 'another link'} sends it on{_happened(record)}", clause


def _happened(record: Captured) -> str:
    """Say what was done to a packet at a port."""
    said = [one for one in record.remarks if not one.startswith("retransmission")]
    dropped = [one for one in said if one.startswith(KILLED)]
    if dropped:
        return f", where it dies: {'; '.join(said)}"
    return f": {'; '.join(said)}" if said else ""


def _answers(conversation: Conversation, subject: Packet) -> list[Packet] | None:
    """Return the responses to the flow of `subject`, in order; None where nobody knows.

    No response says whose it is: they go to the one queue pair all of whose responses are
    about PSNs that were sent in this flow.
    """
    psns = [
        packet.psn
        for packet in conversation.packets
        if packet.source == subject.source and packet.dest_qp == subject.dest_qp
        and not packet.name.startswith(_NO_REQUEST)
    ]  # fmt: skip
    by_distance = sorted(psns, key=lambda psn: psn_distance(psns[0], psn))
    first, last = by_distance[0], by_distance[-1]
    back: dict[int, list[Packet]] = {}
    for packet in conversation.packets:
        if packet.source == subject.target and packet.name.startswith(_ANSWERS):
            back.setdefault(packet.dest_qp, []).append(packet)
    fitting = [
        packets
        for packets in back.values()
        if all(
            psn_distance(first, one.psn) >= -1 and psn_distance(one.psn, last) >= -1
            for one in packets
            if not one.name.startswith("READ_RESPONSE")
        )
    ]
    if len(fitting) > 1:
        return None
    return fitting[0] if fitting else []


def _is_unreliable(packet: Packet) -> bool:
    return packet.text.startswith(("UD ", "UC "))


def _is_mrc(packet: Packet) -> bool:
    return " on p" in packet.text  # says its plane


def _told(answers: Sequence[Packet], sent: Sequence[Packet]) -> Iterator[Line]:
    """Tell the refusals that were about the packet."""
    begin = sent[0].at
    for answer in answers:
        if answer.at < begin or answer.psn != sent[0].psn:
            continue
        if answer.is_refusal:
            clause = next((one for word, one in _REFUSALS if word in answer.text), "")
            lost = f", which is lost: {answer.remarks[0]}" if answer.killed_at else ""
            text = f"{answer.source} answers {answer.text}{lost}"
            yield Line(answer.at, answer.number, text, clause)


def _completes(answer: Packet, subject: Packet, sent: Sequence[Packet]) -> bool:
    """Say whether a response, if it arrives, tells that the packet was taken."""
    if answer.killed_at or answer.is_refusal or answer.at < sent[0].at:
        return False
    if answer.name.startswith(_ONE_PSN):
        is_last = answer.name.endswith(("LAST", "ONLY", "ATOMIC_ACK"))
        return is_last and psn_distance(subject.psn, answer.psn) >= 0
    if subject.name.startswith(("READ", "FETCH", "CMP")):
        return False
    return psn_distance(subject.psn, answer.psn) >= 0


def _completion_clause(answer: Packet) -> str:
    if _is_mrc(answer):
        return "mrc/P8" if answer.text.startswith("SACK") else "mrc/Q5"
    if answer.name.startswith("READ_RESPONSE"):
        return "roce/Q25"
    return "roce/Q7" if answer.name == "ACK" else "roce/R32"
