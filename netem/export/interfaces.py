"""The interfaces of a container made what the plan wants, from inside and without privileges.

NET_ADMIN renames an interface and gives it MAC and MTU. What it cannot do is write kernel
parameters: /proc/sys is read-only in a container. So the compose file has them (`parameters`),
and here they are only looked at.
"""

import contextlib
import errno
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

from netem.kernel import sysctl
from netem.kernel.run import KernelError, run_json, start_batch
from netem.kernel.steps import Parameter, Stage, Step, execute, steps
from netem.topology.plan import Plan
from wire.roce.packet import UDP_PORT

ATTACH_LIMIT_S = 20.0
_LOOK_AGAIN_S = 0.05


def own_steps(plan: Plan, name: str) -> list[Step]:
    """Return what is to be done in the namespace of a node or wire, its links being there."""
    return [step for step in steps(plan) if step.node == name and step.stage is not Stage.LINKS]


def parameters(plan: Plan, name: str) -> dict[str, str]:
    """Return the kernel parameters that a container needs from its beginning.

    Interfaces are attached before or after they are set, as engines do: hence "all" beside
    "default".
    """
    own = own_steps(plan, name)
    wanted = {
        step.name: step.value
        for step in own
        if isinstance(step, Parameter) and step.stage is not Stage.INTERFACE
    }
    has_ipv6 = wanted and not wanted.keys() & sysctl.no_ipv6("default").keys()
    of_ports = sysctl.with_ipv6 if has_ipv6 else sysctl.deaf
    return of_ports("all") | of_ports("default") | wanted


def take(plan: Plan, name: str, places: Mapping[str, str]) -> None:
    """Give the interfaces of the node or wire `name` its ports' names, and set them up.

    `places` says by which address each is found. Raise KernelError where one is not there.
    """
    ports = {p.name: p for node in plan.nodes if node.name == name for p in node.ports}
    found = _found(places, name)
    lines = []
    for number, old in enumerate(found.values()):  # first all out of the way of each other
        lines += [f"link set dev {old} down", f"link set dev {old} name was{number}"]
    for number, interface in enumerate(found):
        port = ports.get(interface)
        settings = "" if port is None else f"mtu {port.mtu} address {port.mac}"
        lines += [
            f"link set dev was{number} name {interface}",
            f"addr flush dev {interface}",
            f"link set dev {interface} {settings} multicast off addrgenmode none",
        ]
    start_batch("ip", lines, name=name).result()
    execute([step for step in own_steps(plan, name) if not _is_settled(step)], {name: None})


def _found(places: Mapping[str, str], name: str) -> dict[str, str]:
    """Return what the interface of each port is called, by its own name or its address.

    Some engines attach interfaces to containers that run already.
    """
    give_up = time.monotonic() + ATTACH_LIMIT_S
    while True:
        links = _interfaces()
        by_address = {
            row["local"]: link["ifname"] for link in links for row in link.get("addr_info", ())
        }
        by_name = {link["ifname"]: link["ifname"] for link in links}
        found = {
            port: by_name.get(port) or by_address.get(address, "")
            for port, address in places.items()
        }
        if all(found.values()):
            return found
        if time.monotonic() > give_up:
            break
        time.sleep(_LOOK_AGAIN_S)
    there = ", ".join(f"{has} at {at}" for at, has in by_address.items())
    port = next(port for port, interface in found.items() if not interface)
    sign = f"none has {places[port]}, by which {port} is found" if places[port] else "none"
    raise KernelError(
        ("ip", "addr"), 1, f"no interface {port}: {sign}; there are {there}", name
    )


def _interfaces() -> list[dict[str, Any]]:
    """Return what `ip -json addr` says (hence Any): `ifname`, and `addr_info` with `local`."""
    rows: list[dict[str, Any]] = run_json(("ip", "-json", "addr"))
    return rows


def _is_settled(step: Step) -> bool:
    """Say whether a step is a parameter that the engine has set, or need not be.

    That of one interface nobody can set here. It would keep the kernel's hands off a port of
    ours, but a port without addresses has nothing for it. One that is rounded cannot be
    compared. Any other is tried, and refused by the kernel in its own words.
    """
    if not isinstance(step, Parameter):
        return False
    now = sysctl.read(step.name)
    if now is not None and now.split() == step.value.split():
        return True
    is_let_go = step.stage is Stage.INTERFACE or step.name in sysctl.ROUNDED
    return is_let_go and not _is_writable(step.name)


def _is_writable(name: str) -> bool:
    try:
        with sysctl.path(name).open("r+"):
            return True
    except OSError as error:
        if error.errno not in {errno.EROFS, errno.EACCES, errno.EPERM}:
            raise
        return False


@contextlib.contextmanager
def quiet_kernel() -> Iterator[None]:
    """Keep the kernel from answering RoCE that is for an address of its own: it has a taker.

    The taker never reads, and has no room for anything to wait. Without it the kernel would say
    "port unreachable" to whoever sends RoCE to an address that the engine gave.
    """
    with contextlib.ExitStack() as stack:
        for family, anywhere in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104 - all there are
            sink = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)
            if family == socket.AF_INET6:
                sink.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sink.bind((anywhere, UDP_PORT))
        yield
