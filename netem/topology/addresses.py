"""Addresses of a lab, from a node's number and a port's plane.

    hosts      fd00:<plane>::<N+1>              198.18.0.0 + 8192 x plane + N + 1
    routers    fd00:ffff:<plane>::<N+1>         198.18.0.0 + 8192 x plane + 4096 + N + 1
    locators   fc00:<plane>:<N+1>::/64 and fc00:ffff:<plane>:<N+1>::/64, in labs with SRv6

with N + 1 in hex. MACs have the plane in one byte and N + 1 in two, or for what is no host N
and the port's number in two each.
"""

from ipaddress import IPv4Address, IPv6Address

# 198.18.0.0/15 is set aside for tests of network devices (RFC 2544); 8192 addresses a plane,
# the upper half of them for routers.
_IPV4_BASE = int(IPv4Address("198.18.0.0"))
_IPV4_PLANE = 8192
_IPV4_ROUTERS = 4096

HOSTS_V6 = 0xFD00 << 112
_ROUTERS = 0xFFFF << 96
LOCATORS = 0xFC00 << 112
END = 0xE  # the last bits of a router's own End SID
DECAPSULATE = {"ipv6": 0xD6, "ipv4": 0xD4}  # ... and of SIDs that decapsulate


def host_mac(number: int, plane: int) -> str:
    """Return the MAC of host `number` on a plane: 02:00:00:<plane>:<number+1>."""
    return f"02:00:00:{plane:02x}:{(number + 1) >> 8:02x}:{(number + 1) & 0xFF:02x}"


def other_mac(number: int, port: int) -> str:
    """Return the MAC of a port of a node that is no host: 02:ff:<number>:<port>."""
    return f"02:ff:{number >> 8:02x}:{number & 0xFF:02x}:{port >> 8:02x}:{port & 0xFF:02x}"


def host_ipv6(number: int, plane: int) -> str:
    """Return fd00:<plane>::<number+1>."""
    return str(IPv6Address(HOSTS_V6 | (plane << 96) | (number + 1)))


def host_ipv4(number: int, plane: int) -> str:
    """Return 198.18.0.0 + plane x 8192 + number + 1."""
    return str(IPv4Address(_IPV4_BASE + plane * _IPV4_PLANE + number + 1))


def router_ipv6(number: int, plane: int) -> str:
    """Return fd00:ffff:<plane>::<number+1>."""
    return str(IPv6Address(HOSTS_V6 | _ROUTERS | (plane << 80) | (number + 1)))


def router_ipv4(number: int, plane: int) -> str:
    """Return 198.18.0.0 + plane x 8192 + 4096 + number + 1."""
    base = _IPV4_BASE + plane * _IPV4_PLANE + _IPV4_ROUTERS
    return str(IPv4Address(base + number + 1))


def host_ip(number: int, plane: int, family: str) -> str:
    """Return the address of host `number` on a plane, in its family."""
    return (host_ipv6 if family == "ipv6" else host_ipv4)(number, plane)


def gid(ip: str) -> str:
    """Return the GID of an address, as tools print it: "::ffff:198.18.0.1". Annex A17."""
    return ip if ":" in ip else f"::ffff:{ip}"


def plane_prefixes(plane: int, family: str) -> tuple[str, ...]:
    """Return the prefixes of the hosts and of the routers of a plane."""
    if family == "ipv4":
        return (f"{IPv4Address(_IPV4_BASE + plane * _IPV4_PLANE)}/19",)
    hosts, routers = HOSTS_V6 | plane << 96, HOSTS_V6 | _ROUTERS | plane << 80
    return f"{IPv6Address(hosts)}/32", f"{IPv6Address(routers)}/48"


def host_locator(number: int, plane: int) -> int:
    """Return fc00:<plane>:<number+1>::, 64 bits of which count."""
    return LOCATORS | plane << 96 | (number + 1) << 80


def router_locator(number: int, plane: int) -> int:
    """Return fc00:ffff:<plane>:<number+1>::, 64 bits of which count."""
    return LOCATORS | _ROUTERS | plane << 80 | (number + 1) << 64
