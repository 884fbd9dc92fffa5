"""The communication manager of an application over our machine: accepts, dials, tells."""

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from random import Random

from netem.conform.cm_words import PORT
from netem.conform.notation import Value
from transports.clock import Ns
from transports.roce.cm.connection import Connection
from transports.roce.cm.events import (
    CmEvent,
    ConnectRequest,
    Disconnected,
    Established,
    Rejected,
    ServiceRequest,
    Unreachable,
)
from transports.roce.cm.gsi import CmPort, Wish
from transports.roce.cm.parameters import CmConfig
from transports.roce.events import Event
from transports.roce.port import Port
from transports.roce.qp import QueuePair
from wire.roce.cm.ip_service import PortSpace
from wire.roce.opcodes import Service

_GUID = 0x020000FFFE000002
_UD_QP, _UD_Q_KEY = 0x18, 0x01234567  # of the datagram service that is offered
_TOLD: dict[type[CmEvent], str] = {
    Established: "ESTABLISHED",
    Disconnected: "DISCONNECTED",
    Rejected: "REJECTED",
    Unreachable: "UNREACHABLE",
}


class OwnManager:
    """Queue pair 1 of a port, with a service on it; queue pairs of others by `make_qp`."""

    def __init__(self, port: Port) -> None:
        self._port = CmPort(port, CmConfig(port.config.addresses, _GUID), Random(7))
        self._port.listen(PORT)
        self._port.listen(PORT, port_space=PortSpace.UDP, service=Service.UD)
        self._device = port
        self._make_qp: Callable[[], QueuePair] | None = None
        self._waiting: list[ConnectRequest] = []
        self._made: list[tuple[Connection, QueuePair]] = []
        self.holds = False  # requests wait for `accept`

    def begin(self, make_qp: Callable[[], QueuePair]) -> None:
        """Begin a case."""
        self._make_qp = make_qp
        self.holds = False

    def end(self, now: Ns) -> None:
        """Let go of what a case has made."""
        for connection, qp in self._made:
            self._port.disconnect(connection, now)
            if qp in self._device.qps:
                self._device.destroy_qp(qp)
        self._made, self._waiting = [], []

    def dial(self, peer: Mapping[str, int | str], now: Ns, data: str) -> None:
        """Ask the peer for a connection."""
        qp = self._new_qp()
        own, remote = (ip_address(str(peer[name])).packed for name in ("own_ip", "ip"))
        wish = Wish(private_data=data.encode())
        self._made.append((self._port.connect(qp, own, remote, PORT, now, wish=wish), qp))

    def accept(self, now: Ns, data: str = "") -> None:
        """Accept the request that waits."""
        request = self._waiting.pop(0)
        qp = self._new_qp()
        self._port.accept(request.connection, qp, now, private_data=data.encode())
        self._made.append((request.connection, qp))

    def hang_up(self, now: Ns) -> None:
        """End the connection that was made last."""
        self._port.disconnect(self._made[-1][0], now)

    def take(self, event: Event, now: Ns) -> list[Mapping[str, Value]]:
        """Take an event of the port; return what the application is told."""
        self._port.take(event, now)
        return self.settle(now)

    @property
    def deadline(self) -> Ns | None:
        return self._port.deadline

    def expire(self, now: Ns) -> list[Mapping[str, Value]]:
        """Let time pass; return what the application is told."""
        self._port.expire(now)
        return self.settle(now)

    def settle(self, now: Ns) -> list[Mapping[str, Value]]:
        """Act on what has happened; return what the application is told."""
        told: list[Mapping[str, Value]] = []
        for event in self._port.events():
            if isinstance(event, ConnectRequest):
                self._waiting.append(event)
                if not self.holds:
                    self.accept(now)
            elif isinstance(event, ServiceRequest):
                self._port.answer(event.request, now, _UD_QP, _UD_Q_KEY)
            elif type(event) in _TOLD:
                reason = {"reason": event.reason} if isinstance(event, Rejected) else {}
                told.append({"name": _TOLD[type(event)], **reason})
        return told

    def _new_qp(self) -> QueuePair:
        assert self._make_qp is not None, "begin comes first"
        return self._make_qp()
