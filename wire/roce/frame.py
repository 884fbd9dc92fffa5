"""A whole RoCE v2 frame as one value: Ethernet, IP, UDP, BTH to payload, with lengths and CRCs.

The convenient way in and out, for tools, tests and scripted peers. What carries traffic reads
integers from the Structs instead, and writes into prepared headers.
"""

from typing import NamedTuple, Self

from wire.codec import ChecksumError, ReadBuffer
from wire.ethernet import Ethernet
from wire.ipv4 import IPV4, Ipv4, Protocol
from wire.ipv6 import Ipv6
from wire.roce.icrc import ICRC, icrc
from wire.roce.packet import UDP_PORT, RocePacket, locate
from wire.udp import UDP, Udp

_UDP = int(Protocol.UDP)


class RoceFrame(NamedTuple):
    """One frame; `roce.payload` of an unpacked one is a view into the buffer."""

    ethernet: Ethernet
    ip: Ipv4 | Ipv6
    udp: Udp
    roce: RocePacket

    @classmethod
    def make(
        cls, ethernet: Ethernet, ip: Ipv4 | Ipv6, udp_source_port: int, roce: RocePacket
    ) -> Self:
        """Return a frame; `ip` and UDP get the protocol and the lengths that `roce` needs."""
        length = UDP.size + roce.size + ICRC.size
        if isinstance(ip, Ipv4):
            ip = Ipv4(ip.src, ip.dst, _UDP, ip.size + length, *ip[4:])
        else:
            ip = Ipv6(ip.src, ip.dst, _UDP, length, *ip[4:])
        return cls(ethernet, ip, Udp(udp_source_port, UDP_PORT, length), roce)

    @classmethod
    def unpack(cls, frame: ReadBuffer) -> Self:
        """Return what is in `frame`, padding of the link behind the ICRC apart.

        Raise DecodeError for any fault, a wrong checksum of the IPv4 header or a wrong ICRC
        among them. The UDP checksum is not looked at.
        """
        at, udp, bth, end = locate(frame)
        ethernet = Ethernet.unpack_from(frame)
        ip = (Ipv4 if udp - at == IPV4.size else Ipv6).unpack_from(frame, at)
        view = memoryview(frame)
        roce = RocePacket.unpack(view[bth:end])
        (got,) = ICRC.unpack_from(frame, end)
        if (want := icrc(view[at:end])) != got:
            raise ChecksumError("ICRC", want, got)
        return cls(ethernet, ip, Udp.unpack_from(frame, udp), roce)

    def pack(self) -> bytearray:
        """Return the bytes of the frame, ICRC last; lengths stay as they are."""
        ethernet, ip, udp, roce = self
        at = ethernet.size
        bth = at + ip.size + UDP.size
        end = bth + roce.size
        frame = bytearray(end + ICRC.size)
        ethernet.pack_into(frame)
        ip.pack_into(frame, at)
        udp.pack_into(frame, bth - UDP.size)
        roce.pack_into(frame, bth)
        ICRC.pack_into(frame, end, icrc(memoryview(frame)[at:end]))
        return frame
