"""RDMA IP CM service: ports and addresses of IP in service IDs and private data. Annex A11.

The service ID names the port space and the destination port. The private data of a REQ or a
SIDR_REQ begins with the source port and both addresses; what the application gave follows.
"""

from enum import IntEnum
from typing import NamedTuple, Self

from wire.codec import FieldError, ReadBuffer, WriteBuffer, check_size, check_uint
from wire.roce.layout import Field, Layout


class PortSpace(IntEnum):
    """Port spaces as Linux numbers them: bits 16 to 47 of a service ID."""

    IPOIB = 0x0002
    TCP = 0x0106  # connections
    UDP = 0x0111  # datagrams
    IB = 0x013F  # any


def service_id(port_space: int, port: int) -> int:
    """Return the service ID of a port in a port space."""
    check_uint("port_space", port_space, 48)
    check_uint("port", port, 16)
    return port_space << 16 | port


IP_HEADER = Layout(
    "IP CM header", 36,
    ("major_version", 0, 4), Field("minor_version", 0, 4, 4), ("ip_version", 1, 4),
    ("source_port", 2, 16), ("source", 4, 128), ("destination", 20, 128),
)  # fmt: skip

_PAD = bytes(12)


class IpHeader(NamedTuple):
    """The first 36 bytes of the private data. Addresses have 4 or 16 bytes, both alike."""

    source_port: int
    source: bytes
    destination: bytes

    @property
    def size(self) -> int:
        return IP_HEADER.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        """Raise TruncatedError, or FieldError for a version or an IP version that is none.

        The 12 bytes before an IPv4 address are ignored.
        """
        major, minor, ip, port, source, destination = IP_HEADER.unpack_from(buf, offset)
        if major or minor:
            raise FieldError("IP CM.Version", major << 4 | minor, "0x0")
        if ip not in {4, 6}:
            raise FieldError("IP CM.IP Version", ip, "0x4 or 0x6")
        start = 12 if ip == 4 else 0
        return cls(port, source[start:], destination[start:])

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        is_v4 = len(self.source) == 4
        for name, address in ("source", self.source), ("destination", self.destination):
            check_size(name, address, 4 if is_v4 else 16)
        pad = _PAD if is_v4 else b""
        values = (
            *(0, 0, 4 if is_v4 else 6, self.source_port),
            *(pad + self.source, pad + self.destination),
        )
        IP_HEADER.pack_into(values, buf, offset)
