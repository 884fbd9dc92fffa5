"""Trimmed frames, read by tshark: where all lengths were updated, nothing is malformed.

Where only the outermost length was, as mrc.md 12.6 wants it, the UDP length still tells how
long the packet was, and tshark complains of that.
"""

import pytest

from tests.interop.wireshark import tshark
from tests.labs.commands import captured, fabriclab, is_trimmed

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.needs("tshark")]

FIELDS = (
    "frame.comment", "_ws.malformed", "_ws.expert.severity", "_ws.expert.message",
    "infiniband.bth.psn", "ip.checksum.status",
)  # fmt: skip
ERROR = 0x800000  # PI_ERROR of Wireshark's expert items
LAB = """
fabric: {kind: star, hosts: 5}
defaults:
  link: {rate: 10gbit, delay: 1us, mtu: 1500}
  switch: {queue: {limit: 24KiB, trim: {size: 256B, dscp: 12}}}
transports: {rc: {mtu: 1024, timeout: 8, window: 32}}
workload: [{pattern: incast, op: write, to: h0, size: 64KiB}]
"""
FORMS = {
    "ipv6": (),
    "ipv4": ("defaults.host.family=ipv4",),
    "srv6": ("transports.rc.path=[t0-p0-0]",),
    "srv6 with an srh": ("transports.rc.path=[t0-p0-0]", "transports.rc.encaps=h_encaps"),
}


def trimmed(form, folder, *more):
    """Return what tshark says of the trimmed frames of a run, row by row."""
    (folder / "lab.yaml").write_text(LAB)
    sets = (word for change in (*FORMS[form], *more) for word in ("--set", change))
    ran = fabriclab("sim", "lab.yaml", *sets, "--out", folder / "run", cwd=folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    ours = captured(folder / "run")
    theirs = tshark(
        folder / "run" / "lab.pcapng", FIELDS, "-o", "infiniband.try_heuristic_first:FALSE"
    )
    rows = [row for frame, row in zip(ours, theirs, strict=True) if is_trimmed(frame)]
    assert len(rows) > 20
    return rows


@pytest.mark.parametrize("form", FORMS)
def test_where_all_lengths_were_updated_no_frame_is_malformed(form, tmp_path):
    rows = trimmed(form, tmp_path, "defaults.switch.queue.trim.inner_lengths=true")
    for row in rows:
        assert not row["_ws.malformed"], row
        severities = row["_ws.expert.severity"].split(",")
        assert all(int(found) < ERROR for found in severities if found), row
        assert row["infiniband.bth.psn"], row
        assert row["ip.checksum.status"] in {"", "1"}, row


@pytest.mark.parametrize("form", FORMS)
def test_where_only_the_outermost_was_udp_says_how_long_it_had_been(form, tmp_path):
    rows = trimmed(form, tmp_path)
    for row in rows:
        assert "> IP payload length" in row["_ws.expert.message"], row
        assert row["ip.checksum.status"] in {"", "1"}, row
