"""Packets of RoCE v2, and of its communication manager, read back and held against a line."""

from collections.abc import Mapping
from dataclasses import dataclass

from netem.conform import cm_words
from netem.conform.endpoint import Joined
from netem.conform.notation import Relative, Value, WordError, Words
from netem.conform.pattern import pattern
from wire.codec import DecodeError
from wire.roce.packet import RocePacket, locate

CODES = {"sequence": 0, "invalid": 1, "access": 2, "operation": 3, "rd": 4}
RESPONSES = ("ACK", "NAK", "RNR", "READ_RESPONSE", "ATOMIC_ACKNOWLEDGE")
# Not shown of a message: all datagrams of queue pair 1 are alike in these.
_OF_DATAGRAMS = {"mig", "port", "tos", "fecn", "opcode", "ask", "se", "pad", "pkey", "becn"}
_ACKNOWLEDGES = {0: "ACK", 1: "RNR", 3: "NAK"}


@dataclass(frozen=True, slots=True)
class Heard:
    """One RoCE packet of the endpoint."""

    at: int  # ns
    frame: bytes
    packet: RocePacket
    name: str
    fields: Mapping[str, int]


def hear(at: int, frame: bytes, joined: Joined) -> Heard | None:
    """Return the packet in a frame, None for one that is not for us. DecodeError: no packet."""
    if frame[:6] != joined.ours.mac:
        return None
    try:
        place = locate(frame)
    except DecodeError:
        return None  # not RoCE: it is captured, and no business of a case
    dest_qp = int.from_bytes(frame[place.bth_offset + 5 : place.bth_offset + 8])
    if dest_qp not in {joined.ours.qp_num, 1 if joined.wants.service == "CM" else None}:
        return None
    packet = RocePacket.unpack(frame[place.bth_offset : place.icrc_offset])
    fields = fields_of(frame, place.ip_offset, packet)
    if dest_qp != 1:
        return Heard(at, frame, packet, name_of(packet), fields)
    payload = cm_words.mad_of(bytes(packet.payload))
    found = cm_words.hear_message(payload, joined)
    if found is None:
        return None
    name, of_message, data = found
    return Heard(at, frame, packet._replace(payload=data), name, {**fields, **of_message})


def name_of(packet: RocePacket) -> str:
    """Return what a packet is called here: by its opcode, an ACKNOWLEDGE by its syndrome."""
    if packet.aeth is not None and packet.name == "ACKNOWLEDGE":
        return _ACKNOWLEDGES.get(packet.aeth.syndrome >> 5, packet.name)
    return packet.name


def fields_of(frame: bytes, ip: int, packet: RocePacket) -> Mapping[str, int]:
    """Return the fields of a packet by their names here; its IP header begins at `ip`."""
    bth = packet.bth
    found = {
        "psn": bth.psn, "ask": bth.ack_req, "se": bth.solicited, "mig": bth.mig_req,
        "pad": bth.pad_count, "pkey": bth.p_key, "becn": bth.becn, "fecn": bth.fecn,
        "opcode": bth.opcode, "size": len(packet.payload),
        "tos": frame[ip + 1] if frame[ip] >> 4 == 4
        else (frame[ip] & 0xF) << 4 | frame[ip + 1] >> 4,
        "port": int.from_bytes(frame[ip + (20 if frame[ip] >> 4 == 4 else 40) :][:2]),
    }  # fmt: skip
    if packet.aeth is not None:
        syndrome = packet.aeth.syndrome
        found |= {"syndrome": syndrome, "msn": packet.aeth.msn, "credit": syndrome & 0x1F}
        found |= {"code": syndrome & 0x1F, "timer": syndrome & 0x1F}
    if packet.reth is not None:
        found |= {
            "va": packet.reth.va, "key": packet.reth.r_key, "length": packet.reth.dma_length
        }  # fmt: skip
    if packet.atomic_eth is not None:
        atomic = packet.atomic_eth
        found |= {"va": atomic.va, "key": atomic.r_key, "compare": atomic.compare}
        found |= {"swap": atomic.swap_add, "add": atomic.swap_add}
    if packet.atomic_ack_eth is not None:
        found["original"] = packet.atomic_ack_eth.original
    if packet.immdt is not None:
        found["imm"] = packet.immdt.imm
    if packet.ieth is not None:
        found["inv"] = packet.ieth.r_key
    if packet.deth is not None:
        found |= {"qkey": packet.deth.q_key, "srcqp": packet.deth.src_qp}
    return {name: int(value) for name, value in found.items()}


def differs(words: Words, heard: Heard, joined: Joined) -> str | None:
    """Say in what a packet is not what a line expects; None if it is."""
    service, dot, name = words.name.rpartition(".")
    if name not in {heard.name, "ANY"} or (dot and service != heard.packet.info.service):
        return f"{heard.name}, wanted {words.name}"
    start = 0
    for field, wanted in words.fields.items():
        if field in {"after", "before", "unclear"}:
            continue
        if field in {"from", "data", "zero"}:
            start = 1
            continue
        got = heard.fields.get(field)
        if field == "port" and wanted in {"high", "same"}:
            if (got or 0) < 0xC000 if wanted == "high" else got != joined.port:
                return f"{heard.name} with UDP source port {got}, wanted a {wanted} one"
            continue
        if cm_words.is_message(heard.name):
            number = cm_words.wanted(field, wanted, joined)
        else:
            number = _wanted(heard.name, field, wanted, joined)
        if got != number:
            shown = "none" if got is None else f"{got:#x}"
            return f"{heard.name} with {field} {shown}, wanted {number:#x}"
    return _payload_differs(words, heard) if start else None


def _wanted(name: str, field: str, value: Value, joined: Joined) -> int:
    wants = joined.wants
    is_response = name.startswith(RESPONSES)
    if isinstance(value, Relative):
        bases = {
            "psn": wants.rq_psn if is_response else wants.sq_psn,
            "va": joined.ours.va,
            "srcqp": joined.theirs.qp_num,
        }
        if field not in bases:
            raise WordError(f"{field}={value}: only {', '.join(bases)} may be relative")
        return (bases[field] + value.by) & ((1 << 24) - 1 if field != "va" else (1 << 64) - 1)
    if isinstance(value, str):
        named = CODES if field == "code" else {"good": joined.ours.key}
        if value not in named:
            raise WordError(f"{field}={value} is unknown, legal is {', '.join(named)}")
        return named[value]
    return value


def _payload_differs(words: Words, heard: Heard) -> str | None:
    got = bytes(heard.packet.payload)
    if "data" in words.fields:
        wanted = str(words.fields["data"]).encode()
        if cm_words.is_message(words.name):
            wanted = wanted.ljust(len(got), b"\0")
    elif "zero" in words.fields:
        wanted = bytes(len(got))
    else:
        start = words.fields["from"]
        if not isinstance(start, int):
            raise WordError("from is a place in the pattern: from=1024")
        wanted = pattern(start, len(got))
    if got == wanted:
        return None
    at = next(
        (n for n, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b), len(got)
    )
    return f"{heard.name} whose payload differs from byte {at} on: {got[at : at + 8].hex()}"


def show(heard: Heard, joined: Joined) -> str:
    """Return a packet in the notation, as a case would expect it."""
    if cm_words.is_message(heard.name):
        shown = (f"{k}={v:#x}" for k, v in heard.fields.items() if k not in _OF_DATAGRAMS)
        return " ".join([heard.name, *shown])
    skip = {"opcode", "syndrome", "mig", "port", "tos", "fecn", "swap"}
    kinds = {"ACK": {"code", "timer"}, "NAK": {"credit", "timer"}, "RNR": {"credit", "code"}}
    skip |= kinds.get(heard.name, {"code", "timer", "credit"})
    is_response = heard.name.startswith(RESPONSES)
    base = joined.wants.rq_psn if is_response else joined.wants.sq_psn
    words = [heard.name]
    for name, value in heard.fields.items():
        if name in skip or (name in {"ask", "se", "pad", "becn"} and not value):
            continue
        if name == "pkey" and value == 0xFFFF:
            continue
        if name == "psn":
            distance = (value - base + (1 << 23)) % (1 << 24) - (1 << 23)
            words.append(f"psn={distance:+}")
        elif name == "code":
            words.append(f"code={next((k for k, v in CODES.items() if v == value), value)}")
        else:
            words.append(f"{name}={value:#x}" if value > 9999 else f"{name}={value}")
    return " ".join(words)
