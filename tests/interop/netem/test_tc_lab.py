"""A whole lab with `engine: tc` where the kernel has netem: set, changed, read, counted."""

import json
from pathlib import Path

import msgspec
import pytest

from netem.guest.machine import Guest

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.needs("qemu_guest")]

CHECKOUT = Path(__file__).parents[3]
PACKAGES = Path(msgspec.__file__).parents[1]
# Empty since glibc 2.34, and still named by what was built before.
STUBS = ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1")
LIBRARIES = Path("/lib/x86_64-linux-gnu")
LIMIT_S = 240.0
# Of 192 frames chance leaves none lost at 2 % once in fifty runs, at 10 % never.
LAB = """
name: by-netem
seed: 3
limit: 120s
topology:
  nodes: {h0: {}, h1: {}}
  links: [{endpoints: ["h0:p0", "h1:p0"], engine: tc, delay: 5ms, loss: 10%}]
transports: {rc: {kind: rc, mtu: 1024, timeout: 18}}
workload: [{op: write, from: h0, to: h1, size: 64KiB, count: 3}]
faults:
  - {at: 50ms, on: h0->h1, set: {delay: 10ms}, for: 100ms}
expect: [all_complete, no_corruption, {metric: retransmissions, above: 0}]
"""


def share(tag, path):
    options = f"local,path={path},mount_tag={tag},security_model=none,readonly=on"
    return "-virtfs", options


@pytest.fixture(scope="module")
def guest():
    files = {f"libs/{name}": (LIBRARIES / name).read_bytes() for name in STUBS}
    files["lab.yaml"] = LAB.encode()
    devices = (*share("checkout", CHECKOUT), *share("packages", PACKAGES))
    modules = ["veth", "sch_netem", "sch_tbf", "9p", "9pnet_virtio"]
    with Guest("real", modules=modules, files=files, devices=devices) as machine:
        for tag in ("checkout", "packages"):
            machine.run("busybox", "mkdir", "-p", f"/mnt/{tag}", "/tmp")
            how = ("-t", "9p", "-o", "trans=virtio,version=9p2000.L,ro,msize=262144")
            machine.run("busybox", "mount", *how, tag, f"/mnt/{tag}")
        yield machine


def fabriclab(guest, *argv):
    environment = (
        "PYTHONPATH=/mnt/checkout:/mnt/packages", "LD_LIBRARY_PATH=/lab/libs",
        "PYTHONDONTWRITEBYTECODE=1", "HOME=/tmp", "PATH=/usr/bin:/usr/sbin",
    )  # fmt: skip
    command = ["busybox", "env", *environment, "python3", "-P", "-m", "netem", *argv]
    return guest.ask("run", LIMIT_S + 10, argv=command, limit_s=LIMIT_S)


def test_a_lab_whose_links_the_kernel_impairs(guest):
    """Delay and loss by netem, a change of it for a time, and what run.json makes of it."""
    ran = fabriclab(guest, "run", "/lab/lab.yaml", "--out", "/tmp/run", "--json")
    assert ran["code"] == 0, ran["out"] + ran["err"]
    run = json.loads(ran["out"])
    assert run["verdict"] == "pass"
    assert run["capture"]["complete"]
    there, back = run["links"]
    assert (there["engine"], back["engine"]) == ("tc", "tc")
    assert there["lost"] > 0
    assert there["frames"] > 3 * 64
    for link in (there, back):
        gone = link["delivered"] + link["lost"] + link["overflowed"] + link["queued"]
        assert link["frames"] + link["duplicated"] == gone
    rows = guest.run("busybox", "cat", "/tmp/run/events.jsonl").splitlines()
    changes = [row for row in map(json.loads, rows) if row["event"] == "impaired"]
    assert [(row["node"], row["port"], row["does"]) for row in changes] == [
        ("_tc", "h0:p0", "delay 10ms loss 10%"),
        ("_tc", "h0:p0", "delay 5ms loss 10%"),
    ]
