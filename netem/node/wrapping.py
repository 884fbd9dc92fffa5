"""The frame that a kernel would make of a UDP payload, for what never reaches the kernel.

In datagram mode the kernel owns everything up to the UDP header. The impairment of such a port
works on payloads, before the socket; but faults match frames, queues count frames and captures
hold frames. So where there is something to impair, a payload gets the headers that it would
have had. What the kernel alone decides (flow label, hop limit) is its usual choice here, which
is why a frame recorded this way is called *reconstructed*.
"""

from ipaddress import ip_address

from netem.topology.plan import NodePlan, PortPlan
from wire.codec import ReadBuffer
from wire.ethernet import ETHERNET, Ethernet, EtherType
from wire.ipv4 import Protocol
from wire.ipv6 import IPV6, Ipv6
from wire.roce.packet import UDP_PORT
from wire.udp import CHECKSUM_OFFSET, UDP, Udp, checksum

HEADERS = ETHERNET.size + IPV6.size + UDP.size
_ADDRESSES = ETHERNET.size + 8
_UDP = ETHERNET.size + IPV6.size
_UNKNOWN_MAC = bytes(6)  # of an address that the plan has no neighbour for


class Wrapping:
    """The addresses of one port, and headers made of them."""

    def __init__(self, node: NodePlan, port: PortPlan, own_ip: bytes) -> None:
        self._own = own_ip
        self._macs = {own_ip: _mac(port.mac)}
        for row in node.neighbours:
            if row.port == port.name:
                self._macs[ip_address(row.ip).packed] = _mac(row.mac)

    def sent(
        self, payload: ReadBuffer, src_port: int, dst_ip: bytes, traffic_class: int
    ) -> bytearray:
        """Return the frame of a datagram that this port sends to port 4791 of `dst_ip`."""
        return self._frame(payload, self._own, dst_ip, src_port, traffic_class)

    def received(self, payload: ReadBuffer, src_port: int, src_ip: bytes) -> bytearray:
        """Return the frame in which a datagram came to port 4791 of this port."""
        return self._frame(payload, src_ip, self._own, src_port, 0)

    def _frame(
        self, payload: ReadBuffer, src: bytes, dst: bytes, src_port: int, traffic_class: int
    ) -> bytearray:
        frame = bytearray(HEADERS + len(payload))
        Ethernet(self._mac_of(dst), self._mac_of(src), EtherType.IPV6).pack_into(frame)
        length = UDP.size + len(payload)
        Ipv6(src, dst, Protocol.UDP, length, traffic_class=traffic_class).pack_into(
            frame, ETHERNET.size
        )
        Udp(src_port, UDP_PORT, length).pack_into(frame, _UDP)
        frame[HEADERS:] = payload
        return frame

    def _mac_of(self, ip: bytes) -> bytes:
        return self._macs.get(ip, _UNKNOWN_MAC)


def payload_of(frame: ReadBuffer) -> memoryview:
    """Return what a wrapped frame carries, up to its end."""
    return memoryview(frame)[HEADERS:]


def traffic_class_of(frame: ReadBuffer) -> int:
    """Return the traffic class of a wrapped frame, which an egress may have marked."""
    return Ipv6.unpack_from(frame, ETHERNET.size).traffic_class


def finished(frame: ReadBuffer) -> bytes:
    """Return a wrapped frame with its UDP checksum, which only a capture needs."""
    whole = bytearray(frame)
    src, dst = (whole[at : at + 16] for at in (_ADDRESSES, _ADDRESSES + 16))
    at = _UDP + CHECKSUM_OFFSET
    whole[at : at + 2] = bytes(2)
    whole[at : at + 2] = checksum(src, dst, whole[_UDP:]).to_bytes(2, "big")
    return bytes(whole)


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
