"""A veth in the guest: what goes in at `va` passes netem, what comes out at `vb` is noted.

What the kernel is told, and what it then says it has, go through `netem.kernel.tc` and
`netem.kernel.qdisc`, as they do in a lab with `engine: tc`.
"""

from pathlib import Path

import netem
from netem.guest.machine import Guest
from netem.impair.model import Impairment
from netem.kernel import tc
from netem.kernel.qdisc import Qdisc
from tests.interop.netem.observation import Observation
from transports.clock import MS, Ns

NAME, PEER = "va", "vb"
QUIET: Ns = 500 * MS  # no delay of these tests is longer
# Of the product, for the guest's Python: how disciplines are read.
READERS = ("qdisc", "run", "namespaces", "libc")


class KernelLink:
    """One direction of a link, impaired by the kernel of a guest."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        guest.run("ip", "link", "add", NAME, "type", "veth", "peer", PEER)
        for name in (NAME, PEER):
            # Or the two would introduce themselves to one another.
            guest.run("busybox", "sysctl", "-w", f"net.ipv6.conf.{name}.disable_ipv6=1")
            guest.run("ip", "link", "set", "dev", name, "up")

    def set(self, impairment: Impairment) -> None:
        """Have the kernel, and nothing that was there before, do this."""
        for line in tc.commands(NAME, self.root(), tc.words(impairment)):
            self.guest.run("tc", *line)

    def root(self) -> Qdisc | None:
        """Return the discipline that is there, as the product reads it."""
        found = self.guest.call("readback", "root", interface=NAME)
        if found is None:
            return None
        return Qdisc(**found | {"options": bytes.fromhex(found["options"])})

    def clear(self) -> None:
        """Take away what is there."""
        self.set(Impairment())

    def exchange(self, head: bytes, frames: int, spacing: Ns = 0) -> Observation:
        """Send frames, one every `spacing` or as fast as it goes, and see what arrives."""
        seen = self.guest.call(
            "traffic",
            "exchange",
            sender=NAME,
            receiver=PEER,
            head=head.hex(),
            frames=frames,
            spacing_ns=spacing,
            quiet_ns=QUIET,
        )
        arrived = [(number, at) for number, at in seen["arrived"]]
        return Observation(seen["sent"], arrived, seen["changed"])


def guest_for_netem() -> Guest:
    """Boot a guest that counts its time, so that delays are exact on a busy host."""
    here, product = Path(__file__).parent, Path(netem.__file__).parent
    files = {name: (here / name).read_bytes() for name in ("traffic.py", "readback.py")}
    files |= {"netem/__init__.py": b"", "netem/kernel/__init__.py": b""}
    for name in READERS:
        files[f"netem/kernel/{name}.py"] = (product / "kernel" / f"{name}.py").read_bytes()
    return Guest("counted", modules=["veth", "sch_netem", "sch_tbf"], files=files)
