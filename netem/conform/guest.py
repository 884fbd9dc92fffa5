"""Soft-RoCE as a target: the kernel of a guest, behind a TAP in the sandbox of the run.

    suite -- packet socket -- t0 ~~~ QEMU ~~~ p0 -- rxe0 -- libibverbs -- application
      +------------------------- virtio port, lines of JSON -----------------+

The guest's processor is emulated: what it does takes 10 to 50 times as long as on a real one.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from ipaddress import ip_address
from typing import Any

from netem.conform.endpoint import (
    MACS,
    EndedError,
    Session,
    StageError,
    UnsupportedError,
    Wants,
)
from netem.conform.node import LinkTarget
from netem.conform.notation import Case
from netem.conform.pattern import PATTERN
from netem.conform.pipe import DistantApplication, unwrapped
from netem.conform.sim import ADDRESSES
from netem.conform.wires import SocketWire
from netem.guest.cards import tap_card
from netem.guest.image import image
from netem.guest.machine import Guest, GuestError
from netem.guest.node import MODULES, set_up
from netem.kernel.run import run
from netem.sockets.packet import PacketSocket
from netem.topology.plan import Neighbour, NodePlan, PortPlan
from transports.clock import MS, Ns, S

_MTU = 4200
_PATIENCE: Ns = 5 * S
_QUIET: Ns = 120 * MS
_LAST_WORDS = 60  # lines of the console that a story keeps


def prepare() -> None:
    """Make the guest's image, outside of a sandbox; PackageError where that cannot be."""
    image()


@contextmanager
def open_guest() -> Iterator["GuestTarget"]:
    """Boot the guest; call it in a sandbox. StageError where it does not come up."""
    run(("ip", "tuntap", "add", "dev", "t0", "mode", "tap"))
    mac = MACS[0].hex(":")
    run(("ip", "link", "set", "dev", "t0", "address", mac, "mtu", str(_MTU)))
    run(("ip", "link", "set", "dev", "t0", "addrgenmode", "none", "up"))
    with ExitStack() as stack:
        sock = stack.enter_context(PacketSocket("t0"))
        target = GuestTarget(SocketWire(sock, patience=_PATIENCE, quiet=_QUIET))
        stack.callback(target.close)
        target.boot()
        yield target


class GuestTarget:
    """The guest, and another one when a case has brought it down."""

    name = "rxe"

    def __init__(self, wire: SocketWire) -> None:
        self._wire = wire
        self._guest: Guest | None = None

    @contextmanager
    def session(self, case: Case, wants: Wants, number: int) -> Iterator[Session]:
        if wants.service == "CM":
            raise UnsupportedError("nobody there listens for the communication manager")
        if self._guest is None:
            self.boot()
        assert self._guest is not None
        link = LinkTarget(self.name, self._wire, GuestApplication(self._guest))
        try:
            with link.session(case, wants, number) as session:
                yield session
        except EndedError:
            self.close()
            raise

    def boot(self) -> None:
        """Have a guest that is up."""
        program = files("netem.conform").joinpath("guest_verbs.py").read_bytes()
        given = {"guest_verbs.py": program, "pattern": PATTERN[: 1 << 17]}
        card = tap_card("t0", MACS[1].hex(":"))
        try:
            guest = Guest(modules=MODULES, devices=card, files=given)
            self._guest = guest
            set_up(guest, _plan(), "")
        except (GuestError, OSError) as error:
            raise StageError("booting the guest", str(error)) from error

    def close(self) -> None:
        """End the guest, if there is one."""
        if self._guest is not None:
            self._guest.__exit__(None, None, None)
            self._guest = None


class GuestApplication(DistantApplication):
    """The application inside: `guest_verbs`."""

    # libibverbs tells neither in a completion; events of queue pairs are not listened to.
    untold = frozenset({"completion.se", "COMM_EST", "SQ_DRAINED"})

    def __init__(self, guest: Guest) -> None:
        self._guest = guest

    def _call(self, what: str, **arguments: Any) -> Any:  # noqa: ANN401 - JSON
        try:
            answer = self._guest.call("guest_verbs", "call", do=what, arguments=arguments)
        except (GuestError, OSError) as error:
            said = [line.strip() for line in self._guest.console().splitlines()]
            panic = next((line for line in said if "Kernel panic" in line), str(error))
            panic = panic.rpartition("] ")[2]
            raise EndedError(f"the guest has ended: {panic}", said[-_LAST_WORDS:]) from error
        return unwrapped(answer)


def _plan() -> NodePlan:
    """Return what the guest is told of its port and its one neighbour."""
    own = {family: str(ip_address(pair[1])) for family, pair in ADDRESSES.items()}
    port = PortPlan("p0", MACS[1].hex(":"), "peer--g0", "peer:s0", _MTU, own[6], own[4])
    peer, mac = [str(ip_address(pair[0])) for pair in ADDRESSES.values()], MACS[0].hex(":")
    neighbours = tuple(Neighbour(ip, mac, "p0") for ip in peer)
    return NodePlan("g0", "guest", 1, 0, ports=(port,), neighbours=neighbours)
