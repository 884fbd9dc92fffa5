"""`open_device`: a NIC port with a task of its own that drives it, and what is made on it.

Calls such as `post_send` are ordinary functions: they hand the request to the machine, send
what may be sent at once, and return. Everything else (what arrives, timers, what did not fit)
is the business of one task, which lives as long as the device is open.
"""

import math
import random
import secrets
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_address
from typing import Literal

import trio

from netem.verbs.links import FrameLink, Link, UdpLink, VerbsError
from netem.verbs.neighbours import interface_of, path_mtu
from netem.verbs.objects import CompletionQueue, ProtectionDomain, QueuePair
from netem.verbs.rdma_cm import Manager
from transports.clock import Ns
from transports.roce.attributes import AddressHandle
from transports.roce.completion import WorkCompletion
from transports.roce.events import Event, Retransmitted
from transports.roce.port import DeviceConfig

Mode = Literal["frame", "datagram"]

MOST_EVENTS = 1024  # asynchronous events kept for who asks; the oldest go first
_PAGE = 4096
_FIRST_ADDRESS = 0x10_0000


@asynccontextmanager
async def open_device(
    *addresses: str,
    mode: Mode = "frame",
    interface: str = "",
    seed: int | None = None,
    config: DeviceConfig | None = None,
) -> AsyncIterator["Context"]:
    """Open a NIC port that answers to `addresses`, and drive it until the block ends.

    `mode` "frame" puts whole frames on the interface that has the first address (or the one
    called `interface`), "datagram" uses the kernel's UDP, for one IPv6 address; see
    `netem.verbs.links`. With the same `seed` a port chooses the same numbers again. What
    `config` says beside its addresses holds: P_Keys, MigReq; without one the port's MTU is the
    largest path MTU that fits the interface.

    Raise KernelError where no interface has the address, OSError where the host refuses a
    socket (PermissionError: frames need CAP_NET_RAW), VerbsError for what no mode can do.
    """
    if not addresses:
        raise VerbsError("open_device wants an address, for example open_device('fd00::1')")
    packed = tuple(ip_address(address).packed for address in addresses)
    if mode == "datagram" and ":" not in addresses[0]:
        raise VerbsError(f"{addresses[0]}: datagram mode is IPv6 only; use mode='frame'")
    if mode == "datagram" and len(addresses) > 1:
        raise VerbsError("datagram mode has one address; open one device for each")
    known = interface_of(addresses[0], interface)
    if config is None:
        settled = DeviceConfig(packed, active_mtu=path_mtu(known.mtu))
    else:
        settled = replace(config, addresses=packed)
    rng = random.Random(secrets.randbits(64) if seed is None else seed)
    link: Link
    if mode == "datagram":
        link = UdpLink(addresses[0], settled, rng)
    else:
        link = FrameLink(addresses, known, settled, rng)
    context = Context(link, packed, rng)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(context.drive)
            yield context
            nursery.cancel_scope.cancel()
    finally:
        link.close()


class Context:
    """An open NIC port, as `ibv_context` is. Made by `open_device`."""

    def __init__(self, link: Link, addresses: tuple[bytes, ...], rng: random.Random) -> None:
        self.machine = link.machine
        self.addresses = addresses
        self.rng = rng
        self.events: deque[Event] = deque(maxlen=MOST_EVENTS)  # asynchronous ones, unread
        self.retransmissions: Counter[str] = (
            Counter()
        )  # how often the requester went back, by why
        self._link = link
        self._qps: dict[int, QueuePair] = {}
        self._next_address = _FIRST_ADDRESS
        self._sleep: trio.CancelScope | None = None  # of the driver, while it waits
        self._has_more = False
        self._cm: Manager | None = None
        self._has_answers = False  # of the manager, to what has just arrived

    # -- what is made on it ----------------------------------------------------------------

    def alloc_pd(self) -> ProtectionDomain:
        """Return a new protection domain."""
        return ProtectionDomain(self, self.machine.alloc_pd())

    def create_cq(self, capacity: int = 4096) -> CompletionQueue:
        """Return a completion queue that holds `capacity` completions."""
        return CompletionQueue(capacity)

    async def create_ah(self, remote: str, **fields: int) -> AddressHandle:
        """Return how to reach `remote`, from our address of its family.

        `fields` are those of AddressHandle. KernelError where nobody answers for `remote`,
        VerbsError where we have no address of that family.
        """
        return await self.prepared(
            AddressHandle(self.local_ip(remote), _packed(remote), **fields)
        )

    async def prepared(self, ah: AddressHandle) -> AddressHandle:
        """Return `ah` when packets can be sent by it."""
        await self._link.resolve(ah.remote_ip)
        return ah

    @property
    def cm(self) -> Manager:
        """The communication manager of this device, made when it is first asked for."""
        if self._cm is None:
            self._cm = Manager(self)
        return self._cm

    def local_ip(self, remote: str) -> bytes:
        """Return our address of the family that `remote` has."""
        size = len(_packed(remote))
        for address in self.addresses:
            if len(address) == size:
                return address
        raise VerbsError(f"this device has no address of the family of {remote}")

    def counters(self) -> dict[str, int]:
        """Return what the machine and the sockets have counted."""
        return self.machine.counters() | self._link.counters()

    # -- for the objects -------------------------------------------------------------------

    def now(self) -> Ns:
        """Return the time that the machine lives in."""
        return time.monotonic_ns()

    def take_address(self, length: int) -> int:
        """Return where a memory region of `length` bytes may lie, like mmap."""
        address = self._next_address
        self._next_address += -(-max(length, 1) // _PAGE) * _PAGE
        return address

    def adopt(self, qp: QueuePair) -> None:
        """Let completions of `qp` go to its queues from now on."""
        self._qps[qp.qp_num] = qp

    def forget(self, qp_num: int) -> None:
        """Let completions of a queue pair that is gone go nowhere."""
        self._qps.pop(qp_num, None)

    # -- the driver ------------------------------------------------------------------------

    def turn(self) -> None:
        """Send what may be sent, tell what is to be told; after every call of the machine."""
        if self._link.blocked() is None:
            self._has_more = self._link.give(self.now())
        for event in self.machine.events():
            self._tell(event)
        if self._has_answers and self._link.blocked() is None:
            # Now, before anybody who was told of the end closes the device.
            self._has_answers = False
            self._has_more = self._link.give(self.now())
        if self._sleep is not None:
            self._sleep.deadline = self._wake_at()

    def _tell(self, event: Event) -> None:
        if self._cm is not None and self._cm.take(event):
            self._has_answers = True
            return
        if isinstance(event, WorkCompletion):
            qp = self._qps.get(event.qp_num)
            if qp is not None:
                qp.complete(event)
            return
        if isinstance(event, Retransmitted):
            self.retransmissions[event.why] += 1
        self.events.append(event)

    def _wake_at(self) -> float:
        """Return the trio time at which there is something to do whatever arrives."""
        if self._has_more:
            return -math.inf
        dues = [self.machine.deadline, None if self._cm is None else self._cm.deadline]
        due = min((each for each in dues if each is not None), default=None)
        if due is None:
            return math.inf
        return trio.current_time() + (due - self.now()) / 1e9

    async def drive(self, task_status: trio.TaskStatus[None]) -> None:
        """Take what arrives and let time pass, until cancelled."""
        task_status.started()
        while True:
            with trio.CancelScope() as self._sleep:
                self._sleep.deadline = self._wake_at()
                await _any_ready(self._link)
            self._sleep = None
            now = self.now()
            if self._link.blocked() is not None:
                self._has_more = self._link.give(now)
            more = self._link.take(now)
            self.machine.expire(now)
            if self._cm is not None:
                self._cm.expire(now)
            self.turn()
            self._has_more |= more
            await trio.lowlevel.checkpoint()


async def _any_ready(link: Link) -> None:
    """Wait until the socket of a link has something, or takes something again."""
    blocked = link.blocked()
    if blocked is None:
        await trio.lowlevel.wait_readable(link.fileno())
        return
    async with trio.open_nursery() as nursery:

        async def ready(wait: Callable[[int], Awaitable[None]], fd: int) -> None:
            await wait(fd)
            nursery.cancel_scope.cancel()

        nursery.start_soon(ready, trio.lowlevel.wait_readable, link.fileno())
        nursery.start_soon(ready, trio.lowlevel.wait_writable, blocked)


def _packed(address: str) -> bytes:
    return ip_address(address).packed
