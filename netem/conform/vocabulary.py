"""The words of RoCE v2: packets made from a line of a case, and read back into its fields.

Names are those of opcodes without their service, that of the connection; `UD.SEND_ONLY` has
another. ACKNOWLEDGE is called ACK, NAK or RNR by its syndrome. Fields that send:

    headers   psn ask se mig fecn becn pad pkey tver opcode qp va key length imm inv add swap
              compare original msn credit code timer syndrome qkey srcqp
    payload   data="text", or size=N from=N of the pattern, or size=N zero
    IP, UDP   ttl tos ident df port src=stranger dst=stranger udpsum=right udplen=+N
    Ethernet  vlan, and trailer=N bytes behind the packet
    late.*    late.ttl late.tos late.ident late.rsv late.fecn late.becn: after the ICRC was made
    wrong     icrc=N flips a bit of it; rsv and rsv7 set reserved bits

The same names are what is expected; `size` without `from` leaves the bytes open, and `port`
may be `high` (0xC000 and above) or `same` (as that of the packet before).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from netem.conform import cm_words, mrc_words, sr_words, wg_words
from netem.conform.endpoint import Joined
from netem.conform.notation import Relative, Value, Words
from netem.conform.pattern import pattern
from netem.conform.rules import broken
from wire.checksum import internet_checksum
from wire.codec import DecodeError
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
from wire.roce.packet import CNP_RESERVED, UDP_PORT, RocePacket, locate
from wire.udp import Udp, checksum

CODES = {"sequence": 0, "invalid": 1, "access": 2, "operation": 3, "rd": 4}
RESPONSES = ("ACK", "NAK", "RNR", "READ_RESPONSE", "ATOMIC_ACKNOWLEDGE")
# Not shown of a message: all datagrams of queue pair 1 are alike in these.
_OF_DATAGRAMS = {"mig", "port", "tos", "fecn", "opcode", "ask", "se", "pad", "pkey", "becn"}
_ACKNOWLEDGES = {0: "ACK", 1: "RNR", 3: "NAK"}
_SOURCE_PORT = 0xC123


class WordError(ValueError):
    """A line names something that the vocabulary does not have."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One RoCE packet of the endpoint."""

    at: int  # ns
    frame: bytes
    packet: RocePacket
    name: str
    fields: Mapping[str, int]


AnyHeard: TypeAlias = Heard | sr_words.Routed | mrc_words.MrcHeard | wg_words.WgHeard


# -- saying ------------------------------------------------------------------------------------


def say(words: Words, joined: Joined) -> bytes:
    """Return the frame that a line asks for. WordError for a word that is not known."""
    if joined.wants.service == "WG":
        try:
            return joined.wrap(*joined.peer.say(words))
        except ValueError as error:
            raise WordError(f"{words.name}: {error}") from error
    if joined.wants.service in {"SRV6", "MRC"}:
        try:
            if joined.wants.service == "MRC":
                packet = mrc_words.say_packet(words, joined)
            else:
                packet = sr_words.say_packet(words)
        except ValueError as error:
            raise WordError(f"{words.name}: {error}") from error
        return joined.theirs.mac + joined.ours.mac + b"\x86\xdd" + packet
    if joined.wants.service != "CM" or not cm_words.is_message(words.name):
        return _Saying(words, joined).frame()
    try:
        datagram, mad = cm_words.say_message(words, joined)
    except ValueError as error:
        raise WordError(f"{words.name}: {error}") from error
    return _Saying(datagram, joined, mad).frame()


class _Saying:
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
        tag = Vlan(self._int("vlan", 0)) if "vlan" in self._left else None
        header = Ethernet(self._joined.theirs.mac, self._joined.ours.mac, kind, tag)
        frame = bytearray(ETHERNET.size + VLAN.size * (tag is not None))
        header.pack_into(frame)
        return bytes(frame + ip + bytes(self._int("trailer", 0)))


def _other(ip: bytes) -> bytes:
    """Return the address of nobody, in the same network."""
    return ip[:-1] + b"\x63"


# -- hearing -----------------------------------------------------------------------------------


def hear(at: int, frame: bytes, joined: Joined) -> AnyHeard | None:
    """Return the packet in a frame of the endpoint, None for one that is not for us.

    DecodeError for a RoCE packet that cannot be read.
    """
    if joined.wants.service == "WG":
        return joined.peer.hear(at, frame[42:], int.from_bytes(frame[36:38]))
    if joined.wants.service == "MRC":
        return mrc_words.hear_packet(at, frame[14:], joined)
    if joined.wants.service == "SRV6":
        return sr_words.hear_packet(at, frame[14:], *sr_words.labelled(frame))
    return _hear_roce(at, frame, joined)


def _hear_roce(at: int, frame: bytes, joined: Joined) -> Heard | None:
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


def rules_broken(heard: AnyHeard, frame: bytes) -> Iterator[tuple[str, str]]:
    """Yield (clause, what is wrong) for each rule for all packets that one breaks."""
    if isinstance(heard, Heard):
        yield from broken(frame)
    elif isinstance(heard, mrc_words.MrcHeard) and heard.wrong:
        clause, _, what = heard.wrong.partition(": ")
        yield clause, what


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


def differs(words: Words, heard: AnyHeard, joined: Joined) -> str | None:
    """Say in what a packet is not what a line expects; None if it is."""
    if isinstance(heard, sr_words.Routed):
        return sr_words.differs(words, heard, joined.said)
    if isinstance(heard, mrc_words.MrcHeard):
        return mrc_words.differs(words, heard, joined)
    if isinstance(heard, wg_words.WgHeard):
        return wg_words.differs(words, heard)
    return _roce_differs(words, heard, joined)


def _roce_differs(words: Words, heard: Heard, joined: Joined) -> str | None:
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


def show(heard: AnyHeard, joined: Joined) -> str:
    """Return a packet in the notation, as a case would expect it."""
    if isinstance(heard, sr_words.Routed):
        return sr_words.show(heard)
    if isinstance(heard, mrc_words.MrcHeard):
        return mrc_words.show(heard, joined)
    if isinstance(heard, wg_words.WgHeard):
        return wg_words.show(heard)
    if cm_words.is_message(heard.name):
        skip_these = {
            "mig",
            "port",
            "tos",
            "fecn",
            "opcode",
            "ask",
            "se",
            "pad",
            "pkey",
            "becn",
        }
        shown = (f"{k}={v:#x}" for k, v in heard.fields.items() if k not in skip_these)
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
