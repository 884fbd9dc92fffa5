"""What every NIC port has, whatever carries its packets: queue pairs, memory, checks, counters.

A packet is looked at in the order of IBTA vol. 1, section 9.6.1: lengths and opcode, transport
version, destination queue pair and its service, the queue pair's state, the addresses, the
P_Key, and last, because it costs most, the ICRC. What fails is dropped without an answer,
counted by reason, and has changed nothing.
"""

import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass

from transports.clock import Ns
from transports.roce.agenda import Agenda
from transports.roce.arrivals import HEADERS_SIZE, Arrival
from transports.roce.bursts import Burst
from transports.roce.events import Event, Refused
from transports.roce.memory import MemoryRegion, MemoryTable
from transports.roce.qp import PortConfig, QpConfig, QueuePair
from transports.roce.refusals import RefusalReason
from wire.roce.opcodes import OPCODES, Opcode, Service

_FIRST_QP_NUM = 0x11  # 0 is nobody, 1 is the GSI; the small ones are left to other services
_LAST_QP_NUM = 0xFFFFFE
_ACKNOWLEDGE = Opcode.RC_ACKNOWLEDGE.value
_CNP = Opcode.CNP.value
_P_KEY_MEMBER = 0x8000

# By opcode: bytes of BTH and extension headers, service, whether it is a request.
_Row = tuple[int, Service, bool]
_ROWS: list[_Row | None] = [None] * 256
for _opcode, _info in OPCODES.items():
    _ROWS[_opcode] = HEADERS_SIZE[_opcode], _info.service, _info.is_request


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """One port: the addresses it answers to, its P_Key table, and what its BTHs say."""

    addresses: tuple[bytes, ...]  # 4 or 16 bytes each
    p_keys: tuple[int, ...] = (0xFFFF,)
    mig_req: bool = True  # MigReq of what is sent: 1, migrated, unless a peer wants 0
    traces: bool = False  # each refused packet makes an event, too

    def __post_init__(self) -> None:
        for address in self.addresses:
            if len(address) not in {4, 16}:
                raise ValueError(f"address {address.hex()} is neither 4 nor 16 bytes long")
        if not self.p_keys:
            raise ValueError("p_keys is empty")


class Port:
    """Queue pairs and memory of one port, and the checks of what arrives."""

    def __init__(self, config: DeviceConfig, rng: random.Random) -> None:
        self.config = config
        self.memory = MemoryTable()
        self.refused: Counter[RefusalReason] = Counter()
        self.received_packets = 0
        self.sent_packets = 0
        self._rng = rng
        self._port = PortConfig(frozenset(config.addresses), config.p_keys)
        self._qps: dict[int, QueuePair] = {}
        self._next_qp_num = _FIRST_QP_NUM
        self._agenda = Agenda()
        self._events: deque[Event] = deque()

    # -- the application's side -----------------------------------------------------------

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

    def create_qp(
        self,
        pd: int,
        *,
        qp_num: int | None = None,
        service: Service = Service.RC,
        config: QpConfig | None = None,
    ) -> QueuePair:
        """Return a new queue pair in RESET.

        A number that is not given counts up, so that one is not used again at once. Raise
        ValueError for a service that is not built, or a number in use or reserved.
        """
        if service is not Service.RC:
            raise ValueError(f"service is {service}, built is RC")
        if not self.memory.has_pd(pd):
            raise ValueError(f"pd {pd} was never allocated")
        if qp_num is None:
            qp_num = self._new_qp_num()
        if not 1 < qp_num <= _LAST_QP_NUM or qp_num in self._qps:
            raise ValueError(f"qp_num {qp_num:#x} is reserved or in use")
        qp = QueuePair(
            qp_num,
            pd,
            config or QpConfig(),
            port=self._port,
            memory=self.memory,
            events=self._events,
            agenda=self._agenda,
        )
        self._qps[qp_num] = qp
        return qp

    def destroy_qp(self, qp: QueuePair) -> None:
        """Forget `qp` and what it still had to send. Its requests make no completions."""
        del self._qps[qp.qp_num]
        qp.generation += 1
        self._agenda.forget(qp)

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

    def events(self) -> Iterator[Event]:
        """Hand out, once and in order, completions and asynchronous events."""
        while self._events:
            yield self._events.popleft()

    def counters(self) -> dict[str, int]:
        """Return what the port counted: packets, and refused ones by reason."""
        counts = {"sent_packets": self.sent_packets, "received_packets": self.received_packets}
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
        opcode, bits, p_key, qp_word, _, _, bth, end = arrival
        row = _ROWS[opcode]
        if row is None:
            return RefusalReason.OPCODE
        size, service, is_request = row
        if end - bth < size + (bits >> 4 & 3):
            return RefusalReason.PACKET_LENGTH
        if bits & 0x0F:
            return RefusalReason.TVER
        qp = self._qps.get(qp_word & 0xFFFFFF)
        if qp is None:
            return RefusalReason.DEST_QP
        if service is not qp.service and opcode != _CNP:
            return RefusalReason.SERVICE
        ah = qp.ah
        if ah is None or not (qp.takes_requests if is_request else qp.takes_responses):
            return RefusalReason.QP_STATE
        if destination != ah.local_ip:
            return RefusalReason.DESTINATION_ADDRESS
        if source != ah.remote_ip:
            return RefusalReason.SOURCE_ADDRESS
        if (p_key ^ qp.p_key) & 0x7FFF or not (p_key | qp.p_key) & _P_KEY_MEMBER:
            return RefusalReason.P_KEY
        return qp

    def _deliver(self, qp: QueuePair, arrival: Arrival, now: Ns) -> RefusalReason | None:
        """Hand a packet that passed every check to its queue pair."""
        if arrival.opcode == _CNP:
            # Limit: nothing here paces, so a congestion notification has no effect yet.
            return RefusalReason.CNP
        return qp.receive(arrival, now)
