"""A node of kind `guest`: the process that boots it, sets it up and runs its command there.

    namespace of the node                                    QEMU
    p0 (the link) -- bridge bp0 -- TAP kp0 ~~~~~~~~~~~~~~~~~ card p0 -- rxe0

The guest has the port's MAC and address, the lab's neighbours and routes, and Soft-RoCE on each
port: rxe0 on p0, and so on. Names of nodes are in its /etc/hosts. Its clock is the host's, so a
lab with a guest has dilation 1; its processor is emulated, 10 to 50 times slower than this one.
"""

import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

from netem.guest import cards
from netem.guest.cards import tap_card
from netem.guest.machine import Guest
from netem.kernel.sandbox import RUNTIME, Gate, hold
from netem.kernel.steps import guest_lines, tap_name
from netem.topology.plan import NodePlan

# rdma_rxe asks for a hash by name only, so what provides it comes first.
MODULES = (
    *cards.MODULES, "crc32c_generic", "crc32_generic", "rdma_rxe", "rdma_ucm", "ib_umad",
)  # fmt: skip
# gai.conf(5), RFC 6724: a program that binds to the first address it is told to, as perftest
# and the examples do, would take 0.0.0.0 where `lo` is up, and not be there over IPv6. With ::1
# and :: under one label it is told :: first, which is both. The other labels are glibc's own.
_BOTH_FAMILIES = """\
label ::1/128 3
label ::/0 1
label 2002::/16 2
label ::/96 3
label ::ffff:0:0/96 4
label fec0::/10 5
label fc00::/7 6
label 2001:0::/32 7
"""
READY, DONE = b"ready\n", b"done %d\n"  # what the process says through its pipe


class GuestJob(NamedTuple):
    """What the process of a guest has to do."""

    node: NodePlan
    hosts: str  # the text of /etc/hosts
    output: Path  # where what the command says goes
    limit_s: float
    pipe: int  # to say READY and DONE through
    gate: Gate  # open: the run begins


def guest_process(job: GuestJob) -> None:
    """Boot, wait for the run, run the command, and stay there until ended."""
    node = job.node
    devices = [word for port in node.ports for word in tap_card(tap_name(port.name), port.mac)]
    with _booted(node, devices) as guest:
        set_up(guest, node, job.hosts)
        os.write(job.pipe, READY)
        job.gate.wait()
        if node.command:
            os.write(job.pipe, DONE % _run(guest, job))
        hold()


def _booted(node: NodePlan, devices: list[str]) -> Guest:
    """Return the guest; what it lacks ends this process with one line in its log."""
    try:
        return Guest(modules=MODULES, devices=devices, below=RUNTIME)
    except Exception as error:  # noqa: BLE001 - told to who reads the log, whatever it is
        sys.stderr.write(f"{node.name}: {error}\n")
        sys.exit(1)


def set_up(guest: Guest, node: NodePlan, hosts: str) -> None:
    """Give the guest its names, addresses, neighbours, routes, and Soft-RoCE."""
    guest.run("busybox", "tee", "/etc/hosts", stdin=hosts)
    guest.run("busybox", "tee", "/etc/gai.conf", stdin=_BOTH_FAMILIES)
    guest.run("busybox", "hostname", node.name)
    guest.run("busybox", "sysctl", "-w", "net.ipv6.conf.default.accept_dad=0")
    macs = {port.mac: port.name for port in node.ports}
    lines = ["link set dev lo up"]
    for link in json.loads(guest.run("ip", "-j", "link")):
        if name := macs.get(link["address"]):
            lines.append(f"link set dev {link['ifname']} down")
            lines.append(f"link set dev {link['ifname']} name {name}")
    lines += guest_lines(node)
    guest.run("ip", "-batch", "-", stdin="".join(f"{line}\n" for line in lines))
    for number, port in enumerate(node.ports):
        name = f"rxe{number}"
        guest.run("rdma", "link", "add", name, "type", "rxe", "netdev", port.name)


def _run(guest: Guest, job: GuestJob) -> int:
    """Run the command in the guest's shell; what it says goes to the output as it comes."""
    pid = guest.start("busybox", "sh", "-c", f"exec 2>&1; {job.node.command}")
    code = -1
    with job.output.open("wb", buffering=0) as output:
        for said in guest.follow(pid, job.limit_s):
            if isinstance(said, bytes):
                output.write(said)
            else:
                code = said
    return code
