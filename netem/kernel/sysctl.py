"""Kernel parameters, as files under /proc/sys. Those of `net` are the namespace's own."""

import errno
from pathlib import Path

from netem.kernel.run import KernelError

_ROOT = Path("/proc/sys")
# Times that the kernel keeps in ticks: 1 ms reads as 4 where a tick is that long.
ROUNDED = frozenset({"net/ipv4/icmp_ratelimit", "net/ipv6/icmp/ratelimit"})
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})


def path(name: str) -> Path:
    """Return the file of a parameter; `name` has slashes: "net/ipv4/ip_forward"."""
    return _ROOT / name


def write(name: str, value: str, *, where: str = "") -> None:
    """Set a parameter of the network namespace that this thread is in.

    Raises KernelError where there is no such parameter or no right to set it; `where` is what
    the message calls the namespace.
    """
    try:
        # Unbuffered on purpose: the kernel takes a value by one write.
        path(name).write_text(value)
    except OSError as error:
        raise KernelError(command(name, value), error.errno or 1, str(error), where) from error


def read(name: str) -> str | None:
    """Return a parameter's value, or None where this kernel has none of that name."""
    try:
        return path(name).read_text().strip()
    except OSError as error:
        if error.errno in _MISSING:
            return None
        raise KernelError(("cat", str(path(name))), error.errno or 1, str(error)) from error


def command(name: str, value: str) -> tuple[str, ...]:
    """Return the command that a person would type; it needs no program but the shell."""
    return ("sh", "-c", f"echo {value} > {path(name)}")


def quiet(interface: str) -> dict[str, str]:
    """Return what keeps the kernel silent on an interface that has IPv6 addresses of ours.

    No link-local address, no duplicate address detection, no router solicitation or
    advertisement. "default" stands for every interface that is yet to come.
    """
    of = f"net/ipv6/conf/{interface}"
    return {
        f"{of}/addr_gen_mode": "1",  # none
        f"{of}/accept_dad": "0",
        f"{of}/dad_transmits": "0",
        f"{of}/router_solicitations": "0",
        f"{of}/accept_ra": "0",
        f"{of}/autoconf": "0",
    }


def no_ipv6(interface: str) -> dict[str, str]:
    """Return what keeps IPv6 off an interface altogether."""
    return {f"net/ipv6/conf/{interface}/disable_ipv6": "1"}


def with_ipv6(interface: str) -> dict[str, str]:
    """Return what lets IPv6 in, where somebody has kept it off."""
    return {f"net/ipv6/conf/{interface}/disable_ipv6": "0"}


def deaf(interface: str) -> dict[str, str]:
    """Return what keeps the kernel's hands off the packets of an interface that is not its own.

    It would otherwise take an IPv4 packet for any of its addresses from any interface. With
    strict reverse path filtering and no route by this interface, nothing gets in.
    """
    return no_ipv6(interface) | {f"net/ipv4/conf/{interface}/rp_filter": "1"}


def ping_for_all() -> dict[str, str]:
    """Return what lets `ping` work without rights of its own; group 0 is always mapped."""
    return {"net/ipv4/ping_group_range": "0 0"}


def forwarding() -> dict[str, str]:
    """Return what makes a namespace a router, for both families, redirects left out."""
    return {
        "net/ipv4/ip_forward": "1",
        "net/ipv6/conf/all/forwarding": "1",
        # Paths by addresses and ports, as our switches choose them
        "net/ipv4/fib_multipath_hash_policy": "1",
        "net/ipv6/fib_multipath_hash_policy": "1",
        # ... and without the ports whose link is down
        "net/ipv4/conf/all/ignore_routes_with_linkdown": "1",
        "net/ipv6/conf/all/ignore_routes_with_linkdown": "1",
        # One ICMP error per millisecond, as our switches: some traceroutes at the same time
        "net/ipv4/icmp_ratelimit": "1",
        "net/ipv6/icmp/ratelimit": "1",
        "net/ipv4/conf/all/send_redirects": "0",
        "net/ipv4/conf/default/send_redirects": "0",
        "net/ipv4/conf/all/rp_filter": "0",
        "net/ipv4/conf/default/rp_filter": "0",
    }


def srv6() -> dict[str, str]:
    """Return what lets every interface to come take packets with an SRH. RFC 8754.

    Both are needed: the kernel takes the smaller of "all" and the interface's own.
    """
    return {f"net/ipv6/conf/{which}/seg6_enabled": "1" for which in ("all", "default")}
