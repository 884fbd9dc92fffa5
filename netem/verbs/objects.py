"""What is made on an open device: protection domains, memory, completion queues, queue pairs.

Names and meanings are those of libibverbs; work requests and completions are the machine's own
(`transports.roce.work`, `transports.roce.completion`).
"""

from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Unpack

import trio

from transports.roce import qp as machine
from transports.roce import srq as machine_srq
from transports.roce.attributes import AddressHandle, QpAttributes, QpState
from transports.roce.completion import WorkCompletion
from transports.roce.regions import Access
from transports.roce.regions import MemoryRegion as Registered
from transports.roce.work import RecvWr, SendWr, Sge
from wire.roce.opcodes import Service

if TYPE_CHECKING:
    from netem.verbs.context import Context

_RECEIVES = 128  # bit of a completion's opcode: of the receive queue


class ProtectionDomain:
    """Memory and queue pairs that may be used together, as `ibv_pd`."""

    def __init__(self, context: "Context", handle: int) -> None:
        self.context = context
        self.handle = handle

    def register(
        self,
        memory: int | bytearray | memoryview,
        access: int = Access.LOCAL_WRITE,
        *,
        addr: int | None = None,
    ) -> "MemoryRegion":
        """Register `memory`, or so many zero bytes, as `ibv_reg_mr` does.

        It appears at `addr`, by default at an address of its own. ValueError for rights that
        do not go together.
        """
        length = memory if isinstance(memory, int) else len(memory)
        where = self.context.take_address(length) if addr is None else addr
        found = self.context.machine.register(self.handle, where, memory, access)
        return MemoryRegion(self.context, found)

    def create_srq(self, max_wr: int = 4096) -> "SharedReceiveQueue":
        """Return a new shared receive queue."""
        made = self.context.machine.create_srq(self.handle, max_wr=max_wr)
        return SharedReceiveQueue(self.context, made)

    def create_qp(
        self,
        send_cq: "CompletionQueue",
        recv_cq: "CompletionQueue | None" = None,
        *,
        service: Service = Service.RC,
        srq: "SharedReceiveQueue | None" = None,
        config: machine.QpConfig | None = None,
    ) -> "QueuePair":
        """Return a new queue pair in RESET. Without `recv_cq` all completions go to one.

        With `srq` its receives are those of that queue.
        """
        made = self.context.machine.create_qp(
            self.handle,
            service=service,
            config=config,
            srq=None if srq is None else srq.machine,
        )
        qp = QueuePair(self.context, made, send_cq, recv_cq or send_cq)
        self.context.adopt(qp)
        return qp


class SharedReceiveQueue:
    """Receives for several queue pairs, as `ibv_srq`. Made by `ProtectionDomain.create_srq`."""

    def __init__(self, context: "Context", srq: machine_srq.SharedReceiveQueue) -> None:
        self.context = context
        self.machine = srq

    def post_recv(self, wr: RecvWr) -> None:
        """Queue a place for a message of any of them. QueueFullError where it is full."""
        self.machine.post(wr)
        self.context.turn()


class MemoryRegion:
    """Registered memory, as `ibv_mr`. `view` is its bytes."""

    def __init__(self, context: "Context", registered: Registered) -> None:
        self.registered = registered
        self._context = context

    @property
    def addr(self) -> int:
        return self.registered.addr

    @property
    def length(self) -> int:
        return self.registered.length

    @property
    def l_key(self) -> int:
        return self.registered.l_key

    @property
    def r_key(self) -> int:
        return self.registered.r_key

    @property
    def view(self) -> memoryview:
        return self.registered.view

    def sge(self, offset: int = 0, length: int | None = None) -> Sge:
        """Return `length` bytes from `offset` (all that follow) for a work request."""
        rest = self.length - offset if length is None else length
        return Sge(self.addr + offset, rest, self.l_key)

    def deregister(self) -> None:
        """Take the memory back; whoever still uses its keys gets an error."""
        self._context.machine.deregister(self.registered)


class CqOverrunError(Exception):
    """Completions came for which a completion queue had no room: some are lost for good."""


class CompletionQueue:
    """Where queue pairs say what has finished, as `ibv_cq`. Made by `Context.create_cq`."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}, legal is 1 and more")
        self.capacity = capacity
        self.lost = 0  # completions for which there was no room
        self._waiting: deque[WorkCompletion] = deque()
        self._news = trio.Event()

    def poll(self, most: int = 64) -> list[WorkCompletion]:
        """Return what has finished, at most `most`; nothing is no error, as `ibv_poll_cq`.

        CqOverrunError, after all that is left has been given out, where some were lost.
        """
        found = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        if not found and self.lost:
            raise CqOverrunError(f"{self.lost} completions lost; capacity is {self.capacity}")
        return found

    async def next(self) -> WorkCompletion:
        """Wait for the next completion. CqOverrunError as `poll`."""
        while not (found := self.poll(1)):
            await self._news.wait()
        await trio.lowlevel.checkpoint()
        return found[0]

    async def __aiter__(self) -> AsyncIterator[WorkCompletion]:
        while True:
            yield await self.next()

    def add(self, completion: WorkCompletion) -> None:
        """Take a completion; the context's."""
        if len(self._waiting) >= self.capacity:
            self.lost += 1
        else:
            self._waiting.append(completion)
        self._news.set()
        self._news = trio.Event()


class QueuePair:
    """A queue pair on sockets, as `ibv_qp`. Made by `ProtectionDomain.create_qp`."""

    def __init__(
        self,
        context: "Context",
        qp: machine.QueuePair,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue,
    ) -> None:
        self.context = context
        self.machine = qp
        self.send_cq = send_cq
        self.recv_cq = recv_cq

    @property
    def qp_num(self) -> int:
        return self.machine.qp_num

    @property
    def service(self) -> Service:
        return self.machine.service

    @property
    def state(self) -> QpState:
        return self.machine.state

    async def modify(self, state: QpState, **attributes: Unpack[QpAttributes]) -> None:
        """Go to `state`, as `ibv_modify_qp`; with an `ah`, find out how to reach its peer.

        StateError and ValueError as the machine raises them, with nothing changed; KernelError
        where nobody answers for the peer.
        """
        if (ah := attributes.get("ah")) is not None:
            await self.context.prepared(ah)
        self.machine.modify(state, self.context.now(), **attributes)
        self.context.turn()

    async def connect(
        self,
        ah: AddressHandle,
        dest_qp_num: int,
        *,
        sq_psn: int,
        rq_psn: int,
        path_mtu: int = 1024,
        access: int = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC,
        max_rd_atomic: int = 16,
        max_dest_rd_atomic: int = 16,
        timeout: int = 14,  # noqa: ASYNC109 - the ACK timeout of verbs: 4.096 us * 2^timeout
        retry_cnt: int = 7,
        rnr_retry: int = 7,
        min_rnr_timer: int = 12,
    ) -> None:
        """Take an RC or UC queue pair from RESET or INIT to RTS, attributes as in `modify`.

        UC has no use for those from `max_rd_atomic` on.
        """
        if self.state is QpState.RESET:
            await self.init(access)
        rtr: QpAttributes = {
            "ah": ah, "path_mtu": path_mtu, "dest_qp_num": dest_qp_num, "rq_psn": rq_psn,
        }  # fmt: skip
        rts: QpAttributes = {"sq_psn": sq_psn}
        if self.service is Service.RC:
            rtr["max_dest_rd_atomic"] = max_dest_rd_atomic
            rtr["min_rnr_timer"] = min_rnr_timer
            rts["timeout"] = timeout
            rts["retry_cnt"] = retry_cnt
            rts["rnr_retry"] = rnr_retry
            rts["max_rd_atomic"] = max_rd_atomic
        await self.modify(QpState.RTR, **rtr)
        await self.modify(QpState.RTS, **rts)

    async def init(self, access: int = 0, *, q_key: int = 0) -> None:
        """Take a queue pair from RESET to INIT: from here on receives may be posted.

        `access` is what RC and UC let the peer do, `q_key` what senders to UD must know.
        """
        if self.service is Service.UD:
            await self.modify(QpState.INIT, pkey_index=0, port_num=1, qkey=q_key)
        else:
            await self.modify(QpState.INIT, pkey_index=0, port_num=1, qp_access_flags=access)

    async def activate(self, sq_psn: int) -> None:
        """Take a UD queue pair from INIT to RTS: it has no peer of its own."""
        await self.modify(QpState.RTR)
        await self.modify(QpState.RTS, sq_psn=sq_psn)

    def post_send(self, wr: SendWr) -> None:
        """Queue a request and send what may be sent, as `ibv_post_send`.

        StateError before RTS, QueueFullError where the send queue is full.
        """
        self.machine.post_send(wr, self.context.now())
        self.context.turn()

    def post_recv(self, wr: RecvWr) -> None:
        """Queue a place for a message, as `ibv_post_recv`. StateError in RESET."""
        self.machine.post_recv(wr, self.context.now())
        self.context.turn()

    def complete(self, completion: WorkCompletion) -> None:
        """Take a completion from the machine; the context's."""
        is_receive = completion.opcode & _RECEIVES
        (self.recv_cq if is_receive else self.send_cq).add(completion)

    def destroy(self) -> None:
        """Forget the queue pair; what it still had to do makes no completions."""
        self.context.forget(self.qp_num)
        self.context.machine.destroy_qp(self.machine)
