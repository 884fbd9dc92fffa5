"""An MRC endpoint in the simulator: our device, one plane, four paths, and its application."""

import random
from collections.abc import Mapping

from netem.conform.endpoint import MACS, RefusedError, UnsupportedError, Wants
from netem.conform.mrc_words import OWN, PATHS, PEER, path
from netem.conform.notation import Relative, Value
from netem.conform.pattern import PATTERN
from netem.conform.virtual import VirtualTime, VirtualWire
from transports.clock import MS, US, Ns, S
from transports.mrc.attributes import Peer, QpState
from transports.mrc.config import QpConfig
from transports.mrc.device import Device, DeviceConfig
from transports.mrc.nscc import NsccConfig
from transports.mrc.paths import PathsConfig
from transports.roce.completion import WorkCompletion
from transports.roce.work import RecvWr, SendWr, Sge, WrOpcode

VA, LOCAL_VA = 0x10000, 0x900000
_QP = 0x20
_BASE_RTT = 12 * US
_LONGEST = 24  # code of a timeout; each is twice the one before
_RATE = 100_000_000_000  # bit/s
_ETHERNET = MACS[0] + MACS[1] + b"\x86\xdd"


class MrcNode:
    """One device with one queue pair in RTS; an Application, and what the wire drives."""

    untold = frozenset({"COMM_EST", "SQ_DRAINED"})

    def __init__(self, wants: Wants, stretch: int = 1) -> None:
        """Make it; `stretch`, a power of two, makes its timers and round trips longer."""
        self.time = VirtualTime(1000 * US)
        self._wants, self._stretch = wants, stretch
        self._told: list[Mapping[str, Value]] = []
        config = DeviceConfig((OWN,), port_status_interval=None)
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
        self._peer, wants = peer, self._wants
        base_rtt = _BASE_RTT * self._stretch
        ours = Peer((PEER,), int(peer["qp_num"]), wants.rq_psn, mpr_dest=1, max_wimm_dest=4)
        paths = tuple(path(number) for number in range(PATHS))
        profile = PathsConfig(paths, (), base_rtt=base_rtt)
        control = NsccConfig(_RATE // self._stretch, base_rtt, wants.mtu + 64)
        self.qp.modify(QpState.INIT, self.time.at, ev_profile=profile, cc_profile=control)
        self.qp.modify(
            QpState.RTR,
            self.time.at,
            peer=ours,
            path_mtu=wants.mtu,
            max_wimm_dest=4,
            mpr_dest=1,
        )
        self.qp.modify(
            QpState.RTS,
            self.time.at,
            sq_psn=wants.sq_psn,
            max_wimm=4,
            mpr=1,
            timeout=min(wants.timeout + self._stretch.bit_length() - 1, _LONGEST),
            linear_retries=7,
            exponential_retries=7,
        )

    def act(self, name: str, fields: Mapping[str, Value]) -> Mapping[str, int]:
        number = {k: v.by if isinstance(v, Relative) else int(v) for k, v in fields.items()}
        try:
            if name == "recv":
                self.qp.post_recv(RecvWr(number.get("wr", 100)))
            elif name == "write":
                for count in range(number.get("count", 1)):
                    self._write(number, count)
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

    def told(self) -> list[Mapping[str, Value]]:
        told, self._told = self._told, []
        return told

    def memory(self, at: int, size: int) -> bytes:
        return bytes(self.region.view[at : at + size])

    def close(self) -> None:
        """Hold nothing that outlives it."""


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
