"""Neighbours: who is behind a port, and the Ethernet header that gets a packet there."""

from netem.topology.plan import PortPlan
from wire.ethernet import ETHERNET, VLAN, EtherType

_NO_ROOM = -1


class Port:
    """What forwarding must know of one port."""

    __slots__ = ("index", "is_plain", "is_up", "mac", "mtu", "name", "vlan")

    def __init__(self, plan: PortPlan, index: int) -> None:
        self.name = plan.name
        self.index = index
        self.mac = bytes.fromhex(plan.mac.replace(":", ""))
        self.vlan = plan.vlan
        self.is_plain = plan.vlan is None  # its frames have no tag
        self.mtu = plan.mtu
        self.is_up = True


class Hop:
    """One neighbour on one port."""

    __slots__ = ("macs", "name", "port", "room")

    def __init__(self, port: Port, mac: bytes) -> None:
        self.port = port
        self.name = port.name
        self.macs = mac + port.mac
        # The longest frame that goes out as a plain one; none where it needs a tag or the port
        # is down. So the hot path has one comparison for all three.
        self.room = _NO_ROOM
        self.look_again()

    def look_again(self) -> None:
        """Take note that the port has come up or gone down."""
        fits = self.port.is_up and self.port.is_plain
        self.room = ETHERNET.size + self.port.mtu if fits else _NO_ROOM

    def header(self, ethertype: EtherType, pcp: int) -> bytes:
        """Return the Ethernet header of a packet to this neighbour, tagged if its link is."""
        vlan = self.port.vlan
        if vlan is None:
            return self.macs + ethertype.to_bytes(2, "big")
        tci = pcp << 13 | vlan
        return self.macs + b"\x81\x00" + VLAN.pack(tci, ethertype)
