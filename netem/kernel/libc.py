"""System calls that the standard library lacks on some or all of our Python versions.

Python has `unshare` and `setns` from 3.12 on; mount(2) and prctl(2) it has in no version. Each
wrapper raises OSError like the standard library's own. See the manual page of the same name.
"""

import ctypes
import os
import sys
from typing import Any

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x4_0000

PR_SET_PDEATHSIG = 1
PR_SET_TIMERSLACK = 29

# ctypes looks functions up by name at run time: there is no static type to give.
LIBC: Any = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    """Return `result`, or raise the OSError that errno names, saying in which call."""
    if result < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{what}: {os.strerror(errno)}")
    return result


def unshare(flags: int) -> None:
    """Leave the namespaces named by `flags` for new ones."""
    if sys.version_info >= (3, 12):
        os.unshare(flags)
    else:
        check(LIBC.unshare(flags), "unshare")


def setns(fd: int, kind: int = 0) -> None:
    """Enter the namespace that `fd` refers to; `kind` is its CLONE_ flag, or 0 for any."""
    if sys.version_info >= (3, 12):
        os.setns(fd, kind)
    else:
        check(LIBC.setns(fd, kind), "setns")


def prctl(option: int, value: int) -> None:
    """Set one property of the calling thread."""
    check(LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount; every empty string is handed over as it is, which the kernel takes for none."""
    result = LIBC.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode(),
        ctypes.c_ulong(flags),
        data.encode(),
    )
    check(result, f"mount {kind or source} on {target}")
