"""Two MRC devices, a seeded link in each plane and direction, no kernel and no clock.

A path is first in, first out unless its link reorders. Links lose, double, delay, mark and
trim; EVs and planes die and come back at given times.
"""

import heapq
import random
from dataclasses import dataclass, field
from ipaddress import ip_address

from transports.clock import US
from transports.mrc.attributes import Peer, QpState
from transports.mrc.config import QpConfig
from transports.mrc.device import Device, DeviceConfig
from transports.mrc.flows import PSN_AT
from transports.mrc.ipv4 import PlainIpv4
from transports.mrc.nscc import NsccConfig
from transports.mrc.paths import PathsConfig
from transports.mrc.profiles import STEV32, UDP16
from transports.mrc.srv6 import Row, Srv6, Template, two_tiers
from transports.roce.completion import WcStatus, WorkCompletion
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode
from wire.checksum import internet_checksum
from wire.mrc import entropy
from wire.mrc.opcodes import WRITES
from wire.mrc.options import DEFAULTS

MOST_TURNS = 400_000
KEPT = 20  # bytes behind UDP of a trimmed packet
R = 12 * US


BLOCK = ip_address("fcbb:bb00::").packed


def ip(plane, host):
    return ip_address(f"fd00:{plane}::{host + 1:x}").packed


def ip4(plane, host):
    return ip_address(f"198.18.{32 * plane}.{host + 1}").packed


def downlink(plane, host):
    """What is left of a destination at a host's port: the host's number is that of its T0."""
    return ip_address(f"fcbb:bb00:{plane:x}8{host:02x}::").packed


def encapsulation(kind, host, planes, options, ways):
    """What an end has: "ipv6", "ipv4", "srv6", or "srh", whose ways take two containers."""
    if kind == "ipv6":
        return None
    if kind == "ipv4":
        return PlainIpv4()
    srv6 = Srv6(options, [downlink(plane, host) for plane in range(planes)])
    for plane in range(planes):
        template = two_tiers(BLOCK, plane, Row(host, host), Row(1 - host, 1 - host), ways)
        if kind == "srh":
            template = Template(BLOCK, (template.slots[0],) * 4 + template.slots, ways)
        srv6.add(ip(plane, 1 - host), template)
    return srv6


def arrives(packet):
    """As the last switch sends it: of an outer destination only the downlink is left."""
    if packet[0] >> 4 == 4 or packet[6] == 17:
        return packet
    packet = bytearray(packet)
    if packet[6] == 43:
        packet[40 + 3] = 0  # segments left
        packet[24:40] = packet[48:64]
    usids = [packet[at : at + 2] for at in range(28, 40, 2) if any(packet[at : at + 2])]
    packet[28:40] = usids[-1] + bytes(10)
    return packet


def evs(planes, per_plane, *, first=0, layout=STEV32):
    """EVs: hop0 counts, one salt, plane."""
    return tuple(
        layout.make(plane, hop)
        for hop in range(first, first + per_plane)
        for plane in range(planes)
    )


@dataclass
class Trouble:
    """What happens to packets: probabilities, and times in nanoseconds."""

    loss: float = 0.0
    control_loss: float | None = None  # of SACKs and the like; None: as all
    trim: float = 0.0  # of WRITEs
    last_hop: float = 0.0  # of the trimmed ones
    mark: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    delay: int = 5 * US
    skew: int = 300  # more delay per plane and EV


@dataclass
class Link:
    """All paths in one direction. `dead_evs` and `dead_planes` swallow what enters.

    What enters `marked_evs` leaves with CE, probes too.
    """

    rng: random.Random
    trouble: Trouble
    dead_evs: set = field(default_factory=set)
    dead_planes: set = field(default_factory=set)
    marked_evs: set = field(default_factory=set)
    offered: int = 0
    lost: int = 0
    trimmed: int = 0
    drop_next: list = field(default_factory=list)  # predicates: each drops one packet
    trim_next: list = field(default_factory=list)
    trims: list = field(default_factory=list)  # what was left
    _queue: list = field(default_factory=list)
    _last: dict = field(default_factory=dict)  # path to the last arrival: first in, first out

    def send(self, out, now):
        trouble, rng = self.trouble, self.rng
        self.offered += 1
        packet = out.packet
        ev = out.ev
        is_write = out.opcode in WRITES
        if self._loses(out, ev, is_write):
            self.lost += 1
            return
        if (is_write and rng.random() < trouble.mark) or ev in self.marked_evs:
            packet = marked(packet)
        queue = "data"
        if is_write and (taken(self.trim_next, out) or rng.random() < trouble.trim):
            packet = trimmed(packet, last_hop=rng.random() < trouble.last_hop)
            self.trims.append(bytes(packet))
            self.trimmed += 1
            queue = "control"
        if rng.random() < trouble.corrupt:
            packet = bytearray(packet)
            packet[rng.randrange(len(packet))] ^= 1 << rng.randrange(8)
        for _ in range(1 + (rng.random() < trouble.duplicate)):
            at = now + trouble.delay + trouble.skew * (out.plane + ev % 5)
            if rng.random() < trouble.reorder:
                at += rng.randrange(20 * US)
            else:
                at = max(at, self._last.get((ev, queue), 0))
                self._last[ev, queue] = at
            heapq.heappush(self._queue, (at, self.offered, bytes(arrives(packet))))

    def _loses(self, out, ev, is_write):
        loss = self.trouble.loss
        if not is_write and self.trouble.control_loss is not None:
            loss = self.trouble.control_loss
        is_dead = out.plane in self.dead_planes or ev in self.dead_evs
        return is_dead or taken(self.drop_next, out) or self.rng.random() < loss

    def due(self, now):
        while self._queue and self._queue[0][0] <= now:
            yield heapq.heappop(self._queue)[2]

    @property
    def deadline(self):
        return self._queue[0][0] if self._queue else None


def taken(predicates, out):
    """Say whether one of the predicates is for a packet; it is used up then."""
    for predicate in predicates:
        if predicate(out):
            predicates.remove(predicate)
            return True
    return False


def ev_of(packet, options=DEFAULTS):
    word = int.from_bytes(packet[:4], "big")
    return entropy.join(word & 0xFFFFF, int.from_bytes(packet[40:42], "big"), options.ev_split)


def marked(packet):
    """With CE, in the outermost header."""
    packet = bytearray(packet)
    packet[1] |= 0x03 if packet[0] >> 4 == 4 else 0x30
    return checked(packet)


def checked(packet):
    """With the checksum of an IPv4 header set right."""
    if packet[0] >> 4 == 4:
        packet[10:12] = bytes(2)
        packet[10:12] = internet_checksum(packet[:20]).to_bytes(2, "big")
    return packet


def bth_at(packet):
    """Where the BTH is."""
    if packet[0] >> 4 == 4:
        return 28
    outer = {17: 0, 41: 40, 43: 40 + 8 * (packet[41] + 1)}[packet[6]]
    return outer + 48


def trimmed(packet, *, last_hop=False, keep=None, fix_length=True):
    """As a switch cuts it: outermost DSCP, IP length where it says so; UDP's stays."""
    packet = bytearray(packet[: bth_at(packet) + KEPT if keep is None else keep])
    dscp = 16 if last_hop else 12
    if packet[0] >> 4 == 4:
        packet[1] = dscp << 2 | packet[1] & 3
        if fix_length:
            packet[2:4] = len(packet).to_bytes(2, "big")
        return checked(packet)
    ecn = packet[1] >> 4 & 3
    packet[0] = 0x60 | dscp >> 2
    packet[1] = (dscp & 3) << 6 | ecn << 4 | packet[1] & 0xF
    if fix_length:
        packet[4:6] = (len(packet) - 40).to_bytes(2, "big")
    return packet


class End:
    """One device with one queue pair, and what it reported."""

    def __init__(self, device, qp, region, source):
        self.device, self.qp, self.region, self.source = device, qp, region, source
        self.events = []
        self.sent = []
        self.flows = {}

    @property
    def completions(self):
        return [event for event in self.events if isinstance(event, WorkCompletion)]

    def done(self):
        return [(event.wr_id, event.status) for event in self.completions]

    def told(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


class World:
    """Two ends joined by links. `options` and `config` may be pairs, for ends that differ."""

    def __init__(
        self,
        seed=1,
        trouble=None,
        *,
        planes=2,
        per_plane=4,
        mtu=1024,
        psns=(7, 9),
        memory=1 << 20,
        rate=100_000_000_000,
        config=None,
        options=DEFAULTS,
        mpr=8,
        max_wimm=16,
        timeout=6,
        linear=7,
        exponential=7,
        dynamic_mpr=False,
        min_active=None,
        start=0,
        traces=False,
        port_status_interval=None,
        keep_sent=False,
        base_rtt=R,
        knows_flows=False,
        encap="ipv6",
    ):
        self.now = start
        self.turns = 0
        self.keep_sent = keep_sent
        self.knows_flows = knows_flows
        self.checks = []  # called with (world, end, outgoing) for each packet
        self.happenings = []  # heap of (time, number, function)
        rng = random.Random(seed)
        self.trouble = trouble or Trouble()
        self.links = [Link(random.Random(rng.random()), self.trouble) for _ in range(2)]
        pair = lambda value: value if isinstance(value, tuple | list) else (value, value)  # noqa: E731
        options = options if isinstance(options, list) else [options, options]
        configs = pair(config or QpConfig())
        self.ends = []
        at, layout = (ip4, UDP16) if encap == "ipv4" else (ip, STEV32)
        addresses = [tuple(at(plane, host) for plane in range(planes)) for host in range(2)]
        for host in range(2):
            device = Device(
                DeviceConfig(
                    addresses[host], options[host], port_status_interval, traces=traces
                ),
                random.Random(rng.random()),
                encapsulation(encap, host, planes, options[host], 2 * per_plane),
            )
            pd = device.alloc_pd()
            region = device.register(pd, 0x10000, memory, access=0x3)
            source = device.register(pd, 0x900000, memory, access=0x1)
            qp = device.create_qp(pd, qp_num=0x20 + host, config=configs[host])
            self.ends.append(End(device, qp, region, source))
        for host, end in enumerate(self.ends):
            profile = PathsConfig(
                active=evs(planes, per_plane, layout=layout),
                backup=evs(planes, per_plane, first=per_plane, layout=layout),
                layout=layout,
                base_rtt=base_rtt,
                trimming=configs[host].trimming,
                min_active=min_active,
            )
            control = NsccConfig(rate, base_rtt, mtu + 64, trimming=configs[host].trimming)
            other = configs[1 - host]
            peer = Peer(
                addresses[1 - host], 0x21 - host, psns[1 - host], mpr, max_wimm,
                dynamic_mpr, other.trim_nack, options[host].udp_dport,
            )  # fmt: skip
            modify = end.qp.modify
            modify(QpState.INIT, self.now, ev_profile=profile, cc_profile=control)
            modify(
                QpState.RTR, self.now, peer=peer, path_mtu=mtu,
                max_wimm_dest=max_wimm, mpr_dest=mpr, dynamic_mpr=dynamic_mpr,
            )  # fmt: skip
            modify(
                QpState.RTS, self.now, sq_psn=psns[host], max_wimm=max_wimm, mpr=mpr,
                timeout=timeout, linear_retries=linear, exponential_retries=exponential,
            )  # fmt: skip

    # -- what applications do ---------------------------------------------------------------

    def write(self, wr_id, offset, length, *, host=0, imm=None, to=None, **changes):
        """Post a WRITE of the source's bytes at `offset` to the same place at the other end."""
        end, other = self.ends[host], self.ends[1 - host]
        sge = (Sge(end.source.addr + offset, length, end.source.l_key),) if length else ()
        at = offset if to is None else to
        wr = {
            "wr_id": wr_id, "sge": sge, "remote_addr": other.region.addr + at,
            "r_key": other.region.r_key, "imm": imm or 0,
            "opcode": WrOpcode.RDMA_WRITE if imm is None else WrOpcode.RDMA_WRITE_WITH_IMM,
        }  # fmt: skip
        end.qp.post_send(SendWr(**(wr | changes)), self.now)

    def fill(self, host=0, seed=5):
        source = self.ends[host].source
        source.view[:] = random.Random(seed).randbytes(len(source.view))

    def receives(self, count, host=1):
        for wr_id in range(count):
            self.ends[host].qp.post_recv(RecvWr(1000 + wr_id))

    def at(self, time, function):
        heapq.heappush(self.happenings, (time, len(self.happenings), function))

    def set_port(self, host, plane, *, up):
        """A port of a host: both directions of its plane."""
        self.ends[host].device.set_port(plane, self.now, up=up)
        for link in self.links:
            (link.dead_planes.discard if up else link.dead_planes.add)(plane)

    # -- time -------------------------------------------------------------------------------

    def drain(self):
        """Carry what the devices have to send into the links; collect events."""
        for host, end in enumerate(self.ends):
            for out in end.device.transmit(self.now):
                for check in self.checks:
                    check(self, end, out)
                if self.keep_sent:
                    end.sent.append((self.now, out))
                self.links[host].send(out, self.now)
            end.events += end.device.events()

    def step(self):
        """Go to the next time at which something happens; False where nothing ever will."""
        self.turns += 1
        assert self.turns < MOST_TURNS, "does not end"
        self.drain()
        times = [link.deadline for link in self.links]
        times += [end.device.deadline for end in self.ends]
        times += [self.happenings[0][0] if self.happenings else None]
        due = [time for time in times if time is not None]
        if not due:
            return False
        self.now = max(self.now, min(due))
        while self.happenings and self.happenings[0][0] <= self.now:
            heapq.heappop(self.happenings)[2]()
        for host, link in enumerate(self.links):
            end = self.ends[1 - host]
            for packet in link.due(self.now):
                self.receive(end, packet)
                end.events += end.device.events()
        for end in self.ends:
            end.device.expire(self.now)
        return True

    def receive(self, end, packet):
        """Let a device have a packet: by its flow, where it `knows_flows`, as a host does."""
        device, head = end.device, bytes(packet[:PSN_AT])
        flow = end.flows.get(head) if self.knows_flows else None
        if flow is not None and device.take(flow, memoryview(packet), self.now) is not None:
            return
        device.receive(packet, self.now)
        if self.knows_flows and (flow := device.flow(packet)) is not None:
            end.flows[head] = flow

    def run(self, until=None, *, settled=None):
        """Step until time `until`, or until `settled()` says so, or nothing is left to do."""
        while not (settled is not None and settled()):
            if not self.step():
                break
            if until is not None and self.now >= until:
                break
        self.drain()

    def run_until_done(self, count, host=0, extra=0):
        """Run until that many completions are told at an end."""
        end = self.ends[host]
        self.run(settled=lambda: len(end.completions) >= count)
        if extra:
            self.run(self.now + extra)

    def inject(self, host, packet):
        """Let an end receive a packet; carry what it says to that."""
        self.ends[host].device.receive(packet, self.now)
        self.drain()


SUCCESS = WcStatus.SUCCESS
