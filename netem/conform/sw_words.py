"""The words of a switch's cases: frames that go in and come out, by their offsets.

    > IPV6 in=e1 to=e3 size=1000 dscp=4 ecn=2 n=1
    < IPV6 out=e3 size=256 dscp=48 ecn=2 hop=63 n=1 len=202 udplen=946 udpsum=0xbeef
    > PFC in=e3 pause=3:100,4:0
    < PFC out=e1 pause=3:65535

`size` is that of the frame without its check sequence; `in` and `out` are ports of the switch,
which the MAC addresses name. `da` takes the place of `to`. `n` is the UDP source port, counted
from 0xC000, and tells frames apart; l4=tcp has a TCP header in its place. With inside=6 or
inside=4 the packet is in a tunnel: dscp, ecn, hop and da are those of the outer header,
inner.dscp and so on those inside; `list` and `sl` give the outer one an SRH. `times` is the
time, in a PFC frame, of the classes that `pause` does not name.

Nothing of the codecs or the switch is asked here: offsets are those of RFC 791, 8200, 8754 and
768, and of IEEE 802.3, annex 31D.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from netem.conform.notation import Value, Words
from netem.conform.pattern import pattern
from netem.conform.sr_words import int_of

PORTS = ("e1", "e2", "e3", "e4")
_ETHERNET, _IPV6, _IPV4, _UDP, _TCP = 14, 40, 20, 8, 20
_PFC_TO, _CONTROL = bytes.fromhex("0180c2000001"), b"\x88\x08"
_PFC_SIZE = 60
_FIRST = 0xC000


@dataclass(frozen=True, slots=True)
class Switched:
    """One frame that left a switch. `wrong` are rules for all frames, "pfc/P1: what"."""

    at: int
    name: str
    fields: Mapping[str, int | str]
    wrong: tuple[str, ...] = ()


def own_mac(port: str) -> bytes:
    """Return the switch's address at a port. ValueError for one that it does not have."""
    return b"\x02\0\0\0\1" + bytes((_number(port),))


def neighbour_mac(port: str) -> bytes:
    """Return the address of who is at the other end. ValueError for a port that is not."""
    return b"\x02\0\0\0\2" + bytes((_number(port),))


def _number(port: str) -> int:
    if port not in PORTS:
        raise ValueError(f"{port} is no port, legal is {', '.join(PORTS)}")
    return PORTS.index(port) + 1


def say_frame(words: Words) -> bytes:
    """Return the frame that a line asks for. ValueError for what it does not have."""
    given = dict(words.fields)
    port = str(given.pop("in", "e1"))
    if words.name == "PFC":
        frame = _PFC_TO + neighbour_mac(port) + _CONTROL + _say_pfc(given)
    elif words.name in {"IPV4", "IPV6"}:
        frame = own_mac(port) + neighbour_mac(port) + _say_ip(words.name, given)
    else:
        raise ValueError(f"{words.name} is no frame, legal is IPV4, IPV6, PFC")
    if given:
        raise ValueError(f"no field {', '.join(given)}")
    return frame


def _say_pfc(given: dict[str, Value]) -> bytes:
    meant = dict(_pauses(str(given.pop("pause", ""))))
    others = int_of(given, "times", 0)
    vector = sum(1 << priority for priority in meant)
    opcode = int_of(given, "opcode", 0x0101)
    times = b"".join(meant.get(each, others).to_bytes(2) for each in range(8))
    return (opcode.to_bytes(2) + vector.to_bytes(2) + times).ljust(_PFC_SIZE - _ETHERNET, b"\0")


def _pauses(text: str) -> Iterator[tuple[int, int]]:
    for each in text.split(",") if text else ():
        priority, _, time = each.partition(":")
        yield int(priority), int(time, 0)


def _say_ip(name: str, given: dict[str, Value]) -> bytes:
    """Return EtherType and packet."""
    to = _number(str(given.pop("to", "e3")))
    destination = str(given.pop("da", f"10.0.{to}.1" if name == "IPV4" else f"fd00:{to}::1"))
    size = int_of(given, "size", 1000) - _ETHERNET
    tc = int_of(given, "dscp", 0) << 2 | int_of(given, "ecn", 0)
    hop = int_of(given, "hop", 64)
    inside = int_of(given, "inside", 0)
    srh = _srh(given, inside) if "list" in given else b""
    rest = size - (_IPV4 if name == "IPV4" else _IPV6) - len(srh)
    if inside:
        inner_tc = int_of(given, "inner.dscp", 0) << 2 | int_of(given, "inner.ecn", 0)
        inner_hop = int_of(given, "inner.hop", 64)
        left = rest - (_IPV4 if inside == 4 else _IPV6)
        protocol, body = _body(given, left)
        to_inside = str(given.pop("inner.da", "10.0.3.1" if inside == 4 else "fd00:3::1"))
        make = _ipv4 if inside == 4 else _ipv6
        body = make(inner_tc, inner_hop, to_inside, protocol, body)
        protocol = _next_header(inside)
    else:
        protocol, body = _body(given, rest)
    if name == "IPV4":
        return b"\x08\0" + _ipv4(tc, hop, destination, protocol, body)
    return b"\x86\xdd" + _ipv6(tc, hop, destination, 43 if srh else protocol, srh + body)


def _next_header(inside: int) -> int:
    if inside not in {4, 6}:
        raise ValueError(f"inside={inside}, legal is 4 and 6")
    return 4 if inside == 4 else 41


def _body(given: dict[str, Value], size: int) -> tuple[int, bytes]:
    """Return protocol and bytes of what is behind the IP headers."""
    ports = (_FIRST + int_of(given, "n", 0)).to_bytes(2) + (4791).to_bytes(2)
    if str(given.pop("l4", "udp")) == "tcp":
        protocol, head = 6, ports + bytes(8) + b"\x50\x10\xff\xff\xbe\xef\0\0"
    else:
        length, checksum = int_of(given, "udplen", size), int_of(given, "udpsum", 0xBEEF)
        protocol, head = 17, ports + length.to_bytes(2) + checksum.to_bytes(2)
    if size < len(head):
        raise ValueError(f"size leaves {size} bytes to a header of {len(head)}")
    return protocol, head + pattern(0, size - len(head))


def _srh(given: dict[str, Value], inside: int) -> bytes:
    segments = [IPv6Address(each).packed for each in str(given.pop("list")).split(",")]
    left = int_of(given, "sl", 0)
    head = bytes((_next_header(inside), 2 * len(segments), 4, left, len(segments) - 1, 0, 0, 0))
    return head + b"".join(segments)


def _ipv6(tc: int, hop: int, to: str, protocol: int, body: bytes) -> bytes:
    head = (6 << 28 | tc << 20 | 0x12345).to_bytes(4) + len(body).to_bytes(2)
    source = IPv6Address("fd00:1::1").packed
    return head + bytes((protocol, hop)) + source + IPv6Address(to).packed + body


def _ipv4(tc: int, hop: int, to: str, protocol: int, body: bytes) -> bytes:
    head = bytearray(bytes((0x45, tc)) + (_IPV4 + len(body)).to_bytes(2) + b"\0\1\x40\0")
    head += bytes((hop, protocol, 0, 0)) + IPv4Address("10.0.1.1").packed
    head += IPv4Address(to).packed
    head[10:12] = (~_sum(bytes(head)) & 0xFFFF).to_bytes(2)
    return bytes(head) + body


def _sum(head: bytes) -> int:
    """Return the one's complement sum of a header: 0xFFFF where its checksum is right."""
    total = sum(int.from_bytes(head[at : at + 2]) for at in range(0, len(head), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


# -- what comes out ------------------------------------------------------------------------


def hear_frame(at: int, frame: bytes) -> Switched:
    """Return what left the switch; of a packet that is cut, what is there."""
    port = next((each for each in PORTS if own_mac(each) == frame[6:12]), "nobody")
    if frame[12:14] == _CONTROL or frame[:6] == _PFC_TO:
        fields, wrong = _hear_pfc(frame)
        return Switched(at, "PFC", {"out": port} | fields, wrong)
    fields = {"out": port, "size": len(frame)}
    kind, rest = frame[12:14], frame[_ETHERNET:]
    name = {b"\x08\0": "IPV4", b"\x86\xdd": "IPV6"}.get(kind, f"ETHERTYPE_{kind.hex()}")
    outer = {"IPV4": 4, "IPV6": 41}.get(name, 0)
    return Switched(at, name, fields | dict(_layers(outer, rest, "")))


def _hear_pfc(frame: bytes) -> tuple[dict[str, int | str], tuple[str, ...]]:
    vector = int.from_bytes(frame[16:18])
    times = [int.from_bytes(frame[at : at + 2]) for at in range(18, 34, 2)]
    meant = {each: time for each, time in enumerate(times) if vector >> each & 1}
    rules = {
        "pfc/P1: to another address": frame[:6] != _PFC_TO,
        "pfc/P1: another EtherType": frame[12:14] != _CONTROL,
        "pfc/P1: another opcode": frame[14:16] != b"\1\1",
        f"pfc/P1: {len(frame)} bytes, wanted {_PFC_SIZE}": len(frame) != _PFC_SIZE,
        "pfc/P1: a pad that is not zero": any(frame[34:]),
        "pfc/P2: reserved bits of the vector": vector > 0xFF,
        "pfc/P2: a time that is not meant": sum(times) != sum(meant.values()),
    }
    text = ",".join(f"{priority}:{time}" for priority, time in meant.items())
    return {"pause": text}, tuple(rule for rule, is_broken in rules.items() if is_broken)


def _layers(kind: int, rest: bytes, prefix: str) -> Iterator[tuple[str, int | str]]:
    """Yield the fields of headers, one behind the other, for as long as they are whole."""
    if kind == 41 and len(rest) >= _IPV6:
        tc = (rest[0] & 0xF) << 4 | rest[1] >> 4
        yield from _ip(prefix, tc, rest[7], rest[4:6], str(IPv6Address(rest[24:40])))
        yield from _layers(rest[6], rest[_IPV6:], "inner." if rest[6] != 43 else prefix)
    elif kind == 4 and len(rest) >= _IPV4:
        to = str(IPv4Address(rest[16:20]))
        yield from _ip(prefix, rest[1], rest[8], rest[2:4], to)
        yield f"{prefix}sum", "right" if _sum(rest[:_IPV4]) == 0xFFFF else "stale"
        yield from _layers(rest[9], rest[_IPV4:], "inner.")
    elif kind == 43 and len(rest) >= 8:
        yield "sl", rest[3]
        yield from _layers(rest[0], rest[8 * (rest[1] + 1) :], "inner.")
    elif kind == 17 and len(rest) >= _UDP:
        yield "n", int.from_bytes(rest[:2]) - _FIRST
        yield "udplen", int.from_bytes(rest[4:6])
        yield "udpsum", int.from_bytes(rest[6:8])
        yield from _payload(rest[_UDP:])
    elif kind == 6 and len(rest) >= _TCP:
        yield "n", int.from_bytes(rest[:2]) - _FIRST
        yield from _payload(rest[_TCP:])


def _ip(
    prefix: str, tc: int, hop: int, length: bytes, to: str
) -> Iterator[tuple[str, int | str]]:
    yield f"{prefix}dscp", tc >> 2
    yield f"{prefix}ecn", tc & 3
    yield f"{prefix}hop", hop
    yield f"{prefix}len", int.from_bytes(length)
    yield f"{prefix}da", to


def _payload(data: bytes) -> Iterator[tuple[str, str]]:
    if data != pattern(0, len(data)):
        yield "payload", "changed"


def differs(words: Words, heard: Switched) -> str | None:
    """Say in what a frame is not what a line expects."""
    if words.name != heard.name:
        return f"{heard.name}, wanted {words.name}"
    if "payload" in heard.fields:
        return "a payload that is not what went in"
    for name, value in words.fields.items():
        if name in {"after", "before"}:
            continue
        wanted = str(IPv6Address(str(value))) if ":" in str(value) and "da" in name else value
        if heard.fields.get(name) != wanted:
            return f"{heard.name} with {name} {heard.fields.get(name)}, wanted {wanted}"
    return None


def show(heard: Switched) -> str:
    """Return a frame in the notation."""
    return " ".join([heard.name, *(f"{k}={v}" for k, v in heard.fields.items())])
