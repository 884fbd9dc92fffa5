"""An application over our own machine: the endpoint of the simulator and of a node.

It is plain calls, each with values that JSON can carry, so that it can be driven across a pipe.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from ipaddress import ip_address
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

from netem.conform.endpoint import RefusedError, UnsupportedError
from netem.conform.notation import Relative, Value
from netem.conform.own_cm import OwnManager
from netem.conform.pattern import PATTERN, pattern
from transports.clock import MS, Ns
from transports.roce.attributes import TRANSITIONS, AddressHandle, QpState
from transports.roce.completion import WorkCompletion
from transports.roce.congestion.control import CongestionConfig
from transports.roce.congestion.parameters import Dcqcn
from transports.roce.events import CommEstablished, Event, QpFatal, SqDrained
from transports.roce.port import Port
from transports.roce.qp import QpConfig, QueuePair
from transports.roce.regions import Access, MemoryRegion
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode
from wire.roce.opcodes import Service

VA, LOCAL_VA, LANDING_VA = 0x10000, 0x800000, 0x900000
# With `dcqcn`: an interval long enough for two packets of a slow host to be within it.
_CONGESTION = CongestionConfig(100_000_000_000, Dcqcn(min_time_between_cnps=200 * MS))
# With `rate`, too: clocks and steps that show in packets of some ten milliseconds each, which
# are more than a host is late by. The cases of N4 to N7 are made for these.
_SLOW = Dcqcn(
    min_time_between_cnps=200 * MS,
    dce_tcp_g=768,  # of 1024: alpha loses a quarter in each step
    dce_tcp_rtt=40 * MS,
    rpg_threshold=2,
    rpg_min_rate=10_000,
    rpg_time_reset=400 * MS,
    rpg_byte_reset=13_000,
    rpg_ai_rate=50_000,
    rpg_hai_rate=500_000,
)
_REQUESTS = {
    "send": WrOpcode.SEND,
    "write": WrOpcode.RDMA_WRITE,
    "read": WrOpcode.RDMA_READ,
    "fetch_add": WrOpcode.ATOMIC_FETCH_AND_ADD,
    "cmp_swap": WrOpcode.ATOMIC_CMP_AND_SWP,
}
_EVENTS = {CommEstablished: "COMM_EST", QpFatal: "FATAL", SqDrained: "SQ_DRAINED"}
_STEPS = (QpState.INIT, QpState.RTR, QpState.RTS, QpState.SQD)


def access_of(names: Value) -> Access:
    """Return the rights that `write,read,atomic` names; `none` is none."""
    rights = Access.LOCAL_WRITE
    for name in str(names).split(","):
        if name not in {"none", "local"}:
            rights |= Access[f"REMOTE_{name.upper()}"]
    return rights


class OwnApplication:
    """One queue pair of a port of ours, and its memory."""

    def __init__(self, port: Port, now: Callable[[], Ns]) -> None:
        self._port = port
        self._now = now
        self._qp: QueuePair | None = None
        self._told: list[Mapping[str, Value]] = []
        self._manager: OwnManager | None = None
        self._regions: list[MemoryRegion] = []
        self._wants: Mapping[str, Value] = {}
        self._peer: Mapping[str, int | str] = {}

    untold: frozenset[str] = frozenset()

    # -- what an Application does ----------------------------------------------------------

    def open(self, wants: Mapping[str, Value]) -> Mapping[str, int]:
        self._wants = wants
        self._told = []
        self._pd = self._port.alloc_pd()
        self._main = self._register(VA, _number(wants["size"]), "write,read,atomic")
        self._local = self._register(LOCAL_VA, 1 << 17, "local")
        self._local.view[:] = PATTERN[: 1 << 17]
        landing = _number(wants["landing"])
        self._landing = self._register(LANDING_VA, _untouched(landing), "local")
        if wants["service"] == "CM":
            if self._manager is None:
                self._manager = OwnManager(self._port)
            self._manager.begin(self._connectable)
            return {"qp_num": 0, "va": VA, "key": self._main.r_key}
        self._qp = self._port.create_qp(
            self._pd,
            service=Service(str(wants["service"])),
            config=_config(wants),
        )
        return {"qp_num": self._qp.qp_num, "va": VA, "key": self._main.r_key}

    def connect(self, peer: Mapping[str, int | str]) -> None:
        self._peer = peer
        if self._wants["service"] != "CM":
            self._step_up(QpState(str(self._wants["state"])))

    def act(self, name: str, fields: Mapping[str, Value]) -> Mapping[str, int]:
        try:
            return self._act(name, fields) or {}
        except ValueError as error:
            raise RefusedError(str(error)) from error

    def told(self) -> list[Mapping[str, Value]]:
        told, self._told = self._told, []
        return told

    def memory(self, at: int, size: int) -> bytes:
        return bytes(self._main.view[at : at + size])

    def close(self) -> None:
        if self._wants.get("service") == "CM" and self._manager is not None:
            self._manager.end(self._now())
        elif self._qp is not None:
            self._port.destroy_qp(self._qp)
        for region in self._regions:
            self._port.deregister(region)
        self._qp, self._regions = None, []

    def take(self, event: Event) -> None:
        """Take an event of the port."""
        if self._manager is not None:
            self._told += self._manager.take(event, self._now())
        if isinstance(event, WorkCompletion):
            if self._qp is not None and event.qp_num == self._qp.qp_num:
                self._told.append(_completion(event))
        elif type(event) in _EVENTS:
            self._told.append({"name": _EVENTS[type(event)]})

    @property
    def deadline(self) -> Ns | None:
        """When `expire` wants to be called, beside the port's own."""
        return None if self._manager is None else self._manager.deadline

    def expire(self, now: Ns) -> None:
        """Let time pass."""
        if self._manager is not None:
            self._told += self._manager.expire(now)

    # -- actions ---------------------------------------------------------------------------

    def _connectable(self) -> QueuePair:
        self._qp = self._port.create_qp(self._pd)
        return self._qp

    def _manage(self, name: str, fields: Mapping[str, Value]) -> None:
        manager, now = self._manager, self._now()
        if manager is None:
            raise UnsupportedError("only a case of the communication manager does that")
        if name == "hold":
            manager.holds = True
        elif name == "accept":
            manager.accept(now, str(fields.get("data", "")))
        elif name == "dial":
            manager.dial(self._peer, now, str(fields.get("data", "")))
        else:
            manager.hang_up(now)
        self._told += manager.settle(now)

    def _act(self, name: str, fields: Mapping[str, Value]) -> Mapping[str, int] | None:
        if name in {"hold", "accept", "dial", "hang_up"}:
            self._manage(name, fields)
            return None
        qp = self._own_qp()
        number = {key: _number(value) for key, value in fields.items() if key != "access"}
        if name == "recv":
            where = LANDING_VA + number.get("at", 0)
            sge = Sge(where, number.get("length", 0), self._landing.l_key)
            qp.post_recv(RecvWr(number.get("wr", 100), (sge,)), self._now())
        elif name in _REQUESTS:
            for count in range(number.get("count", 1)):
                qp.post_send(self._request(name, number, count), self._now())
        elif name == "fill":
            self._main.view[:] = pattern(0, len(self._main.view))
        elif name == "poke":
            at = number["at"]
            self._main.view[at : at + 8] = number["value"].to_bytes(8, "little")
        elif name == "region":
            return self._further_region(fields)
        elif name in {"to_sqd", "to_rts", "to_err", "to_reset", "to_rtr", "to_init"}:
            self._modify(QpState(name[3:].upper()), "attributes" not in fields)
        elif name == "step_up":
            self._step_up(QpState.RTS)
        else:
            raise UnsupportedError(f"no application of ours does {name}")
        return None

    def _request(self, name: str, number: Mapping[str, int], count: int) -> SendWr:
        opcode, length = _REQUESTS[name], number.get("length", 8)
        if "imm" in number:
            opcode = WrOpcode[f"{opcode.name}_WITH_IMM"]
        elif "inv" in number:
            opcode = WrOpcode.SEND_WITH_INV
        where = self._landing if name in {"read", "fetch_add", "cmp_swap"} else self._local
        at = number.get("at", 0)
        inline = bytes(where.view[at : at + length]) if "inline" in number else None
        ah = self._handle() if self._own_qp().service is Service.UD else None
        return SendWr(
            number.get("wr", 1) + count,
            opcode,
            (Sge(where.addr + at, length, where.l_key),) if inline is None and length else (),
            remote_addr=int(self._peer["va"]) + number.get("va", 0),
            r_key=int(self._peer["key"]),
            imm=number.get("imm", 0),
            invalidate_r_key=number.get("inv", 0),
            compare=number.get("compare", 0),
            swap_add=number.get("swap", number.get("add", 0)),
            signaled="unsignaled" not in number,
            solicited="se" in number,
            fence="fence" in number,
            inline=inline,
            ah=ah,
            remote_qp_num=int(self._peer["qp_num"]) if ah else 0,
            remote_q_key=_number(self._wants["qkey"]) if ah else 0,
        )

    def _further_region(self, fields: Mapping[str, Value]) -> Mapping[str, int]:
        keep = self._pd
        if "foreign" in fields:
            self._pd = self._port.alloc_pd()
        addr = VA + _number(fields.get("va", Relative(0)))
        length = _number(fields.get("length", 64))
        region = self._register(addr, length, fields.get("access", "write,read,atomic"))
        self._pd = keep
        return {"key": region.r_key}

    # -- the queue pair --------------------------------------------------------------------

    def _step_up(self, state: QpState) -> None:
        for step in _STEPS:
            if self._own_qp().state is state:
                return
            if step in {QpState.INIT, QpState.RTR, QpState.RTS, QpState.SQD}:
                self._modify(step)

    def _modify(self, state: QpState, with_attributes: bool = True) -> None:
        qp, wants = self._own_qp(), self._wants
        attributes = {
            "pkey_index": 0,
            "port_num": 1,
            "qp_access_flags": int(access_of(wants["access"])) & ~1,
            "qkey": wants["qkey"],
            "ah": self._handle(),
            "dest_qp_num": self._peer["qp_num"],
            "rq_psn": wants["rq_psn"],
            "sq_psn": wants["sq_psn"],
            "path_mtu": wants["mtu"],
            "max_dest_rd_atomic": wants["max_dest_rd"],
            "min_rnr_timer": wants["min_rnr"],
            "timeout": wants["timeout"],
            "retry_cnt": wants["retry"],
            "rnr_retry": wants["rnr_retry"],
            "max_rd_atomic": wants["max_rd"],
        }
        row = TRANSITIONS.get((qp.service, qp.state, state))
        names = row.required if row is not None and with_attributes else ()
        given = {name: attributes[name] for name in names}
        if state is QpState.SQD:
            given["en_sqd_async_notify"] = True
        qp.modify(state, self._now(), **given)  # type: ignore[arg-type] # by name
        if state is QpState.RTR and wants["msn"]:
            assert qp._responder is not None  # noqa: SLF001 - no attribute says a first MSN
            qp._responder.msn = _number(wants["msn"])  # noqa: SLF001

    def _handle(self) -> AddressHandle:
        own, remote = (ip_address(str(self._peer[name])).packed for name in ("own_ip", "ip"))
        return AddressHandle(own, remote)

    def _register(self, addr: int, buffer: int | memoryview, access: Value) -> MemoryRegion:
        region = self._port.register(self._pd, addr, buffer, access_of(access))
        self._regions.append(region)
        return region

    def _own_qp(self) -> QueuePair:
        assert self._qp is not None, "open comes first"
        return self._qp


def _config(wants: Mapping[str, Value]) -> QpConfig:
    config = QpConfig(
        credits=bool(wants["credits"]), congestion=_CONGESTION if wants["dcqcn"] else None
    )
    if wants["rate"]:
        config = replace(config, congestion=CongestionConfig(_number(wants["rate"]), _SLOW))
    if wants["window"]:
        config = replace(config, window=_number(wants["window"]))
    return config


def _untouched(size: int) -> memoryview:
    """Return zeros that cost no memory before they are written to."""
    return memoryview(mmap(-1, size, MAP_PRIVATE | MAP_ANONYMOUS))


def _number(value: Value) -> int:
    return value.by if isinstance(value, Relative) else int(value)


def _completion(event: WorkCompletion) -> Mapping[str, Value]:
    found: dict[str, Value] = {
        "name": "completion",
        "wr": event.wr_id,
        "status": event.status.name,
        "opcode": event.opcode.name,
        "length": event.byte_len,
        "se": int(event.solicited),
    }
    further = {
        "imm": event.imm_data,
        "inv": event.invalidated_r_key,
        "srcqp": event.src_qp,
    }
    return found | {name: value for name, value in further.items() if value is not None}
