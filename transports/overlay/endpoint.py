"""Where a peer is: an address and a UDP port."""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple, Self

from transports.overlay.keys import shown

_MAPPED = bytes(10) + b"\xff\xff"  # RFC 4291, section 2.5.5.2


class Endpoint(NamedTuple):
    """An IPv4 or IPv6 address, as its 4 or 16 bytes, and a port.

    An IPv4 address in the clothes of IPv6, as a socket for both families shows it, is made the
    IPv4 address that it is (`of`), or a peer would flap between two spellings of one place.
    """

    address: bytes
    port: int
    scope: int = 0  # index of the interface, for link-local addresses only

    @classmethod
    def of(cls, address: bytes, port: int, scope: int = 0) -> Self:
        """Return the endpoint in its one spelling; ValueError for no address or no port."""
        if len(address) == 16 and address.startswith(_MAPPED):
            address = address[12:]
        if len(address) not in {4, 16}:
            raise ValueError(f"an address is 4 or 16 bytes, not {len(address)}")
        if not 0 < port < 1 << 16:
            raise ValueError(f"a port is 1 to 65535, not {port}")
        return cls(address, port, scope)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `192.0.2.1:51820` or `[2001:db8::1]:51820`, in brackets also `fe80::1%3`."""
        host, _, port = text.rpartition(":")
        scope = 0
        try:
            if host.startswith("[") and host.endswith("]"):
                host, percent, zone = host[1:-1].partition("%")
                scope = _number(zone) if percent else 0
                packed = IPv6Address(host).packed
            else:
                packed = IPv4Address(host).packed
            return cls.of(packed, _number(port), scope)
        except ValueError:
            raise ValueError(
                f"{shown(text)} is no endpoint: write 192.0.2.1:51820 or [2001:db8::1]:51820"
            ) from None

    def __str__(self) -> str:
        address = ip_address(self.address)
        if address.version == 4:
            return f"{address}:{self.port}"
        zone = f"%{self.scope}" if self.scope else ""
        return f"[{address}{zone}]:{self.port}"


def _number(text: str) -> int:
    """Return a decimal number; int() also takes signs, blanks and underscores."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(text)
    return int(text)
