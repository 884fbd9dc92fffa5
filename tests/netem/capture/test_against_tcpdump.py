"""A node's spool against tcpdump on the same interface: the same frames, byte for byte."""

import signal
import subprocess

import pytest
import trio

from netem.kernel.namespaces import inside
from tests.netem.node.lab import WITH_WORK, plan_of, play
from wire.pcap import read

pytestmark = [pytest.mark.needs("netns", "tcpdump"), pytest.mark.interop, pytest.mark.slow]


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_a_spool_has_what_tcpdump_sees_leave_and_what_never_left(tmp_path, family):
    """The capture is not what a node claims: the killed frames apart, tcpdump agrees."""

    async def script(lab):
        dumps = {name: start_tcpdump(lab, name) for name in ("h0", "h1")}
        await lab.finish_work()
        reports = await lab.stop()
        for name, dump in dumps.items():
            await stop_tcpdump(dump, tmp_path / f"{name}.pcap", sent(lab, name))
        return {
            name: (report.directions[0], lab.spool(name)) for name, report in reports.items()
        }

    plan = plan_of(WITH_WORK, link_loss="10%", host_family=family)
    for name, (direction, (records, end)) in play(plan, script, tmp_path).items():
        seen = [
            record.data for record in read((tmp_path / f"{name}.pcap").read_bytes()).records
        ]
        assert [record.frame for record in records if not record.killed] == seen
        assert len(seen) == direction.delivered > 0
        assert sum(record.killed for record in records) == direction.lost
        assert end.missing == {}
        assert [record.at for record in records] == sorted(record.at for record in records)


def sent(lab, name):
    return [record.frame for record in lab.spool(name)[0] if not record.killed]


def start_tcpdump(lab, name):
    """Listen to what leaves a node's port; it hears from when this returns."""
    words = "tcpdump -i p0 -Q out --immediate-mode -U -s 4096 -B 32768 -Z root -w"
    with inside(lab.pids[name]):
        dump = subprocess.Popen(
            [*words.split(), lab.folder.path / f"{name}.pcap"], stderr=subprocess.PIPE
        )
    assert b"listening on" in dump.stderr.readline()
    return dump


async def stop_tcpdump(dump, path, frames):
    """Let it write all it has to, which it does on its own, then end it."""
    size = 24 + sum(16 + len(frame) for frame in frames)
    with trio.fail_after(10):
        while path.stat().st_size < size:
            await trio.lowlevel.checkpoint()
    dump.send_signal(signal.SIGINT)
    _, said = dump.communicate(timeout=10)
    assert b"\n0 packets dropped by kernel" in said
