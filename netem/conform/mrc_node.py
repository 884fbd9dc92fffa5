"""An MRC endpoint in the simulator: our device, its planes and paths, and its application.

! write length=8 count=4 imm=7     ! recv wr=100
! port plane=1 up=0                a port goes down, or up again
! probe path=1 plane=0             probes the host by it; then: = probed answered=1
"""

import random
from collections import deque
from collections.abc import Mapping

from netem.conform.endpoint import MACS, RefusedError, UnsupportedError, Wants
from netem.conform.mrc_paths import own_ip, path, peer_ip
from netem.conform.notation import Relative, Value
from netem.conform.pattern import PATTERN
from netem.conform.virtual import VirtualTime, VirtualWire
from transports.clock import MS, US, Ns, S
from transports.mrc.attributes import Peer, QpState
from transports.mrc.config import QpConfig
from transports.mrc.device import Device, DeviceConfig
from transports.mrc.events import EvProbed
from transports.mrc.nscc import NsccConfig
from transports.mrc.paths import PathsConfig
from transports.mrc.profiles import STEV32, draw
from transports.roce.completion import WorkCompletion
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode

VA, LOCAL_VA = 0x10000, 0x900000
_QP = 0x20
_RATE = 20_000_000_000  # bit/s: a window of 41 packets, so that more may come out of order
_WIMM = 4  # WRITEs with immediate that we take, and would have open
_BASE_RTT = 12 * US
_LONGEST = 24  # code of a timeout; each is twice the one before
_ETHERNET = MACS[0] + MACS[1] + b"\x86\xdd"


class MrcNode:
    """One device with one queue pair in RTS; an Application, and what the wire drives."""

    untold = frozenset({"COMM_EST", "SQ_DRAINED"})

    def __init__(self, wants: Wants, stretch: int = 1) -> None:
        """Make it; `stretch`, a power of two, makes its timers and round trips longer."""
        self.time = VirtualTime(1000 * US)
        self._wants, self._stretch = wants, stretch
        self._told: list[Mapping[str, Value]] = []
        addresses = tuple(own_ip(plane) for plane in range(wants.planes))
        config = DeviceConfig(addresses, port_status_interval=None)
        self.device = Device(config, random.Random(3))
        pd = self.device.alloc_pd()
        self.region = self.device.register(pd, VA, wants.size, access=0x3)
        self._local = self.device.register(pd, LOCAL_VA, 1 << 16, access=0x1)
        self._local.view[:] = PATTERN[: 1 << 16]
        self.qp = self.device.create_qp(pd, qp_num=_QP, config=QpConfig())

    def open(self, wants: Mapping[str, Value]) -> Mapping[str, int]:  # noqa: ARG002
        return {"qp_num": _QP, "va": VA, "key": self.region.r_key}

    def connect(self, peer: Mapping[str, int | str]) -> None:
        """Take the queue pair to RTS."""
        self._peer, wants, now, modify = peer, self._wants, self.time.at, self.qp.modify
        base_rtt = _BASE_RTT * self._stretch
        ours = Peer(
            tuple(peer_ip(plane) for plane in range(wants.planes)), int(peer["qp_num"]),
            wants.rq_psn, mpr_dest=1, max_wimm_dest=wants.wimm,
        )  # fmt: skip
        profile = _profile(wants, base_rtt)
        control = NsccConfig(_RATE // self._stretch, base_rtt, wants.mtu + 64)
        modify(QpState.INIT, now, ev_profile=profile, cc_profile=control)
        modify(QpState.RTR, now, peer=ours, path_mtu=wants.mtu, max_wimm_dest=_WIMM, mpr_dest=1)
        modify(
            QpState.RTS, now, sq_psn=wants.sq_psn, max_wimm=_WIMM, mpr=1,
            timeout=min(wants.timeout + self._stretch.bit_length() - 1, _LONGEST),
            linear_retries=wants.linear, exponential_retries=wants.exponential,
        )  # fmt: skip
        deque(self.device.transmit(now), maxlen=0)  # what a port says of itself to begin with

    def act(self, name: str, fields: Mapping[str, Value]) -> Mapping[str, int]:
        number = {k: v.by if isinstance(v, Relative) else int(v) for k, v in fields.items()}
        try:
            if name == "recv":
                self.qp.post_recv(RecvWr(number.get("wr", 100)))
            elif name == "write":
                for count in range(number.get("count", 1)):
                    self._write(number, count)
            elif name == "port":
                up = bool(number["up"])
                self.device.set_port(number["plane"], self.time.at, up=up)
            elif name == "probe":
                if self._stretch > 1:
                    raise UnsupportedError("a probe of a host has 2 ms, on sockets as well")
                ev = path(number.get("path", 0), number.get("plane", 0))
                self.device.probe_ev(self.qp, ev, self.time.at)
            else:
                raise UnsupportedError(f"an application of MRC does not {name}")
        except ValueError as error:
            raise RefusedError(str(error)) from error
        return {}

    def _write(self, number: Mapping[str, int], count: int) -> None:
        length = number.get("length", 8)
        opcode = WrOpcode.RDMA_WRITE_WITH_IMM if "imm" in number else WrOpcode.RDMA_WRITE
        self.qp.post_send(
            SendWr(
                number.get("wr", 1) + count,
                opcode,
                (Sge(LOCAL_VA, length, self._local.l_key),) if length else (),
                int(self._peer["va"]) + number.get("va", 0),
                int(self._peer["key"]),
                imm=number.get("imm", 0),
            ),
            self.time.at,
        )

    def take(self, event: object) -> None:
        """Take an event of the device."""
        if isinstance(event, WorkCompletion):
            told: dict[str, Value] = {"name": "completion", "wr": event.wr_id}
            told |= {"status": event.status.name, "length": event.byte_len}
            self._told.append(
                told | ({} if event.imm_data is None else {"imm": event.imm_data})
            )
        elif isinstance(event, EvProbed):
            answered = int(event.rtt is not None)
            self._told.append({"name": "probed", "answered": answered, "plane": event.plane})

    def told(self) -> list[Mapping[str, Value]]:
        told, self._told = self._told, []
        return told

    def memory(self, at: int, size: int) -> bytes:
        return bytes(self.region.view[at : at + size])

    def close(self) -> None:
        """Hold nothing that outlives it."""


def _profile(wants: Wants, base_rtt: Ns) -> PathsConfig:
    """Return the paths of a case: as `draw` spreads them, and so many of the backups."""
    planes, ways = range(wants.planes), wants.paths + wants.backups
    drawn = draw(STEV32, planes, ways, wants.planes * wants.paths, random.Random(4))
    backups = drawn.backup[: wants.planes * wants.backups]
    return PathsConfig(drawn.active, backups, base_rtt=base_rtt)


class MrcWire(VirtualWire):
    """Frames to and from the device; quiet is some round trips."""

    patience: Ns = 2 * S
    quiet: Ns = MS // 10

    def __init__(self, node: MrcNode) -> None:
        super().__init__(node.time)
        self._node = node

    def send(self, frame: bytes) -> None:
        self._node.device.receive(frame[14:], self.now())

    def _deadline(self) -> Ns | None:
        return self._node.device.deadline

    def _expire(self) -> None:
        self._node.device.expire(self.now())

    def _drain(self) -> None:
        for out in self._node.device.transmit(self.now()):
            self._sent(_ETHERNET + bytes(out.packet))
        for event in self._node.device.events():
            self._node.take(event)
