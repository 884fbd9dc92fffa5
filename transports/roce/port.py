"""What every NIC port has, whatever carries its packets: queue pairs, memory, checks, counters.

A packet is looked at in the order of IBTA vol. 1, section 9.6.1: lengths and opcode, transport
version, destination queue pair and its service, the queue pair's state, the addresses, the
P_Key, and last, because it costs most, the ICRC. What fails is dropped without an answer,
counted by reason, and has changed nothing.

A UD queue pair has no one peer: there the destination must be an address of the port, or a
group that the queue pair is attached to, and the source may be anybody.
"""

import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass

from transports.clock import Ns
from transports.roce.agenda import Agenda
from transports.roce.arrivals import HEADERS_SIZE, Arrival
from transports.roce.attributes import PATH_MTUS
from transports.roce.bursts import Burst
from transports.roce.events import Event, Refused
from transports.roce.gids import GidTable
from transports.roce.memory import MemoryTable
from transports.roce.psn import MASK
from transports.roce.qp import PortConfig, QpConfig, QueuePair
from transports.roce.refusals import RefusalReason
from transports.roce.regions import MemoryRegion, MemoryWindow
from transports.roce.srq import SharedReceiveQueue
from transports.roce.ud import GSI_QP_NUM
from wire.ethernet import is_multicast
from wire.roce.opcodes import OPCODES, Opcode, Service

_FIRST_QP_NUM = 0x11  # 0 is nobody, 1 is the GSI; the small ones are left to other services
_LAST_QP_NUM = 0xFFFFFE
_ACKNOWLEDGE = Opcode.RC_ACKNOWLEDGE.value
_CNP = Opcode.CNP.value
_FULL_MEMBER = 0x8000
MULTICAST_QP_NUM = 0xFFFFFF  # DestQP of what goes to a group. IBTA vol. 1, section 3.5.3

# By opcode: bytes of BTH and extension headers, service, whether it is a request.
_Row = tuple[int, Service, bool]
_ROWS: list[_Row | None] = [None] * 256
for _opcode, _info in OPCODES.items():
    _ROWS[_opcode] = HEADERS_SIZE[_opcode], _info.service, _info.is_request
_SERVICES = (Service.RC, Service.UC, Service.UD)


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """One port: the addresses it answers to, its P_Key table, and what its BTHs say."""

    addresses: tuple[bytes, ...]  # 4 or 16 bytes each
    p_keys: tuple[int, ...] = (0xFFFF,)
    mig_req: bool = True  # MigReq of what is sent: 1, migrated, unless a peer wants 0
    traces: bool = False  # each refused packet makes an event, too
    active_mtu: int = 4096  # bytes of payload; the longest UD message, the largest path MTU

    def __post_init__(self) -> None:
        for address in self.addresses:
            if len(address) not in {4, 16}:
                raise ValueError(f"address {address.hex()} is neither 4 nor 16 bytes long")
        if not self.p_keys:
            raise ValueError("p_keys is empty")
        if self.active_mtu not in PATH_MTUS:
            legal = ", ".join(map(str, PATH_MTUS))
            raise ValueError(f"active_mtu is {self.active_mtu}, legal is {legal}")


class Port:
    """Queue pairs and memory of one port, and the checks of what arrives."""

    def __init__(
        self, config: DeviceConfig, rng: random.Random, *, in_trains: bool = False
    ) -> None:
        self.config = config
        self.memory = MemoryTable()
        self.refused: Counter[RefusalReason] = Counter()
        self.received_packets = 0
        self.marked_packets = 0  # valid data that came with CE
        self.sent_packets = 0
        self._rng = rng
        self.gids = GidTable(config.addresses)
        self._port = PortConfig(
            self.gids, config.p_keys, config.active_mtu, config.mig_req, in_trains
        )
        self._qps: dict[int, QueuePair] = {}
        self._groups: dict[bytes, list[QueuePair]] = {}  # multicast address to members
        self._next_qp_num = _FIRST_QP_NUM
        self._srqs: dict[int, SharedReceiveQueue] = {}
        self._next_srq_num = 1
        self._agenda = Agenda()
        self._events: deque[Event] = deque()

    # -- the application's side -----------------------------------------------------------

    def add_address(self, ip: bytes) -> int:
        """Answer to one more address from now on; return its GID index."""
        return self.gids.add(ip)

    def remove_address(self, ip: bytes) -> None:
        """Answer to an address no more. Raise GidError if it is none of ours.

        Queue pairs that use it stay as they are, and hear nothing until it is back.
        """
        self.gids.remove(ip)
        for qp in self._qps.values():
            qp.generation += 1

    def alloc_pd(self) -> int:
        """Return a new protection domain."""
        return self.memory.alloc_pd()

    def register(
        self,
        pd: int,
        addr: int,
        buffer: int | bytearray | memoryview,
        access: int,
        *,
        l_key: int | None = None,
        r_key: int | None = None,
        invalidatable: bool = True,
    ) -> MemoryRegion:
        """Register `buffer`, or that many zero bytes, at `addr`. See MemoryTable.register."""
        return self.memory.register(
            pd, addr, buffer, access, l_key=l_key, r_key=r_key, invalidatable=invalidatable
        )

    def deregister(self, region: MemoryRegion) -> None:
        """Forget `region`."""
        self.memory.deregister(region)

    def alloc_mr(self, pd: int, max_length: int) -> MemoryRegion:
        """Return a free region for fast registration. See MemoryTable.alloc_mr."""
        return self.memory.alloc_mr(pd, max_length)

    def alloc_mw(self, pd: int) -> MemoryWindow:
        """Return a free window of type 2."""
        return self.memory.alloc_mw(pd)

    def dealloc_mw(self, window: MemoryWindow) -> None:
        """Forget `window`."""
        self.memory.dealloc_mw(window)

    def create_qp(
        self,
        pd: int,
        *,
        qp_num: int | None = None,
        service: Service = Service.RC,
        config: QpConfig | None = None,
        srq: SharedReceiveQueue | None = None,
    ) -> QueuePair:
        """Return a new queue pair in RESET. It takes receives from `srq`, if given.

        A number that is not given counts up, so that one is not used again at once. Raise
        ValueError for a service that is not built, or a number in use or reserved. Number 1 is
        the GSI, which is UD.
        """
        if service not in _SERVICES:
            built = ", ".join(_SERVICES)
            raise ValueError(f"service is {service}, built are {built}")
        if service is Service.UD and config is not None and config.congestion is not None:
            raise ValueError("congestion control is for connected queue pairs")
        if not self.memory.has_pd(pd):
            raise ValueError(f"pd {pd} was never allocated")
        if srq is not None and self._srqs.get(srq.srq_num) is not srq:
            raise ValueError(f"SRQ {srq.srq_num} is not of this port")
        if qp_num is None:
            qp_num = self._new_qp_num()
        first = GSI_QP_NUM if service is Service.UD else GSI_QP_NUM + 1
        if not first <= qp_num <= _LAST_QP_NUM or qp_num in self._qps:
            raise ValueError(f"qp_num {qp_num:#x} is reserved or in use")
        qp = QueuePair(
            qp_num,
            pd,
            config or QpConfig(),
            service=service,
            srq=srq,
            port=self._port,
            memory=self.memory,
            events=self._events,
            agenda=self._agenda,
        )
        self._qps[qp_num] = qp
        if srq is not None:
            srq.users += 1
        return qp

    def destroy_qp(self, qp: QueuePair) -> None:
        """Forget `qp` and what it still had to send. Its requests make no completions."""
        del self._qps[qp.qp_num]
        self.memory.forget_qp(qp.qp_num)
        if qp.srq is not None:
            qp.srq.users -= 1
        qp.generation += 1
        self._agenda.forget(qp)
        for group in [group for group, members in self._groups.items() if qp in members]:
            self.detach_multicast(qp, group)

    def create_srq(
        self, pd: int, max_wr: int = 1024, max_sge: int = 16, srq_limit: int = 0
    ) -> SharedReceiveQueue:
        """Return a new shared receive queue.

        `srq_limit` is how few requests are an event, 0 for never. Raise ValueError for an
        unknown protection domain or a size that cannot be.
        """
        if not self.memory.has_pd(pd):
            raise ValueError(f"pd {pd} was never allocated")
        srq = SharedReceiveQueue(self._next_srq_num, pd, max_wr, max_sge, self._events)
        srq.modify(limit=srq_limit, max_wr=max_wr)
        self._next_srq_num += 1
        self._srqs[srq.srq_num] = srq
        return srq

    def destroy_srq(self, srq: SharedReceiveQueue) -> None:
        """Forget `srq` and what it holds. Raise ValueError while queue pairs take from it."""
        if srq.users:
            raise ValueError(f"SRQ {srq.srq_num} has {srq.users} queue pairs")
        del self._srqs[srq.srq_num]

    def attach_multicast(self, qp: QueuePair, group: bytes) -> None:
        """Let `qp` receive what is sent to the multicast address `group`.

        Twice is once. Raise ValueError for an address that is no group's, or a queue pair that
        is not UD. IBTA vol. 1, section 10.5.
        """
        if qp.service is not Service.UD:
            raise ValueError(f"service is {qp.service}, only UD has multicast")
        if not is_multicast(group):
            raise ValueError(f"address {group.hex()} is not a multicast address")
        members = self._groups.setdefault(group, [])
        if qp not in members:
            members.append(qp)

    def members(self, group: bytes) -> tuple[QueuePair, ...]:
        """Return the queue pairs that are attached to a multicast address."""
        return tuple(self._groups.get(group, ()))

    def detach_multicast(self, qp: QueuePair, group: bytes) -> None:
        """Undo `attach_multicast`. Raise ValueError if `qp` is not attached to `group`."""
        members = self._groups.get(group, [])
        if qp not in members:
            raise ValueError(f"QP {qp.qp_num:#x} is not attached to {group.hex()}")
        members.remove(qp)
        if not members:
            del self._groups[group]

    def _new_qp_num(self) -> int:
        while self._next_qp_num in self._qps:
            self._advance_qp_num()
        qp_num = self._next_qp_num
        self._advance_qp_num()
        return qp_num

    def _advance_qp_num(self) -> None:
        self._next_qp_num += 1
        if self._next_qp_num > _LAST_QP_NUM:
            self._next_qp_num = _FIRST_QP_NUM

    @property
    def qps(self) -> tuple[QueuePair, ...]:
        return tuple(self._qps.values())

    # -- the driver's side ----------------------------------------------------------------

    @property
    def deadline(self) -> Ns | None:
        return self._agenda.deadline

    def expire(self, now: Ns) -> None:
        """Let time pass. Calling it early or twice is harmless."""
        self._agenda.expire(now)

    @property
    def has_events(self) -> bool:
        """Say whether `events` has any."""
        return bool(self._events)

    def events(self) -> Iterator[Event]:
        """Hand out, once and in order, completions and asynchronous events."""
        while self._events:
            yield self._events.popleft()

    def counters(self) -> dict[str, int]:
        """Return what the port counted: packets, and refused ones by reason."""
        counts = {"sent_packets": self.sent_packets, "received_packets": self.received_packets}
        if self.marked_packets:
            counts["np_ecn_marked_roce_packets"] = self.marked_packets
        controls = [qp.congestion for qp in self.qps if qp.congestion is not None]
        if controls:
            counts["np_cnp_sent"] = sum(control.cnps_sent for control in controls)
            counts["rp_cnp_handled"] = sum(control.reaction.cnps for control in controls)
            counts["rp_rate_cuts"] = sum(control.reaction.cuts for control in controls)
        for reason in RefusalReason:
            if self.refused[reason]:
                counts[f"refused_{reason.value}"] = self.refused[reason]
        return counts

    def _count(self, qp: QueuePair, burst: Burst) -> None:
        """Count the packets of a burst that is being sent."""
        self.sent_packets += burst.packets
        stats = qp.stats
        stats.packets += burst.packets
        stats.payload_bytes += len(burst.data)
        if burst.transmission > 1 and burst.opcode != _ACKNOWLEDGE:
            stats.retransmissions += burst.packets

    def _refuse(self, reason: RefusalReason) -> None:
        """Count a packet that was dropped without an answer."""
        self.refused[reason] += 1
        if self.config.traces:
            self._events.append(Refused(reason))

    # -- checks -----------------------------------------------------------------------------

    def _admit(  # noqa: PLR0911 - one return per check, in the order of the text
        self, arrival: Arrival, source: bytes, destination: bytes
    ) -> QueuePair | RefusalReason:
        """Return the queue pair that a packet is for, or why there is none."""
        row = _row(arrival)
        if isinstance(row, RefusalReason):
            return row
        _, service, is_request = row
        qp = self._qps.get(arrival.qp_word & MASK)
        if qp is None:
            return RefusalReason.DEST_QP
        if service is not qp.service and arrival.opcode != _CNP:
            return RefusalReason.SERVICE
        ah = qp.ah
        if not (qp.takes_requests if is_request else qp.takes_responses):
            return RefusalReason.QP_STATE
        if ah is None:  # UD
            if destination not in self.gids:
                return RefusalReason.DESTINATION_ADDRESS
        else:
            if destination != ah.local_ip or destination not in self.gids:
                return RefusalReason.DESTINATION_ADDRESS
            if source != ah.remote_ip:
                return RefusalReason.SOURCE_ADDRESS
        p_key = arrival.p_key
        # Most often it is our own, as a full member; has_p_key is the rule.
        if not (p_key == qp.p_key >= _FULL_MEMBER or qp.has_p_key(p_key)):
            return RefusalReason.P_KEY
        return qp

    def _is_for_group(self, arrival: Arrival, destination: bytes) -> bool:
        """Say whether a packet that nobody else admits goes to a group with members here."""
        return (
            arrival.qp_word & MASK == MULTICAST_QP_NUM
            and destination in self._groups
            and OPCODES[arrival.opcode].service is Service.UD
        )

    def _deliver_to_group(
        self, arrival: Arrival, destination: bytes, now: Ns
    ) -> RefusalReason | None:
        """Hand each member of a group its own; say why, if nobody has taken it."""
        taken, reason = False, None
        for qp in self._groups[destination]:
            if not qp.takes_requests:
                reason = RefusalReason.QP_STATE
            elif not qp.has_p_key(arrival.p_key):
                reason = RefusalReason.P_KEY
            else:
                reason = qp.receive(arrival, now)
                taken |= reason is None
        return None if taken else reason

    def _receive_marked(self, qp: QueuePair, now: Ns) -> None:
        """Take note that valid data for `qp` came with CE. Annex A17.9."""
        self.marked_packets += 1
        qp.receive_marked(now)

    def _deliver(self, qp: QueuePair, arrival: Arrival, now: Ns) -> RefusalReason | None:
        """Hand a packet that passed every check to its queue pair.

        If that is a UD one, the view of `arrival` begins with the IP header.
        """
        if arrival.opcode == _CNP:
            return qp.receive_cnp(now)
        return qp.receive(arrival, now)


def _row(arrival: Arrival) -> _Row | RefusalReason:
    """Return what the opcode of a packet is, or what is wrong with its BTH by itself."""
    row = _ROWS[arrival.opcode]
    if row is None:
        return RefusalReason.OPCODE
    if arrival.end - arrival.bth < row[0] + (arrival.bits >> 4 & 3):
        return RefusalReason.PACKET_LENGTH
    if arrival.bits & 0x0F:
        return RefusalReason.TVER
    return row
