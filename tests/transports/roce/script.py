"""Dialogues: one device of ours, and a peer that says what the test says.

    rc.posts(write(3 * MTU))
    rc.sends("WRITE_FIRST", psn=0)
    rc.receives(nak(psn=1), at=us(10))
    rc.sends_nothing(until=us(500))

Packets of the peer are made with the codecs of `wire`, field by field; packets of ours are
taken apart with them, and their ICRC is checked. Nothing here knows the machines' insides, but
for the deep comparison of `ignores`.
"""

import random
from collections import deque

from tests.transports.roce.snapshot import snapshot
from transports.clock import MS, US
from transports.roce.attributes import TRANSITIONS, AddressHandle, QpState
from transports.roce.completion import WcStatus, WorkCompletion
from transports.roce.device import Device, DeviceConfig
from transports.roce.qp import QpConfig
from transports.roce.regions import Access
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode
from wire.codec import DecodeError
from wire.ipv4 import Ipv4, Protocol
from wire.ipv6 import Ipv6
from wire.pcapng import enhanced_packet, interface_block, section_header
from wire.roce.bth import Bth
from wire.roce.eths import (
    Aeth,
    AtomicAckEth,
    AtomicEth,
    Deth,
    Ieth,
    ImmDt,
    NakCode,
    Reth,
)
from wire.roce.icrc import ICRC, icrc
from wire.roce.opcodes import Opcode, Service
from wire.roce.packet import UDP_PORT, RocePacket, locate_ip
from wire.udp import Udp

MTU = 1024
OUR_QP = 0x11
PEER_QP = 0x123456
OURS = {4: bytes([10, 0, 0, 2]), 6: bytes.fromhex("fd000000000000000000000000000002")}
PEERS = {4: bytes([10, 0, 0, 1]), 6: bytes.fromhex("fd000000000000000000000000000001")}
VA = 0x10000  # of the region that the peer may use
R_KEY = 0x1100
SIZE = 64 * 1024
Q_KEY = 0x11111111
LOCAL_VA = 0x80000  # of the region that our requests use
L_KEY = 0x2200
ALL = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
EVERY = ALL | Access.LOCAL_WRITE


def us(n):
    return int(n * US)


def ms(n):
    return int(n * MS)


# What the peer says.


def said(name, psn, *headers, payload=b"", ack_req=False, service="RC", **bth):
    """Return a packet of the peer by the name of its opcode; DestQP is filled in later."""
    opcode = Opcode[f"{service}_{name}" if name != "CNP" else name]
    fields = Bth(opcode, bth.pop("dest_qp", OUR_QP), psn, ack_req=ack_req)._replace(**bth)
    return RocePacket.make(fields, *headers, payload=payload)


def write_only(psn, payload=b"8 bytes.", va=VA, r_key=R_KEY, *, length=None, imm=None, **bth):
    reth = Reth(va, r_key, len(payload) if length is None else length)
    if imm is not None:
        return said("WRITE_ONLY_IMM", psn, reth, ImmDt(imm), payload=payload, **bth)
    return said("WRITE_ONLY", psn, reth, payload=payload, **bth)


def write_first(psn, length, payload=bytes(MTU), va=VA, r_key=R_KEY, **bth):
    return said("WRITE_FIRST", psn, Reth(va, r_key, length), payload=payload, **bth)


def send_only(psn, payload=b"8 bytes.", *, imm=None, inv=None, **bth):
    if imm is not None:
        return said("SEND_ONLY_IMM", psn, ImmDt(imm), payload=payload, **bth)
    if inv is not None:
        return said("SEND_ONLY_INV", psn, Ieth(inv), payload=payload, **bth)
    return said("SEND_ONLY", psn, payload=payload, **bth)


def read_request(psn, length, va=VA, r_key=R_KEY, **bth):
    return said("READ_REQUEST", psn, Reth(va, r_key, length), **{"ack_req": True, **bth})


def fetch_add(psn, add, va=VA, r_key=R_KEY, **bth):
    return said("FETCH_ADD", psn, AtomicEth(va, r_key, add), **{"ack_req": True, **bth})


def cmp_swap(psn, compare, swap, va=VA, r_key=R_KEY, **bth):
    return said("CMP_SWAP", psn, AtomicEth(va, r_key, swap, compare), **bth)


def ack(psn, msn=0, credit=0x1F, **bth):
    return said("ACKNOWLEDGE", psn, Aeth.ack(msn, credit), **bth)


def nak(psn, code=NakCode.PSN_SEQUENCE_ERROR, msn=0):
    return said("ACKNOWLEDGE", psn, Aeth.nak(msn, code))


def rnr_nak(psn, timer=12, msn=0):
    return said("ACKNOWLEDGE", psn, Aeth.rnr_nak(msn, timer))


def read_response(name, psn, payload, msn=0, **bth):
    headers = () if name == "MIDDLE" else (Aeth.ack(msn),)
    return said(f"READ_RESPONSE_{name}", psn, *headers, payload=payload, **bth)


def atomic_response(psn, original, msn=0):
    return said("ATOMIC_ACKNOWLEDGE", psn, Aeth.ack(msn), AtomicAckEth(original))


def datagram(psn, payload=b"8 bytes.", *, q_key=Q_KEY, src_qp=PEER_QP, imm=None, **bth):
    deth = Deth(q_key, src_qp)
    if imm is not None:
        return said(
            "SEND_ONLY_IMM", psn, deth, ImmDt(imm), payload=payload, service="UD", **bth
        )
    return said("SEND_ONLY", psn, deth, payload=payload, service="UD", **bth)


# What our application wants.


def local(length, offset=0):
    """Return the gather or scatter list of one stretch of our own region."""
    return (Sge(LOCAL_VA + offset, length, L_KEY),)


def work(opcode, length, wr_id=1, offset=0, **fields):
    fields = {"remote_addr": 0x5000, "r_key": 0x77, **fields}
    return SendWr(wr_id, opcode, local(length, offset), **fields)


def write(length, wr_id=1, **fields):
    return work(WrOpcode.RDMA_WRITE, length, wr_id, **fields)


def send(length, wr_id=1, **fields):
    return work(WrOpcode.SEND, length, wr_id, **fields)


def read(length, wr_id=1, **fields):
    return work(WrOpcode.RDMA_READ, length, wr_id, **fields)


def atomic(wr_id=1, add=1, **fields):
    return work(WrOpcode.ATOMIC_FETCH_AND_ADD, 8, wr_id, swap_add=add, **fields)


# Whole IP packets.


def ip_packet(packet, source, destination, *, ttl=64, tos=0, ident=1, port=0xC000, df=True):
    """Return IP header through ICRC of a RocePacket, made by the codecs alone."""
    body = packet.pack()
    length = 8 + len(body) + ICRC.size
    if len(source) == 4:
        ip = Ipv4(
            source, destination, Protocol.UDP, 20 + length, ttl, tos, ident, dont_fragment=df
        )
    else:
        ip = Ipv6(source, destination, Protocol.UDP, length, ttl, tos)
    whole = bytearray(ip.size + length)
    ip.pack_into(whole)
    Udp(port, UDP_PORT, length).pack_into(whole, ip.size)
    whole[ip.size + 8 : -ICRC.size] = body
    return sealed(whole)


def sealed(packet):
    """Return `packet` with the ICRC that its bytes ask for."""
    packet = bytearray(packet)
    ICRC.pack_into(packet, len(packet) - ICRC.size, icrc(packet[: -ICRC.size]))
    return packet


def resealed(packet):
    """Return `packet` with the ICRC that it asks for, if it is fit to ask for one."""
    try:
        return sealed(packet)
    except DecodeError:
        return packet


def opened(packet):
    """Return the RocePacket in an IP packet of ours, whose ICRC must be right."""
    at = locate_ip(packet)
    assert ICRC.unpack_from(packet, at.icrc_offset)[0] == icrc(packet[: at.icrc_offset])
    assert at.icrc_offset + ICRC.size == len(packet)
    return RocePacket.unpack(packet[at.bth_offset : at.icrc_offset])


FIELDS = {
    "psn": lambda p: p.bth.psn,
    "ack_req": lambda p: p.bth.ack_req,
    "solicited": lambda p: p.bth.solicited,
    "mig_req": lambda p: p.bth.mig_req,
    "pad_count": lambda p: p.bth.pad_count,
    "dest_qp": lambda p: p.bth.dest_qp,
    "p_key": lambda p: p.bth.p_key,
    "syndrome": lambda p: p.aeth and p.aeth.syndrome,
    "msn": lambda p: p.aeth and p.aeth.msn,
    "va": lambda p: p.reth and p.reth.va,
    "r_key": lambda p: p.reth and p.reth.r_key,
    "length": lambda p: p.reth and p.reth.dma_length,
    "reth": lambda p: p.reth,
    "aeth": lambda p: p.aeth,
    "original": lambda p: p.atomic_ack_eth and p.atomic_ack_eth.original,
    "atomic_eth": lambda p: p.atomic_eth,
    "imm": lambda p: p.immdt and p.immdt.imm,
    "inv": lambda p: p.ieth and p.ieth.r_key,
    "q_key": lambda p: p.deth and p.deth.q_key,
    "src_qp": lambda p: p.deth and p.deth.src_qp,
    "payload": lambda p: bytes(p.payload),
    "size": lambda p: len(p.payload),
}


class Dialogue:
    """Our device, its one queue pair, and everything that was said."""

    def __init__(
        self,
        *,
        family=6,
        state=QpState.RTS,
        config=None,
        device=None,
        rq_psn=0,
        sq_psn=0,
        access=ALL,
        service="RC",
        qp_num=OUR_QP,
        srq=None,
        **attributes,
    ):
        self.now = 0
        self.said = []  # (time, is ours, IP packet)
        self.family = family
        self.ours, self.peers = OURS[family], PEERS[family]
        self.ends = self.peers, self.ours  # of what the peer sends
        settings = {"addresses": (self.ours,), **(device or {})}
        self.device = Device(DeviceConfig(**settings), random.Random(1))
        self.pd = self.device.alloc_pd()
        self.region = self.device.register(self.pd, VA, SIZE, EVERY, l_key=0x1100, r_key=R_KEY)
        self.local = self.device.register(
            self.pd, LOCAL_VA, bytearray(random.Random(2).randbytes(2 * SIZE)),
            Access.LOCAL_WRITE, l_key=L_KEY,
        )  # fmt: skip
        self.service = Service(service)
        if srq is not None:
            owner = self.device.alloc_pd() if srq.pop("other_pd", False) else self.pd
            srq = self.device.create_srq(owner, **srq)
        self.qp = self.device.create_qp(
            self.pd,
            qp_num=qp_num,
            service=self.service,
            config=QpConfig(**(config or {})),
            srq=srq,
        )
        self.attributes = {
            "pkey_index": 0, "port_num": 1, "qp_access_flags": access, "qkey": Q_KEY,
            "ah": AddressHandle(self.ours, self.peers), "dest_qp_num": PEER_QP,
            "rq_psn": rq_psn, "sq_psn": sq_psn,
            "path_mtu": MTU, "max_dest_rd_atomic": 4, "min_rnr_timer": 12, "timeout": 14,
            "retry_cnt": 7, "rnr_retry": 7, "max_rd_atomic": 4, **attributes,
        }  # fmt: skip
        self._out = deque()
        self._events = deque()
        self.reaches(state)

    def reaches(self, state):
        """Take the queue pair from RESET up to `state`."""
        before = QpState.RESET
        for step in (QpState.INIT, QpState.RTR, QpState.RTS, QpState.SQD, QpState.ERR):
            if before is state:
                break
            required = TRANSITIONS[self.service, before, step].required
            self.qp.modify(step, self.now, **{k: self.attributes[k] for k in required})
            before = step
        self._drain()

    def modifies(self, state, **attributes):
        """Take the queue pair to `state`."""
        self.qp.modify(state, self.now, **attributes)
        self._drain()

    # -- our side --------------------------------------------------------------------------

    def posts(self, *requests):
        """Post send requests."""
        for wr in requests:
            self.qp.post_send(wr, self.now)
        self._drain()

    def offers(self, length, wr_id=100, offset=0):
        """Post a receive request with `length` bytes at the end of the peer's region."""
        self.qp.post_recv(
            RecvWr(wr_id, (Sge(VA + SIZE // 2 + offset, length, 0x1100),)), self.now
        )
        self._drain()

    # -- the peer's side -------------------------------------------------------------------

    def receives(self, *packets, at=None):
        """Deliver packets of the peer, at a time; what is due before that time happens."""
        if at is not None:
            self.passes(at)
        for packet in packets:
            self.receives_raw(ip_packet(packet, self.peers, self.ours))

    def receives_raw(self, packet):
        self.said.append((self.now, False, bytes(packet)))
        self.device.receive(packet, self.now)
        self._drain()

    def receives_together(self, *packets):
        """Deliver packets before anything is sent."""
        for packet in packets:
            whole = ip_packet(packet, self.peers, self.ours)
            self.said.append((self.now, False, bytes(whole)))
            self.device.receive(whole, self.now)
        self._drain()

    def ignores(self, packet):
        """Deliver a packet that must change nothing and be answered by nothing."""
        raw = packet
        if isinstance(packet, RocePacket):
            raw = ip_packet(packet, self.peers, self.ours)
        before, waiting = snapshot(self.device), self.waiting
        refused = self.device.refused.total()
        self.receives_raw(raw)
        assert snapshot(self.device) == before
        assert self.waiting == waiting, self._story("a refused packet was answered")
        assert self.device.refused.total() == refused + 1, "a refusal was not counted"

    # -- what must be seen -----------------------------------------------------------------

    def sends(self, name, *, why=None, transmission=None, **fields):
        """Take the next packet that we sent: opcode and every field given must be so."""
        assert self._out, self._story(f"nothing was sent, wanted {name} {fields}")
        outgoing = self._out.popleft()
        packet = opened(outgoing.packet)
        got = {field: FIELDS[field](packet) for field in fields}
        assert (packet.name, got) == (name, fields), self._story(
            f"sent {packet.name} {got}, wanted {name} {fields}"
        )
        assert packet.bth.dest_qp == PEER_QP
        assert outgoing.psn == packet.bth.psn
        if why is not None:
            assert outgoing.why == why, self._story(f"why {outgoing.why!r}, wanted {why!r}")
        if transmission is not None:
            assert outgoing.transmission == transmission
        return packet

    def sends_any(self):
        """Take the next packet that we sent, whatever it is."""
        return opened(self._out.popleft().packet)

    def sends_acks(self, psn, msn, credit=0x1F, **more):
        """Take an ACK."""
        return self.sends("ACKNOWLEDGE", psn=psn, syndrome=credit, msn=msn, **more)

    def sends_nak(self, psn, msn, code=NakCode.PSN_SEQUENCE_ERROR):
        """Take a NAK."""
        return self.sends("ACKNOWLEDGE", psn=psn, syndrome=0x60 + code, msn=msn)

    def sends_nothing(self, until=None):
        """Say that nothing is waiting to be looked at, nor comes up to `until`."""
        assert not self._out, self._story("more was sent than wanted")
        if until is not None:
            self.passes(until)
            assert not self._out, self._story(f"something was sent before {until} ns")

    @property
    def waiting(self):
        """Return how many packets we sent that were not looked at."""
        return len(self._out)

    def passes(self, until):
        """Let time pass; timers run when they are due."""
        assert until >= self.now
        while (due := self.device.deadline) is not None and due <= until:
            self.now = max(self.now, due)
            self.device.expire(self.now)
            self._drain()
        self.now = until
        self.device.expire(self.now)
        self._drain()

    def completes(self, wr_id, status=WcStatus.SUCCESS, **fields):
        """Take the next event, which must be this completion."""
        event = self.reports(WorkCompletion)
        got = {name: getattr(event, name) for name in fields}
        assert (event.wr_id, event.status.name, got) == (wr_id, status.name, fields)
        return event

    def reports(self, kind):
        """Take the next event other than a note that something was sent again."""
        assert self._events, self._story(f"nothing was reported, wanted {kind.__name__}")
        event = self._events.popleft()
        assert isinstance(event, kind), self._story(f"reported {event}, wanted {kind.__name__}")
        return event

    def reports_nothing(self):
        assert not self._events, self._story(f"reported {list(self._events)}")

    def forgets_events(self):
        self._events.clear()

    def remembers(self, offset, length):
        """Return bytes of the region that the peer may use."""
        return bytes(self.region.view[offset : offset + length])

    def _drain(self):
        for outgoing in self.device.transmit(self.now):
            self.said.append((self.now, True, outgoing.packet))
            self._out.append(outgoing)
        self._events.extend(
            event for event in self.device.events() if type(event).__name__ != "Retransmitted"
        )

    def _story(self, what):
        lines = [what, "said so far:"]
        for at, is_ours, packet in self.said[-30:]:
            try:
                text = repr(
                    RocePacket.unpack(packet[48 if self.family == 6 else 28 : -4])._replace(
                        payload=b""
                    )
                )
            except ValueError as error:
                text = str(error)
            lines.append(f"{at:>12} {'->' if is_ours else '<-'} {text}")
        return "\n".join(lines)

    def capture(self):
        """Return everything that was said as a pcapng file of IP packets."""
        raw_ip = 101
        blocks = [section_header(), interface_block("dialogue", "", link_type=raw_ip)]
        blocks += [enhanced_packet(0, at, packet) for at, _, packet in self.said]
        return b"".join(blocks)
