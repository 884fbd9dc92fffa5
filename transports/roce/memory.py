"""The memory of a port: protection domains, keys and what may be done with them.

IBTA vol. 1, sections 9.7.5.2.5, 10.6 and 11.2.8. A region is a piece of the application's
memory under an address of its choosing, with an L_Key for local and an R_Key for remote use;
`regions` has what keys stand for. A remote access must pass, in this order: the R_Key exists
and is valid, it is of the queue pair's protection domain and, a window's, of that very queue
pair, it grants the right, and holds the whole range. Nothing is checked for an access of no
bytes (C9-88); the caller sees to that.

What a send queue does to keys (bind, invalidate, register) returns what is wrong with it as
text, and has changed nothing then: the caller completes the request with an error.
"""

from typing import Literal

from transports.roce.regions import (
    REMOTE,
    Access,
    Grant,
    MemoryRegion,
    MemoryWindow,
    MrReg,
    MwBind,
)
from transports.roce.work import Sge
from wire.codec import ReadBuffer

HOST_ORDER: Literal["little"] = "little"  # byte order of the emulated hosts; atomics use it
_NEED_LOCAL_WRITE = Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
_KEY_STEP = 1 << 8  # a key is index << 8 | a byte that its owner may change
_U32, _U64 = 1 << 32, 1 << 64


class ScatterGather:
    """The bytes that a list of SGEs names, as one stretch. Made once per work request."""

    def __init__(self, views: list[memoryview], length: int) -> None:
        self.views = views
        self.length = length
        self.single = views[0] if len(views) == 1 else None  # where one region holds it all

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
    """All protection domains, regions and windows of a device."""

    def __init__(self) -> None:
        self._pds = 0
        self._next_key = _KEY_STEP
        self._local: dict[int, MemoryRegion] = {}  # by L_Key, free ones too
        self._remote: dict[int, Grant] = {}  # by R_Key, valid ones
        self._regions: dict[int, MemoryRegion] = {}  # by R_Key, free ones too
        self._windows: dict[int, MemoryWindow] = {}  # by R_Key, free ones too

    def alloc_pd(self) -> int:
        """Return a new protection domain."""
        self._pds += 1
        return self._pds

    def has_pd(self, pd: int) -> bool:
        return 0 < pd <= self._pds

    # -- regions ----------------------------------------------------------------------------

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
        self._check_pd(pd)
        view = memoryview(bytearray(buffer) if isinstance(buffer, int) else buffer).cast("B")
        if (fault := _unfit(addr, view, access)) is not None:
            raise ValueError(fault)
        if l_key is None:
            l_key = r_key if r_key is not None and not self._has(r_key) else self._new_key()
        if r_key is None:
            r_key = l_key
        for name, key, table in (
            ("l_key", l_key, self._local),
            ("r_key", r_key, self._regions),
        ):
            if not 0 <= key < _U32:
                raise ValueError(f"{name} {key:#x} does not fit 32 bits")
            if key in table or key in self._windows:
                raise ValueError(f"{name} {key:#x} is in use")
        region = MemoryRegion(addr, view, l_key, r_key, int(access), pd, invalidatable)
        self._local[l_key] = self._regions[r_key] = region
        self._grant(region)
        return region

    def alloc_mr(self, pd: int, max_length: int) -> MemoryRegion:
        """Return a new region, free, for which a send queue may register memory.

        Raise ValueError for an unknown protection domain, or no bytes at all.
        """
        self._check_pd(pd)
        if max_length < 1:
            raise ValueError(f"max_length is {max_length}, it must be positive")
        key = self._new_key()
        region = MemoryRegion(0, memoryview(b""), key, key, 0, pd, max_length=max_length)
        self._local[key] = self._regions[key] = region
        return region

    def deregister(self, region: MemoryRegion) -> None:
        """Forget `region`. What is still being read from it ends with an access error.

        Raise ValueError while windows are bound to it. IBTA vol. 1, section 10.6.7.2.
        """
        if region.windows:
            raise ValueError(f"{region.windows} windows are bound to region {region.r_key:#x}")
        self._free(region)
        self._local.pop(region.l_key, None)
        self._regions.pop(region.r_key, None)

    def register_fast(self, reg: MrReg, pd: int) -> str | None:
        """Register memory for a free region; return what is wrong. Section 10.6.4."""
        region = reg.region
        if self._regions.get(region.r_key) is not region or region.pd != pd:
            return f"region {region.r_key:#x} is not of this protection domain"
        if region.grant is not None or not region.max_length:
            return f"region {region.r_key:#x} is not free"
        view = memoryview(reg.buffer).cast("B")
        if len(view) > region.max_length:
            return f"{len(view)} bytes, the region was allocated for {region.max_length}"
        if (fault := _unfit(reg.addr, view, reg.access)) is not None:
            return fault
        if (fault := self._unfit_key(reg.key, region.r_key)) is not None:
            return fault
        del self._local[region.l_key], self._regions[region.r_key]
        region.l_key = region.r_key = reg.key
        region.addr, region.view, region.access = reg.addr, view, reg.access
        self._local[reg.key] = self._regions[reg.key] = region
        self._grant(region)
        return None

    # -- windows ----------------------------------------------------------------------------

    def alloc_mw(self, pd: int) -> MemoryWindow:
        """Return a new window of type 2. Raise ValueError for an unknown protection domain."""
        self._check_pd(pd)
        window = MemoryWindow(self._new_key(), pd)
        self._windows[window.r_key] = window
        return window

    def dealloc_mw(self, window: MemoryWindow) -> None:
        """Forget `window`, bound or not."""
        self._unbind(window)
        self._windows.pop(window.r_key, None)

    def bind(self, bind: MwBind, pd: int, qp_num: int) -> str | None:  # noqa: PLR0911 - one per check
        """Bind a free window for `qp_num`; return what is wrong. Section 10.6.6.2."""
        window, region = bind.window, bind.region
        if self._windows.get(window.r_key) is not window or window.pd != pd:
            return f"window {window.r_key:#x} is not of this protection domain"
        if window.grant is not None:
            return f"window {window.r_key:#x} is bound: it must be invalidated first"
        if self._regions.get(region.r_key) is not region or region.pd != pd:
            return f"region {region.r_key:#x} is not of this protection domain"
        if region.grant is None or not region.access & Access.MW_BIND:
            return f"region {region.r_key:#x} does not allow to bind windows"
        if bind.access & ~(REMOTE | Access.ZERO_BASED):
            return f"access {bind.access:#x} is not for windows"
        if bind.access & _NEED_LOCAL_WRITE and not region.access & Access.LOCAL_WRITE:
            return "remote write and remote atomic need local write"
        if bind.length < 1 or not region.holds(bind.addr, bind.length):
            return f"{bind.length} bytes at {bind.addr:#x} are not in the region"
        if (fault := self._unfit_key(bind.r_key, window.r_key)) is not None:
            return fault
        start = bind.addr - region.addr
        window.region = region
        window.grant = Grant(
            0 if bind.access & Access.ZERO_BASED else bind.addr,
            region.view[start : start + bind.length],
            bind.access,
            pd,
            qp_num,
        )
        del self._windows[window.r_key]
        window.r_key = bind.r_key
        self._windows[bind.r_key] = window
        self._remote[bind.r_key] = window.grant
        region.windows += 1
        return None

    def forget_qp(self, qp_num: int) -> None:
        """Free every window that is bound for `qp_num`, which ceases to be."""
        for window in self._windows.values():
            if window.grant is not None and window.grant.qp_num == qp_num:
                self._unbind(window)

    # -- invalidation -----------------------------------------------------------------------

    def may_invalidate(self, r_key: int, pd: int, qp_num: int) -> bool:
        """Say whether a peer of `qp_num` may invalidate `r_key` by a SEND. 9.4.1.1."""
        grant = self._remote.get(r_key)
        if grant is None or grant.pd != pd or grant.qp_num not in {None, qp_num}:
            return False
        region = self._regions.get(r_key)
        if region is None:
            return True  # a window's
        return region.invalidatable and not region.windows and region.access & REMOTE != 0

    def invalidate(self, r_key: int) -> None:
        """Free the region or the window of `r_key`."""
        window = self._windows.get(r_key)
        if window is not None:
            self._unbind(window)
        elif (region := self._regions.get(r_key)) is not None:
            self._free(region)

    def invalidate_local(self, key: int, pd: int, qp_num: int) -> str | None:
        """Free the region or window of `key`; return what is wrong. Section 10.6.5."""
        window = self._windows.get(key)
        if window is not None:
            grant = window.grant
            if grant is None or grant.pd != pd or grant.qp_num != qp_num:
                return f"window {key:#x} is not bound for this queue pair"
            self._unbind(window)
            return None
        region = self._regions.get(key) or self._local.get(key)
        if region is None or region.pd != pd or region.grant is None:
            return f"key {key:#x} is not valid in this protection domain"
        if region.windows:
            return f"{region.windows} windows are bound to region {key:#x}"
        self._free(region)
        return None

    # -- use --------------------------------------------------------------------------------

    def remote(  # noqa: PLR0917 - hot: keywords cost
        self, r_key: int, addr: int, length: int, right: int, pd: int, qp_num: int
    ) -> Grant | None:
        """Return what grants `right` on the whole range to `qp_num` of `pd`, or None."""
        grant = self._remote.get(r_key)
        if (
            grant is None
            or grant.pd != pd
            or (grant.qp_num is not None and grant.qp_num != qp_num)
            or not grant.access & right
            or addr < grant.addr
            or addr + length > grant.addr + len(grant.view)  # `holds`, with a call less
        ):
            return None
        return grant

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
            if region.access & right != right or region.grant is None:
                return None
            start = addr - region.addr
            views.append(region.view[start : start + length])
            total += length
        return ScatterGather(views, total)

    # -- keys -------------------------------------------------------------------------------

    def _grant(self, region: MemoryRegion) -> None:
        """Make the keys of `region` valid."""
        region.grant = Grant(region.addr, region.view, region.access, region.pd)
        self._remote[region.r_key] = region.grant

    def _free(self, region: MemoryRegion) -> None:
        """Make the keys of `region` invalid."""
        if region.grant is not None:
            region.grant.is_valid = False
            region.grant = None
            del self._remote[region.r_key]

    def _unbind(self, window: MemoryWindow) -> None:
        if window.grant is not None and window.region is not None:
            window.grant.is_valid = False
            window.region.windows -= 1
            window.grant = window.region = None
            del self._remote[window.r_key]

    def _check_pd(self, pd: int) -> None:
        if not self.has_pd(pd):
            raise ValueError(f"pd {pd} was never allocated")

    def _has(self, key: int) -> bool:
        return key in self._local or key in self._regions or key in self._windows

    def _unfit_key(self, key: int, before: int) -> str | None:
        """Return what is wrong with `key` in the place of `before`."""
        if key >> 8 != before >> 8:
            return f"key {key:#x} in place of {before:#x}: only the low 8 bits may change"
        if key != before and self._has(key):
            return f"key {key:#x} is in use"
        return None

    def _new_key(self) -> int:
        while self._has(self._next_key):
            self._next_key += _KEY_STEP
        self._next_key += _KEY_STEP
        return self._next_key - _KEY_STEP


def _unfit(addr: int, view: memoryview, access: int) -> str | None:
    """Return what is wrong with a region of `view` at `addr`."""
    if access & _NEED_LOCAL_WRITE and not access & Access.LOCAL_WRITE:
        return "remote write and remote atomic need local write"
    if view.readonly and access & Access.LOCAL_WRITE:
        return "local write needs a writable buffer"
    if addr < 0 or addr + len(view) > _U64:
        return f"addr {addr:#x} + {len(view)} bytes does not fit 64 bits"
    return None
