"""Dialogues: one device of ours, and a peer that says what the test says.

    mrc.posts(3 * MTU)
    mrc.sends("WRITE_FIRST", psn=7)
    mrc.receives(sack(7), at=us(10))
    mrc.sends_nothing(until=us(500))

Packets of the peer are made with the codecs of `wire`; packets of ours are taken apart with
them, and their ICRC is checked.
"""

import random
from collections import deque

from tests.transports.mrc.world import R, evs, ip, marked, trimmed
from tests.transports.roce.snapshot import snapshot
from transports.clock import US
from transports.mrc.attributes import Peer, QpState
from transports.mrc.config import QpConfig
from transports.mrc.device import Device, DeviceConfig
from transports.mrc.nscc import NsccConfig
from transports.mrc.paths import PathsConfig
from transports.mrc.serials import stamp
from transports.roce.completion import WorkCompletion
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode
from wire.ipv6 import IPV6, Ipv6
from wire.mrc import entropy
from wire.mrc.bth import MrcBth
from wire.mrc.eths import Meth, Tseth
from wire.mrc.opcodes import MrcOpcode
from wire.mrc.options import DEFAULTS
from wire.mrc.packet import MrcPacket
from wire.mrc.reliability import Neth, Peth, Seth
from wire.roce.eths import Aeth, AethKind, ImmDt, Reth
from wire.roce.icrc import ICRC, icrc
from wire.udp import UDP, Udp

MTU = 1024
OUR_QP, PEER_QP = 0x20, 0x123421
OUR_PSN, PEER_PSN = 7, 1000
VA, R_KEY, SIZE = 0x10000, 0x1100, 1 << 16
TARGET = R * 3 // 4  # of the delay, with trimming
RTO = 1024 << 6
ACTIVE = evs(2, 4)  # plane 0 and 1 in turn
EV = ACTIVE[0]


def us(n):
    return int(n * US)


# What the peer says.


def said(opcode, *headers, psn=0, payload=b"", dest_qp=OUR_QP, **bth):
    return MrcPacket.make(MrcBth(opcode, dest_qp, psn, **bth), *headers, payload=payload)


def sack(cack, *received, psn=None, base=1, ev=EV, tx=0, rtx=False, probe=None, **seth):
    """A SACK of everything to `cack` and of `received`; its trigger is `psn`."""
    bitmap = sum(1 << got - cack - base for got in received)
    if probe is not None:
        offset = probe - 0x10000 if probe >= 0x8000 else probe
    else:
        offset = 0 if psn is None else psn - cack
    header = Seth(
        cack & 0xFFFFFF, offset, base, bitmap, ev, PEER_QP & 0xFFFF, OUR_QP, tx_timestamp=tx,
        probe=probe is not None, ooo_count=seth.pop("ooo", len(received)), **seth,
    )  # fmt: skip
    return said(MrcOpcode.SACK, header, psn=cack & 0xFFFFFF, rtx=rtx)


def nack(psn, reason, *, ev=EV, tx=0, rtx=False):
    header = Neth(psn, reason, ev, PEER_QP & 0xFFFF, OUR_QP, tx)
    return said(MrcOpcode.NACK, header, psn=psn, rtx=rtx)


def ack(msn, psn=0xFFFFFF):
    return said(MrcOpcode.ACKNOWLEDGE, Aeth.ack(msn), psn=psn)


def nak(code, msn, psn=0):
    return said(MrcOpcode.ACKNOWLEDGE, Aeth(AethKind.NAK << 5 | code, msn), psn=psn)


def probe(probe_id, tx=0):
    return said(MrcOpcode.PROBE, Peth(probe_id, PEER_QP & 0xFFFF, OUR_QP, tx))


def write(
    psn, payload=b"8 bytes.", *, place="ONLY", msn=0, rqmsn=0, tx=0, length=None, va=VA,
    r_key=R_KEY, imm=None, **bth,
):  # fmt: skip
    """A WRITE packet of the peer. `length` is DMALen."""
    name = f"WRITE_{place}" + ("" if imm is None else "_IMM")
    headers = [Meth(rqmsn, msn), Reth(va, r_key, len(payload) if length is None else length)]
    if tx is not None:
        headers.append(Tseth(tx))
    if imm is not None:
        headers.append(ImmDt(imm))
    return said(MrcOpcode[name], *headers, psn=psn & 0xFFFFFF, payload=payload, **bth)


class Sent:
    """One packet of ours, taken apart."""

    def __init__(self, out, options):
        raw = out.packet
        self.out, self.raw = out, raw
        self.ip, self.udp = Ipv6.unpack_from(raw), Udp.unpack_from(raw, IPV6.size)
        assert len(raw) == IPV6.size + self.ip.payload_length == IPV6.size + self.udp.length
        if options.icrc:
            assert ICRC.unpack(raw[-4:])[0] == icrc(raw[:-4])
        self.packet = MrcPacket.unpack(raw[IPV6.size + UDP.size : -4], options)
        self.ev = entropy.join(self.ip.flow_label, self.udp.src_port, options.ev_split)
        self.dscp = self.ip.traffic_class >> 2

    def __getattr__(self, name):
        """Fields of the packet's headers, by their names."""
        for header in (self.packet.bth, *self.packet.headers):
            if name in header._fields:
                return getattr(header, name)
        return getattr(self.packet, name)


class Dialogue:
    """One device with one queue pair in RTS."""

    def __init__(
        self,
        *,
        config=None,
        options=DEFAULTS,
        planes=2,
        active=ACTIVE,
        backup=(),
        mtu=MTU,
        mpr=8,
        peer_mpr=8,
        max_wimm=4,
        peer_wimm=4,
        timeout=6,
        linear=7,
        exponential=7,
        dynamic_mpr=False,
        peer_trim_nack=True,
        rate=100_000_000_000,
        port_status_interval=None,
        state=QpState.RTS,
        start=1000 * US,
        sq_psn=OUR_PSN,
        rq_psn=PEER_PSN,
        traces=False,
        seed=3,
        source=1 << 16,
    ):
        self.now = start
        self.options = options
        self.config = config or QpConfig()
        addresses = [tuple(ip(plane, host) for plane in range(planes)) for host in range(2)]
        self.ours, self.theirs = addresses
        self.device = Device(
            DeviceConfig(self.ours, options, port_status_interval, traces=traces),
            random.Random(seed),
        )
        pd = self.device.alloc_pd()
        self.region = self.device.register(pd, VA, SIZE, access=0x3, r_key=R_KEY)
        self.source = self.device.register(pd, 0x900000, source, access=0x1)
        self.source.view[:] = random.Random(1).randbytes(source)
        self.qp = self.device.create_qp(pd, qp_num=OUR_QP, config=self.config)
        peer = Peer(
            self.theirs, PEER_QP, rq_psn, peer_mpr, peer_wimm, dynamic_mpr, peer_trim_nack
        )
        profile = PathsConfig(tuple(active), tuple(backup), base_rtt=R)
        control = NsccConfig(rate, R, mtu + 64)
        steps = [
            (QpState.INIT, {"ev_profile": profile, "cc_profile": control}),
            (
                QpState.RTR,
                {"peer": peer, "path_mtu": mtu, "max_wimm_dest": max_wimm, "mpr_dest": mpr,
                 "dynamic_mpr": dynamic_mpr},
            ),
            (
                QpState.RTS,
                {"sq_psn": sq_psn, "max_wimm": max_wimm, "mpr": mpr, "timeout": timeout,
                 "linear_retries": linear, "exponential_retries": exponential},
            ),
        ]  # fmt: skip
        for target, attributes in steps:
            if self.qp.state is not state:
                self.qp.modify(target, self.now, **attributes)
        self._waiting = deque()
        self.events = []
        self._drain()
        self._waiting.clear()  # port status

    # -- our side ---------------------------------------------------------------------------

    def posts(self, length=8, wr_id=1, *, imm=None, offset=0, **changes):
        """Post a WRITE."""
        sge = (Sge(self.source.addr + offset, length, self.source.l_key),) if length else ()
        opcode = WrOpcode.RDMA_WRITE if imm is None else WrOpcode.RDMA_WRITE_WITH_IMM
        wr = {"sge": sge, "remote_addr": 0x5000, "r_key": 0x77, "imm": imm or 0} | changes
        self.qp.post_send(SendWr(wr_id, opcode, **wr), self.now)
        self._drain()

    def receive_posted(self, wr_id=50):
        self.qp.post_recv(RecvWr(wr_id))

    def sends(self, name=None, **fields):
        """Take the next packet of ours; compare what is given."""
        assert self._waiting, f"sends nothing; {name} expected"
        sent = self._waiting.popleft()
        if name is not None:
            assert sent.out.opcode.name == name, (sent.out.opcode.name, sent.packet)
        for field, value in fields.items():
            assert getattr(sent, field) == value, (field, getattr(sent, field), value)
        return sent

    def sends_all(self, name=None):
        """Take all packets that wait, of one opcode if that is given."""
        taken = list(self._waiting)
        self._waiting.clear()
        assert name is None or {sent.out.opcode.name for sent in taken} <= {name}
        return taken

    def sends_nothing(self, until=None):
        if until is not None:
            self.waits(until)
        assert not self._waiting, self._waiting[0].packet

    def waits(self, until):
        """Let time pass; stop at each deadline."""
        while (due := self.device.deadline) is not None and due <= until:
            assert due >= self.now
            self.now = due
            self.device.expire(self.now)
            self._drain()
            assert self.device.deadline is None or self.device.deadline > due or self._waiting
        self.now = max(self.now, until)

    # -- the peer's side --------------------------------------------------------------------

    def wraps(self, packet, *, ev=EV, dscp=None, ecn=None, dport=4791, src=None, plane=None):
        """The IP packet that carries what the peer says."""
        is_data = packet.bth.opcode < 0xD0 or packet.bth.opcode == MrcOpcode.PROBE
        dscp = (4 if is_data else 46) if dscp is None else dscp
        ecn = (2 if is_data else 0) if ecn is None else ecn
        plane = ev & 7 if plane is None else plane
        body = bytes(packet.pack(self.options))
        label, port = entropy.split(ev, self.options.ev_split)
        head = bytearray(IPV6.size + UDP.size)
        length = UDP.size + len(body) + ICRC.size
        Ipv6(
            src or self.theirs[plane], self.ours[plane], 17, length,
            traffic_class=dscp << 2 | ecn, flow_label=label,
        ).pack_into(head)  # fmt: skip
        Udp(port, dport, length).pack_into(head, IPV6.size)
        raw = bytes(head) + body
        return raw + ICRC.pack(icrc(raw))

    def receives(self, packet, *, at=None, ce=False, cut=False, last_hop=False, keep=68, **how):
        """Hand the device a packet of the peer: an MrcPacket, or bytes as they are."""
        if at is not None:
            self.waits(at)
        raw = packet if isinstance(packet, bytes | bytearray) else self.wraps(packet, **how)
        if ce:
            raw = marked(raw)
        if cut:
            raw = trimmed(raw, last_hop=last_hop, keep=keep)
        self.device.receive(bytes(raw), self.now)
        self._drain()

    def ignores(self, packet, counter, **how):
        """The packet is counted so, and nothing else is changed by it."""
        self._drain()
        before, counted = snapshot(self.device), self.counters.get(counter, 0)
        self.receives(packet, **how)
        assert self.counters.get(counter, 0) == counted + 1, self.counters
        assert snapshot(self.device) == before
        self.sends_nothing()

    # -- both -------------------------------------------------------------------------------

    def _drain(self):
        self._waiting += (Sent(out, self.options) for out in self.device.transmit(self.now))
        self.events += self.device.events()

    @property
    def board(self):
        return self.qp.requestor.board

    @property
    def counters(self):
        return self.device.counters()

    def completions(self):
        return [event for event in self.events if isinstance(event, WorkCompletion)]

    def completes(self, *expected):
        """The completions so far: work request and status, in order."""
        assert [(event.wr_id, event.status.name) for event in self.completions()] == [*expected]

    def told(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def stamp(self):
        return stamp(self.now)
