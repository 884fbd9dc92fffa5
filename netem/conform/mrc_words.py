"""The words of MRC: its packets made from a line of a case, and read back into fields.

    WRITE_FIRST WRITE_MIDDLE WRITE_LAST WRITE_ONLY (and _IMM)
                 psn msn rqmsn va length key size from imm tx ask rtx ev
    SACK         cack got=1,3 (PSNs that have come) base psn ev tx rtx
    NACK         psn reason ev tx            ACK    psn msn, or syndrome
    PROBE        id tx ev

Answers reflect `ev` and `tx` of what came last; `other_ev` is wanted of a packet that must not
take the path of the one before. PSNs and `cack` with a sign count from the first of their
direction, `va` from the region that the peer may use, `ev` is the number of a path of the case,
from 0. On the way: `ce` marks, `trim` cuts (`trim=last` at the last hop), `icrc=N` flips a bit.
What comes has the same names, and of a SACK also `offset` (of its trigger to cack), `got` as
the PSNs whose bits are set, `m`, `pr`, `ooo`, `bytes`. Between the BTH and the end the codecs
are the product's; IP, UDP and the ICRC are judged by their bytes.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from netem.conform.endpoint import Joined
from netem.conform.notation import Relative, Value, Words
from netem.conform.pattern import pattern
from wire.mrc.bth import MrcBth
from wire.mrc.eths import Meth, Tseth
from wire.mrc.opcodes import WRITES, MrcOpcode
from wire.mrc.packet import Header, MrcPacket
from wire.mrc.reliability import BITMAP_BITS, Neth, Peth, Seth
from wire.roce.eths import Aeth, ImmDt, Reth
from wire.roce.packet import UDP_PORT

PEER, OWN = ip_address("fd00:0::1").packed, ip_address("fd00:0::2").packed
PATHS = 4  # entropy values of plane 0: hop0 counts, as stev32 has it
_TRIMMED, _LAST_HOP, _DATA, _CONTROL = 12, 16, 4, 46  # DSCPs of the profile
_KEPT = 20  # bytes behind UDP that a switch keeps
_ENDPOINT_OPCODES = {MrcOpcode.ENDPOINT_REQUEST, MrcOpcode.ENDPOINT_RESPONSE}


@dataclass(frozen=True, slots=True)
class MrcHeard:
    """One MRC packet of the endpoint."""

    at: int
    name: str
    fields: Mapping[str, int | str]
    payload: bytes
    wrong: str = ""  # what breaks a rule that holds for all, with its clause


def path(number: int) -> int:
    """Return the entropy value of path `number`: stev32, hop0 in its ten highest bits."""
    return number << 22 | 0x55 << 3


def say_packet(words: Words, joined: Joined) -> bytes:
    """Return the IPv6 packet that a line asks for. ValueError for what it cannot have."""
    given = _Given(words, joined)
    packet = given.packet()
    ev = path(given.number("ev", 0))
    is_data = packet.bth.opcode in WRITES or packet.bth.opcode == MrcOpcode.PROBE
    body = bytes(packet.pack())
    tc = _DATA << 2 | 2 if is_data else _CONTROL << 2
    raw = _wrapped(body, tc | 3 if given.flag("ce") else tc, ev)
    if given.has("icrc"):
        bit = given.number("icrc", 0)
        raw[-4 + bit // 8] ^= 1 << bit % 8
    if given.has("trim"):
        raw = _trimmed(raw, last_hop=given.text("trim") == "last")
    given.check_empty()
    return bytes(raw)


class _Given:
    """The fields of a line, taken out one by one."""

    def __init__(self, words: Words, joined: Joined) -> None:
        self._name, self._left, self._joined = words.name, dict(words.fields), joined

    def has(self, name: str) -> bool:
        return name in self._left

    def flag(self, name: str) -> bool:
        return bool(self._left.pop(name, 0))

    def text(self, name: str) -> str:
        return str(self._left.pop(name, ""))

    def number(self, name: str, default: int, base: int = 0) -> int:
        value = self._left.pop(name, default)
        if isinstance(value, Relative):
            return base + value.by
        if isinstance(value, str):
            if name == "key":
                return self._joined.theirs.key ^ (0xBAD00 if value == "bad" else 0)
            raise ValueError(f"{name}={value} is no number")
        return value

    def check_empty(self) -> None:
        if self._left:
            raise ValueError(f"no field {', '.join(self._left)}")

    def packet(self) -> MrcPacket:
        if self._name.startswith("WRITE_"):
            return self._write()
        wants, theirs = self._joined.wants, self._joined.theirs
        ours, its = self._joined.ours.qp_num & 0xFFFF, theirs.qp_num & 0xFFFF
        psn = self.number("psn", wants.sq_psn, wants.sq_psn) & 0xFFFFFF
        rtx = self.flag("rtx")
        if self._name == "ACK":
            syndrome = self.number("syndrome", 0x1F)
            return self._said("ACKNOWLEDGE", psn, Aeth(syndrome, self.number("msn", 0)))
        tx = self.number("tx", joined_last(self._joined, "tx"))
        if self._name == "PROBE":
            return self._said("PROBE", 0, Peth(self.number("id", 1), ours, its, tx))
        ev = path(self.number("ev", joined_last(self._joined, "ev")))
        self._left["ev"] = 0  # the peer's own packets take path 0
        if self._name == "NACK":
            return self._said(
                "NACK", psn, Neth(psn, self.number("reason", 1), ev, ours, its, tx)
            )
        cack = self.number("cack", wants.sq_psn - 1, wants.sq_psn) & 0xFFFFFF
        base = self.number("base", 1)
        got = [int(each) for each in self.text("got").split(",") if each]
        bitmap = sum(1 << wants.sq_psn + each - cack - base for each in got)
        seth = Seth(
            cack, psn - cack, base, bitmap, ev, ours, its, tx_timestamp=tx, ooo_count=len(got)
        )
        return self._said("SACK", cack, seth, rtx=rtx)

    def _said(self, name: str, psn: int, *headers: Header, **bth: bool) -> MrcPacket:
        opcode = MrcOpcode[name]
        fields = MrcBth(opcode, self._joined.theirs.qp_num, psn, **bth)
        return MrcPacket.make(fields, *headers)

    def _write(self) -> MrcPacket:
        joined = self._joined
        try:
            opcode = MrcOpcode[self._name]
        except KeyError:
            raise ValueError(f"{self._name} is no packet of MRC") from None
        size = self.number("size", 8)
        payload = pattern(self.number("from", 0), size)
        va = self.number("va", joined.theirs.va, joined.theirs.va)
        reth = Reth(va, self.number("key", joined.theirs.key), self.number("length", size))
        headers: list[Header] = [Meth(self.number("rqmsn", 0), self.number("msn", 0)), reth]
        if self._name.endswith("_IMM"):
            headers.append(ImmDt(self.number("imm", 0)))
        bth = MrcBth(
            opcode,
            self.number("qp", joined.theirs.qp_num, joined.theirs.qp_num),
            self.number("psn", joined.wants.rq_psn, joined.wants.rq_psn) & 0xFFFFFF,
            ack_req=self.flag("ask"),
            rtx=self.flag("rtx"),
        )
        stamp = Tseth(self.number("tx", 0))
        return MrcPacket.make(bth, *headers, stamp, payload=payload)


def joined_last(joined: Joined, name: str) -> int:
    """Return a field of what the endpoint sent last: answers reflect it unless told else."""
    return int(joined.last.get(name, 0))


def _wrapped(body: bytes, tc: int, ev: int) -> bytearray:
    length = 8 + len(body) + 4
    head = (6 << 28 | tc << 20 | ev >> 16).to_bytes(4) + length.to_bytes(2) + bytes((17, 64))
    udp = (ev & 0xFFFF).to_bytes(2) + UDP_PORT.to_bytes(2) + length.to_bytes(2) + bytes(2)
    raw = head + PEER + OWN + udp + body
    return bytearray(raw + icrc_of(raw))


def icrc_of(packet: bytes) -> bytes:
    """Return the ICRC of an IPv6 packet up to it, by the rule alone."""
    masked = bytearray(packet)
    masked[0] |= 0x0F
    for at in (1, 2, 3, 7, 46, 47, 52):
        masked[at] = 0xFF
    return zlib.crc32(b"\xff" * 8 + masked).to_bytes(4, "little")


def _trimmed(raw: bytearray, *, last_hop: bool) -> bytearray:
    """Cut a packet as a switch does: DSCP and outer length change, UDP's length stays."""
    cut = raw[: 48 + _KEPT]
    dscp = _LAST_HOP if last_hop else _TRIMMED
    tc = dscp << 2 | cut[1] >> 4 & 3
    cut[0], cut[1] = 0x60 | tc >> 4, (tc & 0xF) << 4 | cut[1] & 0xF
    cut[4:6] = (len(cut) - 40).to_bytes(2)
    return cut


def hear_packet(at: int, packet: bytes, joined: Joined) -> MrcHeard | None:
    """Return a packet of the endpoint; None for one of no queue pair. DecodeError: none."""
    end = 40 + int.from_bytes(packet[44:46]) - 4
    found = MrcPacket.unpack(packet[48:end])
    bth = found.bth
    if bth.opcode in _ENDPOINT_OPCODES:
        return None
    name = "ACK" if bth.opcode == MrcOpcode.ACKNOWLEDGE else MrcOpcode(bth.opcode).name
    wrong = ""
    if packet[end : end + 4] != icrc_of(packet[:end]):
        wrong = "mrc/H4: the ICRC is not what the bytes ask for"
    elif int.from_bytes(packet[42:44]) != UDP_PORT:
        wrong = f"mrc/H5: UDP port {int.from_bytes(packet[42:44])}"
    elif bth.dest_qp != joined.ours.qp_num:
        wrong = f"mrc/H8: queue pair {bth.dest_qp:#x}"
    fields = _of_packet(packet, found) | _of_answer(found, joined)
    return MrcHeard(at, name, fields, bytes(found.payload), wrong)


def _of_packet(packet: bytes, found: MrcPacket) -> dict[str, int | str]:
    """Return what every packet has, and what a request has."""
    bth = found.bth
    ev = int.from_bytes(packet[2:4]) << 16 | int.from_bytes(packet[40:42])
    fields: dict[str, int | str] = {
        "psn": bth.psn, "ask": int(bth.ack_req), "rtx": int(bth.rtx), "ev": ev >> 22,
        "dscp": int.from_bytes(packet[:2]) >> 6 & 0x3F, "size": len(found.payload),
    }  # fmt: skip
    if found.meth is not None and found.reth is not None:
        fields |= {"msn": found.meth.msn, "va": found.reth.va, "key": found.reth.r_key}
        fields |= {"length": found.reth.dma_length}
    if found.tseth is not None:
        fields["tx"] = found.tseth.tx_timestamp
    if found.peth is not None:
        fields |= {"id": found.peth.probe_id, "tx": found.peth.tx_timestamp}
    return fields


def _of_answer(found: MrcPacket, joined: Joined) -> dict[str, int | str]:
    """Return what an answer says; its `ev` is the one that it reflects."""
    if found.aeth is not None:
        return {"msn": found.aeth.msn, "syndrome": found.aeth.syndrome}
    if found.neth is not None:
        neth = found.neth
        return {"reason": neth.reason, "tx": neth.tx_timestamp, "ev": neth.entropy >> 22}
    return _of_sack(found.seth, joined) if found.seth is not None else {}


def _of_sack(seth: Seth, joined: Joined) -> dict[str, int | str]:
    first = joined.wants.rq_psn
    start = seth.cack_psn + seth.sack_offset - first
    set_bits = [bit for bit in range(BITMAP_BITS) if seth.sack_bitmap >> bit & 1]
    got = ",".join(str(start + bit) for bit in set_bits)
    return {
        "cack": seth.cack_psn, "offset": seth.ack_psn_offset, "base": seth.sack_offset,
        "got": got, "ev": seth.entropy >> 22, "m": seth.verdict, "pr": int(seth.probe),
        "tx": seth.tx_timestamp, "ooo": seth.ooo_count, "bytes": seth.rcvd_bytes,
    }  # fmt: skip


def differs(words: Words, heard: MrcHeard, joined: Joined) -> str | None:
    """Say in what a packet is not what a line expects; None if it is."""
    if words.name != heard.name:
        return f"{heard.name}, wanted {words.name}"
    for name, value in words.fields.items():
        if name in {"after", "before", "unclear"}:
            continue
        if name == "from":
            if not isinstance(value, int):
                raise ValueError("from is a place in the pattern")
            if heard.payload != pattern(value, len(heard.payload)):
                return f"{heard.name} with another payload than that from {value}"
            continue
        if name == "other_ev":
            if heard.fields.get("ev") == joined.last.get("ev"):
                return f"{heard.name} by path {joined.last.get('ev')} again"
            continue
        wanted, got = _wanted(name, value, heard, joined), heard.fields.get(name)
        if str(got) != str(wanted):
            return f"{heard.name} with {name} {got}, wanted {wanted}"
    return None


def _wanted(name: str, value: Value, heard: MrcHeard, joined: Joined) -> Value:
    wants = joined.wants
    if isinstance(value, Relative):
        is_answer = heard.name in {"SACK", "NACK", "ACK"}
        if name == "va":
            return joined.ours.va + value.by
        return (wants.rq_psn if is_answer else wants.sq_psn) + value.by & 0xFFFFFF
    if name == "key" and value == "good":
        return joined.ours.key
    return "" if name == "got" and value == "none" else value


def show(heard: MrcHeard, joined: Joined) -> str:
    """Return a packet in the notation."""
    base = joined.wants.rq_psn if heard.name in {"SACK", "NACK", "ACK"} else joined.wants.sq_psn
    shown = []
    for name, value in heard.fields.items():
        if name in {"psn", "cack"} and isinstance(value, int):
            shown.append(f"{name}={value - base:+}")
        elif value or name in {"ev", "offset", "msn"}:
            shown.append(f"{name}={value}")
    return " ".join([heard.name, *shown])
