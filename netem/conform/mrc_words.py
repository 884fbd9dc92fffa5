"""The words of MRC: its packets by the names of a case, read back into fields.

    WRITE_FIRST WRITE_MIDDLE WRITE_LAST WRITE_ONLY (and _IMM)
                 psn msn rqmsn va length key size from imm tx ask rtx ev plane
    SACK         cack got=1,3-5 (PSNs that have come) base psn ev tx rtx m ooo, pr id of a probe
    NACK         psn reason ev tx            ACK    psn msn, or syndrome
    PROBE        id tx ev                    PORTS  mask id: which ports of the sender are up
    EV_PROBE     id tx ev, to the host       EV_ANSWER  id tx

Answers reflect `ev` and `tx` of the latest packet of the PSN that they answer, or of the probe.
PSNs and `cack` with a sign count from the first of their direction, `va` from the region that
the peer may use. `ev` is the number of a path of its `plane`, both from 0; what the suite
answers takes path 0 of plane `over=N`. On the way: `ce` marks, `trim` cuts (`trim=last` at the
last hop), `icrc=N` flips a bit, `reserved` sets every bit that the tables call so.

What comes has the same names, and of a SACK also `offset` (of its trigger to cack), `got` as
the PSNs whose bits are set, `m`, `pr`, `ooo`, `bytes`; of all `over`, the plane that it came
by, `dscp`, `sport`, and `entropy`, the EV as a number: of a SACK or NACK, what it reflects.

Paths may be named: the first line with `ev=A` (a word of capitals) names the EV of its packet,
others want the same; `not=A,B` wants another one, `plane=A` one of its plane, `other_ev` one
that is not that of the packet before.

Between the BTH and the end the codecs are the product's; IP, UDP, the ICRC and reserved bits
are judged by their bytes, and EVs must be ones that the case has.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from netem.conform.endpoint import Joined
from netem.conform.mrc_paths import (
    HOST,
    Transmission,
    number_of,
    own_ip,
    path,
    peer_ip,
    plane_of,
    reserved_of,
)
from netem.conform.notation import Relative, Value, WordError, Words
from netem.conform.pattern import pattern
from wire.mrc.endpoint import EndpointOp
from wire.mrc.opcodes import ENDPOINT_QP, MrcOpcode
from wire.mrc.packet import MrcPacket
from wire.mrc.reliability import BITMAP_BITS, Seth
from wire.roce.packet import UDP_PORT

_BTH = 48  # its offset in the packet
_TIMES = {"after", "before", "unclear"}  # are the script's to judge
_ANSWERS = {"SACK", "NACK", "ACK"}
_UNSHOWN = {"sport", "over"}


@dataclass(frozen=True, slots=True)
class MrcHeard:
    """One MRC packet of the endpoint."""

    at: int
    name: str
    fields: Mapping[str, int | str]
    payload: bytes
    wrong: str = ""  # what breaks a rule that holds for all, with its clause


def icrc_of(packet: bytes) -> bytes:
    """Return the ICRC of an IPv6 packet up to it, by the rule alone."""
    masked = bytearray(packet)
    masked[0] |= 0x0F
    for at in (1, 2, 3, 7, 46, 47, 52):
        masked[at] = 0xFF
    return zlib.crc32(b"\xff" * 8 + masked).to_bytes(4, "little")


def hear_packet(at: int, packet: bytes, joined: Joined) -> MrcHeard | None:
    """Return a packet; None for one that no case asks for. DecodeError: it is none."""
    end = 40 + int.from_bytes(packet[44:46]) - 4
    found = MrcPacket.unpack(packet[_BTH:end])
    name = _name(found)
    wants = joined.wants
    if (name == "PORTS" and wants.planes == 1) or (name == "PROBE" and not wants.probes):
        return None  # a host may say at any time that its only port is up
    fields = _of_packet(packet, found) | _of_answer(found, joined)
    _learn(name, fields, joined)
    wrong = _wrong(packet, end, name, joined)
    return MrcHeard(at, name, fields, bytes(found.payload), wrong)


def _name(found: MrcPacket) -> str:
    if found.erth is not None:
        return "EV_PROBE" if found.erth.op == EndpointOp.EV_PROBE else "PORTS"
    if found.eeth is not None:
        return "EV_ANSWER"
    opcode = found.bth.opcode
    return "ACK" if opcode == MrcOpcode.ACKNOWLEDGE else MrcOpcode(opcode).name


def _wrong(packet: bytes, end: int, name: str, joined: Joined) -> str:
    """Say which rule for all packets one breaks, with its clause; "" for none."""
    ev, bth, wants = _ev_of(packet), packet[_BTH:end], joined.wants
    plane = plane_of(ev)
    its_qp = int.from_bytes(bth[5:8])
    wanted_qp = ENDPOINT_QP if name in HOST else joined.ours.qp_num
    is_ours = ev == path(number_of(ev), plane) and plane < wants.planes
    rules = {
        "H4: the ICRC is not what the bytes ask for": packet[end : end + 4]
        != icrc_of(packet[:end]),
        f"H5: UDP port {int.from_bytes(packet[42:44])}": packet[42:44] != UDP_PORT.to_bytes(2),
        f"H5: EV {ev:#010x} is none of the case": not is_ours
        or number_of(ev) >= wants.paths + wants.backups
        or packet[1] & 0xF != 0,
        f"H5: EV of plane {plane} between other addresses": packet[8:40]
        != own_ip(plane) + peer_ip(plane),
        "H6: a reserved bit is set": any(bth[at] & mask for at, mask in reserved_of(name)),
        f"H8: queue pair {its_qp:#x}": its_qp != wanted_qp,
        f"E5: by plane {plane}, whose port is down": bool(joined.mrc.down >> plane & 1),
    }
    return next((f"mrc/{rule}" for rule, is_broken in rules.items() if is_broken), "")


def _ev_of(packet: bytes) -> int:
    return int.from_bytes(packet[2:4]) << 16 | int.from_bytes(packet[40:42])


def _learn(name: str, fields: Mapping[str, int | str], joined: Joined) -> None:
    """Keep what later lines refer to."""
    held, ev, tx = joined.mrc, int(fields["entropy"]), int(fields.get("tx", 0))
    if name.startswith("WRITE_"):
        held.latest[int(fields["psn"])] = Transmission(ev, tx)
    elif name in {"PROBE", "EV_PROBE"}:
        held.probe, held.probe_id = Transmission(ev, tx), int(fields["id"])
    elif name == "PORTS":
        held.down = (1 << joined.wants.planes) - 1 & ~int(fields["mask"])


def _of_packet(packet: bytes, found: MrcPacket) -> dict[str, int | str]:
    """Return what every packet has, and what a request has."""
    bth, ev = found.bth, _ev_of(packet)
    fields: dict[str, int | str] = {
        "psn": bth.psn, "ask": int(bth.ack_req), "rtx": int(bth.rtx), "ev": number_of(ev),
        "plane": plane_of(ev), "over": plane_of(ev), "entropy": ev,
        "sport": int.from_bytes(packet[40:42]),
        "dscp": int.from_bytes(packet[:2]) >> 6 & 0x3F, "size": len(found.payload),
    }  # fmt: skip
    if found.meth is not None and found.reth is not None:
        fields |= {"msn": found.meth.msn, "va": found.reth.va, "key": found.reth.r_key}
        fields |= {"length": found.reth.dma_length}
    if found.immdt is not None and found.meth is not None:
        fields |= {"imm": found.immdt.imm, "rqmsn": found.meth.rqmsn}
    if found.tseth is not None:
        fields["tx"] = found.tseth.tx_timestamp
    if found.peth is not None:
        fields |= {"id": found.peth.probe_id, "tx": found.peth.tx_timestamp}
    if found.erth is not None:
        fields |= {"id": bth.psn & 0xFFFF, "tx": found.erth.tx_timestamp}
        fields["mask"] = found.erth.port_status_mask
    if found.eeth is not None:
        fields |= {"id": bth.psn & 0xFFFF, "tx": found.eeth.tx_timestamp}
    return fields


def _of_answer(found: MrcPacket, joined: Joined) -> dict[str, int | str]:
    """Return what an answer says; its `ev` is the one that it reflects."""
    if found.aeth is not None:
        return {"msn": found.aeth.msn, "syndrome": found.aeth.syndrome}
    if found.neth is not None:
        neth = found.neth
        return {"reason": neth.reason, "tx": neth.tx_timestamp} | _reflected(neth.entropy)
    return _of_sack(found.seth, joined) if found.seth is not None else {}


def _reflected(ev: int) -> dict[str, int | str]:
    return {"ev": number_of(ev), "plane": plane_of(ev), "entropy": ev}


def _of_sack(seth: Seth, joined: Joined) -> dict[str, int | str]:
    first = joined.wants.rq_psn
    start = seth.cack_psn + seth.sack_offset - first
    set_bits = [bit for bit in range(BITMAP_BITS) if seth.sack_bitmap >> bit & 1]
    got = ",".join(str(start + bit) for bit in set_bits)
    fields: dict[str, int | str] = {
        "cack": seth.cack_psn, "offset": seth.ack_psn_offset, "base": seth.sack_offset,
        "got": got, "m": seth.verdict, "pr": int(seth.probe),
        "tx": seth.tx_timestamp, "ooo": seth.ooo_count, "bytes": seth.rcvd_bytes,
    }  # fmt: skip
    return fields | _reflected(seth.entropy)


def differs(words: Words, heard: MrcHeard, joined: Joined) -> str | None:
    """Say in what a packet is not what a line expects; None if it is."""
    if words.name != heard.name:
        return f"{heard.name}, wanted {words.name}"
    for name, value in words.fields.items():
        if name in _TIMES or (why := _differs(name, value, heard, joined)) is None:
            continue
        return f"{heard.name} {why}"
    named = words.fields.get("ev")
    if isinstance(named, str):
        joined.mrc.names.setdefault(named, int(heard.fields["entropy"]))
    return None


def _differs(name: str, value: Value, heard: MrcHeard, joined: Joined) -> str | None:
    """Say in what one field is not what is wanted."""
    got, held = heard.fields.get(name), joined.mrc
    entropy = int(heard.fields["entropy"])
    if name == "from":
        if not isinstance(value, int):
            raise WordError("from is a place in the pattern")
        is_so = heard.payload == pattern(value, len(heard.payload))
        return None if is_so else f"with another payload than that from {value}"
    if name == "other_ev":
        is_so = entropy != joined.last.get("entropy")
        return None if is_so else f"by path {joined.last.get('ev')} again"
    if name == "not":
        same = entropy in held.named(str(value))
        return f"by the path of {value}" if same else None
    if name == "ev" and isinstance(value, str):
        is_so = held.names.get(value, entropy) == entropy
        return None if is_so else f"by another path than {value}"
    if name == "plane" and isinstance(value, str):
        [ev] = held.named(value)
        value = plane_of(ev)
    wanted = _wanted(name, value, heard, joined)
    return None if str(got) == str(wanted) else f"with {name} {got}, wanted {wanted}"


def _wanted(name: str, value: Value, heard: MrcHeard, joined: Joined) -> Value:
    wants = joined.wants
    if isinstance(value, Relative):
        if name == "va":
            return joined.ours.va + value.by
        return (wants.rq_psn if heard.name in _ANSWERS else wants.sq_psn) + value.by & 0xFFFFFF
    if name == "key" and value == "good":
        return joined.ours.key
    return "" if name == "got" and value == "none" else value


def show(heard: MrcHeard, joined: Joined) -> str:
    """Return a packet in the notation."""
    base = joined.wants.rq_psn if heard.name in _ANSWERS else joined.wants.sq_psn
    names = {ev: name for name, ev in joined.mrc.names.items()}
    shown = []
    for name, value in heard.fields.items():
        if heard.name in HOST and name == "psn":
            continue  # that is its id
        if name in {"psn", "cack"} and isinstance(value, int):
            shown.append(f"{name}={value - base:+}")
        elif name == "entropy":
            shown.append(f"ev={names[int(value)]}" if value in names else "")
        elif name not in _UNSHOWN and (value or name in {"ev", "offset", "msn"}):
            shown.append(f"{name}={value}")
    return " ".join([heard.name, *filter(None, shown)])
