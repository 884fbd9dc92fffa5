"""Targets by the names that people give them, and where each has to be opened."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address

from netem.conform import cm_words
from netem.conform.box import boxed, listening
from netem.conform.endpoint import Target
from netem.conform.foreign import PORT, TOOLS, open_foreign
from netem.conform.foreign_cm import open_by_cm
from netem.conform.guest import open_guest, prepare
from netem.conform.kernel_node import open_kernel
from netem.conform.sim import SimTarget
from netem.conform.stations import open_nodes
from netem.conform.wg_gate import open_foreign_gate
from netem.kernel.capabilities import require_host

Judge = Callable[[AbstractContextManager[Target]], int]

CM = "cm"


class NoTargetError(Exception):
    """A name that stands for no target: what is legal."""


@dataclass(frozen=True, slots=True)
class Whom:
    """Who is to be judged, as it is said on the command line."""

    name: str
    interface: str = ""  # of this namespace; for an address
    tool: str = "ib_write_bw"
    port: int = 0  # of TCP, or with CM of rdma_cm; 0: perftest's, rping's

    def check(self) -> None:
        """Raise NoTargetError for what cannot be meant."""
        if self.name in OURS:
            return
        try:
            ip_address(self.name)
        except ValueError:
            legal = ", ".join(OURS)
            raise NoTargetError(
                f"--target {self.name}: legal is {legal}, or an address"
            ) from None
        if not self.interface:
            raise NoTargetError(f"--target {self.name} wants --iface: eth1, for example")
        if self.tool not in {*TOOLS, CM}:
            raise NoTargetError(f"--by {self.tool}: legal is {', '.join(TOOLS)}, {CM}")
        if not 0 <= self.port <= 0xFFFF:
            raise NoTargetError(f"--port {self.port}: legal is 1 to 65535")


def make_ready(whom: Whom) -> None:
    """Do what may take long before there is a target: CapabilityError where the host cannot.

    For a guest that is its image, PackageError where that cannot be made.
    """
    if whom.name in OURS and whom.name != "sim":
        require_host()
        if whom.name == "rxe":
            prepare()


def reach(whom: Whom, judge: Judge) -> int:
    """Let `judge` have the target, in a sandbox where that is ours to make; return its result.

    Call `make_ready` before. KernelError where this host cannot.
    """
    if whom.name == "sim":
        return judge(nullcontext(SimTarget()))
    if whom.name not in OURS:
        if whom.tool == CM:
            port = whom.port or cm_words.PORT
            return judge(open_by_cm(whom.name, whom.interface, port))
        return judge(open_foreign(whom.name, whom.interface, whom.tool, whom.port or PORT))
    return boxed(lambda: judge(listening(_OPENERS[whom.name]())))


_OPENERS: dict[str, Callable[[], AbstractContextManager[Target]]] = {
    "node": open_nodes,
    "rxe": open_guest,
    "kernel": open_kernel,
    "wireguard-go": partial(open_foreign_gate, "wireguard-go"),
}
OURS = ("sim", *_OPENERS)
