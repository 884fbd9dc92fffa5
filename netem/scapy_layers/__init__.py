"""Scapy and our packets: layers for what follows a BTH, MRC, and another network namespace.

    from scapy.all import rdpcap
    from netem.scapy_layers import SETH

    rdpcap("lab.pcapng")[7][SETH].show()

Scapy brings BTH, CNP and the AETH of acknowledgements (`scapy.contrib.roce`), and WireGuard
(`scapy.contrib.wireguard`). Importing this package adds the other extension headers, in the
order that the opcode asks for, all of MRC behind the same UDP port and 4971, and what a switch
has trimmed, whose BTH has no ICRC. What is behind the headers is Raw, pad bytes included.

An ICRC that is not given is computed when the packet is built:

    Ether() / IPv6(dst="fd00::2") / UDP(sport=0x2ab) / MrcBTH(opcode="SACK", dqpn=0x111, psn=7)
        / SETH(cack_psn=7, sack_offset=1, sack_bitmap=0b101)

For people at a prompt and for tests: nothing that carries traffic imports this.
"""

from scapy.config import conf
from scapy.contrib.roce import AETH, BTH
from scapy.contrib.wireguard import Wireguard

from netem.scapy_layers.mrc import (
    EETH,
    ERTH,
    METH,
    NETH,
    PETH,
    SETH,
    TSETH,
    MrcBTH,
    TrimmedMrcBTH,
)
from netem.scapy_layers.roce import (
    DETH,
    FETH,
    IETH,
    IMMDT,
    RDETH,
    RETH,
    XRCETH,
    AtomicAckETH,
    AtomicETH,
    TrimmedBTH,
)

__all__ = [
    "AETH", "BTH", "DETH", "EETH", "ERTH", "FETH", "IETH", "IMMDT", "METH", "NETH", "PETH",
    "RDETH", "RETH", "SETH", "TSETH", "XRCETH", "AtomicAckETH", "AtomicETH", "MrcBTH",
    "TrimmedBTH", "TrimmedMrcBTH", "Wireguard", "reload_interfaces",
]  # fmt: skip


def reload_interfaces() -> None:
    """Let scapy look again at the interfaces and routes of the present network namespace.

    It reads them once, when it is imported. Call this after every change of namespace (setns,
    `netem.kernel.namespaces.inside`), before `send`, `sendp` or `sniff`.
    """
    conf.ifaces.reload()
    conf.route.resync()
    conf.route6.resync()
