"""The words of segment routing: IPv6 packets with what is before and inside them.

`IPV6` is a packet whose destination (`da`) a node may have to act upon. Its fields:

    da sa hop tc        addresses, hop limit, traffic class
    csids block width   in place of `da`: a container of these CSIDs, of so many bits each
    list sl le tag      an SRH: segments in wire order, so the last one first; `le` if it lies
    flags tlv           of the SRH; the TLVs in hex, a multiple of 8 bytes
    nh                  what is inside: ipv6 (default), ipv4, udp
    inner.hop inner.tc  of what is inside

What comes out is IPV6 or IPV4; `out` is the port that a behaviour sends it by (`own`: the node
takes it itself), `table` where a decapsulated packet is looked up. `plain` means: no SRH;
`same`: inside nothing changed. Codecs of the product are not used here: offsets are those of
RFC 8200, 791 and 8754.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from netem.conform.notation import Value, Words

SOURCE = IPv6Address("fd00:a::1").packed
_BLOCK = 0xFCBB_BB00_1122_3344_5566_7788_99AA_BBCC  # its first bits are locator blocks
NEXT_HEADERS = {"ipv6": 41, "ipv4": 4, "udp": 17}
_UDP = bytes.fromhex("c35112b7001800000011223344556677889900aabbccddee")
_SRH_SIZE, _HEAD = 8, 40


@dataclass(frozen=True, slots=True)
class Routed:
    """One packet of a node that routes."""

    at: int
    name: str
    fields: Mapping[str, int | str]
    inside: bytes


def container(csids: str, block: int, width: int) -> str:
    """Return the address that holds these CSIDs, as text. ValueError for what does not fit."""
    value = _BLOCK >> (128 - block) << (128 - block)
    at = 128 - block
    for csid in (int(each, 0) for each in csids.split(",")):
        at -= width
        if at < 0 or csid >> width:
            raise ValueError(f"csids={csids} do not fit {block} and {width} bits")
        value |= csid << at
    return str(IPv6Address(value))


def say_packet(words: Words) -> bytes:
    """Return the IPv6 packet that a line asks for. ValueError for what it does not have."""
    given = dict(words.fields)
    destination = _address(given)
    kind = str(given.pop("nh", "ipv6"))
    inner = _inner(kind, int_of(given, "inner.hop", 64), int_of(given, "inner.tc", 0))
    srh = _srh(given, NEXT_HEADERS[kind]) if "list" in given else b""
    body = srh + inner
    tc, hop = int_of(given, "tc", 0), int_of(given, "hop", 64)
    source = IPv6Address(str(given.pop("sa", IPv6Address(SOURCE)))).packed
    if given:
        raise ValueError(f"no field {', '.join(given)}")
    word = 6 << 28 | tc << 20 | 0x12345
    first = 43 if srh else NEXT_HEADERS[kind]
    head = word.to_bytes(4) + len(body).to_bytes(2) + bytes((first, hop))
    return head + source + IPv6Address(destination).packed + body


def _address(given: dict[str, Value]) -> str:
    if "csids" in given:
        block, width = int_of(given, "block", 32), int_of(given, "width", 16)
        return container(str(given.pop("csids")), block, width)
    return str(given.pop("da", "fc00:1::e"))


def _srh(given: dict[str, Value], next_header: int) -> bytes:
    segments = [IPv6Address(each).packed for each in str(given.pop("list")).split(",")]
    tlv = bytes.fromhex(str(given.pop("tlv", "")))
    left, last = int_of(given, "sl", 0), int_of(given, "le", len(segments) - 1)
    flags, tag = int_of(given, "flags", 0), int_of(given, "tag", 0)
    length = 2 * len(segments) + len(tlv) // 8
    head = bytes((next_header, length, 4, left, last, flags)) + tag.to_bytes(2)
    return head + b"".join(segments) + tlv


def _inner(kind: str, hop: int, tc: int) -> bytes:
    if kind == "udp":
        return _UDP
    if kind == "ipv6":
        first = (6 << 28 | tc << 20).to_bytes(4) + len(_UDP).to_bytes(2) + bytes((17, hop))
        return first + _inside("fd0a::1") + _inside("fd0b::1") + _UDP
    head = bytearray(bytes((0x45, tc)) + (20 + len(_UDP)).to_bytes(2) + bytes((0, 1, 64, 0)))
    head += bytes((hop, 17, 0, 0)) + IPv4Address("10.9.0.1").packed
    head += IPv4Address("10.9.0.2").packed
    total = sum(int.from_bytes(head[at : at + 2]) for at in range(0, 20, 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    head[10:12] = (~total & 0xFFFF).to_bytes(2)
    return bytes(head) + _UDP


def _inside(text: str) -> bytes:
    return IPv6Address(text).packed


def int_of(given: dict[str, Value], name: str, default: int) -> int:
    """Take a number out of the fields. ValueError for what is none."""
    value = given.pop(name, default)
    if not isinstance(value, int):
        raise ValueError(f"{name}={value} is no number")  # noqa: TRY004 - of a text
    return value


def label(out: str, table: str) -> bytes:
    """Return the Ethernet header of what leaves by a port, or goes to a table."""
    kind = b"\x86\xdd"
    mac = (out.encode() + b"/" + table.encode()).ljust(6, b"\0")[:6]
    return b"\x02" + mac[:5] + b"\x02" + mac[:5] + kind


def labelled(frame: bytes) -> tuple[str, str]:
    """Return port and table of a frame that left."""
    out, _, table = frame[1:6].rstrip(b"\0").decode().partition("/")
    return out, table


def hear_packet(at: int, packet: bytes, out: str, table: str) -> Routed:
    """Return what came out, read by its offsets."""
    if packet[0] >> 4 == 4:
        fields: dict[str, int | str] = {"hop": packet[8], "tc": packet[1]}
        fields |= {"da": str(IPv4Address(packet[16:20])), "out": out, "table": int(table or 0)}
        return Routed(at, "IPV4", fields, packet)
    tc = (packet[0] & 0xF) << 4 | packet[1] >> 4
    fields = {
        "da": str(IPv6Address(packet[24:40])), "sa": str(IPv6Address(packet[8:24])),
        "hop": packet[7], "tc": tc, "nh": packet[6], "out": out, "table": int(table or 0),
    }  # fmt: skip
    inside = packet[_HEAD:]
    if packet[6] == 43:
        size = _SRH_SIZE + 8 * inside[1]
        fields |= {"sl": inside[3], "le": inside[4], "flags": inside[5]}
        fields |= {"tag": int.from_bytes(inside[6:8]), "nh": inside[0]}
        end = _SRH_SIZE + 16 * (inside[4] + 1)
        texts = [
            str(IPv6Address(inside[n : n + 16])) for n in range(_SRH_SIZE, min(end, size), 16)
        ]
        fields |= {"list": ",".join(texts), "tlv": inside[end:size].hex()}
        inside = inside[size:]
    length = int.from_bytes(packet[4:6])
    fields["cut"] = int(length != len(packet) - _HEAD)
    return Routed(at, "IPV6", fields, inside)


def differs(words: Words, heard: Routed, said: bytes) -> str | None:
    """Say in what a packet is not what a line expects; `said` is what went in last."""
    if words.name != heard.name:
        return f"{heard.name}, wanted {words.name}"
    given = dict(words.fields)
    if "csids" in given:
        given["da"] = _address(given)
    if heard.fields.get("cut"):
        return "a payload length that is not that of the packet"
    if given.pop("plain", None) and "sl" in heard.fields:
        return "an SRH, wanted none"
    if given.pop("same", None) and not said.endswith(heard.inside):
        return "another packet inside than the one that went in"
    for name, value in given.items():
        wanted = _wanted(name, value)
        if heard.fields.get(name) != wanted:
            return f"{heard.name} with {name} {heard.fields.get(name)}, wanted {wanted}"
    return None


def _wanted(name: str, value: Value) -> Value:
    """Return what a field must be, in the one way that it is written here."""
    text = str(value)
    if name == "nh" and text in NEXT_HEADERS:
        return NEXT_HEADERS[text]
    if name in {"da", "sa", "list"} and ":" in text:
        return ",".join(str(IPv6Address(each)) for each in text.split(","))
    return value


def show(heard: Routed) -> str:
    """Return a packet in the notation."""
    shown = (f"{k}={v}" for k, v in heard.fields.items() if v not in {"", 0} or k == "sl")
    return " ".join([heard.name, *shown])
