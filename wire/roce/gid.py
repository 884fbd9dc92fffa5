"""Names of ports and adapters: GIDs of IP addresses, GUIDs of MAC addresses.

Annex A17 (RoCE v2): a GID is an IPv6 address, or an IPv4 address behind ::ffff (RFC 4291,
section 2.5.5.2). The GUID is the modified EUI-64 of RFC 4291, appendix A.
"""

from wire.codec import check_size

_MAPPED = bytes(10) + b"\xff\xff"


def gid_of(ip: bytes) -> bytes:
    """Return the 16 bytes that name the IP address `ip`, of 4 or 16 bytes."""
    if len(ip) == 4:
        return _MAPPED + ip
    check_size("ip", ip, 16)
    return ip


def ip_of(gid: bytes) -> bytes:
    """Return the IP address that a GID names: 4 bytes where it is a mapped one, else 16."""
    check_size("gid", gid, 16)
    return gid[12:] if gid.startswith(_MAPPED) else gid


def guid_of(mac: bytes) -> int:
    """Return the GUID of an adapter whose port has the MAC address `mac`."""
    check_size("mac", mac, 6)
    return int.from_bytes(bytes((mac[0] ^ 2, *mac[1:3], 0xFF, 0xFE, *mac[3:])), "big")
