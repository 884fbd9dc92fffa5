"""A switch on a bench: frames are offered by hand, what leaves is written down with its time.

Port eN of the bench forwards what is addressed to 02:00:00:00:00:NN, so that tests say in a
frame where it goes; what is addressed to 02:00:00:00:00:ff is flooded, to ...:fe dropped.
"""

from dataclasses import dataclass
from typing import NamedTuple

from netem.impair.departure import FrameMeta
from netem.impair.model import Impairment
from netem.switch.forwarder import Decision, Drop, Flood
from netem.switch.pipeline import Switch
from netem.topology.plan import NodePlan, PortPlan
from netem.topology.switch_plan import SwitchPlan
from wire.ethernet import Ethernet, EtherType, Vlan
from wire.ipv4 import Ipv4
from wire.ipv6 import Ipv6
from wire.pfc import Pfc, pfc_frame
from wire.udp import Udp

GBIT = 1_000_000_000
HOST = bytes.fromhex("02aa00000001")
ECT = 2


def mac(number):
    return bytes([2, 0, 0, 0, 0, number])


class ByAddress:
    """Forwards by the last byte of the destination."""

    def __init__(self, ports):
        self.ports = ports

    def forward(self, port, frame, now):
        last = frame[5]
        if last == 0xFF:
            return Flood(tuple(p for p in self.ports if p != port), frame)
        name = f"e{last}"
        return Decision(name, frame) if name in self.ports else Drop("no_route")

    shortcuts = 0

    def shortcut(self, port, frame, decision):
        return None

    def counters(self):
        return {}


class Sent(NamedTuple):
    """One frame that left, or died."""

    at: int
    port: str
    frame: bytes
    meta: FrameMeta

    @property
    def comment(self):
        return self.meta.comment


@dataclass
class Bench:
    """The switch, and what came out of it."""

    switch: Switch
    now: int = 0

    def __post_init__(self):
        self.sent = []
        self.dead = []
        self.told = []

    def offer(self, port, frame, at=None):
        """Let a frame arrive, now or at a later time; everything before that happens first."""
        if at is not None:
            self.run(at)
        self.switch.receive(port, frame, self.now)
        self.drain()

    def drain(self):
        for port, frame, meta in self.switch.transmit(self.now):
            where = self.dead if meta.killed else self.sent
            where.append(Sent(self.now, port, frame, meta))
        self.told.extend(self.switch.events())

    def run(self, until):
        """Let time pass, stopping wherever the switch wants it."""
        while (at := self.switch.deadline) is not None and at <= until:
            self.now = max(self.now, at)
            self.switch.expire(self.now)
            self.drain()
        self.now = max(self.now, until)
        self.switch.expire(self.now)
        self.drain()

    def finish(self, most=10**12):
        """Let everything happen that happens by itself."""
        while (at := self.switch.deadline) is not None and at < most:
            self.run(at)

    @property
    def counters(self):
        return self.switch.report().counters

    def events(self, name):
        return [row for row in self.told if row.event == name]

    def out(self, port):
        return [row for row in self.sent if row.port == port]

    def pauses(self, port):
        """The PFC frames that left by a port, as (time, what they say)."""
        return [
            (row.at, Pfc.unpack_from(row.frame, 14).quanta)
            for row in self.out(port)
            if row.frame[12:14] == b"\x88\x08"
        ]

    def check_books(self):
        """Nothing appears or disappears."""
        c = self.counters
        into = c["received"] + c["copies"] + c["originated"]
        assert into == c["sent"] + c["dropped"] + c["consumed"] + c["queued"], c
        assert c["TrimPkts"] == c["TrimSent"] + c["TrimDrop"], c


def bench(*, ports=4, rate=None, overhead=0, mtu=4500, faces="fabric", limit=None, **plan):
    """Make a bench. `faces` may be a dict by port."""
    names = [f"e{i}" for i in range(ports)]
    node = NodePlan(
        "s0",
        "switch",
        0,
        seed=7,
        ports=tuple(
            PortPlan(
                name,
                f"02:00:00:01:00:{i:02x}",
                f"s0:{name}--h{i}:p0",
                f"h{i}:p0",
                mtu,
                egress=Impairment(rate=rate, overhead=overhead, limit=limit),
                faces=faces if isinstance(faces, str) else faces.get(name, "fabric"),
            )
            for i, name in enumerate(names)
        ),
        switch=SwitchPlan(**plan),
    )
    return Bench(Switch(node, ByAddress(names)))


# -- frames --------------------------------------------------------------------------------

SRC6, DST6 = bytes.fromhex("fd00" + "00" * 13 + "01"), bytes.fromhex("fd00" + "00" * 13 + "02")
SRC4, DST4 = bytes([198, 18, 0, 1]), bytes([198, 18, 0, 2])
PORTS = 0xC001, 4791


def packed(*headers):
    buf = bytearray(sum(header.size for header in headers))
    offset = 0
    for header in headers:
        header.pack_into(buf, offset)
        offset += header.size
    return bytes(buf)


def ethernet(to, kind, *, pcp=None):
    vlan = None if pcp is None else Vlan(0, pcp)
    return Ethernet(mac(to), HOST, kind, vlan)


def counter(size):
    """A payload in which every byte says where it is."""
    return bytes(i & 0xFF for i in range(size))


def v6(to, payload, *, dscp=0, ecn=ECT, pcp=None, hop_limit=64):
    udp = Udp(*PORTS, 8 + len(payload))
    ip = Ipv6(SRC6, DST6, 17, udp.length, hop_limit, dscp << 2 | ecn, 0x12345)
    return packed(ethernet(to, EtherType.IPV6, pcp=pcp), ip, udp) + payload


def v4(to, payload, *, dscp=0, ecn=ECT):
    udp = Udp(*PORTS, 8 + len(payload))
    ip = Ipv4(SRC4, DST4, 17, 20 + udp.length, 64, dscp << 2 | ecn, 0x4242)
    return packed(ethernet(to, EtherType.IPV4), ip, udp) + payload


def v6_in_v6(to, payload, *, dscp=0, inner_dscp=0, ecn=ECT, extension=b"", kind=41):
    udp = Udp(*PORTS, 8 + len(payload))
    inner = Ipv6(SRC6, DST6, 17, udp.length, 64, inner_dscp << 2 | ecn, 0x12345)
    length = len(extension) + inner.size + udp.length
    outer = Ipv6(
        SRC6, bytes.fromhex("fcbbbb00320131020000000000000000"), kind, length, 63,
        dscp << 2 | ecn, 0x54321,
    )  # fmt: skip
    head = packed(ethernet(to, EtherType.IPV6), outer)
    return head + extension + packed(inner, udp) + payload


def of_size(to, size, *, dscp=0, ecn=ECT):
    """An IPv6 frame of exactly so many bytes."""
    return v6(to, counter(size - 62), dscp=dscp, ecn=ecn)


def pause(priority, quanta=0xFFFF):
    return pfc_frame(HOST, Pfc.of({priority: quanta}))
