"""The memory of one end of a flow: registered with the device, and at hand to be judged."""

from typing import NamedTuple

from netem.topology.plan import RegionPlan
from transports.roce.port import Port


class Memory(NamedTuple):
    """One region. `view` is for writing, `bytes` for comparing; both are the same memory."""

    pd: int
    addr: int
    l_key: int
    bytes: bytearray
    view: memoryview

    @classmethod
    def register(cls, device: Port, plan: RegionPlan) -> "Memory":
        """Register the region of a plan in a protection domain of its own.

        So the keys of one queue pair are none on another, as between two programs.
        """
        memory = bytearray(plan.size)
        pd = device.alloc_pd()
        device.register(pd, plan.addr, memory, plan.access, l_key=plan.l_key, r_key=plan.r_key)
        return cls(pd, plan.addr, plan.l_key, memory, memoryview(memory))
