"""Memory regions and their keys. IBTA vol. 1, sections 9.7.5.2.5, 10.6 and 11.2.8.

A region is a piece of the application's memory under an address of its choosing, with an L_Key
for local and an R_Key for remote use. A remote access must pass, in this order: the R_Key
exists, its region is of the queue pair's protection domain, grants the right, and holds the
whole range. Nothing is checked for an access of no bytes (C9-88); the caller sees to that.
"""

from dataclasses import dataclass, field
from enum import IntFlag
from typing import Literal

from transports.roce.work import Sge
from wire.codec import ReadBuffer


class Access(IntFlag):
    """What a region, or a queue pair, lets others do. Numbers of libibverbs."""

    LOCAL_WRITE = 0x1
    REMOTE_WRITE = 0x2
    REMOTE_READ = 0x4
    REMOTE_ATOMIC = 0x8
    MW_BIND = 0x10
    ZERO_BASED = 0x20


REMOTE = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
HOST_ORDER: Literal["little"] = "little"  # byte order of the emulated hosts; atomics use it
_NEED_LOCAL_WRITE = Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
_KEY_STEP = 1 << 8  # a key is index << 8 | a byte that its owner may change


@dataclass(slots=True, eq=False)
class MemoryRegion:
    """One registered region; `view` is its bytes, `addr` the address of the first."""

    addr: int
    view: memoryview
    l_key: int
    r_key: int
    access: int  # Access bits
    pd: int
    invalidatable: bool = True  # a SEND with invalidate may take the R_Key away
    is_valid: bool = True  # as a remote target

    @property
    def length(self) -> int:
        return len(self.view)

    def holds(self, addr: int, length: int) -> bool:
        """Say whether all of `length` bytes at `addr` lie inside."""
        return self.addr <= addr and addr + length <= self.addr + len(self.view)


@dataclass(slots=True)
class ScatterGather:
    """The bytes that a list of SGEs names, as one stretch. Made once per work request."""

    views: list[memoryview]
    length: int
    single: memoryview | None = field(init=False)  # where one region holds it all

    def __post_init__(self) -> None:
        self.single = self.views[0] if len(self.views) == 1 else None

    def read(self, offset: int, length: int) -> ReadBuffer:
        """Return `length` bytes from `offset`: a view where one region holds them all."""
        if self.single is not None:
            return self.single[offset : offset + length]
        return b"".join(self._pieces(offset, length))

    def write(self, offset: int, data: ReadBuffer) -> None:
        """Store `data` from `offset` on."""
        if self.single is not None:
            self.single[offset : offset + len(data)] = data
            return
        start = 0
        for piece in self._pieces(offset, len(data)):
            piece[:] = data[start : start + len(piece)]
            start += len(piece)

    def _pieces(self, offset: int, length: int) -> list[memoryview]:
        pieces = []
        for view in self.views:
            if length and offset < len(view):
                pieces.append(view[offset : offset + length])
                length -= len(pieces[-1])
            offset = max(0, offset - len(view))
        return pieces


class MemoryTable:
    """All protection domains and regions of a device."""

    def __init__(self) -> None:
        self._pds = 0
        self._next_key = _KEY_STEP
        self._local: dict[int, MemoryRegion] = {}
        self._remote: dict[int, MemoryRegion] = {}

    def alloc_pd(self) -> int:
        """Return a new protection domain."""
        self._pds += 1
        return self._pds

    def has_pd(self, pd: int) -> bool:
        return 0 < pd <= self._pds

    def register(
        self,
        pd: int,
        addr: int,
        buffer: int | bytearray | memoryview,
        access: int,
        *,
        l_key: int | None = None,
        r_key: int | None = None,
        invalidatable: bool = True,
    ) -> MemoryRegion:
        """Return a new region over `buffer`, or over that many zero bytes.

        Keys that are not given are chosen. Raise ValueError for an unknown protection domain, a
        key in use, a region past 2^64, or remote write or atomic without local write.
        """
        if not self.has_pd(pd):
            raise ValueError(f"pd {pd} was never allocated")
        if access & _NEED_LOCAL_WRITE and not access & Access.LOCAL_WRITE:
            raise ValueError("remote write and remote atomic need local write")
        view = memoryview(bytearray(buffer) if isinstance(buffer, int) else buffer).cast("B")
        if view.readonly and access & Access.LOCAL_WRITE:
            raise ValueError("local write needs a writable buffer")
        if addr < 0 or addr + len(view) > 1 << 64:
            raise ValueError(f"addr {addr:#x} + {len(view)} bytes does not fit 64 bits")
        if l_key is None:
            l_key = r_key if r_key is not None and r_key not in self._local else self._new_key()
        if r_key is None:
            r_key = l_key
        for name, key, table in (
            ("l_key", l_key, self._local),
            ("r_key", r_key, self._remote),
        ):
            if not 0 <= key < 1 << 32:
                raise ValueError(f"{name} {key:#x} does not fit 32 bits")
            if key in table:
                raise ValueError(f"{name} {key:#x} is in use")
        region = MemoryRegion(addr, view, l_key, r_key, int(access), pd, invalidatable)
        self._local[l_key] = self._remote[r_key] = region
        return region

    def deregister(self, region: MemoryRegion) -> None:
        """Forget `region`. What is still being read from it ends with an access error."""
        region.is_valid = False
        self._local.pop(region.l_key, None)
        self._remote.pop(region.r_key, None)

    def remote(
        self, r_key: int, addr: int, length: int, right: int, pd: int
    ) -> MemoryRegion | None:
        """Return the region that grants `right` on the whole range to `pd`, or None."""
        region = self._remote.get(r_key)
        if (
            region is None
            or region.pd != pd
            or not region.access & right
            or not region.is_valid
            or not region.holds(addr, length)
        ):
            return None
        return region

    def local(self, sges: tuple[Sge, ...], right: int, pd: int) -> ScatterGather | None:
        """Return the bytes of `sges`; None if one lies outside a region of `pd` with `right`.

        `right` is 0 for reading, which every region allows, or LOCAL_WRITE.
        """
        views = []
        total = 0
        for addr, length, l_key in sges:
            if not length:
                continue
            region = self._local.get(l_key)
            if region is None or region.pd != pd or not region.holds(addr, length):
                return None
            if region.access & right != right:
                return None
            start = addr - region.addr
            views.append(region.view[start : start + length])
            total += length
        return ScatterGather(views, total)

    def may_invalidate(self, r_key: int, pd: int) -> bool:
        """Say whether a SEND with invalidate from a peer of `pd` may name `r_key`. 9.4.1.1."""
        region = self._remote.get(r_key)
        return (
            region is not None
            and region.pd == pd
            and region.invalidatable
            and region.is_valid
            and region.access & REMOTE != 0
        )

    def invalidate(self, r_key: int) -> None:
        """End the remote use of `r_key`."""
        self._remote[r_key].is_valid = False

    def _new_key(self) -> int:
        while self._next_key in self._local or self._next_key in self._remote:
            self._next_key += _KEY_STEP
        self._next_key += _KEY_STEP
        return self._next_key - _KEY_STEP
