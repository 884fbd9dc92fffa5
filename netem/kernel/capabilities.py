"""What this host can do, found out by doing it in a throw-away sandbox, and what to do if not.

`doctor` prints all of it; tests ask `missing`; `require_host` is asked before a lab is made.
"""

import functools
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from netem.impair.ports import kernel_shares
from netem.kernel import probes, sysctl, tc
from netem.kernel.processes import end_in_words
from netem.kernel.run import CapabilityError, KernelError, program_path, run
from netem.kernel.sandbox import Sandbox, may_administer
from netem.topology.plan import Plan

ANSWER_LIMIT_S = 5.0  # from a probe's last word to its end


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing that this host can do or not."""

    name: str
    present: bool
    why: str  # where it is missing: the reason; where it is present: a version, or nothing
    remedy: str  # one line to do; empty where it is present


@dataclass(frozen=True, slots=True)
class _Probe:
    """How to find one thing out."""

    find: Callable[[], str]  # returns a remark, raises what probes say
    remedy: str
    inside: bool = True  # to be run in a sandbox


def probe(names: Iterable[str] | None = None) -> list[Capability]:
    """Find out about `names`, or about everything known, each only once per process.

    Raises ValueError for a name that is not known.
    """
    wanted = list(_PROBES if names is None else names)
    if unknown := [name for name in wanted if name not in _PROBES]:
        known = ", ".join(_PROBES)
        raise ValueError(f"no capability is called {', '.join(unknown)}; known are: {known}")
    return [_capability(name) for name in wanted]


def missing(name: str) -> str | None:
    """Return why this host lacks `name`, in one line, or None where it has it."""
    [capability] = probe([name])
    return None if capability.present else capability.why


def require_host(plan: Plan | None = None) -> None:
    """Raise CapabilityError unless this host can bring a lab up, or this lab; make nothing."""
    for name in needs(plan):  # one by one: without `ip` there is no use in trying the next
        [capability] = probe([name])
        if not capability.present:
            raise CapabilityError(capability.name, capability.why, capability.remedy)


def needs(plan: Plan | None = None) -> Iterator[str]:
    """Name what every lab needs, and what this one needs beside."""
    yield "ip_tc"
    yield "netns"
    if plan is not None and any(node.kind == "bridge" for node in plan.nodes):
        yield "bridge"
    if plan is not None and any(node.kind == "guest" for node in plan.nodes):
        yield from ("bridge", "tap", "qemu_guest")
    if plan is not None and any(node.tunnel is not None for node in plan.nodes):
        yield "tap"
    if plan is not None:
        yield from _needs_of_tc(plan)


def _needs_of_tc(plan: Plan) -> Iterator[str]:
    """Name what the kernel must have for links with `engine: tc`, now or after a change."""
    shares = kernel_shares(plan)
    ports = {share.port for share in shares}
    given = [share.impairment for share in shares]
    given += [change.set for change in plan.changes if change.on in ports]
    if any(map(tc.needs_netem, given)):
        yield "netem_qdisc"
    if any(one.rate is not None and not tc.needs_netem(one) for one in given):
        yield "tbf_qdisc"


@functools.cache
def _capability(name: str) -> Capability:
    asked = _PROBES[name]
    find = functools.partial(_in_sandbox, asked.find) if asked.inside else asked.find
    try:
        return Capability(name, present=True, why=find(), remedy="")
    except CapabilityError as error:
        return Capability(
            name, present=False, why=error.why, remedy=error.remedy or asked.remedy
        )
    except (KernelError, OSError) as error:
        return Capability(
            name, present=False, why=" ".join(str(error).split()), remedy=asked.remedy
        )


def _in_sandbox(find: Callable[[], str]) -> str:
    """Run a probe as root of a sandbox that ends with it."""
    try:
        sandbox = Sandbox.enter(functools.partial(_answer, find))
    except KernelError as error:
        raise _no_sandbox(error) from error
    with sandbox, sandbox.channel.makefile() as lines:
        line = lines.readline()
        if not line:
            why = f"the probe {end_in_words(sandbox.wait(ANSWER_LIMIT_S))} without an answer"
            raise CapabilityError("", why, "find out again: this says nothing of the host")
    answer: dict[str, str] = json.loads(line)
    if "why" in answer:
        raise CapabilityError("", answer["why"], answer["remedy"])
    return answer["remark"]


def _answer(find: Callable[[], str], channel: socket.socket) -> int:
    try:
        answer = {"remark": find()}
    except CapabilityError as error:
        answer = {"why": error.why, "remedy": error.remedy}
    except (KernelError, OSError) as error:
        answer = {"why": str(error), "remedy": ""}
    channel.sendall(json.dumps(answer).encode() + b"\n")
    return 0


# Namespaces.


def _find_userns() -> str:
    try:
        with Sandbox.enter(lambda _: 0, user_namespace=True):
            return ""
    except KernelError as error:
        raise _no_sandbox(error) from error


def _no_sandbox(error: KernelError) -> CapabilityError:
    """Say what on this host stands against namespaces; the error itself only says EPERM."""
    for name, bad, remedy in (
        ("user/max_user_namespaces", "0", "as root: sysctl -w user.max_user_namespaces=65536"),
        ("kernel/unprivileged_userns_clone", "0",
         "as root: sysctl -w kernel.unprivileged_userns_clone=1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1",
         "as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
    ):  # fmt: skip
        if sysctl.read(name) == bad and not may_administer():
            key = name.replace("/", ".")
            return CapabilityError("userns", f"user namespaces are off: {key} is {bad}", remedy)
    if not Path("/proc/self/ns/user").exists() and not may_administer():
        why = "this kernel was built without user namespaces"
        return CapabilityError(
            "userns", why, "run as root, or use a kernel with CONFIG_USER_NS"
        )
    if probes.seccomp_filtered():
        why = f"{error}; system calls are filtered, as in a container"
        remedy = (
            "start the container with --cap-add SYS_ADMIN --cap-add NET_ADMIN, or outside one"
        )
        return CapabilityError("userns", why, remedy)
    if "chroot" in str(error):
        return CapabilityError("userns", str(error), "mount --bind the folder on itself first")
    return CapabilityError("userns", str(error), "run as root, or allow user namespaces")


# Programs.


def _ip_tc() -> str:
    versions = [_version("ip", "-V"), _version("tc", "-V")]
    return versions[0]


def _version(program: str, *arguments: str) -> str:
    """Return the first line that a program says of itself."""
    if shutil.which(program, path=program_path()) is None:
        raise CapabilityError(program, f"{program} is not installed")
    said = run((program, *arguments)).strip()
    return said.splitlines()[0] if said else ""


def _any_version(*programs: str) -> str:
    for program in programs:
        if shutil.which(program, path=program_path()) is not None:
            return _version(program, "--version")
    raise CapabilityError(programs[0], f"{' or '.join(programs)} is not installed")


def _boringtun() -> str:
    """Find the Python package that has boringtun inside."""
    if find_spec("mitmproxy_wireguard") is None:
        raise CapabilityError("boringtun", "mitmproxy-wireguard is not installed")
    return ""


def _docker() -> str:
    _version("docker", "--version")
    return "engine " + _version("docker", "version", "--format", "{{.Server.Version}}")


def _qemu_guest() -> str:
    """Find the emulator, and what its image is made with. The image itself can wait."""
    if os.uname().machine != "x86_64":
        raise CapabilityError("qemu_guest", "guests are made for x86_64 only")
    version = _version("qemu-system-x86_64", "--version")
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program, path=program_path()) is None:
            why = f"{program} is not here, and guests are made from Debian's packages"
            raise CapabilityError("qemu_guest", why, "use Debian, or a container of it")
    return version


def _program(name: str, *arguments: str, package: str = "") -> _Probe:
    remedy = f"apt-get install {package or name}"
    find = functools.partial(_version, name, *(arguments or ("--version",)))
    return _Probe(find, remedy, inside=False)


_MODULE = "on a kernel that has it: modprobe {}; otherwise our own model stands in"

_PROBES: dict[str, _Probe] = {
    "ip_tc": _Probe(_ip_tc, "apt-get install iproute2", inside=False),
    "userns": _Probe(_find_userns, "", inside=False),
    "netns": _Probe(probes.veth_into_child, "modprobe veth, on a kernel with CONFIG_VETH"),
    "bridge": _Probe(probes.bridge, "modprobe bridge, on a kernel with CONFIG_BRIDGE"),
    "tbf_qdisc": _Probe(
        probes.tbf_qdisc, "modprobe sch_tbf; until then write engine: ours in the lab file"
    ),
    "netem_qdisc": _Probe(probes.netem_qdisc, _MODULE.format("sch_netem")),
    "seg6": _Probe(probes.seg6, "a kernel with CONFIG_IPV6_SEG6_LWTUNNEL"),
    "tap": _Probe(
        probes.tap, "modprobe tun, chmod 666 /dev/net/tun; until then a veth stands in"
    ),
    "udp_gso": _Probe(
        probes.udp_gso, "a kernel of 6.11 or newer; until then datagrams go singly"
    ),
    "packet_ring": _Probe(probes.packet_ring, "a kernel with CONFIG_PACKET_MMAP"),
    "wireguard": _Probe(probes.wireguard, "modprobe wireguard; our own overlay needs none"),
    "rxe": _Probe(probes.rxe, "modprobe rdma_rxe; our own RoCE needs none"),
    "tshark": _program("tshark"),
    "tcpdump": _program("tcpdump"),
    "ethtool": _program("ethtool"),
    "ping": _program("ping", "-V", package="iputils-ping"),
    "traceroute": _program("traceroute", "-V"),
    "docker": _Probe(_docker, "apt-get install docker.io, and start it", inside=False),
    "dockerd": _program("dockerd", package="docker.io"),
    "docker_compose": _program("docker-compose"),
    "qemu_guest": _Probe(_qemu_guest, "apt-get install qemu-system-x86", inside=False),
    "wireguard_go": _program("wireguard-go"),
    "wg": _program("wg", package="wireguard-tools"),
    "boringtun": _Probe(_boringtun, "pip install mitmproxy-wireguard", inside=False),
    "iperf3": _program("iperf3"),
    "mininet": _program("mn", package="mininet"),
    "chromium": _Probe(
        functools.partial(_any_version, "chromium", "chromium-browser", "google-chrome"),
        "apt-get install chromium",
        inside=False,
    ),
}  # fmt: skip
