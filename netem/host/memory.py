"""The memory of one end of a flow: registered with the device, and at hand to be judged."""

from typing import NamedTuple, Protocol

from netem.host.layout import SENDS, WRITES
from netem.host.payload import MAX_PIECE, PERIOD, table
from netem.topology.plan import QpPlan, RegionPlan
from transports.roce.regions import MemoryRegion
from transports.roce.work import Sge


class Registrar(Protocol):
    """A device that memory is registered with: a port of RC, or the NIC of MRC."""

    def alloc_pd(self) -> int: ...

    def register(
        self,
        pd: int,
        addr: int,
        buffer: int | bytearray | memoryview,
        access: int,
        *,
        l_key: int | None = None,
        r_key: int | None = None,
    ) -> MemoryRegion: ...

    def deregister(self, region: MemoryRegion) -> None: ...


class Memory(NamedTuple):
    """One region. `view` is for writing, `bytes` for comparing; both are the same memory."""

    pd: int
    addr: int
    l_key: int
    bytes: bytearray
    view: memoryview

    @classmethod
    def register(cls, device: Registrar, plan: RegionPlan) -> "Memory":
        """Register the region of a plan in a protection domain of its own.

        So the keys of one queue pair are none on another, as between two programs.
        """
        memory = bytearray(plan.size)
        pd = device.alloc_pd()
        device.register(pd, plan.addr, memory, plan.access, l_key=plan.l_key, r_key=plan.r_key)
        return cls(pd, plan.addr, plan.l_key, memory, memoryview(memory))


class Source(NamedTuple):
    """The payload stream as a region, of which the messages of a flow are sent as they lie."""

    l_key: int
    most: int  # bytes of a message

    @classmethod
    def register(cls, device: Registrar, pd: int, plan: QpPlan) -> "Source":
        """Register as much of the stream as the plan of a requester needs.

        The keys are those of its other region with another low byte, which is the owner's to
        choose (rocev2.md, section 11): nobody else has them. They give no right to anybody.
        """
        sizes = (work.size for work in plan.work if work.op in SENDS | WRITES)
        most = max((size for size in sizes if size <= MAX_PIECE), default=0)
        l_key, r_key = plan.region.l_key ^ 1, plan.region.r_key ^ 1
        if most:
            device.register(pd, 0, table(most), 0, l_key=l_key, r_key=r_key)
        return cls(l_key, most)

    def piece(self, position: int, size: int) -> Sge | None:
        """Return where `size` bytes of the stream from `position` on lie, if they do."""
        return Sge(position % PERIOD, size, self.l_key) if size <= self.most else None
