"""Spools made by hand, and the captures that come of them."""

from pathlib import Path

import pytest

from netem.capture.merge import merge_folder
from netem.capture.runfolder import RunFolder
from netem.capture.spool import Spool, SpoolHeader, SpoolPort
from wire.pcapng import EnhancedPacket, InterfaceDescription, InterfaceStatistics, read_blocks

EPOCH = 946_684_800 * 10**9
FORWARDING = ("b", "r")  # in these tests nodes with such names forward


class Lab:
    """A run folder; `links` is text like "h0:p0 b0:e0, h1:p0 b0:e1"."""

    def __init__(self, path: Path, links: str) -> None:
        self.folder = RunFolder(path)
        self.folder.nodes.mkdir(parents=True)
        self.ports = {}
        for pair in links.split(", "):
            a, b = pair.split()
            for port, peer in ((a, b), (b, a)):
                forwards = port.startswith(FORWARDING)
                self.ports[port] = SpoolPort(port, peer, f"{a}--{b}", forwards)

    def header(self, node, names=None):
        names = names or [name for name in self.ports if name.startswith(f"{node}:")]
        return SpoolHeader(node, tuple(self.ports[name] for name in names), EPOCH)

    def spool(self, node, *records, names=None, end=True, drops=None, **options):
        """Write a spool; a record is (time, port, frame[, comment[, killed]])."""
        spool = Spool(self.folder.spool(node), self.header(node, names), **options)
        for record in records:
            spool.record(*record)
        if end:
            spool.close(drops)
        else:
            spool.flush()
            size = spool.path.stat().st_size
            spool.close()
            with spool.path.open("r+b") as file:
                file.truncate(size)
        return spool.path

    def merge(self, **options):
        return merge_folder(self.folder.path, **options)

    def blocks(self, kind):
        data = self.folder.capture.read_bytes()
        return [block for block in read_blocks(data) if isinstance(block, kind)]

    @property
    def packets(self):
        return self.blocks(EnhancedPacket)

    @property
    def interfaces(self):
        return self.blocks(InterfaceDescription)

    @property
    def statistics(self):
        return self.blocks(InterfaceStatistics)

    @property
    def story(self):
        """Time, place and comment of each packet: what most tests are about."""
        return [
            (p.ts_ns - EPOCH, p.interface.name, ", ".join(p.comments)) for p in self.packets
        ]


@pytest.fixture
def make_lab(tmp_path):
    made = []

    def make(links="h0:p0 h1:p0"):
        made.append(links)
        return Lab(tmp_path / f"run-{len(made)}", links)

    return make
