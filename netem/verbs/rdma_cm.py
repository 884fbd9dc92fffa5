"""Connections by the communication manager, as librdmacm makes them, for trio.

`Context.cm` is the manager of a device. A server listens and accepts requests, a client
connects; both get a `Connection`, whose queue pair is in RTS, and end it by `disconnect`. The
messages are those of any rdma_cm: `rping`, `ucmatose`, perftest's -R talk to it.
"""

import hashlib
from collections import deque
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

import trio

from netem.verbs.links import VerbsError
from netem.verbs.objects import QueuePair
from transports.clock import Ns
from transports.roce.attributes import AddressHandle
from transports.roce.cm import connection as machine
from transports.roce.cm.events import (
    CmEvent,
    ConnectRequest,
    Disconnected,
    Established,
    Rejected,
    ServiceRequest,
    ServiceResolved,
    ServiceUnreachable,
    Unreachable,
)
from transports.roce.cm.gsi import CmPort, Wish
from transports.roce.cm.parameters import DEFAULT_UDP_Q_KEY, CmConfig
from transports.roce.events import Event
from wire.roce.cm.codes import RejectReason, SidrStatus
from wire.roce.cm.ip_service import PortSpace
from wire.roce.cm.ip_service import service_id as ip_service
from wire.roce.opcodes import Service

if TYPE_CHECKING:
    from netem.verbs.context import Context


class RejectedError(VerbsError):
    """The peer did not want the connection; `reason` and `private_data` are its own."""

    def __init__(self, where: str, reason: int, private_data: bytes) -> None:
        known = {each.value for each in RejectReason}
        name = RejectReason(reason).name if reason in known else "unknown reason"
        super().__init__(f"{where} rejected the connection: {name} ({reason})")
        self.reason = reason
        self.private_data = private_data


class Connection:
    """One connection, up or over. Made by `Manager.connect` and `Request.accept`."""

    def __init__(self, manager: "Manager", made: machine.Connection, qp: QueuePair) -> None:
        self.qp = qp
        self.machine = made
        self.private_data = b""  # what the peer said with its answer, zero filled
        self.failure: VerbsError | None = None
        self._manager = manager
        self._up = trio.Event()
        self._over = trio.Event()

    @property
    def remote(self) -> str:
        """The address of the peer."""
        return str(ip_address(self.machine.remote_ip))

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    async def disconnect(self, private_data: bytes = b"") -> None:
        """End the connection; return when the peer has agreed, or does not answer any more."""
        self._manager.disconnect(self, private_data)
        await self._over.wait()

    async def closed(self) -> None:
        """Wait until either side has ended the connection."""
        await self._over.wait()

    async def established(self) -> None:
        """Wait until both ends are ready; VerbsError where that will not be."""
        await self._up.wait()
        if self.failure is not None:
            raise self.failure

    def take(self, event: CmEvent) -> None:
        """Take what the manager tells; the manager's."""
        match event:
            case Established():
                self.private_data = event.private_data
            case Rejected():
                self.failure = RejectedError(self.remote, event.reason, event.rej.private_data)
            case Unreachable():
                self.failure = VerbsError(
                    f"{self.remote} did not answer, asked {event.tries} times"
                )
            case Disconnected() if not self._up.is_set():
                self.failure = VerbsError(f"{self.remote} ended what was not yet a connection")
        self._up.set()
        if not isinstance(event, Established):
            self._over.set()


class Request:
    """Somebody who wants to connect: `accept` or `reject`. Made by a `Listener`."""

    def __init__(self, manager: "Manager", asked: ConnectRequest) -> None:
        self.machine = asked.connection
        self.private_data = asked.private_data
        self._manager = manager

    @property
    def remote(self) -> str:
        """The address of who asks."""
        return str(ip_address(self.machine.remote_ip))

    @property
    def is_open(self) -> bool:
        """Say whether it waits for an answer: who asks may have given up, or be gone."""
        return self.machine.state is machine.CmState.REQ_RCVD

    async def accept(
        self,
        qp: QueuePair,
        *,
        private_data: bytes = b"",
        responder_resources: int | None = None,
        initiator_depth: int | None = None,
    ) -> Connection:
        """Accept for `qp`, in RESET or INIT; its receives should be posted before.

        The depths are by default what the peer wants. StateError where it has given up.
        """
        manager = self._manager
        manager.port.accept(
            self.machine, qp.machine, manager.context.now(), private_data=private_data,
            responder_resources=responder_resources, initiator_depth=initiator_depth,
        )  # fmt: skip
        return await manager.settled(manager.adopt(self.machine, qp))

    def reject(self, private_data: bytes = b"") -> None:
        """Refuse it."""
        self._manager.port.reject(
            self.machine, self._manager.context.now(), private_data=private_data
        )
        self._manager.turn()


class Listener:
    """A service that is offered. Made by `Manager.listen`; `close` ends it."""

    def __init__(self, manager: "Manager", port: int) -> None:
        self.port = port
        self._manager = manager
        self._waiting: deque[Request] = deque()
        self._news = trio.Event()

    async def next(self) -> Request:
        """Wait for the next who wants to connect."""
        while True:
            await trio.lowlevel.checkpoint()
            while self._waiting:
                request = self._waiting.popleft()
                if request.is_open:
                    return request
            await self._news.wait()

    def close(self) -> None:
        """Listen no more; connections that were made stay."""
        self._manager.unlisten(self)

    def add(self, request: Request) -> None:
        """Take a request, and forget those that were taken back; the manager's.

        So no more wait than the backlog lets in.
        """
        still = [each for each in self._waiting if each.is_open]
        self._waiting = deque([*still, request])
        self._news.set()
        self._news = trio.Event()


class DatagramService(NamedTuple):
    """Where datagrams for a service go: what a SendWr of UD wants to know."""

    ah: AddressHandle
    qp_num: int
    q_key: int


class _Search:
    """A datagram service that is looked for."""

    def __init__(self) -> None:
        self.found: ServiceResolved | ServiceUnreachable | None = None
        self.is_over = trio.Event()


class Manager:
    """The communication manager of a device: its queue pair 1. See `Context.cm`."""

    def __init__(self, context: "Context") -> None:
        self.context = context
        # One name per address: who comes back after a crash is known, and ends the old.
        digest = hashlib.sha256(b"".join(context.addresses)).digest()
        config = CmConfig(context.addresses, int.from_bytes(digest[:8], "big"))
        self.port = CmPort(context.machine, config, context.rng, context.now())
        self._listeners: dict[int, Listener] = {}  # by service ID
        self._offers: dict[int, deque[tuple[QueuePair, int]]] = {}  # by service ID: and Q_Key
        self._searches: dict[int, _Search] = {}  # by request ID

    def listen(
        self, port: int, *, service: Service = Service.RC, backlog: int = 128
    ) -> Listener:
        """Offer a service on a port of rdma_cm, not of TCP. ValueError where it is taken."""
        listening = self.port.listen(port, service=service, backlog=backlog)
        listener = self._listeners[listening] = Listener(self, port)
        return listener

    async def connect(
        self,
        qp: QueuePair,
        remote: str,
        port: int,
        *,
        private_data: bytes = b"",
        path_mtu: int = 1024,
        responder_resources: int = 16,
        initiator_depth: int = 16,
        traffic_class: int = 0,
    ) -> Connection:
        """Connect `qp`, in RESET or INIT; its receives should be posted before.

        RejectedError where the peer does not want to, VerbsError where it does not answer,
        KernelError where nobody has its address.
        """
        await self.context.create_ah(remote)
        wish = Wish(
            path_mtu=path_mtu, responder_resources=responder_resources,
            initiator_depth=initiator_depth, traffic_class=traffic_class,
            private_data=private_data,
        )  # fmt: skip
        made = self.port.connect(
            qp.machine, self.context.local_ip(remote), ip_address(remote).packed, port,
            self.context.now(), wish=wish,
        )  # fmt: skip
        return await self.settled(self.adopt(made, qp))

    def offer(self, port: int, qp: QueuePair, q_key: int = DEFAULT_UDP_Q_KEY) -> None:
        """Tell who looks for a datagram service on `port` of rdma_cm that it is `qp`, a UD one.

        Where several are offered on one port, each who looks is told of the next, in turn.
        """
        service_id = ip_service(PortSpace.UDP, port)
        if service_id not in self._offers:
            self.port.listen(port, port_space=PortSpace.UDP, service=Service.UD)
            self._offers[service_id] = deque()
        self._offers[service_id].append((qp, q_key))

    def withdraw(self, port: int) -> None:
        """Offer nothing on `port` of rdma_cm any more."""
        if self._offers.pop(ip_service(PortSpace.UDP, port), None):
            self.port.unlisten(port, port_space=PortSpace.UDP)

    async def resolve(
        self, remote: str, port: int, *, traffic_class: int = 0
    ) -> DatagramService:
        """Find the datagram service on `port` of rdma_cm at `remote`: SIDR.

        VerbsError where there is none, or nobody answers; KernelError where nobody has the
        address.
        """
        ah = await self.context.create_ah(remote, traffic_class=traffic_class)
        request_id = self.port.resolve(ah.local_ip, ah.remote_ip, port, self.context.now())
        search = self._searches[request_id] = _Search()
        self.turn()
        try:
            await search.is_over.wait()
        finally:
            del self._searches[request_id]
            self.port.manager.cancel_resolve(request_id)
        if isinstance(search.found, ServiceResolved):
            reply = search.found.reply
            if reply.status == SidrStatus.VALID:
                return DatagramService(ah, reply.qpn, reply.q_key)
            raise VerbsError(f"{remote} has no datagram service on port {port}")
        raise VerbsError(f"{remote} did not answer")

    # -- for the objects and the context -----------------------------------------------------

    @property
    def deadline(self) -> Ns | None:
        return self.port.deadline

    def expire(self, now: Ns) -> None:
        """Let time pass; the context's."""
        self.port.expire(now)
        self._tell()

    def take(self, event: Event) -> bool:
        """Look at an event of the machine; say whether it is for nobody else."""
        is_ours = self.port.take(event, self.context.now())
        self._tell()
        return is_ours

    def adopt(self, made: machine.Connection, qp: QueuePair) -> Connection:
        """Let a connection hear of what happens to it."""
        connection = Connection(self, made, qp)
        made.context = connection
        self.turn()
        return connection

    async def settled(self, connection: Connection) -> Connection:
        """Return a connection when it is up; end it where nobody waits for it any more."""
        try:
            await connection.established()
        except trio.Cancelled:
            self.disconnect(connection, b"")
            raise
        return connection

    def disconnect(self, connection: Connection, private_data: bytes) -> None:
        self.port.disconnect(connection.machine, self.context.now(), private_data)
        self.turn()

    def unlisten(self, listener: Listener) -> None:
        for service_id, known in [*self._listeners.items()]:
            if known is listener:
                self.port.unlisten(listener.port)
                del self._listeners[service_id]

    def turn(self) -> None:
        """Send what is to be sent, tell what is to be told; after every call."""
        self._tell()
        self.context.turn()

    def _tell(self) -> None:
        for event in self.port.events():
            match event:
                case ConnectRequest(connection):
                    listener = self._listeners.get(connection.req.service_id)
                    if listener is not None:
                        listener.add(Request(self, event))
                case ServiceRequest(request):
                    offers = self._offers[request.message.service_id]
                    qp, q_key = offers[0]
                    offers.rotate(-1)
                    self.port.answer(request, self.context.now(), qp.qp_num, q_key)
                case ServiceResolved(request_id) | ServiceUnreachable(request_id):
                    search = self._searches.get(request_id)
                    if search is not None:
                        search.found = event
                        search.is_over.set()
                case _ if isinstance(event.connection.context, Connection):
                    event.connection.context.take(event)
