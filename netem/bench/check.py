"""`fabriclab check` beside scapy: packets of a capture judged, and merely read and dissected.

The capture is what a lab's looks like: 1 KiB RC WRITEs over IPv6 with an ACK for every eighth,
no comments, but flags and packet numbers. scapy dissects the headers and judges nothing.
"""

import io
from collections.abc import Callable, Iterator
from importlib.metadata import version
from time import process_time_ns

from netem.analysis.check.judge import Judge
from netem.bench.figures import Benchmark, Ceiling
from transports.clock import S
from wire import pcapng
from wire.ethernet import Ethernet, EtherType
from wire.ipv4 import Protocol
from wire.ipv6 import Ipv6
from wire.roce.bth import Bth
from wire.roce.eths import Aeth, Reth
from wire.roce.frame import RoceFrame
from wire.roce.opcodes import Opcode
from wire.roce.packet import RocePacket

MESSAGES = 250
PACKETS = 8  # of a message
PMTU = 1024
ROUNDS = 3

_MACS = b"\x02\0\0\0\0\x01", b"\x02\0\0\0\0\x02"
_IPS = b"\xfd" + bytes(14) + b"\x01", b"\xfd" + bytes(14) + b"\x02"


def capture(messages: int = MESSAGES) -> bytes:
    """Return a capture of so many WRITEs and their ACKs."""
    ports = "h0:p0", "h1:p0"
    data = [pcapng.section_header()]
    for port, peer in (ports, ports[::-1]):
        link = f"link h0:p0--h1:p0, frames from {port} to {peer}"
        data.append(pcapng.interface_block(port, link))
    payload = bytes(range(256)) * 4
    opcodes = [
        Opcode.RC_WRITE_FIRST,
        *[Opcode.RC_WRITE_MIDDLE] * (PACKETS - 2),
        Opcode.RC_WRITE_LAST,
    ]
    number = 0
    for message in range(messages):
        for index, opcode in enumerate(opcodes):
            bth = Bth(opcode, 0x22, message * PACKETS + index, ack_req=index == PACKETS - 1)
            reth = [Reth(0x1000, 7, PACKETS * PMTU)] * (index == 0)
            packet = RocePacket.make(bth, *reth, payload=payload)
            number += 1
            data.append(_block(0, number, packet))
        bth = Bth(Opcode.RC_ACKNOWLEDGE, 0x11, message * PACKETS + PACKETS - 1)
        number += 1
        data.append(_block(1, number, RocePacket.make(bth, Aeth.ack(message + 1))))
    return b"".join(data)


def _block(sender: int, number: int, packet: RocePacket) -> bytes:
    ethernet = Ethernet(_MACS[1 - sender], _MACS[sender], EtherType.IPV6)
    ip = Ipv6(_IPS[sender], _IPS[1 - sender], Protocol.UDP, 0)
    frame = RoceFrame.make(ethernet, ip, 0xC000, packet).pack()
    return pcapng.enhanced_packet(sender, number * 1000, frame, outbound=True, packet_id=number)


def check(rounds: int = ROUNDS) -> Iterator[Benchmark]:
    """Yield packets per second of processor time, of the same file by both."""
    from scapy.utils import rdpcap

    import netem.scapy_layers  # noqa: F401 - the headers behind the BTH, which both look at

    data = capture()

    def by_scapy() -> int:
        return len(rdpcap(io.BytesIO(data)))

    def by_us() -> int:
        judge = Judge(io.BytesIO(data))
        judge.run()
        assert not judge.findings.kept
        return judge.packets

    ours = scapy = 0.0
    for _ in range(rounds):  # in turns, because this machine has other guests
        ours = max(ours, *(_rate(by_us) for _ in range(5)))
        scapy = max(scapy, _rate(by_scapy))
    name = f"scapy {version('scapy')} rdpcap"
    yield Benchmark("check-rc-1024", ours, "packets/s", Ceiling(name, scapy))


def _rate(work: Callable[[], int]) -> float:
    start = process_time_ns()
    packets = work()
    return packets * S / (process_time_ns() - start)
