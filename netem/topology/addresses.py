"""Addresses of a lab, from a node's number and a port's plane."""

from ipaddress import IPv4Address, IPv6Address

# 198.18.0.0/15 is set aside for tests of network devices (RFC 2544); 8192 hosts a plane.
_IPV4_BASE = int(IPv4Address("198.18.0.0"))
_IPV4_PLANE = 8192


def host_mac(index: int, plane: int) -> str:
    """Return the MAC of host number `index` on a plane: 02:00:00:<plane>:<index+1>."""
    return f"02:00:00:{plane:02x}:{(index + 1) >> 8:02x}:{(index + 1) & 0xFF:02x}"


def bridge_mac(index: int, port: int) -> str:
    """Return the MAC of a port of a node that is no host; nothing is ever sent to it."""
    return f"02:ff:{index >> 8:02x}:{index & 0xFF:02x}:{port >> 8:02x}:{port & 0xFF:02x}"


def host_ipv6(index: int, plane: int) -> str:
    """Return fd00:<plane>::<index+1>, both in hex."""
    return str(IPv6Address((0xFD00 << 112) | (plane << 96) | (index + 1)))


def host_ipv4(index: int, plane: int) -> str:
    """Return 198.18.0.0 + plane x 8192 + index + 1."""
    return str(IPv4Address(_IPV4_BASE + plane * _IPV4_PLANE + index + 1))
