"""Packets of RoCE v2, made from a line of a case; the fields are listed in `vocabulary`."""

from collections.abc import Callable

from netem.conform.endpoint import Joined
from netem.conform.notation import Relative, WordError, Words
from netem.conform.pattern import pattern
from netem.conform.roce_hearing import CODES, RESPONSES
from wire.checksum import internet_checksum
from wire.ethernet import ETHERNET, VLAN, Ethernet, EtherType, Vlan
from wire.ipv4 import Ipv4, Protocol
from wire.ipv6 import Ipv6
from wire.roce.bth import Bth
from wire.roce.eths import (
    Aeth,
    AtomicAckEth,
    AtomicEth,
    Deth,
    ExtensionHeader,
    Feth,
    Ieth,
    ImmDt,
    Reth,
)
from wire.roce.icrc import ICRC, icrc
from wire.roce.opcodes import OPCODES, Opcode
from wire.roce.packet import CNP_RESERVED, UDP_PORT, RocePacket
from wire.udp import Udp, checksum

_SOURCE_PORT = 0xC123


class Saying:
    """One line, and which of its fields were used."""

    def __init__(self, words: Words, joined: Joined, payload: bytes | None = None) -> None:
        """`payload` is given where it is not in the words."""
        self._words, self._joined, self._given = words, joined, payload
        self._left = dict(words.fields)
        service, dot, name = words.name.rpartition(".")
        self._service = service if dot else joined.wants.service
        self._name = name

    def frame(self) -> bytes:
        packet = self._packet()
        body = bytearray(packet.pack())
        if packet.bth.opcode != (opcode := self._int("opcode", packet.bth.opcode)):
            body[0] = opcode
        body[1] |= self._int("tver", 0)
        body[1] = body[1] & 0xCF | self._int("pad", body[1] >> 4 & 3) << 4
        body[4] |= self._int("rsv", 0)
        body[8] |= self._int("rsv7", 0)
        ip = self._ip(body)
        self._after(ip)
        frame = self._ethernet(ip)
        if self._left:
            raise WordError(f"{self._words.name} has no field {', '.join(self._left)}")
        return frame

    def _int(self, name: str, default: int, base: int = 0) -> int:
        value = self._left.pop(name, default)
        if isinstance(value, Relative):
            return base + value.by
        if isinstance(value, str):
            raise WordError(f"{name}={value} is no number")
        return value

    def _psn(self) -> int:
        wants = self._joined.wants
        base = wants.sq_psn if self._name.startswith(RESPONSES) else wants.rq_psn
        return self._int("psn", base, base) & 0xFFFFFF

    def _key(self) -> int:
        value = self._left.pop("key", "good")
        theirs = self._joined.theirs.key
        named = {"good": theirs, "bad": theirs ^ 0xDEAD00} | self._joined.keys
        if isinstance(value, str):
            if value not in named:
                raise WordError(f"key={value} is unknown, legal is {', '.join(named)}")
            return named[value]
        return value.by + theirs if isinstance(value, Relative) else value

    def _va(self) -> int:
        return self._int("va", self._joined.theirs.va, self._joined.theirs.va) % (1 << 64)

    def _payload(self) -> bytes:
        if self._given is not None:
            return self._given
        data = self._left.pop("data", None)
        if data is not None:
            return str(data).encode()
        size = self._int("size", 0)
        if self._left.pop("zero", None):
            return bytes(size)
        return pattern(self._int("from", 0), size)

    def _packet(self) -> RocePacket:
        kind = {"ACK": "ACKNOWLEDGE", "NAK": "ACKNOWLEDGE", "RNR": "ACKNOWLEDGE"}
        name = kind.get(self._name, self._name)
        try:
            opcode = Opcode[name if name == "CNP" else f"{self._service}_{name}"]
        except KeyError:
            raise WordError(f"{self._words.name} is no packet of {self._service}") from None
        payload = CNP_RESERVED if name == "CNP" else self._payload()
        headers = [self._header(kind, len(payload)) for kind in OPCODES[opcode].headers]
        bth = Bth(
            opcode,
            self._int("qp", self._joined.theirs.qp_num, self._joined.theirs.qp_num),
            self._psn(),
            ack_req=bool(self._int("ask", 0)),
            solicited=bool(self._int("se", 0)),
            mig_req=bool(self._int("mig", 1)),
            p_key=self._int("pkey", 0xFFFF),
            fecn=bool(self._int("fecn", 0)),
            becn=bool(self._int("becn", name == "CNP")),
        )
        return RocePacket.make(bth, *headers, payload=payload)

    def _header(self, kind: type[ExtensionHeader], size: int) -> ExtensionHeader:
        if kind is Reth:
            va, key = self._va(), self._key()
            return Reth(va, key, self._int("length", size))
        if kind is AtomicEth:
            va, key = self._va(), self._key()
            swap = self._int("swap", self._int("add", 0))
            return AtomicEth(va, key, swap, self._int("compare", 0))
        if kind is Aeth:
            return Aeth(self._syndrome(), self._int("msn", 0))
        simple: dict[type[ExtensionHeader], Callable[[], ExtensionHeader]] = {
            AtomicAckEth: lambda: AtomicAckEth(self._int("original", 0)),
            ImmDt: lambda: ImmDt(self._int("imm", 0)),
            Ieth: lambda: Ieth(self._named_inv()),
            Deth: lambda: Deth(
                self._int("qkey", self._joined.wants.qkey),
                self._int("srcqp", self._joined.ours.qp_num),
            ),
            Feth: Feth,
        }
        if kind not in simple:
            raise WordError(f"{self._words.name} has a header that cases cannot say")
        return simple[kind]()

    def _named_inv(self) -> int:
        self._left["key"] = self._left.pop("inv", "good")
        return self._key()

    def _syndrome(self) -> int:
        if self._name == "NAK":
            code = self._left.pop("code", "sequence")
            default = 0x60 | (CODES[code] if isinstance(code, str) else int(code))  # type: ignore[arg-type] # a Relative is none
        elif self._name == "RNR":
            default = 0x20 | self._int("timer", 12)
        else:
            default = self._int("credit", 0x1F)
        return self._int("syndrome", default)

    def _ip(self, body: bytearray) -> bytearray:
        """Return the IP packet around BTH and all, with the ICRC that it asks for."""
        ours, theirs = self._joined.ours.ip, self._joined.theirs.ip
        strangers = {"stranger": 1}
        src = _other(ours) if self._left.pop("src", None) in strangers else ours
        dst = _other(theirs) if self._left.pop("dst", None) in strangers else theirs
        length = 8 + len(body) + ICRC.size
        ttl, tos = self._int("ttl", 64), self._int("tos", 0)
        ident, df = self._int("ident", 0x1234), bool(self._int("df", 1))
        ip: Ipv4 | Ipv6
        if len(src) == 4:
            ip = Ipv4(src, dst, Protocol.UDP, 20 + length, ttl, tos, ident, dont_fragment=df)
        else:
            ip = Ipv6(src, dst, Protocol.UDP, length, ttl, tos)
        whole = bytearray(ip.size + length)
        ip.pack_into(whole)
        said = self._int("udplen", length, length)
        Udp(self._int("port", _SOURCE_PORT), UDP_PORT, said).pack_into(whole, ip.size)
        whole[ip.size + 8 : -ICRC.size] = body
        ICRC.pack_into(whole, len(whole) - ICRC.size, icrc(whole[: -ICRC.size]))
        if self._left.pop("udpsum", None):
            at = ip.size + 6
            whole[at : at + 2] = checksum(src, dst, whole[ip.size :]).to_bytes(2, "big")
        if "icrc" in self._left:
            bit = self._int("icrc", 0)
            whole[-4 + bit // 8] ^= 1 << bit % 8
        return whole

    def _after(self, ip: bytearray) -> None:
        """Change what routers may, and what nobody may, without making the ICRC anew."""
        v4 = ip[0] >> 4 == 4
        bth = 28 if v4 else 48
        if "late.ttl" in self._left:
            ip[8 if v4 else 7] = self._int("late.ttl", 0)
        if "late.tos" in self._left:
            tos = self._int("late.tos", 0)
            if v4:
                ip[1] = tos
            else:
                ip[:2] = (0x6000 | tos << 4).to_bytes(2, "big")
        if "late.ident" in self._left:
            ip[4:6] = self._int("late.ident", 0).to_bytes(2, "big")
        ip[bth + 4] |= self._int("late.rsv", 0)
        if v4:
            ip[10:12] = bytes(2)
            ip[10:12] = internet_checksum(ip[:20]).to_bytes(2, "big")

    def _ethernet(self, ip: bytearray) -> bytes:
        kind = EtherType.IPV4 if ip[0] >> 4 == 4 else EtherType.IPV6
        tci = self._int("vlan", 0) if "vlan" in self._left else None
        tag = None if tci is None else Vlan(tci & 0xFFF, tci >> 13, bool(tci >> 12 & 1))
        header = Ethernet(self._joined.theirs.mac, self._joined.ours.mac, kind, tag)
        frame = bytearray(ETHERNET.size + VLAN.size * (tag is not None))
        header.pack_into(frame)
        return bytes(frame + ip + bytes(self._int("trailer", 0)))


def _other(ip: bytes) -> bytes:
    """Return the address of nobody, in the same network."""
    return ip[:-1] + b"\x63"
