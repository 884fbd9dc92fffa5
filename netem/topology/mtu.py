"""How large a packet of a transport gets: the sum that every link on its way must hold.

The largest RC packet is a WRITE Only (or Last) with immediate that carries a whole path MTU: it
has RETH and ImmDt, and in MRC METH and TSETH as well. The sum is made for it, whatever a lab's
operations are, so that a lab does not break when an operation is added. What packets are
wrapped into comes on top, the outermost first: SRv6 (an IPv6 header, and an SRH where one is
needed), an overlay, the tag.
"""

from msgspec import Struct

from netem.topology.plan import SourceRoute
from wire.csid import F3216
from wire.ethernet import ETHERNET, VLAN
from wire.ipv4 import IPV4
from wire.ipv6 import IPV6
from wire.mrc.eths import METH, TSETH
from wire.roce.bth import BTH
from wire.roce.eths import IMMDT, RETH
from wire.roce.icrc import ICRC
from wire.udp import UDP

SRH_FIXED = 8  # RFC 8754, section 2; behind it 16 bytes for each segment
SEGMENT = 16
WIREGUARD = 32  # WireGuard paper, section 5.4.6: type, receiver, counter, and the tag behind
WIREGUARD_BLOCK = 16  # what is inside is padded to a multiple of this

Parts = tuple[tuple[str, int], ...]
_OUTSIDE = ("Ethernet", "802.1Q")
_MRC: Parts = (("METH", METH.size), ("TSETH", TSETH.size))


class MtuSum(Struct, frozen=True):
    """The parts of the largest packet in order, Ethernet first, in bytes."""

    parts: Parts

    @property
    def ethernet(self) -> int:
        """Bytes before the IP header: no part of an interface's MTU."""
        return sum(size for name, size in self.parts if name in _OUTSIDE)

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
        outside = [f"{n} {s}" for n, s in self.parts if n in _OUTSIDE]
        inside = [f"{n} {s}" for n, s in self.parts if n not in _OUTSIDE]
        return (
            f"{' + '.join(outside)} | {' + '.join(inside)} = {self.packet} (frame {self.frame})"
        )


def mtu_sum(
    path_mtu: int,
    family: str,
    *,
    kind: str = "rc",
    tagged: bool = False,
    around: Parts = (),
    overlay: str = "",
) -> MtuSum:
    """Return the sum for RC, or MRC, over `family`, ipv6 or ipv4, at a path MTU.

    `around` are headers that the packet is wrapped into, see `srv6_parts`; `overlay` is the
    family of the packets that carry it through an overlay, if it goes through one.
    """
    tag = (("802.1Q", VLAN.size),) if tagged else ()
    roce: Parts = (
        _ip(family),
        ("UDP", UDP.size),
        ("BTH", BTH.size),
        *(_MRC if kind == "mrc" else ()),
        ("RETH", RETH.size),
        ("ImmDt", IMMDT.size),
        ("payload", path_mtu),
        ("ICRC", ICRC.size),
    )
    if overlay:
        padding = -sum(size for _, size in roce) % WIREGUARD_BLOCK
        roce = (_ip(overlay), ("UDP", UDP.size), ("WireGuard", WIREGUARD), *roce)
        roce += (("padding", padding),) if padding else ()
    return MtuSum((("Ethernet", ETHERNET.size), *tag, *around, *roce))


def srv6_parts(route: SourceRoute) -> Parts:
    """Return the headers of a packet that is encapsulated. RFC 8986, section 5."""
    listed = len(route.segments)
    if route.mode == "encaps_red":
        listed -= 1  # the first segment is in the destination address alone
    return _outer(listed)


def usid_parts(usids: int) -> Parts:
    """Return the headers of a packet that is led by so many uSIDs, in containers of six."""
    return _outer(-(-usids // F3216.capacity) - 1)


def _outer(listed: int) -> Parts:
    outer: Parts = (("outer IPv6", IPV6.size),)
    return (*outer, ("SRH", SRH_FIXED + SEGMENT * listed)) if listed else outer


def _ip(family: str) -> tuple[str, int]:
    return ("IPv6", IPV6.size) if family == "ipv6" else ("IPv4", IPV4.size)
