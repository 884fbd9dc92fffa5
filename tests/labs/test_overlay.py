"""The labs of the overlay on real sockets: what tshark finds in their captures."""

import json
from collections import Counter

import pytest

from tests.interop.wireshark import tshark
from tests.labs.commands import fabriclab, result

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns", "tap")]

FIELDS = ("frame.interface_name", "wg.type", "wg.decryption_error", "infiniband.bth.opcode")


def ran(lab, tmp_path, *options):
    out = tmp_path / "run"
    done = fabriclab("run", lab, *options, "--out", out, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.interop
@pytest.mark.needs("tshark")
@pytest.mark.parametrize("secrets", [True, False])
def test_the_capture_opens_decrypted_if_the_lab_says_so(secrets, tmp_path):
    out = ran("rc-over-overlay", tmp_path, "--set", f"overlay.secrets={str(secrets).lower()}")
    rows = tshark(out / "lab.pcapng", FIELDS)
    between = [row for row in rows if row["frame.interface_name"] in {"g0:e1", "g1:e1"}]
    inside = [row for row in rows if row["frame.interface_name"] in {"h0:p0", "h1:p0"}]
    assert {row["wg.type"] for row in between} == {"1", "2", "4"}
    opened = Counter(row["infiniband.bth.opcode"] for row in between)
    del opened[""]
    assert (opened == Counter(row["infiniband.bth.opcode"] for row in inside)) is secrets
    assert bool(opened) is secrets
    assert all(row["wg.decryption_error"] == "" for row in between) or not secrets


def test_a_peer_gets_in_while_a_stranger_floods(tmp_path):
    out = ran("overlay-under-load", tmp_path)
    assert "0 other answers" in (out / "nodes" / "x0.out").read_text()
    counters = result(out)["counters"]["g1"]
    assert counters["overlay.refused_cookie_sent"] > counters.get("overlay.refused_static", 0)


@pytest.mark.needs("ping")
def test_programs_of_ordinary_hosts_and_gateways_pass_through(tmp_path):
    up = ("rc-over-overlay", "--set", "defaults.host.stack=kernel")
    done = fabriclab("up", *up, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    try:
        for node, to in (("h0", "h1"), ("g0", "g1.wg1"), ("g1", "10.77.0.1")):
            ping = ("exec", node, "ping", "-c", "2", "-i", "0.1", "-W", "8", to)
            assert fabriclab(*ping, cwd=tmp_path).returncode == 0, (node, to)
    finally:
        down = fabriclab("down", cwd=tmp_path)
    assert down.returncode == 0, down.stdout + down.stderr


@pytest.mark.needs("wg", "ping")
def test_wg_shows_and_sets_the_gateways_of_a_lab_that_is_up(tmp_path):
    assert fabriclab("up", "rc-over-overlay", cwd=tmp_path).returncode == 0
    try:
        ping = ("exec", "g0", "ping", "-c", "1", "-W", "8", "g1.wg1")
        assert fabriclab(*ping, cwd=tmp_path).returncode == 0
        shown = fabriclab("exec", "g1", "wg", "show", "all", "endpoints", cwd=tmp_path).stdout
        rows = {line.split()[0]: line.split()[2] for line in shown.splitlines()}
        assert rows == {"wg0": "[fd00:ffff::2]:51820", "wg1": "[fd00:ffff::1]:51820"}
        moved = ("exec", "g0", "wg", "set", "wg0", "listen-port", "40000")
        assert fabriclab(*moved, cwd=tmp_path).returncode == 0
        assert fabriclab(*ping, cwd=tmp_path).returncode == 0
        shown = fabriclab("exec", "g1", "wg", "show", "wg1", "endpoints", cwd=tmp_path).stdout
        assert shown.split()[1] == "[fd00:ffff::1]:40000"
    finally:
        down = fabriclab("down", cwd=tmp_path)
    assert down.returncode == 0, down.stdout + down.stderr


def test_no_secret_is_in_logs_results_or_what_validate_prints(tmp_path):
    out = ran("rc-over-overlay", tmp_path)
    lines = "".join(path.read_text() for path in out.glob("nodes/*.keys")).splitlines()
    private = {line.split("= ")[1] for line in lines}
    assert len(private) >= 6
    said = fabriclab("validate", "rc-over-overlay", "--json", cwd=tmp_path).stdout
    public = {
        word
        for node in json.loads(said)["nodes"]
        for line in node["tunnel"]
        for word in line.split()
    }
    secret = private - public
    texts = [said, *(p.read_text() for p in [out / "run.json", out / "events.jsonl"])]
    texts += [path.read_text() for path in out.glob("nodes/*.log")]
    assert not [key for key in secret for text in texts if key in text]
