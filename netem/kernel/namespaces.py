"""Making, naming and visiting namespaces. A process is the name of the namespaces it is in."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from netem.kernel.libc import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUSER,
    MS_PRIVATE,
    MS_REC,
    mount,
    setns,
    unshare,
)


def enter_new_user_namespace(other_flags: int = 0) -> None:
    """Become root of a new user namespace, and enter new ones of the other kinds with it.

    Root inside is the calling user outside: files keep that owner. Other ids are not mapped,
    for which an ordinary user has no right.
    """
    uid, gid = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER | other_flags)
    own = Path("/proc/self")
    with contextlib.suppress(FileNotFoundError):
        own.joinpath("setgroups").write_text("deny")
    own.joinpath("uid_map").write_text(f"0 {uid} 1")
    own.joinpath("gid_map").write_text(f"0 {gid} 1")


def enter_new_network_namespace() -> None:
    """Move the calling thread to a network namespace of its own, empty but for `lo`."""
    unshare(CLONE_NEWNET)


def enter_network_of(pid: int, other_flags: int = 0) -> None:
    """Move the calling thread to the network namespace of `pid`, and to others of its.

    By pidfd and not by /proc/PID, which in some containers shows the pids of another namespace.
    """
    fd = os.pidfd_open(pid)
    try:
        setns(fd, CLONE_NEWNET | other_flags)
    finally:
        os.close(fd)


def enter_new_mount_namespace() -> None:
    """Make mounts private to the caller: none goes out to the host, none comes in."""
    unshare(CLONE_NEWNS)
    keep_mounts_private()


def keep_mounts_private() -> None:
    """Cut a new mount namespace off from the one that it was copied from.

    Raises OSError in a chroot whose folder is no mount: mounts there would show outside.
    """
    try:
        mount("", "/", flags=MS_REC | MS_PRIVATE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        why = "in this chroot mounts cannot be kept private, because its folder is no mount"
        raise OSError(error.errno, why) from error


def namespace_id(pid: int | str, kind: str) -> tuple[int, int]:
    """Return a value equal for two processes exactly if they share that namespace."""
    stat = Path(f"/proc/{pid}/ns/{kind}").stat()
    return stat.st_dev, stat.st_ino


class Network:
    """A network namespace that stays, with what is in it, when its last process is gone."""

    def __init__(self, pid: int) -> None:
        """Hold the namespace that process `pid` is in; the process must be alive."""
        with inside(pid):
            self.fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def inside(where: int | Network | None) -> Iterator[None]:
    """Run the body in the network namespace of a process, or one that is held.

    None means stay where we are. Raise ProcessLookupError where the process is gone.
    Only the calling thread moves. Sockets opened and programs started inside stay there.
    """
    if where is None:
        yield
        return
    with contextlib.ExitStack() as fds:
        # Of the thread, not of the process: another thread may be visiting elsewhere.
        back = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        fds.callback(os.close, back)
        if isinstance(where, Network):
            setns(where.fd, CLONE_NEWNET)
        else:
            enter_network_of(where)
        try:
            yield
        finally:
            setns(back, CLONE_NEWNET)


def control_socket() -> socket.socket:
    """Return a socket for ioctls about the interfaces of the namespace it is opened in."""
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
