"""A guest with Soft-RoCE behind a TAP in a namespace of ours: one cable, two ends.

    our sockets -- kernel of the host --+-- t0 ~~ QEMU ~~ p0 -- rxe0 -- ibv_rc_pingpong, ...
    (TCP, ARP)     in a sandbox         |
    verbs ---------- packet socket -----+

The kernel of the host answers ARP and speaks TCP for the addresses that our queue pairs use,
too. One guest serves many runs: its boot is what costs.
"""

import contextlib
import ipaddress
from typing import NamedTuple, Self

import trio

from netem.guest.cards import tap_card
from netem.guest.image import image
from netem.guest.machine import Guest
from netem.guest.node import MODULES, set_up
from netem.kernel.namespaces import inside
from netem.kernel.run import run
from netem.kernel.sandbox import Sandbox, hold
from netem.topology.plan import Neighbour, NodePlan, PortPlan
from netem.verbs import open_device
from transports.roce.port import DeviceConfig

OURS = {4: "192.0.2.1", 6: "2001:db8::1"}
GUEST = {4: "192.0.2.2", 6: "2001:db8::2"}
_PREFIX = {4: 24, 6: 64}
_OUR_MAC, _GUEST_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
MTU = 4200  # room for a path MTU of 4096, by the rule of rxe and by that of its CM
LIMIT_S = 60.0  # of one run, on a busy host


class Ended(NamedTuple):
    """How a tool ended."""

    code: int
    said: str


class Cable:
    """The guest, and our end of the cable to it."""

    def __init__(self) -> None:
        image()  # made outside of the sandbox, from which no network can be reached
        with contextlib.ExitStack() as stack:
            self._sandbox = stack.enter_context(Sandbox.enter(lambda _: hold()))
            stack.enter_context(inside(self._sandbox.pid))
            run(("ip", "tuntap", "add", "dev", "t0", "mode", "tap"))
            run(("ip", "link", "set", "dev", "t0", "address", _OUR_MAC, "mtu", str(MTU), "up"))
            # UC and UD do not wait for a receiver: a burst stays whole while the guest is slow.
            run(("ip", "link", "set", "dev", "t0", "txqueuelen", "20000"))
            run(("ip", "-batch", "-"), stdin=_addresses("t0", OURS))
            cards = tap_card("t0", _GUEST_MAC)
            self.guest = stack.enter_context(Guest(modules=MODULES, devices=cards))
            set_up(self.guest, _GUEST, "")
            self._next_qp_num = 0x20
            self._gids = {family: self._gid_index(family) for family in GUEST}
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextlib.asynccontextmanager
    async def device(self, seed: int, **settings):
        """Open our end, for `async with`; its queue pairs have numbers that none had before.

        The kernel's communication manager remembers a queue pair for two seconds (TIMEWAIT),
        and rejects a new connection of one with the same number as stale.
        """
        addresses = tuple(ipaddress.ip_address(ip).packed for ip in OURS.values())
        config = DeviceConfig(addresses, **{"active_mtu": 4096} | settings)
        async with open_device(*OURS.values(), seed=seed, config=config) as device:
            device.machine._next_qp_num = self._next_qp_num
            self._next_qp_num += 16
            yield device

    def gid_index(self, family: int) -> str:
        """Return the place of the guest's address in its GID table."""
        return str(self._gids[family])

    def _gid_index(self, family: int) -> int:
        address = ipaddress.ip_address(GUEST[family])
        for index in range(8):
            path = f"/sys/class/infiniband/rxe0/ports/1/gids/{index}"
            gid = ipaddress.IPv6Address(self.guest.run("busybox", "cat", path).strip())
            if address in {gid, gid.ipv4_mapped}:
                return index
        raise AssertionError(f"the guest has no GID for {address}")

    def start(self, *argv: str) -> int:
        """Start a tool; what it says of errors comes with the rest."""
        return self.guest.start("busybox", "sh", "-c", 'exec 2>&1; exec "$@"', "sh", *argv)

    def said(self, tool: int) -> str:
        """Return what a tool has said so far."""
        seen = self.guest.ask("look", pid=tool, offset=0)
        return f"the tool said, exit code {seen['code']}: {bytes.fromhex(seen['out']).decode()}"

    async def ended(self, pid: int, limit_s: float = LIMIT_S) -> Ended:
        """Wait for a tool while our own end goes on."""
        offset, said = 0, b""
        with trio.move_on_after(limit_s):
            while True:
                seen = self.guest.ask("look", pid=pid, offset=offset)
                said += bytes.fromhex(seen["out"])
                offset = len(said)
                if seen["code"] is not None:
                    self.guest.wait(pid, 1.0)
                    return Ended(seen["code"], said.decode())
                await trio.sleep(0.05)
        self.guest.wait(pid, 0.0)
        raise AssertionError(f"the tool did not end; it said: {said.decode()}")

    async def listens(self, port: int, tool: int) -> None:
        """Wait until a tool in the guest listens on a TCP port: state 0A is that."""
        with trio.fail_after(LIMIT_S):
            while True:
                tables = self.guest.run("busybox", "cat", "/proc/net/tcp", "/proc/net/tcp6")
                rows = [line.split() for line in tables.splitlines()]
                if any(
                    r[1].endswith(f":{port:04X}") and r[3] == "0A" for r in rows if len(r) > 3
                ):
                    return
                await trio.sleep(0.02)


_GUEST = NodePlan(
    "g0",
    "guest",
    1,
    0,
    ports=(PortPlan("p0", _GUEST_MAC, "h0--g0", "h0:p0", MTU, GUEST[6], GUEST[4]),),
    neighbours=tuple(Neighbour(ip, _OUR_MAC, "p0") for ip in OURS.values()),
)


def _addresses(ifname: str, addresses: dict[int, str]) -> str:
    lines = [
        f"addr add {address}/{_PREFIX[family]} dev {ifname}" + " nodad" * (family == 6)
        for family, address in addresses.items()
    ]
    return "".join(f"{line}\n" for line in lines)
