"""64 hosts on 9 learning bridges: time to bring them up and down, and what they cost idle."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from netem.bench.figures import Benchmark, Ceiling
from netem.kernel.sandbox import Sandbox
from netem.lab import registry

LEAVES, FANOUT = 8, 8
IDLE_S = 5.0
LIMIT_S = 120.0

MININET = (
    "mn", "--topo", f"tree,depth=2,fanout={FANOUT}", "--switch", "lxbr", "--controller", "none",
    "--test", "none",
)  # fmt: skip


def lab_text(name: str) -> str:
    """Return a lab of 64 hosts on 8 bridges that hang on a ninth, without workload."""
    nodes = [f"h{i}: {{}}" for i in range(LEAVES * FANOUT)]
    nodes += [f"br{i}: {{kind: bridge}}" for i in range(LEAVES + 1)]
    links = [
        f'{{endpoints: ["h{i}:p0", "br{i // FANOUT}:e{i % FANOUT}"]}}'
        for i in range(LEAVES * FANOUT)
    ]
    links += [f'{{endpoints: ["br{i}:e{FANOUT}", "br{LEAVES}:e{i}"]}}' for i in range(LEAVES)]
    return (
        f"name: {name}\n"
        f"topology: {{nodes: {{{', '.join(nodes)}}}, links: [{', '.join(links)}]}}\n"
        "capture: {links: none}\n"
    )


def lab_start() -> Iterator[Benchmark]:
    """Time whole commands: ours up and down, and Mininet's where it is installed."""
    with tempfile.TemporaryDirectory(prefix="fabriclab-bench-") as place:
        ours = _ours(Path(place))
    mininet = _mininet()
    if mininet is None:
        ceiling = Ceiling("nothing to compare with: Mininet is not installed", ours)
    else:
        ceiling = Ceiling("Mininet, the same tree (lower is better)", mininet)
    yield Benchmark("lab-start-64-hosts", ours, "s", ceiling)


def _ours(place: Path) -> float:
    name = f"bench-start-{os.getpid()}"
    lab = place / "lab.yaml"
    lab.write_text(lab_text(name))
    command = (sys.executable, "-m", "netem")
    started = time.monotonic()
    for argv in (("up", str(lab), "--out", str(place / "run")), ("down", name)):
        subprocess.run(  # noqa: S603 - ourselves
            (*command, *argv), check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S
        )
    return time.monotonic() - started


def _mininet() -> float | None:
    """Time Mininet in a sandbox, so that its interfaces are not in the caller's namespace."""
    if shutil.which("mn") is None or os.geteuid() != 0:
        return None
    started = time.monotonic()
    with Sandbox.enter(_run_mininet) as sandbox:
        code = sandbox.wait(LIMIT_S)
    return time.monotonic() - started if code == 0 else None


def _run_mininet(_channel: object) -> int:
    quiet = subprocess.DEVNULL
    return subprocess.run(MININET, check=False, stdout=quiet, stderr=quiet).returncode  # noqa: S603


def idle() -> Iterator[Benchmark]:
    """Measure 64 nodes that wait: memory of one more of them, processor time of all."""
    with tempfile.TemporaryDirectory(prefix="fabriclab-bench-") as place:
        name = f"bench-idle-{os.getpid()}"
        lab = Path(place) / "lab.yaml"
        lab.write_text(lab_text(name))
        command = partial(
            subprocess.run, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S
        )
        netem = (sys.executable, "-m", "netem")
        command((*netem, "up", str(lab), "--out", str(Path(place) / "run")))
        try:
            running = registry.find(name)
            assert running is not None
            yield from _idle(running)
        finally:
            command((*netem, "down", name))


def _idle(running: registry.Running) -> Iterator[Benchmark]:
    hosts = [pid for name, pid in _outer_pids(running).items() if name.startswith("h")]
    before = sum(map(_processor_s, hosts))
    started = time.monotonic()
    time.sleep(IDLE_S)
    spent = sum(map(_processor_s, hosts)) - before
    share = spent / (time.monotonic() - started)
    memory = [_memory(pid) for pid in hosts]
    pss = sum(pss for pss, _ in memory) / len(memory)
    rss = sum(rss for _, rss in memory) / len(memory)
    yield Benchmark(
        "idle-node-memory",  # proportional set size
        pss,
        "bytes",
        Ceiling("the same process's resident set, shared pages counted whole", rss),
    )
    yield Benchmark(f"idle-{len(hosts)}-nodes-cpu", share, "cores", Ceiling("one core", 1.0))


def _outer_pids(running: registry.Running) -> dict[str, int]:
    """Return the pids of the lab's processes as this process sees them."""
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    outer = {}
    for pid in map(int, children):
        status = Path(f"/proc/{pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("NSpid:"))
        outer[int(line.split()[-1])] = pid
    return {name: outer[pid] for name, pid in running.nodes().items()}


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> tuple[int, int]:
    """Return proportional and resident set size in bytes."""
    sizes = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, size = line.split()[:2]
        sizes[name] = int(size) * 1024
    return sizes["Pss:"], sizes["Rss:"]
