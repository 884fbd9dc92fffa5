"""ARP for IPv4 over Ethernet. RFC 826."""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple, Self

from wire.codec import (
    FieldError,
    ReadBuffer,
    TruncatedError,
    WriteBuffer,
    check_size,
    check_uint,
)
from wire.ethernet import EtherType

# Hardware Type | Protocol Type | Hardware Length | Protocol Length | Operation | Sender MAC |
# Sender IP | Target MAC | Target IP
ARP = Struct("!HHBBH6s4s6s4s")

_ETHERNET = 1  # hardware type
_FIXED = (
    ("ARP.Hardware Type", _ETHERNET),
    ("ARP.Protocol Type", EtherType.IPV4),
    ("ARP.Hardware Length", 6),
    ("ARP.Protocol Length", 4),
)


class Operation(IntEnum):
    """What an ARP packet is."""

    REQUEST = 1
    REPLY = 2


class Arp(NamedTuple):
    """One ARP packet. A request leaves `target_mac` zero."""

    operation: int
    sender_mac: bytes
    sender_ip: bytes
    target_mac: bytes
    target_ip: bytes

    @property
    def size(self) -> int:
        return ARP.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        """Raise TruncatedError, or FieldError for anything but IPv4 over Ethernet."""
        if len(buf) - offset < ARP.size:
            raise TruncatedError("ARP", ARP.size, len(buf) - offset)
        *fixed, operation, sender_mac, sender_ip, target_mac, target_ip = ARP.unpack_from(
            buf, offset
        )
        for (name, legal), value in zip(_FIXED, fixed, strict=True):
            if value != legal:
                raise FieldError(name, value, f"{legal:#x}")
        return cls(operation, sender_mac, sender_ip, target_mac, target_ip)

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("operation", self.operation, 16)
        check_size("sender_mac", self.sender_mac, 6)
        check_size("sender_ip", self.sender_ip, 4)
        check_size("target_mac", self.target_mac, 6)
        check_size("target_ip", self.target_ip, 4)
        ARP.pack_into(buf, offset, *(legal for _, legal in _FIXED), *self)
