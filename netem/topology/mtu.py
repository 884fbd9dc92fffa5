"""How large a packet of a transport gets: the sum that every link on its way must hold.

The largest RC packet is a WRITE Only (or Last) with immediate that carries a whole path MTU: it
has RETH and ImmDt. The sum is made for it, whatever a lab's operations are, so that a lab does
not break when an operation is added.
"""

from msgspec import Struct

from wire.ethernet import ETHERNET, VLAN
from wire.ipv4 import IPV4
from wire.ipv6 import IPV6
from wire.roce.bth import BTH
from wire.roce.eths import IMMDT, RETH
from wire.roce.icrc import ICRC
from wire.udp import UDP


class MtuSum(Struct, frozen=True):
    """The parts of the largest packet in order, Ethernet first, in bytes."""

    parts: tuple[tuple[str, int], ...]

    @property
    def ethernet(self) -> int:
        """Bytes before the IP header: no part of an interface's MTU."""
        return sum(size for name, size in self.parts if name in {"Ethernet", "802.1Q"})

    @property
    def frame(self) -> int:
        """Bytes of the whole frame, without preamble and FCS."""
        return sum(size for _, size in self.parts)

    @property
    def packet(self) -> int:
        """Bytes from the IP header on: what the MTU of a link must allow."""
        return self.frame - self.ethernet

    @property
    def text(self) -> str:
        """The sum as a line: "Ethernet 14 | IPv6 40 + UDP 8 + ... = 1108 (frame 1122)"."""
        outside = [f"{n} {s}" for n, s in self.parts if n in {"Ethernet", "802.1Q"}]
        inside = [f"{n} {s}" for n, s in self.parts if n not in {"Ethernet", "802.1Q"}]
        return (
            f"{' + '.join(outside)} | {' + '.join(inside)} = {self.packet} (frame {self.frame})"
        )


def mtu_sum(path_mtu: int, family: str, *, tagged: bool = False) -> MtuSum:
    """Return the sum for RC over `family`, ipv6 or ipv4, at a path MTU."""
    tag = (("802.1Q", VLAN.size),) if tagged else ()
    ip = ("IPv6", IPV6.size) if family == "ipv6" else ("IPv4", IPV4.size)
    return MtuSum(
        (
            ("Ethernet", ETHERNET.size),
            *tag,
            ip,
            ("UDP", UDP.size),
            ("BTH", BTH.size),
            ("RETH", RETH.size),
            ("ImmDt", IMMDT.size),
            ("payload", path_mtu),
            ("ICRC", ICRC.size),
        )
    )
