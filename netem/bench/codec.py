"""The header codec, beside scapy's: one 1 KiB RC WRITE Middle over IPv6, built and parsed.

Two figures of ours. By the header types, as tools and tests use them: every header a value, the
ICRC made and verified. By the path that carries traffic: a prepared head on the way out, integers
from the public Structs on the way in, ICRC likewise. Scapy makes the ICRC and does not verify it.
"""

from collections.abc import Callable, Iterator
from importlib.metadata import version
from ipaddress import ip_address
from time import process_time_ns

from netem.bench.figures import Benchmark, Ceiling
from transports.clock import S
from transports.roce.attributes import AddressHandle
from transports.roce.bursts import Burst
from transports.roce.templates import Ipv6Template, Peer
from wire.codec import ReadBuffer
from wire.ethernet import Ethernet, EtherType
from wire.ipv4 import Protocol
from wire.ipv6 import Ipv6
from wire.roce.bth import BTH, Bth
from wire.roce.icrc import ICRC, icrc
from wire.roce.opcodes import Opcode
from wire.roce.packet import UDP_PORT, locate
from wire.udp import UDP, Udp

PAYLOAD = bytes(range(256)) * 4
SOURCE, TARGET = "fd00::1", "fd00::2"
SOURCE_MAC, TARGET_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
SOURCE_PORT = 0xC000
DEST_QP, PSN = 0x11, 0x123456

# Ours: rounds of each in turn, the best one counts, because this machine has other guests. A
# round is long against the clock's step and short against its neighbours' patience.
ROUNDS = 5
ROUND_NS = S // 20

_IP = 14
_UDP = _IP + 40
_BTH = _UDP + UDP.size
_PAYLOAD = _BTH + BTH.size
_ICRC = _PAYLOAD + len(PAYLOAD)
_LENGTH = _ICRC + ICRC.size - _UDP  # of the UDP datagram

_SOURCE, _TARGET = ip_address(SOURCE).packed, ip_address(TARGET).packed
_MACS = tuple(bytes.fromhex(mac.replace(":", "")) for mac in (TARGET_MAC, SOURCE_MAC))


def build() -> bytearray:
    """Return the frame, header by header."""
    frame = bytearray(_ICRC + ICRC.size)
    Ethernet(*_MACS, EtherType.IPV6).pack_into(frame)
    Ipv6(_SOURCE, _TARGET, Protocol.UDP, _LENGTH).pack_into(frame, _IP)
    Udp(SOURCE_PORT, UDP_PORT, _LENGTH).pack_into(frame, _UDP)
    Bth(Opcode.RC_WRITE_MIDDLE, DEST_QP, PSN).pack_into(frame, _BTH)
    frame[_PAYLOAD:_ICRC] = PAYLOAD
    ICRC.pack_into(frame, _ICRC, icrc(memoryview(frame)[_IP:_ICRC]))
    return frame


def parse(frame: ReadBuffer) -> tuple[Ethernet, Ipv6, Udp, Bth, memoryview]:
    """Return every header of the frame and its payload; the ICRC must be right."""
    ip, udp, bth, end = locate(frame)
    view = memoryview(frame)
    assert ICRC.unpack_from(frame, end)[0] == icrc(view[ip:end])
    return (
        Ethernet.unpack_from(frame),
        Ipv6.unpack_from(frame, ip),
        Udp.unpack_from(frame, udp),
        Bth.unpack_from(frame, bth),
        view[bth + BTH.size : end],
    )


def by_types() -> None:
    """Build and parse as tools do."""
    parse(build())


def traffic_path() -> Callable[[], None]:
    """Return what builds and parses as the machines do, from the IP header on."""
    template = Ipv6Template(
        Peer(
            AddressHandle(_SOURCE, _TARGET, udp_source_port=SOURCE_PORT), DEST_QP, 0xFFFF, True
        )
    )
    burst = Burst(Opcode.RC_WRITE_MIDDLE, PSN, 1, b"", PAYLOAD, len(PAYLOAD))

    def by_integers() -> None:
        (packet,) = template.render(burst)
        _, _, _, qp, psn = BTH.unpack_from(packet, _BTH - _IP)
        end = _ICRC - _IP
        assert ICRC.unpack_from(packet, end)[0] == icrc(memoryview(packet)[:end])
        assert qp == DEST_QP
        assert psn == PSN

    return by_integers


def scapy_codec() -> tuple[Callable[[], bytes], Callable[[bytes], object]]:
    """Return how scapy builds the same frame and how it parses one."""
    from scapy.contrib.roce import BTH as ScapyBth
    from scapy.layers.inet import UDP as ScapyUdp
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Ether
    from scapy.packet import Raw

    def scapy_build() -> bytes:
        return bytes(
            Ether(src=SOURCE_MAC, dst=TARGET_MAC)
            / IPv6(src=SOURCE, dst=TARGET)
            / ScapyUdp(sport=SOURCE_PORT, dport=UDP_PORT, chksum=0)
            / ScapyBth(opcode=int(Opcode.RC_WRITE_MIDDLE), dqpn=DEST_QP, psn=PSN, migreq=1)
            / Raw(PAYLOAD)
        )

    return scapy_build, Ether


def codec() -> Iterator[Benchmark]:
    """Yield packets built and parsed per second of processor time, ours beside scapy's."""
    scapy_build, scapy_parse = scapy_codec()
    assert scapy_build() == build()

    def by_scapy() -> None:
        scapy_parse(scapy_build())

    types, path, scapy = _best(by_types, traffic_path(), by_scapy)
    ceiling = Ceiling(f"scapy {version('scapy')}", scapy)
    yield Benchmark("codec-rc-1024", types, "packets/s", ceiling)
    yield Benchmark("codec-rc-1024-path", path, "packets/s", ceiling)


def _best(*works: Callable[[], None]) -> list[float]:
    """Return how often a second each can be done, measured in turns."""
    best = [0.0] * len(works)
    for _ in range(ROUNDS):
        for index, work in enumerate(works):
            best[index] = max(best[index], _rate(work))
    return best


def _rate(work: Callable[[], None]) -> float:
    start, done = process_time_ns(), 0
    while (spent := process_time_ns() - start) < ROUND_NS:
        for _ in range(10):
            work()
        done += 10
    return done * S / spent
