"""A plugin for pytest, there where fabriclab is installed: labs and packets in people's tests.

    def test_my_lab(lab, assert_packets):
        run = lab("two-hosts", seed=3, set={"topology.links[0].loss": "5%"})
        assert run.verdict == "pass"
        assert_packets(run, "WRITE_FIRST psn=+0", "* ACK", count={"NAK": 0})

`lab` simulates a lab, by its name or its file, in virtual time: same seed, same bytes. Its
result is the folder of the run, `run.json` as `run`, and the packets of its capture.

`assert_packets` looks for RoCE packets in a capture, in the order given. A line is a name of an
opcode without its service and fields (`psn`, `msn`, `size`, `ask`, `pad`, `code` ...: those of
`netem.conform`), with `psn=+N` counted from the first packet of its flow; `*` before it passes
over what comes in between. `count` says how many packets of a name there must be in all.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # else imported where it is used: this module is loaded with every pytest
    from netem.conform.packets import Found, Pattern


@dataclass(frozen=True, slots=True)
class LabRun:
    """What a simulated lab came to."""

    folder: Path
    verdict: str
    run: Mapping[str, Any]  # run.json, as its schema says

    @property
    def capture(self) -> Path:
        """The capture of all links."""
        return self.folder / "lab.pcapng"


Lab = Callable[..., LabRun]
AssertPackets = Callable[..., "list[Found]"]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Simulate a lab: `lab("two-hosts", seed=3, set={"defaults.host.family": "ipv4"})`."""
    numbers = iter(range(1_000_000))

    def simulated(
        name: str,
        *,
        seed: int | None = None,
        set: Mapping[str, str] | None = None,  # noqa: A002 - as the flag is called
    ) -> LabRun:
        import json

        from netem.capture.runfolder import RunFolder
        from netem.lab.find import find
        from netem.lab.simulate import simulate
        from netem.topology.load import load_lab
        from netem.topology.planner import plan_lab

        source = find(name)
        changes = {**(set or {})} | ({} if seed is None else {"seed": str(seed)})
        plan = plan_lab(load_lab(source.text, name_hint=source.name, overrides=changes))
        folder = RunFolder.create(plan.name, tmp_path / f"{plan.name}-{next(numbers)}")
        result, _ = simulate(plan, folder, lambda _done, _total: None)
        return LabRun(folder.path, result.verdict, json.loads(folder.result.read_text()))

    return simulated


@pytest.fixture
def assert_packets() -> AssertPackets:
    """Assert that a capture has packets, in order; return those that were looked for."""
    return _assert_packets


def _assert_packets(
    capture: LabRun | Path | str, *lines: str, count: Mapping[str, int] | None = None
) -> "list[Found]":
    __tracebackhide__ = True
    from netem.conform.packets import LineError, Pattern, find_packets

    path = capture.capture if isinstance(capture, LabRun) else Path(capture)
    try:
        wanted = [Pattern.of(line) for line in lines]
    except LineError as error:
        pytest.fail(str(error), pytrace=False)
    packets = list(find_packets(path))
    counts = Counter(packet.name for packet in packets)
    for name, number in (count or {}).items():
        if counts[name] != number:
            pytest.fail(f"{path.name}: {counts[name]} packets {name}, wanted {number}")
    return list(_in_order(path, packets, wanted))


def _in_order(path: Path, packets: "list[Found]", wanted: "list[Pattern]") -> "Iterator[Found]":
    at = 0
    for pattern in wanted:
        start = at
        while at < len(packets) and (why := pattern.differs(packets[at])) is not None:
            if not pattern.passes_over:
                pytest.fail(f"{path.name}, frame {packets[at].number}: {why}")
            at += 1
        if at == len(packets):
            here = f"behind frame {packets[start - 1].number}" if start else "at all"
            pytest.fail(f"{path.name}: no packet {pattern.text} {here}")
        yield packets[at]
        at += 1
