"""`stack: kernel`: the TAP through which the kernel of a node's namespace uses the node's port.

The port's own interface has no address, so the kernel hears nothing there. The TAP `k<port>`
carries the port's MAC and addresses. What arrives at the port goes to the machine if it is UDP
for one of the machine's ports, and to the TAP if it is anything else: the kernel answers ping,
ARP and neighbour solicitations, and the machine never does, so nothing is answered twice; and
the kernel, which never sees a datagram for our ports, never answers one with "unreachable".
What the kernel sends on the TAP leaves through the port's egress, impaired and captured like
any other frame.
"""

from struct import Struct

from wire.codec import ReadBuffer
from wire.ethernet import ETHERNET, VLAN, EtherType
from wire.ipv4 import Protocol

MACHINE_PORTS = frozenset({4791, 4971})  # RoCE v2; MRC's own, specs of the transports

_U16 = Struct("!H")
_FRAGMENT_OFFSET = 0x1FFF  # of IPv4's flags and fragment offset


def is_for_machine(frame: ReadBuffer) -> bool:
    """Say whether an Ethernet frame is UDP to a port of the machine's. Total.

    A fragment without the UDP header is the kernel's, and so is IPv6 with extension headers:
    the machines send neither and refuse both.
    """
    size = len(frame)
    start = ETHERNET.size
    if size < start + 20:
        return False
    ethertype = _U16.unpack_from(frame, start - 2)[0]
    if ethertype == EtherType.VLAN:
        ethertype = _U16.unpack_from(frame, start + VLAN.size - 2)[0]
        start += VLAN.size
    if ethertype == EtherType.IPV6:
        udp = start + 40
        if size < udp + 4 or frame[start + 6] != Protocol.UDP:
            return False
    elif ethertype == EtherType.IPV4:
        udp = start + (frame[start] & 0xF) * 4
        if size < udp + 4 or frame[start + 9] != Protocol.UDP:
            return False
        if _U16.unpack_from(frame, start + 6)[0] & _FRAGMENT_OFFSET:
            return False
    else:
        return False
    return _U16.unpack_from(frame, udp + 2)[0] in MACHINE_PORTS
