"""A veth in the guest: what goes in at `va` passes netem, what comes out at `vb` is noted."""

import json
from pathlib import Path
from typing import Any

from netem.guest.machine import Guest
from netem.impair.model import FourState, GilbertElliott, Impairment, Loss, RandomLoss
from netem.topology.units import format_percent
from tests.interop.netem.observation import Observation
from transports.clock import MS, US, Ns

NAME, PEER = "va", "vb"
LIMIT = 100_000  # frames; what fits is our own subject
QUIET: Ns = 500 * MS  # no delay of these tests is longer


def words(given: Impairment) -> list[str]:
    """Return an impairment in tc's words, as tc-netem(8) has them."""
    return [
        *("limit", str(LIMIT)),
        *_delay(given),
        *_loss(given.loss),
        *(["ecn"] if given.ecn else []),
        *_chance("corrupt", given.corrupt, given.corrupt_corr),
        *_chance("duplicate", given.duplicate, given.duplicate_corr),
        *_chance("reorder", given.reorder, given.reorder_corr),
        *(["gap", str(given.gap)] if given.gap else []),
        *([] if given.rate is None else ["rate", f"{given.rate}bit", str(given.overhead)]),
    ]


def _delay(given: Impairment) -> list[str]:
    if not given.delay:
        return []
    found = ["delay", f"{given.delay // US}us"]
    if given.jitter:
        found += [f"{given.jitter // US}us", format_percent(given.delay_corr)]
        if given.distribution != "uniform":
            found += ["distribution", given.distribution]
    return found


def _loss(loss: Loss | None) -> list[str]:
    match loss:
        case None:
            return []
        case RandomLoss(p, correlation):
            return _chance("loss", p, correlation)
        case GilbertElliott(p, r, bad, good):
            return ["loss", "gemodel", *map(format_percent, (p, r, bad, good))]
        case FourState(p13, p31, p32, p23, p14):
            return ["loss", "state", *map(format_percent, (p13, p31, p32, p23, p14))]


def _chance(word: str, p: float, correlation: float) -> list[str]:
    both = [format_percent(p), format_percent(correlation)]
    return [word, *both[: 2 if correlation else 1]] if p else []


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
        """Have netem, and nothing that was there before, do this."""
        self.clear()
        self.guest.run("tc", "qdisc", "add", "dev", NAME, "root", "netem", *words(impairment))

    def options(self) -> dict[str, Any]:
        """Return what the kernel says netem does."""
        [qdisc] = json.loads(self.guest.run("tc", "-j", "qdisc", "show", "dev", NAME))
        assert qdisc["kind"] == "netem"
        return qdisc["options"]

    def clear(self) -> None:
        """Take netem away; harmless where it is not there."""
        self.guest.ask("run", argv=["tc", "qdisc", "del", "dev", NAME, "root"])

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
    traffic = Path(__file__).with_name("traffic.py").read_bytes()
    return Guest(
        "counted", modules=["veth", "sch_netem", "sch_tbf"], files={"traffic.py": traffic}
    )
