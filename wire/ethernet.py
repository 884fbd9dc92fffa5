"""Ethernet II header with at most one 802.1Q tag. IEEE 802.3, clause 3; 802.1Q, clause 9."""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple, Self

from wire.codec import ReadBuffer, TruncatedError, WriteBuffer, check_size, check_uint

ETHERNET = Struct("!6s6sH")  # destination | source | EtherType
VLAN = Struct("!HH")  # PCP3 DEI VID12 | EtherType; follows an EtherType of 0x8100

BROADCAST = b"\xff" * 6


class EtherType(IntEnum):
    """EtherTypes that fabriclab speaks."""

    IPV4 = 0x0800
    ARP = 0x0806
    VLAN = 0x8100
    IPV6 = 0x86DD
    ROCE_V1 = 0x8915


_TPID = int(EtherType.VLAN)  # members of an IntEnum are slow to look up and to compare


class Vlan(NamedTuple):
    """The tag control information of 802.1Q."""

    vid: int
    pcp: int = 0
    dei: bool = False


class Ethernet(NamedTuple):
    """One Ethernet header; `ethertype` is that of the payload, behind the tag if there is one.

    A second tag is payload of EtherType 0x8100.
    """

    dst: bytes
    src: bytes
    ethertype: int
    vlan: Vlan | None = None

    @property
    def size(self) -> int:
        return ETHERNET.size if self.vlan is None else ETHERNET.size + VLAN.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        if len(buf) - offset < ETHERNET.size:
            raise TruncatedError("Ethernet", ETHERNET.size, len(buf) - offset)
        dst, src, ethertype = ETHERNET.unpack_from(buf, offset)
        if ethertype != _TPID:
            return cls(dst, src, ethertype)
        if len(buf) - offset < ETHERNET.size + VLAN.size:
            raise TruncatedError("802.1Q", ETHERNET.size + VLAN.size, len(buf) - offset)
        tci, ethertype = VLAN.unpack_from(buf, offset + ETHERNET.size)
        return cls(dst, src, ethertype, Vlan(tci & 0xFFF, tci >> 13, bool(tci >> 12 & 1)))

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        dst, src, ethertype, vlan = self
        # One test for the common case, words only when it fails.
        if not len(dst) == len(src) == 6 or ethertype >> 16:
            check_size("dst", dst, 6)
            check_size("src", src, 6)
            check_uint("ethertype", ethertype, 16)
        if vlan is None:
            if ethertype == _TPID:
                raise ValueError("ethertype is 0x8100, but there is no vlan")
            ETHERNET.pack_into(buf, offset, dst, src, ethertype)
            return
        check_uint("vid", vlan.vid, 12)
        check_uint("pcp", vlan.pcp, 3)
        tci = vlan.pcp << 13 | vlan.dei << 12 | vlan.vid
        VLAN.pack_into(buf, offset + ETHERNET.size, tci, ethertype)
        ETHERNET.pack_into(buf, offset, dst, src, _TPID)


def is_multicast(ip: ReadBuffer) -> bool:
    """Say whether an IP address of 4 or 16 bytes is a group's. RFC 1112, RFC 4291."""
    return ip[0] == 0xFF if len(ip) == 16 else ip[0] >> 4 == 0xE


def group_mac(group: ReadBuffer) -> bytes:
    """Return the Ethernet address of an IP multicast address of 4 or 16 bytes.

    RFC 1112, section 6.4, for IPv4: the low 23 bits; RFC 2464, section 7, for IPv6: the low 32.
    """
    if len(group) == 16:
        return b"\x33\x33" + bytes(group[12:])
    return b"\x01\x00\x5e" + bytes((group[1] & 0x7F, group[2], group[3]))
