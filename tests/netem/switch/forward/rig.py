"""A switch of six ports whose forwarding is asked by hand, and frames for it.

Port eN of the switch has the MAC 02:aa:00:00:00:0N; the neighbour behind it that routes name is
02:bb:00:00:00:0N. Hosts are fd00::N and 198.18.0.N, the switch is fd00:ffff::1 and 198.19.0.1.
"""

from ipaddress import ip_address

from netem.switch.forward.router import forwarder_of
from netem.switch.forwarder import Decision, Drop, Flood, Punt
from netem.topology.plan import NodePlan, PortPlan
from netem.topology.switch_plan import NextHop, RoutePlan, SidPlan, SwitchPlan
from transports.clock import MS
from wire.ethernet import Ethernet, EtherType, Vlan
from wire.ipv4 import Ipv4
from wire.ipv6 import Ipv6
from wire.udp import Udp

PORTS = 6
MTU = 4200
SWITCH6, SWITCH4 = "fd00:ffff::1", "198.19.0.1"
SENDER = bytes.fromhex("02cc00000001")  # of the MAC that frames come from
LATER = 1000 * MS


def packed(text):
    return ip_address(text).packed


def own(number):
    """The MAC of port eN."""
    return bytes((2, 0xAA, 0, 0, 0, number))


def other(number):
    """The MAC of the neighbour behind port eN."""
    return bytes((2, 0xBB, 0, 0, 0, number))


def hop(number):
    return NextHop(f"e{number}", other(number).hex(":"))


def hops(*numbers):
    return tuple(hop(number) for number in numbers)


def route(prefix, *numbers):
    return RoutePlan(prefix, hops(*numbers))


def sid(prefix, behaviour, *numbers, flavours=()):
    return SidPlan(prefix, behaviour, flavours, hops(*numbers))


def node(*routes, ports=PORTS, mtu=MTU, vlan=None, neighbours=(), **plan):
    """Return a switch; `mtu` and `vlan` are numbers, or dicts from port number to one."""
    of = lambda given, port: given.get(port) if isinstance(given, dict) else given  # noqa: E731
    return NodePlan(
        "s", "switch", index=0, seed=1, neighbours=neighbours,
        ports=tuple(
            PortPlan(
                f"e{n}", own(n).hex(":"), f"s:e{n}--x{n}:p0", f"x{n}:p0", of(mtu, n) or MTU,
                vlan=of(vlan, n),
            )
            for n in range(ports)
        ),
        switch=SwitchPlan(
            routes=tuple(routes), **{"address": SWITCH6, "address_v4": SWITCH4, **plan}
        ),
    )  # fmt: skip


class Bench:
    """A forwarder, asked and answering in words."""

    def __init__(self, *routes, backlog=None, **plan):
        self.waiting = backlog or {}
        self.forwarder = forwarder_of(
            node(*routes, **plan), lambda port: self.waiting.get(port, 0)
        )

    def ask(self, frame, port=0, now=0):
        return self.forwarder.forward(f"e{port}", memoryview(frame), now)

    def warm(self, frame):
        """Ask once without looking, so that the hot path knows the destination."""
        self.ask(frame, now=LATER)
        return self

    def out(self, frame, port=0, now=0):
        """Return where one frame goes, as a number, and its bytes."""
        verdict = self.ask(frame, port, now)
        assert isinstance(verdict, Decision), verdict
        return int(verdict.port[1:]), bytes(verdict.frame)

    def way(self, frame, port=0):
        return self.out(frame, port)[0]

    def drops(self, frame, port=0, now=0):
        """Return why a frame is dropped, and the answers as (port number, bytes)."""
        verdict = self.ask(frame, port, now)
        assert isinstance(verdict, Drop), verdict
        return verdict.reason, numbered(verdict.answers)

    def answers(self, frame, port=0, now=0):
        verdict = self.ask(frame, port, now)
        assert isinstance(verdict, Punt), verdict
        return numbered(verdict.answers)

    def floods(self, frame, port=0):
        verdict = self.ask(frame, port)
        assert isinstance(verdict, Flood), verdict
        return verdict.ports

    def count(self, name):
        return self.forwarder.counters()[name]


def numbered(answers):
    return [(int(answer.port[1:]), bytes(answer.frame)) for answer in answers]


# -- frames --------------------------------------------------------------------------------


def udp(sport=0xC001, dport=4791, payload=bytes(16)):
    buf = bytearray(8)
    Udp(sport, dport, 8 + len(payload), 0).pack_into(buf)
    return bytes(buf) + payload


def ip6(dst="fd00::2", payload=None, next_header=17, src="fd00::1", **fields):
    payload = udp() if payload is None else payload
    buf = bytearray(40)
    Ipv6(packed(src), packed(dst), next_header, len(payload), **fields).pack_into(buf)
    return bytes(buf) + payload


def ip4(dst="198.18.0.2", payload=None, protocol=17, src="198.18.0.1", **fields):
    payload = udp() if payload is None else payload
    header = Ipv4(packed(src), packed(dst), protocol, 0, **fields)
    header = header._replace(total_length=header.size + len(payload))
    buf = bytearray(header.size)
    header.pack_into(buf)
    return bytes(buf) + payload


def frame(packet, port=0, *, mac=None, src=SENDER, vid=None, pcp=0, kind=None):
    """Return a frame for the MAC of port number `port`, or `mac`."""
    if kind is None:
        kind = EtherType.IPV4 if packet[:1] and packet[0] >> 4 == 4 else EtherType.IPV6
    vlan = None if vid is None else Vlan(vid, pcp)
    ethernet = Ethernet(own(port) if mac is None else mac, src, kind, vlan)
    buf = bytearray(ethernet.size)
    ethernet.pack_into(buf)
    return bytes(buf) + packet


def forwarded(packet, number):
    """Return the frame that takes an unchanged packet to the neighbour of port eN."""
    return frame(packet, mac=other(number), src=own(number))
