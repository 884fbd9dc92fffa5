"""Targets by the names that people give them, and where each has to be opened."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from ipaddress import ip_address

from netem.conform.box import boxed
from netem.conform.endpoint import Target
from netem.conform.foreign import PORT, TOOLS, open_foreign
from netem.conform.guest import open_guest, prepare
from netem.conform.node import open_node
from netem.conform.sim import SimTarget
from netem.kernel.capabilities import require_host

Judge = Callable[[AbstractContextManager[Target]], int]

OURS = ("sim", "node", "rxe")


class NoTargetError(Exception):
    """A name that stands for no target: what is legal."""


@dataclass(frozen=True, slots=True)
class Whom:
    """Who is to be judged, as it is said on the command line."""

    name: str
    interface: str = ""  # of this namespace; for an address
    tool: str = "ib_write_bw"
    port: int = PORT

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
        if self.tool not in TOOLS:
            raise NoTargetError(f"--by {self.tool}: legal is {', '.join(TOOLS)}")


def reach(whom: Whom, judge: Judge) -> int:
    """Let `judge` have the target, in a sandbox where that is ours to make; return its result.

    CapabilityError or KernelError where this host cannot.
    """
    if whom.name == "sim":
        return judge(nullcontext(SimTarget()))
    if whom.name not in OURS:
        return judge(open_foreign(whom.name, whom.interface, whom.tool, whom.port))
    require_host()
    if whom.name == "rxe":
        prepare()
        return boxed(lambda: judge(open_guest()))
    return boxed(lambda: judge(open_node()))
