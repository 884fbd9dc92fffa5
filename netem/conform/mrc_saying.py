"""Packets of MRC made from a line of a case. What lines may say is in `mrc_words`."""

from netem.conform.endpoint import Joined
from netem.conform.mrc_paths import (
    HOST,
    Transmission,
    own_ip,
    path,
    peer_ip,
    plane_of,
    reserved_of,
)
from netem.conform.mrc_words import icrc_of
from netem.conform.notation import Relative, Words
from netem.conform.pattern import pattern
from wire.mrc.bth import MrcBth
from wire.mrc.endpoint import Eeth, EndpointOp, Erth
from wire.mrc.eths import Meth, Tseth
from wire.mrc.opcodes import ENDPOINT_QP, WRITES, MrcOpcode
from wire.mrc.packet import Header, MrcPacket
from wire.mrc.reliability import Neth, Peth, Seth
from wire.roce.eths import Aeth, ImmDt, Reth
from wire.roce.packet import UDP_PORT

_TRIMMED, _LAST_HOP, _DATA, _CONTROL = 12, 16, 4, 46  # DSCPs of the profile
_KEPT = 20  # bytes behind UDP that a switch keeps
_BTH = 48  # its offset in the packet


def say_packet(words: Words, joined: Joined) -> bytes:
    """Return the IPv6 packet that a line asks for. ValueError for what it cannot have."""
    given = _Given(words, joined)
    packet = given.packet()
    ev = given.way()
    is_data = packet.bth.opcode in WRITES or words.name in {"PROBE", "EV_PROBE"}
    body = bytearray(packet.pack())
    if given.flag("reserved"):
        for at, mask in reserved_of(words.name):
            body[at] |= mask
    tc = _DATA << 2 | 2 if is_data else _CONTROL << 2
    raw = _wrapped(bytes(body), tc | 3 if given.flag("ce") else tc, ev)
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
        self._held = joined.mrc

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

    def way(self) -> int:
        """Return the EV that the packet itself takes: of an answer, path 0 of a plane."""
        return path(self.number("ev", 0), self.number("over", 0))

    def packet(self) -> MrcPacket:
        if self._name.startswith("WRITE_"):
            return self._write()
        if self._name in HOST:
            return self._endpoint()
        wants, theirs = self._joined.wants, self._joined.theirs
        ours, its = self._joined.ours.qp_num & 0xFFFF, theirs.qp_num & 0xFFFF
        psn = self.number("psn", wants.sq_psn, wants.sq_psn) & 0xFFFFFF
        rtx = self.flag("rtx")
        if self._name == "ACK":
            syndrome = self.number("syndrome", 0x1F)
            return self._said("ACKNOWLEDGE", psn, Aeth(syndrome, self.number("msn", 0)))
        if self._name == "PROBE":
            probe_id, tx = self.number("id", 1), self.number("tx", 0)
            return self._said("PROBE", 0, Peth(probe_id, ours, its, tx))
        if self._name == "NACK":
            ev, tx = self._reflected(self._held.latest.get(psn))
            reason = self.number("reason", 1)
            return self._said("NACK", psn, Neth(psn, reason, ev, ours, its, tx))
        if self._name != "SACK":
            raise ValueError("is no packet of MRC")
        answers_probe = self.flag("pr")
        answered = self._held.probe if answers_probe else self._held.latest.get(psn)
        ev, tx = self._reflected(answered)
        cack = self.number("cack", wants.sq_psn - 1, wants.sq_psn) & 0xFFFFFF
        base, got = self.number("base", 1), _psns(self.text("got"))
        offset = self.number("id", self._held.probe_id) if answers_probe else psn - cack
        seth = Seth(
            cack,
            (offset + 0x8000 & 0xFFFF) - 0x8000,  # 16 bits with a sign
            base,
            sum(1 << wants.sq_psn + each - cack - base for each in got),
            ev,
            ours,
            its,
            verdict=self.number("m", 0),
            probe=answers_probe,
            tx_timestamp=tx,
            ooo_count=self.number("ooo", len(got)),
        )
        return self._said("SACK", cack, seth, rtx=rtx)

    def _reflected(self, answered: Transmission | None) -> tuple[int, int]:
        """Return EV and timestamp that an answer reflects: its packet's, unless told else."""
        latest = answered or Transmission(path(0), 0)
        tx = self.number("tx", latest.tx)
        if isinstance(self._left.get("ev"), str):
            [ev] = self._held.named(self.text("ev"))
        elif self.has("ev") or self.has("plane"):
            ev = path(self.number("ev", 0), self.number("plane", plane_of(latest.ev)))
        else:
            ev = latest.ev
        return ev, tx

    def _said(self, name: str, psn: int, *headers: Header, **bth: bool) -> MrcPacket:
        opcode = MrcOpcode[name]
        fields = MrcBth(opcode, self._joined.theirs.qp_num, psn, **bth)
        return MrcPacket.make(fields, *headers)

    def _endpoint(self) -> MrcPacket:
        """Return what one host says to another, queue pair or none."""
        held, wants = self._held, self._joined.wants
        probe_id = self.number("id", held.probe_id)
        request = MrcBth(MrcOpcode.ENDPOINT_REQUEST, ENDPOINT_QP, probe_id)
        if self._name == "PORTS":
            mask, tx = self.number("mask", 0), self.number("tx", 0)
            held.down = (1 << wants.planes) - 1 & ~mask
            return MrcPacket.make(request, Erth(EndpointOp.PORT_STATUS_UPDATE, mask, tx))
        if self._name == "EV_PROBE":
            return MrcPacket.make(request, Erth(EndpointOp.EV_PROBE, 0, self.number("tx", 0)))
        answer = Eeth(EndpointOp.EV_PROBE, self.number("tx", held.probe.tx))
        return MrcPacket.make(request._replace(opcode=MrcOpcode.ENDPOINT_RESPONSE), answer)

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


def _psns(text: str) -> list[int]:
    """Return the numbers of `1,3-5`."""
    found: list[int] = []
    for each in text.split(",") if text else ():
        first, _, last = each.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _wrapped(body: bytes, tc: int, ev: int) -> bytearray:
    length, plane = 8 + len(body) + 4, plane_of(ev)
    head = (6 << 28 | tc << 20 | ev >> 16).to_bytes(4) + length.to_bytes(2) + bytes((17, 64))
    udp = (ev & 0xFFFF).to_bytes(2) + UDP_PORT.to_bytes(2) + length.to_bytes(2) + bytes(2)
    raw = head + peer_ip(plane) + own_ip(plane) + udp + body
    return bytearray(raw + icrc_of(raw))


def _trimmed(raw: bytearray, *, last_hop: bool) -> bytearray:
    """Cut a packet as a switch does: DSCP and outer length change, UDP's length stays."""
    cut = raw[: _BTH + _KEPT]
    dscp = _LAST_HOP if last_hop else _TRIMMED
    tc = dscp << 2 | cut[1] >> 4 & 3
    cut[0], cut[1] = 0x60 | tc >> 4, (tc & 0xF) << 4 | cut[1] & 0xF
    cut[4:6] = (len(cut) - 40).to_bytes(2)
    return cut
