"""One port of a frame-mode host: Ethernet outside, IP packets inside.

Two ways lead from a frame to the device. The fast one reads integers at fixed places and knows
only the frame that nearly all are: to our MAC, tagged exactly as the port is, UDP to port 4791
right behind an IP header without options. Whatever it does not know goes the clear way, which
says why it refuses. Both give the device the same packets; a test holds them together.

Going out, what stands before a packet depends on its destination and traffic class alone, so it
is made once for each pair and kept, if the neighbour is in the plan's table.
"""

from collections.abc import Generator, Iterable
from enum import Enum
from ipaddress import ip_address
from random import Random
from struct import Struct
from typing import Protocol as TypingProtocol

from netem.host.ways import Ways
from netem.impair.alter import ip_offset
from netem.impair.departure import NO_META, FrameMeta
from netem.impair.trim import behind_udp
from netem.topology.plan import NodePlan, PortPlan
from transports.clock import Ns
from transports.mrc.flows import MAX_FLOWS
from transports.mrc.flows import Flow as MrcFlow
from transports.neighbour import Resolver
from transports.roce.device import Device, DeviceConfig
from transports.roce.flows import Flow
from wire.codec import DecodeError, ReadBuffer
from wire.ethernet import ETHERNET, VLAN, Ethernet, EtherType, Vlan, group_mac
from wire.ipv4 import IPV4, Protocol
from wire.ipv6 import IPV6
from wire.mrc.options import PORTS
from wire.roce.bth import BTH
from wire.roce.packet import UDP_PORT
from wire.udp import UDP

# The fast way: destination MAC | EtherType | version and IHL or class | protocol |
# UDP destination port | BTH's reserved byte and DestQP; to the end of the BTH
FAST_V6 = Struct("!6s6xHB5xB35xH8xI4x")
FAST_V4 = Struct("!6s6xHB8xB12xH8xI4x")
TAG = Struct("!6s6xHH")  # destination MAC | 0x8100 | TCI
# What decides about the header before a packet: the first word (class), the destination
# The same for MRC: ... UDP destination port | opcode | BTH's reserved byte and DestQP
FAST_MRC = Struct("!6s6xHB5xB35xH4xB3xI")
KEY_V6 = Struct("!I20x16s")
KEY_V4 = Struct("!Hxx12x4s")

# Limit: 4096 headers kept; there is one for each destination and class that queue pairs use.
MAX_HEADERS = 4096
MRC_CLASS = 0xC0  # of opcodes: MRC has those from here on. OCP MRC 1.0 (as cited)


class Nic(TypingProtocol):
    """What takes the MRC packets of all ports of a host."""

    @property
    def is_plain(self) -> bool:
        """Say whether its packets are IPv6, and UDP right behind."""

    def receive(self, packet: ReadBuffer, qp_num: int, now: Ns) -> None: ...
    def flow(self, packet: ReadBuffer) -> MrcFlow | None: ...
    def take(self, flow: MrcFlow, packet: memoryview, now: Ns) -> bool | None: ...


class FrameRefusal(Enum):
    """Why a frame did not get past Ethernet."""

    MALFORMED = "malformed"  # ends within its Ethernet header or tag
    OVERSIZED = "oversized"  # carries more than the port's MTU
    WRONG_VLAN = "wrong_vlan"
    FOREIGN_MAC = "foreign_mac"


def address(text: str | None) -> bytes | None:
    """Return an address as bytes."""
    return None if text is None else ip_address(text).packed


def mac_address(text: str) -> bytes:
    """Return the six bytes of "02:00:00:00:00:01"."""
    return bytes.fromhex(text.replace(":", ""))


class HostPort:
    """The device, the neighbours and the Ethernet header of one port."""

    def __init__(self, node: NodePlan, plan: PortPlan) -> None:
        self.name = plan.name
        self.touched: set[int] = set()  # queue pairs that packets came for
        self.nic: Nic | None = None  # the host's, which has MRC on all ports
        # Nothing but MRC has come or been here yet: there is nothing to send, hear or wait for.
        self.is_idle = all(qp.kind == "mrc" for qp in node.qps if qp.port == plan.name)
        self.counters = dict.fromkeys((refusal.value for refusal in FrameRefusal), 0)
        self._mac = mac_address(plan.mac)
        self._vlan = plan.vlan
        self._priorities = plan.priorities
        self._shift = 0 if plan.vlan is None else VLAN.size
        self._mtu = plan.mtu
        self._most = plan.mtu + ETHERNET.size + self._shift
        self._headers: dict[tuple[int, bytes], bytes] = {}
        # Flows of packets over IPv6, by the bytes of the frame up to the PSN
        self._flows: dict[bytes, Flow] = {}
        self._mrc_flows: dict[bytes, MrcFlow] = {}  # the same of MRC
        self._head = ETHERNET.size + self._shift + IPV6.size + UDP.size + BTH.size - 4
        ipv4, ipv6 = address(plan.ipv4), address(plan.ipv6)
        self.device = Device(
            DeviceConfig(addresses=tuple(ip for ip in (ipv6, ipv4) if ip is not None)),
            Random(f"{node.seed}/{plan.name}"),
        )
        self.resolver = Resolver(
            self._mac,
            ipv4=ipv4,
            ipv6=ipv6,
            table={
                ip_address(row.ip).packed: mac_address(row.mac)
                for row in node.neighbours
                if row.port == plan.name
            },
            vlan=plan.vlan,
        )
        self._ways = Ways(node, plan.name)
        is_v4 = any(qp.port == plan.name and ":" not in qp.local_ip for qp in node.qps)
        self._fast, self._fast_type, self._fast_first, self._fast_mask = (
            (FAST_V4, int(EtherType.IPV4), 0x45, 0xFF)
            if is_v4
            else (FAST_V6, int(EtherType.IPV6), 0x60, 0xF0)
        )
        self._fast_size = self._fast.size + self._shift
        self._mrc_size = FAST_MRC.size + self._shift

    def receive(self, frame: ReadBuffer, now: Ns) -> bool:
        """Take one frame. What is refused changes nothing but counters.

        Return true where surely nothing follows from it: no turn is wanted.
        """
        # bench: rc-frame, sim. Most frames begin as others did that have passed every check.
        size, shift = len(frame), self._shift
        if self.nic is not None:
            quiet = self._receive_mrc(self.nic, frame, now)
            if quiet is not None:
                return quiet
        self.is_idle = False
        flow = self._flows.get(bytes(frame[: self._head]))
        if flow is not None and self._head + 4 <= size <= self._most:
            quiet = self.device.take(flow, memoryview(frame)[14 + shift :], now)
            if quiet is not None:
                self.touched.add(flow.qp.qp_num)
                return quiet
        if size >= self._fast_size and size <= self._most:
            # The shift is 4 where the port is tagged.
            dst, ethertype, first, protocol, port, qp_num = self._fast.unpack_from(frame, shift)
            if (
                ethertype == self._fast_type
                and port == UDP_PORT
                and protocol == 17
                and first & self._fast_mask == self._fast_first
            ):
                if shift:
                    dst, tag, tci = TAG.unpack_from(frame)
                    dst = dst if tag == 0x8100 and tci & 0xFFF == self._vlan else None
                if dst == self._mac:
                    self.touched.add(qp_num & 0xFFFFFF)
                    packet = memoryview(frame)[14 + shift :]
                    self.device.receive(packet, now)
                    self._remember(frame, packet)
                    return self.device.is_quiet
        self.receive_clearly(frame, now)
        return False

    def _receive_mrc(self, nic: Nic, frame: ReadBuffer, now: Ns) -> bool | None:
        """Take an MRC packet; None for what goes another way."""
        if not nic.is_plain:
            return self._receive_mrc_within(nic, frame, now)
        # bench: mrc. Most frames begin as others did that have passed every check.
        head = bytes(frame[: self._head])
        flow = self._mrc_flows.get(head)
        if flow is not None and len(frame) <= self._most:
            quiet = nic.take(flow, memoryview(frame)[14 + self._shift :], now)
            if quiet is not None:
                return quiet
        if not self._mrc_size <= len(frame) <= self._most:
            return None
        dst, ethertype, first, protocol, port, opcode, qp_num = FAST_MRC.unpack_from(
            frame, self._shift
        )
        is_mrc = opcode >= MRC_CLASS and port in PORTS and protocol == 17
        if not is_mrc or ethertype != EtherType.IPV6 or first >> 4 != 6:
            return None
        if not self._is_for_us(frame, dst):
            return None
        packet = memoryview(frame)[14 + self._shift :]
        nic.receive(packet, qp_num & 0xFFFFFF, now)
        is_known = flow is not None and flow.generation == flow.qp.generation
        if not is_known and (flow := nic.flow(packet)) is not None:
            if len(self._mrc_flows) >= MAX_FLOWS:
                self._mrc_flows.clear()
            self._mrc_flows[head] = flow
        return False

    def _receive_mrc_within(self, nic: Nic, frame: ReadBuffer, now: Ns) -> bool | None:
        """Do the same where MRC is over IPv4, or has headers before its own."""
        start = ETHERNET.size + self._shift
        if len(frame) > self._most or ip_offset(frame) != start:
            return None
        at = behind_udp(frame, start)
        if at is None or len(frame) < at + BTH.size:
            return None
        opcode, _, _, qp_num, _ = BTH.unpack_from(frame, at)
        _, port, _, _ = UDP.unpack_from(frame, at - UDP.size)
        if opcode < MRC_CLASS or port not in PORTS:
            return None
        if not self._is_for_us(frame, bytes(frame[:6])):
            return None
        nic.receive(memoryview(frame)[start:], qp_num & 0xFFFFFF, now)
        return False

    def _is_for_us(self, frame: ReadBuffer, destination: bytes) -> bool:
        """Say whether a frame is for our MAC and tagged as the port is."""
        if self._shift:
            destination, tag, tci = TAG.unpack_from(frame)
            if tag != EtherType.VLAN or tci & 0xFFF != self._vlan:
                return False
        return destination == self._mac

    def receive_behind(self, head: bytes, frame: bytes, now: Ns) -> bool:
        """Do as `receive` with a frame that begins with `head`, whatever its own bytes say.

        What is behind them is where it was; of a known flow no more is needed.
        """
        size, split = len(frame), len(head)
        flow = self._flows.get(head + frame[split : self._head])
        if flow is not None and self._head + 4 <= size <= self._most:
            quiet = self.device.take(flow, memoryview(frame)[14 + self._shift :], now)
            if quiet is not None:
                self.touched.add(flow.qp.qp_num)
                return quiet
        return self.receive(head + frame[split:], now)

    def _remember(self, frame: ReadBuffer, packet: memoryview) -> None:
        """Know frames that begin like this one, if the packet has passed every check."""
        flow = self.device.flow(packet)
        if flow is not None:
            if len(self._flows) >= MAX_HEADERS:
                self._flows.clear()
            self._flows[bytes(frame[: self._head])] = flow

    def receive_clearly(self, frame: ReadBuffer, now: Ns) -> None:
        """Take one frame of any kind: the clear way, which the fast one must agree with."""
        try:
            ethernet = Ethernet.unpack_from(frame)
        except DecodeError:
            self.counters[FrameRefusal.MALFORMED.value] += 1
            return
        packet = memoryview(frame)[ethernet.size :]
        is_unicast = ethernet.dst == self._mac
        if not (is_unicast or ethernet.dst[0] & 1):
            self.counters[FrameRefusal.FOREIGN_MAC.value] += 1
        elif not self._is_in_vlan(ethernet.vlan):
            self.counters[FrameRefusal.WRONG_VLAN.value] += 1
        elif len(packet) > self._mtu:
            self.counters[FrameRefusal.OVERSIZED.value] += 1
        elif (
            self.nic is not None
            and is_unicast
            and (qp_num := mrc_qp(packet, ethernet.ethertype)) is not None
        ):
            self.nic.receive(packet, qp_num, now)
        elif is_unicast and (qp_num := roce_qp(packet, ethernet.ethertype)) is not None:
            self.touched.add(qp_num)
            self.device.receive(packet, now)
        elif not is_unicast and self._receive_for_group(packet, ethernet, now):
            return
        elif not (is_unicast and self._receive_encapsulated(packet, ethernet.ethertype, now)):
            self.resolver.receive(frame, now)

    def _receive_for_group(self, packet: memoryview, ethernet: Ethernet, now: Ns) -> bool:
        """Take a RoCE packet that came to a multicast address; False if it is none."""
        if roce_qp(packet, ethernet.ethertype) is None:
            return False
        is_v4 = ethernet.ethertype == EtherType.IPV4
        group = bytes(packet[16:20] if is_v4 else packet[24:40])
        if ethernet.dst != group_mac(group):
            return False
        self.touched.update(qp.qp_num for qp in self.device.members(group))
        self.device.receive(packet, now)
        return True

    def _receive_encapsulated(self, packet: memoryview, ethertype: int, now: Ns) -> bool:
        """Take a packet that came by SRv6 to a SID of ours; False if it is none."""
        if not self._ways.has_sids or ethertype != EtherType.IPV6:
            return False
        inner = self._ways.decapsulated(packet)
        if inner is None:
            return False
        view = memoryview(inner)
        version = view[0] >> 4 if view else 0
        kind = EtherType.IPV4 if version == 4 else EtherType.IPV6
        qp_num = roce_qp(view, kind)
        if qp_num is not None:
            self.touched.add(qp_num)
            self.device.receive(view, now)
        return True

    def _is_in_vlan(self, tag: Vlan | None) -> bool:
        """Say whether a frame belongs to this port. A tag of VID 0 is a priority only."""
        if self._vlan is None:
            return tag is None or tag.vid == 0
        return tag is not None and tag.vid == self._vlan

    def transmit(self, now: Ns) -> Generator[tuple[str, bytes, FrameMeta], None, bool]:
        """Hand out the frames to send now: the device's, then answers about neighbours.

        Return, in the end, whether there were any.
        """
        name, headers, policies = self.name, self._headers, self._ways.policies
        device, is_busy = self.device, False
        rendered = device.rendered
        while rendered or device.render(now):
            made, qp_num, psn, transmission, why = rendered.popleft()
            is_busy = True
            packet: ReadBuffer | None = made
            if policies:
                packet = self._ways.encapsulated(made, qp_num)
                if packet is None:
                    continue
            assert packet is not None
            key = (KEY_V4 if packet[0] == 0x45 else KEY_V6).unpack_from(packet)
            header = headers.get(key)
            # Bench sim: a call less
            meta = tuple.__new__(FrameMeta, (qp_num, psn, transmission, why, None, "", False))
            if header is None:
                header = self._header(key)
                if header is None:
                    self._resolve(packet, key, meta, now)
                    continue
            yield name, header + packet, meta
        if self.resolver.has_output:
            for frame, tag in self.resolver.transmit(now):
                is_busy = True
                yield name, frame, tag if isinstance(tag, FrameMeta) else NO_META
        return is_busy

    def framed(
        self, packet: bytes, meta: FrameMeta, now: Ns
    ) -> tuple[str, bytes, FrameMeta] | None:
        """Return an IP packet of the NIC's as a frame; None while its neighbour is unknown."""
        key = (KEY_V4 if packet[0] == 0x45 else KEY_V6).unpack_from(packet)
        header = self._headers.get(key) or self._header(key)
        if header is None:
            self._resolve(packet, key, meta, now)
            return None
        return self.name, header + packet, meta

    def _header(self, key: tuple[int, bytes]) -> bytes | None:
        """Return the Ethernet header for a destination, if its neighbour is in the table."""
        mac = self.resolver.permanent(key[1]) or self._ways.mac(key[1])
        if mac is None:
            return None
        if len(self._headers) >= MAX_HEADERS:
            self._headers.clear()
        vlan = None if self._vlan is None else Vlan(self._vlan, self._pcp(key))
        ethertype = EtherType.IPV4 if len(key[1]) == 4 else EtherType.IPV6
        ethernet = Ethernet(mac, self._mac, ethertype, vlan)
        buf = bytearray(ethernet.size)
        ethernet.pack_into(buf)
        header = self._headers[key] = bytes(buf)
        return header

    def _pcp(self, key: tuple[int, bytes]) -> int:
        """Return the priority of 802.1Q for a packet, by its DSCP.

        Where the plan says nothing it is the class selector, the DSCP's upper three bits.
        """
        word = key[0]
        dscp = (word >> 2 if len(key[1]) == 4 else word >> 22) & 0x3F
        return self._priorities.get(dscp, dscp >> 3)

    def _resolve(
        self, packet: ReadBuffer, key: tuple[int, bytes], meta: FrameMeta, now: Ns
    ) -> None:
        self.is_idle = False
        self.resolver.send(bytes(packet), key[1], now, pcp=self._pcp(key), tag=meta)

    @property
    def deadline(self) -> Ns | None:
        mine, asked = self.device.deadline, self.resolver.deadline
        if mine is None or asked is None:
            return mine if asked is None else asked
        return min(mine, asked)

    def expire(self, now: Ns) -> None:
        at = self.device.deadline
        if at is not None and at <= now:
            self.device.expire(now)
        at = self.resolver.deadline
        if at is not None and at <= now:
            self.resolver.expire(now)

    def all_counters(self) -> Iterable[tuple[str, int]]:
        """Return every counter of the port by a name like "p0.roce.icrc"."""
        for layer, counters in (
            ("frame", self.counters),
            ("neighbour", self.resolver.counters),
            ("roce", self.device.counters()),
            ("srv6", self._ways.counters),
        ):
            for name, count in counters.items():
                yield f"{self.name}.{layer}.{name}", count


def mrc_qp(packet: memoryview, ethertype: int) -> int | None:
    """Return the DestQP of an IP packet that MRC sends, or None. Total."""
    found = _bth(packet, ethertype)
    return found[1] if found is not None and found[0] >= MRC_CLASS else None


def roce_qp(packet: memoryview, ethertype: int) -> int | None:
    """Return the DestQP of an IP packet whose UDP goes to port 4791, or None. Total."""
    found = _bth(packet, ethertype)
    return found[1] if found is not None and found[2] == UDP_PORT else None


def _bth(packet: memoryview, ethertype: int) -> tuple[int, int, int] | None:
    """Return opcode, DestQP and UDP port of a packet to a port of RoCE v2 or MRC, or None."""
    if ethertype == EtherType.IPV6:
        start, at = IPV6.size, 6
    elif ethertype == EtherType.IPV4 and packet:
        start, at = max(IPV4.size, (packet[0] & 0xF) * 4), 9
    else:
        return None
    if len(packet) < start + UDP.size + BTH.size or packet[at] != Protocol.UDP:
        return None
    port = UDP.unpack_from(packet, start)[1]
    if port not in PORTS:
        return None
    opcode, _, _, qp_num, _ = BTH.unpack_from(packet, start + UDP.size)
    return opcode, int(qp_num) & 0xFFFFFF, port
