"""The header codec, beside scapy's: one 1 KiB RC WRITE Middle over IPv6, built and parsed.

Two figures of ours, each with the ICRC made and verified; scapy makes it and does not verify.
`codec-rc-1024` is how traffic is carried: a prepared head on the way out, integers from the
public Structs on the way in. `codec-rc-1024-types` is how tools and tests do it: every header a
value of its type.
"""

from collections.abc import Callable, Iterator
from importlib.metadata import version
from ipaddress import ip_address
from time import process_time_ns

from netem.bench.figures import Benchmark, Ceiling
from transports.clock import S
from transports.roce.attributes import AddressHandle, Peer
from transports.roce.bursts import Burst
from transports.roce.templates import Ipv6Template
from wire.codec import ReadBuffer
from wire.ethernet import ETHERNET, Ethernet, EtherType
from wire.ipv4 import Protocol
from wire.ipv6 import IPV6, Ipv6
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
_SOURCE_MAC, _TARGET_MAC = (bytes.fromhex(m.replace(":", "")) for m in (SOURCE_MAC, TARGET_MAC))


def build() -> bytearray:
    """Return the frame, header by header."""
    frame = bytearray(_ICRC + ICRC.size)
    Ethernet(_TARGET_MAC, _SOURCE_MAC, EtherType.IPV6).pack_into(frame)
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


class Path:
    """Builds and parses as the machines and the host do."""

    def __init__(self) -> None:
        ah = AddressHandle(_SOURCE, _TARGET, udp_source_port=SOURCE_PORT)
        self._template = Ipv6Template(Peer(ah, DEST_QP, 0xFFFF, mig_req=True))
        self._ethernet = ETHERNET.pack(_TARGET_MAC, _SOURCE_MAC, EtherType.IPV6)
        self._burst = Burst(Opcode.RC_WRITE_MIDDLE, PSN, 1, b"", PAYLOAD, len(PAYLOAD))

    def build(self) -> bytes:
        """Return the frame, from the queue pair's template."""
        (packet,) = self._template.render(self._burst)
        return self._ethernet + packet

    def parse(self, frame: bytes) -> tuple[int, int, memoryview]:
        """Return DestQP, PSN and payload of the frame; all else must be as it should."""
        _, _, ethertype = ETHERNET.unpack_from(frame)
        _, _, next_header, _, _, _ = IPV6.unpack_from(frame, _IP)
        _, port, length, _ = UDP.unpack_from(frame, _UDP)
        opcode, _, _, qp, psn = BTH.unpack_from(frame, _BTH)
        end = _UDP + length - ICRC.size
        assert ethertype == EtherType.IPV6
        assert next_header == Protocol.UDP
        assert port == UDP_PORT
        assert opcode == Opcode.RC_WRITE_MIDDLE
        view = memoryview(frame)
        assert ICRC.unpack_from(frame, end)[0] == icrc(view[_IP:end])
        return qp & 0xFFFFFF, psn & 0xFFFFFF, view[_PAYLOAD:end]

    def both(self) -> None:
        self.parse(self.build())


def scapy_codec() -> tuple[Callable[[], bytes], Callable[[bytes], object]]:
    """Return how scapy builds the same frame and how it parses one."""
    from scapy.contrib import roce
    from scapy.layers import inet, inet6, l2
    from scapy.packet import Raw

    def scapy_build() -> bytes:
        return bytes(
            l2.Ether(src=SOURCE_MAC, dst=TARGET_MAC)
            / inet6.IPv6(src=SOURCE, dst=TARGET)
            / inet.UDP(sport=SOURCE_PORT, dport=UDP_PORT, chksum=0)
            / roce.BTH(opcode=int(Opcode.RC_WRITE_MIDDLE), dqpn=DEST_QP, psn=PSN, migreq=1)
            / Raw(PAYLOAD)
        )

    return scapy_build, l2.Ether


def codec(rounds: int = ROUNDS) -> Iterator[Benchmark]:
    """Yield packets built and parsed per second of processor time, ours beside scapy's."""
    scapy_build, scapy_parse = scapy_codec()
    path = Path()
    assert scapy_build() == path.build() == build()

    def by_scapy() -> None:
        scapy_parse(scapy_build())

    integers, types, scapy = _best(rounds, path.both, by_types, by_scapy)
    ceiling = Ceiling(f"scapy {version('scapy')}", scapy)
    yield Benchmark("codec-rc-1024", integers, "packets/s", ceiling)
    yield Benchmark("codec-rc-1024-types", types, "packets/s", ceiling)


def _best(rounds: int, *works: Callable[[], None]) -> list[float]:
    """Return how often a second each can be done, measured in turns."""
    best = [0.0] * len(works)
    for _ in range(rounds):
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
