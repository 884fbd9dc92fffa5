"""Linux as the node that routes by segments: a namespace whose routes a case makes with `ip`.

    suite -- kernel-main ==== main --+-- rest    all that no port and no table is named for
                                     +-- e1      the adjacency of End.X, End.DX6 and End.DX4
                                     +-- t7      the default route of table 7

Each frame that leaves is heard by its link, so nothing of the kernel's is asked. What it says
to the source of a packet (ICMP errors) has no way back and is not judged. What this kernel, or
its `ip`, does not know is found out by asking for it, and is unsupported in its own words.
"""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from ipaddress import IPv6Network

from netem.conform.endpoint import MACS, Bare, RefusedError, Session, UnsupportedError, Wants
from netem.conform.families import FAMILIES, MAIN, REST, ROUTING_LINKS
from netem.conform.links import forked
from netem.conform.notation import Case, Value
from netem.conform.sr_node import check_ways
from netem.conform.sr_words import container, int_of
from netem.conform.wires import PortsWire
from netem.kernel import sysctl
from netem.kernel.namespaces import inside
from netem.kernel.run import KernelError, start_batch
from transports.clock import MS, Ns, S

LINKS = (MAIN, REST, "e1", "t7")
_PATIENCE: Ns = 2 * S
_QUIET: Ns = 15 * MS
_SOURCE = "fd00:f::1"  # of what a headend sends
_VRF = frozenset({"End.DT4", "End.DT46"})
_INNER_V4 = "10.9.0.2"  # Linux asks on nh4's link for this itself


class KernelTarget:
    """One namespace; routes of a case are gone behind it."""

    name = "kernel"

    def __init__(self, wire: PortsWire, node: "KernelNode") -> None:
        self._wire, self._node = wire, node

    @contextmanager
    def session(self, case: Case, wants: Wants, number: int) -> Iterator[Session]:  # noqa: ARG002
        if wants.service != "SRV6":
            raise UnsupportedError(
                f"this kernel's own stack is judged for SRV6, not {wants.service}"
            )
        joined = FAMILIES["SRV6"].joined(wants, number, self._node.open(asdict(wants)))
        try:
            self._wire.forget()
            yield Session(joined, self._wire, self._node, is_real=True)
        finally:
            self._node.close()


@contextmanager
def open_kernel() -> Iterator[KernelTarget]:
    """Make the namespace; call it in a sandbox. KernelError, OSError."""
    with forked("kernel", LINKS, _hold) as (_, sockets, pid):
        _set_up(pid)
        wire = PortsWire(
            sockets,
            patience=_PATIENCE,
            quiet=_QUIET,
            towards=ROUTING_LINKS.towards,
            heard=_heard,
        )
        yield KernelTarget(wire, KernelNode(pid))


def _heard(link: str, frame: bytes) -> bytes | None:
    """Leave out what a kernel tells groups: that it is there."""
    return None if frame[0] & 1 else ROUTING_LINKS.heard(link, frame)


def _hold(channel: socket.socket) -> None:
    """Be the namespace until the suite hangs up."""
    channel.recv(1)


def _set_up(pid: int) -> None:
    """Make it a router that knows its neighbours and says nothing on its own account."""
    settings = sysctl.forwarding() | sysctl.srv6()
    settings["net/ipv6/auto_flowlabels"] = "0"  # else a hash with a secret of this boot in it
    for link in LINKS:
        settings |= sysctl.quiet(link) | sysctl.with_ipv6(link)
        settings[f"net/ipv6/conf/{link}/seg6_enabled"] = "1"
    with inside(pid):
        for key, value in settings.items():
            sysctl.write(key, value)
    mac = MACS[0].hex(":")
    lines = []
    for number, link in enumerate(LINKS):
        lines += [
            f"addr add fd00:c0:{number}::1/64 dev {link} nodad",
            f"neigh replace fd00:c0:{number}::2 lladdr {mac} dev {link} nud permanent",
            f"addr add 10.200.{number}.1/24 dev {link}",
            f"neigh replace 10.200.{number}.2 lladdr {mac} dev {link} nud permanent",
        ]
    lines += [
        f"route add default {_way(REST)}",
        f"route add default {_way('t7')} table 7",
        f"neigh replace {_INNER_V4} lladdr {mac} dev e1 nud permanent",
        "route add blackhole fd00:a::/32",
        f"sr tunsrc set {_SOURCE}",
    ]
    start_batch("ip", ["link set lo up", *lines], pid).result()


def _way(link: str) -> str:
    return f"via fd00:c0:{LINKS.index(link)}::2 dev {link}"


class KernelNode(Bare):
    """The routes of the present case: an Application whose requests are configuration."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._routes: list[str] = []

    def act(self, name: str, fields: Mapping[str, Value]) -> Mapping[str, int]:
        try:
            if name == "sid":
                check_ways(fields, LINKS)
                self._add(*_sid(fields))
            elif name == "steer":
                mode = "encap.red" if "reduced" in fields else "encap"
                words = f"encap seg6 mode {mode} segs {fields['segments']} {_way(REST)}"
                self._add(f"{fields['to']}/128", words)
            else:
                raise UnsupportedError(f"a kernel that routes has no {name}")
        except ValueError as error:
            raise RefusedError(str(error)) from error
        return {}

    def close(self) -> None:
        """Take the routes of the case away."""
        if self._routes:
            lines = [f"route del {prefix}" for prefix in self._routes]
            self._routes = []
            start_batch("ip", lines, self._pid).result()

    def _add(self, prefix: str, words: str) -> None:
        try:
            start_batch("ip", [f"route add {prefix} {words}"], self._pid).result()
        except KernelError as error:
            said = " ".join(error.stderr.split())
            raise UnsupportedError(f"this kernel or its ip has no `{words}`: {said}") from error
        self._routes.append(prefix)


def _sid(fields: Mapping[str, Value]) -> tuple[str, str]:
    """Return prefix and words of the route that is a SID. UnsupportedError, ValueError."""
    given = dict(fields)
    behaviour = str(given.pop("behaviour", "End"))
    if behaviour in _VRF:
        raise UnsupportedError(
            f"Linux has {behaviour} for a VRF alone, and none is set up here"
        )
    if "upper" in given:
        raise UnsupportedError("Linux takes nothing behind an SRH that is for a SID of its own")
    flavours = [str(each).lower() for each in str(given.pop("flavours", "")).split(",") if each]
    if "csids" in given:
        block, width = int_of(given, "block", 32), int_of(given, "width", 16)
        prefix = f"{container(str(given.pop('csids')), block, width)}/{block + width}"
        if behaviour in {"End", "End.X"}:
            flavours.append(f"next-csid lblen {block} nflen {width}")
    else:
        prefix = str(IPv6Network(str(given.pop("prefix"))))
    words = f"encap seg6local action {behaviour}"
    if "port" in given:
        number = LINKS.index(str(given["port"]))
        v4 = behaviour == "End.DX4"
        words += f" nh4 10.200.{number}.2" if v4 else f" nh6 fd00:c0:{number}::2"
    if "table" in given:
        words += f" table {int_of(given, 'table', 0)}"
    if flavours:
        words += f" flavors {','.join(flavours)}"
    return prefix, f"{words} dev {REST}"
