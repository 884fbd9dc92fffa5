"""The sniffer against tcpdump: the same frames, byte for byte, and none lost."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from netem.capture.ends import SniffedEnd, sniffed_ends
from netem.capture.merge import merge_folder
from netem.capture.ring import OutgoingRing
from netem.capture.sniff import NAME, Sniffer, fork_sniffer, realtime_minus_monotonic
from netem.capture.spool import SpoolPort, SpoolReader
from netem.kernel.namespaces import inside
from netem.kernel.run import KernelError, run
from netem.kernel.sandbox import fork_nodes, hold
from netem.topology.plan import LinkPlan, NodePlan, Plan, PortPlan
from tests.sandboxed import in_sandbox
from wire.pcap import read
from wire.pcapng import read_packets

BURST = 2000
END = 0x88B6  # local experimental EtherType 2; all else is of type 1
DILATION = 10


def port(name, peer, link, mac, **options):
    return PortPlan(name, f"02:00:00:00:00:{mac:02x}", link, peer, 1500, **options)


def node(name, kind, *ports, **options):
    return NodePlan(name, kind, 0, 0, ports=ports, **options)


A, B = "a:p0--s:e0", "b:p0--s:e1"
PLAN = Plan(
    "bridged",
    1,
    DILATION,
    10.0,
    nodes=(
        node("a", "host", port("p0", "s:e0", A, 1)),
        node("b", "host", port("p0", "s:e1", B, 2)),
        node("s", "bridge", port("e0", "a:p0", A, 0x10), port("e1", "b:p0", B, 0x11)),
    ),
    links=(LinkPlan(A, "a:p0", "s:e0", 1500), LinkPlan(B, "b:p0", "s:e1", 1500)),
)


def build():
    """Make the lab of PLAN in this sandbox; a and b are silent, s is a kernel bridge."""
    pids = fork_nodes(dict.fromkeys(("a", "b", "s"), hold))
    for name, mac, facing in (("a", 1, "e0"), ("b", 2, "e1")):
        run(
            f"ip link add p0 netns {pids[name]} address 02:00:00:00:00:0{mac}"
            f" type veth peer name {facing} netns {pids['s']}".split()
        )
    for name, pid in pids.items():
        with inside(pid):
            Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
        for interface in ("p0",) if name != "s" else ("e0", "e1"):
            run(f"ip link set {interface} up".split(), pid)
    run(["ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0"], pids["s"])
    run(["ip", "link", "set", "br0", "up"], pids["s"])
    for interface in ("e0", "e1"):
        run(f"ip link set {interface} master br0".split(), pids["s"])
    return pids


def raw(pid):
    """Open a socket that hears only the word that ends a conversation."""
    with inside(pid):
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(END))
        sock.bind(("p0", END))
        sock.settimeout(10)
    return sock


def frame(source, target, number, tag=b"", kind=0x88B5):
    macs = bytes.fromhex(f"02000000000{target} 02000000000{source}")
    body = number.to_bytes(4, "big") + bytes(number % 900 + 40)
    return macs + tag + kind.to_bytes(2, "big") + body


def wait_until(is_so):
    limit = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < limit
        os.sched_yield()


def written(folder, interface):
    return (folder / f"{interface}.pcap").stat().st_size


def frames_of(reader, name):
    names = [p.name for p in reader.header.ports]
    return [bytes(record.frame) for record in reader.records() if names[record.port] == name]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "nodes").mkdir()
    return tmp_path


def converse(pids, count):
    """Have a send `count` frames back to back, some tagged, and b as many; return them."""
    a, b = raw(pids["a"]), raw(pids["b"])
    with a, b:
        b.send(frame(2, 1, 0))  # so that the bridge knows where b is
        there = [frame(1, 2, n, b"\x81\x00\x60\x64" * (n % 10 == 3)) for n in range(count)]
        for data in there:
            a.send(data)
        back = [frame(2, 1, n) for n in range(count // 4)]
        for data in back:
            b.send(data)
        last = frame(1, 2, 0, kind=END)
        a.send(last)
        assert b.recv(2000) == last
    return [*there, last], [frame(2, 1, 0), *back]


@pytest.mark.needs("netns", "tcpdump")
@pytest.mark.interop
@pytest.mark.slow
def test_the_sniffer_and_tcpdump_see_the_same_bytes(folder):
    """P08: a burst of 2,000 frames, and the capture has as many as were sent."""

    def main():
        pids = build()
        dumps = {}
        for interface in ("e0", "e1"):
            with inside(pids["s"]):
                out = f"-Z root -w {folder}/{interface}.pcap"
                quick = "--immediate-mode -U -B 32768 -s 2000"  # else it keeps the last block
                dumps[interface] = subprocess.Popen(
                    f"tcpdump -i {interface} -Q out {quick} {out}".split(),
                    stderr=subprocess.PIPE,
                )
        for dump in dumps.values():
            assert b"listening on" in dump.stderr.readline()
        sniffer = fork_sniffer(PLAN, pids, folder, 0)
        sniffer.start(time.monotonic_ns())
        there, back = converse(pids, BURST)
        assert sniffer.stop()
        for interface, frames in (("e1", there), ("e0", back)):
            size = 24 + sum(16 + len(data) for data in frames)
            wait_until(lambda n=interface, s=size: written(folder, n) >= s)
            dump = dumps[interface]
            dump.send_signal(signal.SIGINT)
            _, said = dump.communicate(timeout=10)
            assert b"\n0 packets dropped by kernel" in said
        reader = SpoolReader(folder / "nodes" / f"{NAME}.spool")
        assert frames_of(reader, "s:e1") == there
        assert frames_of(reader, "s:e0") == back
        assert reader.end.missing == {}

    in_sandbox(main)
    reader = SpoolReader(folder / "nodes" / f"{NAME}.spool")
    for name in ("e0", "e1"):
        capture = read((folder / f"{name}.pcap").read_bytes())
        assert frames_of(reader, f"s:{name}") == [record.data for record in capture.records]


@pytest.mark.slow
@pytest.mark.parametrize(
    "user_namespace",
    [
        pytest.param(False, marks=pytest.mark.needs("netns")),
        pytest.param(True, marks=pytest.mark.needs("userns")),
    ],
    ids=["root", "user namespace"],
)
def test_times_are_emulated_and_in_order(folder, user_namespace):
    def main():
        pids = build()
        sniffer = fork_sniffer(PLAN, pids, folder, 10**18)
        before = time.monotonic_ns()
        sniffer.start(before)
        converse(pids, 50)
        took = (time.monotonic_ns() - before) // DILATION
        assert sniffer.stop()
        assert sniffer.stop(), "stopping twice is harmless"
        report = merge_folder(folder)
        assert report.complete, report.remark
        assert report.frames == 51 + 13
        records = [r.at for r in SpoolReader(path).records()] if path.exists() else []
        assert records == []
        (folder / "took").write_text(str(took))

    path = folder / "nodes" / f"{NAME}.spool"
    in_sandbox(main, user_namespace=user_namespace)
    took = int((folder / "took").read_text())
    times = [p.ts_ns - 10**18 for p in read_packets((folder / "lab.pcapng").read_bytes())]
    assert times == sorted(times)
    assert 0 < times[0] <= times[-1] < took


@pytest.mark.needs("netns")
@pytest.mark.slow
def test_frames_of_before_the_start_are_kept_and_a_run_that_never_starts_ends(folder):
    def main():
        pids = build()
        sniffer = fork_sniffer(PLAN, pids, folder, 0)
        there, back = converse(pids, 20)
        assert sniffer.stop()
        reader = SpoolReader(folder / "nodes" / f"{NAME}.spool")
        assert frames_of(reader, "s:e1") == there
        assert frames_of(reader, "s:e0") == back
        assert all(record.at < 0 for record in reader.records())

    in_sandbox(main)


@pytest.mark.needs("netns")
@pytest.mark.slow
def test_a_full_ring_counts_what_it_loses_and_the_run_is_marked(folder):
    """P08: if the capture loses frames, the count is shown."""

    def main():
        pids = build()
        sniffer = fork_sniffer(PLAN, pids, folder, 0)
        with inside(pids["s"]):
            ring = OutgoingRing("e1", 1)
        os.kill(sniffer.pid, signal.SIGSTOP)
        converse(pids, 300)
        assert len(list(ring.read(1000))) < 300
        assert ring.drops() > 0
        ring.close()
        os.kill(sniffer.pid, signal.SIGCONT)
        assert sniffer.stop()

    in_sandbox(main)


@pytest.mark.needs("netns")
@pytest.mark.slow
def test_a_sniffer_that_is_killed_leaves_all_that_it_saw(folder):
    def main():
        pids = build()
        sniffer = fork_sniffer(PLAN, pids, folder, 0)
        sniffer.start(time.monotonic_ns())
        converse(pids, 20)
        path = folder / "nodes" / f"{NAME}.spool"
        wait_until(lambda: len(list(SpoolReader(path).records())) == 27)
        os.kill(sniffer.pid, signal.SIGKILL)
        assert not sniffer.stop()
        assert len(list(SpoolReader(path).records())) == 27

    in_sandbox(main)


@pytest.mark.needs("netns")
@pytest.mark.slow
def test_an_end_that_is_not_there_is_one_clear_line(folder):
    def main():
        pids = fork_nodes(dict.fromkeys(("a", "b", "s"), hold))
        with pytest.raises(KernelError, match=r"^sniffer: packet ring: No such device$"):
            fork_sniffer(PLAN, pids, folder, 0)

    in_sandbox(main)


def test_only_the_kernels_ends_are_sniffed():
    assert [end.port.name for end in sniffed_ends(PLAN)] == ["s:e0", "s:e1"]
    assert sniffed_ends(PLAN)[0] == SniffedEnd(
        SpoolPort("s:e0", "a:p0", A, forwards=True), "s", "e0", superframes=False
    )


def test_a_lab_without_kernel_ends_needs_no_sniffer(folder):
    link = "a:p0--b:p0"
    a = node("a", "host", port("p0", "b:p0", link, 1))
    b = node("b", "host", port("p0", "a:p0", link, 2))
    plan = Plan("two", 1, 1, 1.0, (a, b), (LinkPlan(link, "a:p0", "b:p0", 1500),))
    assert fork_sniffer(plan, {}, folder, 0) is None


def test_the_difference_of_the_clocks_is_steady():
    assert abs(realtime_minus_monotonic() - realtime_minus_monotonic()) < 1_000_000


def test_stopping_a_sniffer_that_is_gone_says_so():
    ours, theirs = socket.socketpair()
    theirs.close()
    sniffer = Sniffer(2**22 + 1, ours)
    sniffer.start(0)
    assert not sniffer.stop()
