"""What keys stand for: memory regions and windows. IBTA vol. 1, sections 10.6 and 11.2.8.

    region, registered         valid from the start
    region, allocated          free until a send queue registers memory for it (fast
                               registration), under the same key but for its low 8 bits
    window of type 2           free until a send queue binds it to part of a region; then for
                               the use of that queue pair alone (type 2B)

Invalidating a key, from either side, makes the region or the window free again. What a valid
R_Key stands for is a Grant: each one is made once and ends once, so that whoever has looked one
up can see whether it still holds.
"""

from dataclasses import dataclass
from enum import IntFlag


class Access(IntFlag):
    """What a region, a window or a queue pair lets others do. Numbers of libibverbs."""

    LOCAL_WRITE = 0x1
    REMOTE_WRITE = 0x2
    REMOTE_READ = 0x4
    REMOTE_ATOMIC = 0x8
    MW_BIND = 0x10
    ZERO_BASED = 0x20


REMOTE = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC


@dataclass(slots=True, eq=False)
class Grant:
    """What an R_Key allows: `view` under addresses from `addr` on, to queue pairs of `pd`."""

    addr: int
    view: memoryview
    access: int  # Access bits
    pd: int
    qp_num: int | None = None  # the only queue pair that may use it
    is_valid: bool = True

    def holds(self, addr: int, length: int) -> bool:
        """Say whether all of `length` bytes at `addr` lie inside."""
        return self.addr <= addr and addr + length <= self.addr + len(self.view)


@dataclass(slots=True, eq=False)
class MemoryRegion:
    """One region; `view` is its bytes, `addr` the address of the first."""

    addr: int
    view: memoryview
    l_key: int
    r_key: int
    access: int  # Access bits
    pd: int
    invalidatable: bool = True  # a SEND with invalidate may take the R_Key away
    max_length: int = 0  # bytes that may be registered for it by a send queue
    grant: Grant | None = None  # None: it is free
    windows: int = 0  # bound to it

    @property
    def length(self) -> int:
        return len(self.view)

    @property
    def is_valid(self) -> bool:
        """Say whether its keys may be used."""
        return self.grant is not None

    def holds(self, addr: int, length: int) -> bool:
        """Say whether all of `length` bytes at `addr` lie inside."""
        return self.addr <= addr and addr + length <= self.addr + len(self.view)


@dataclass(slots=True, eq=False)
class MemoryWindow:
    """One window of type 2. `r_key` changes with each bind."""

    r_key: int
    pd: int
    grant: Grant | None = None  # None: it is free
    region: MemoryRegion | None = None  # that it is bound to


@dataclass(frozen=True, slots=True)
class MwBind:
    """What to bind a window to. `r_key` is the window's but for its low 8 bits.

    With ZERO_BASED in `access` the first byte has address 0, else `addr`.
    """

    window: MemoryWindow
    r_key: int
    region: MemoryRegion
    addr: int
    length: int
    access: int


@dataclass(frozen=True, slots=True)
class MrReg:
    """What to register for an allocated region. `key` is its own but for its low 8 bits."""

    region: MemoryRegion
    key: int
    addr: int
    buffer: bytearray | memoryview
    access: int
