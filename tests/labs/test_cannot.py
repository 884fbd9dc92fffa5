"""L04: what a host cannot do is said before anything is made: exit 3, one line, no trace."""

import json
import textwrap
from pathlib import Path

import pytest

from tests.labs.commands import captured, fabriclab

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns", "userns")]

# Be where nobody may make namespaces: root of a user namespace without the capabilities of one
# who administers networks, in which no further user namespace is allowed.
POWERLESS = textwrap.dedent("""
    import ctypes, os, sys
    from netem.kernel.namespaces import enter_new_user_namespace

    PR_CAPBSET_DROP, NET_ADMIN, NET_RAW, SYS_ADMIN = 24, 12, 13, 21
    enter_new_user_namespace()
    open("/proc/sys/user/max_user_namespaces", "w").write("0")
    for capability in (NET_ADMIN, NET_RAW, SYS_ADMIN):
        assert not ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "netem", *sys.argv[1:]])
""")


@pytest.mark.parametrize("argv", [("run", "two-hosts"), ("up", "two-hosts"), ("demo",)])
def test_without_the_right_to_namespaces_nothing_is_begun(argv, ordinary_user):
    out = ordinary_user.folder / "not-made"
    interfaces = set(Path("/sys/class/net").iterdir())
    ran = ordinary_user.run(
        ordinary_user.python,
        "-c",
        POWERLESS,
        *argv,
        "--out",
        str(out),
        cwd=ordinary_user.folder,
    )
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert ran.stderr.count("\n") == 1
    for said in ("netns: user namespaces are off", "; as root: sysctl -w"):
        assert said in ran.stderr
    assert not out.exists()
    assert not (ordinary_user.folder / "fabriclab-runs").exists()
    assert set(Path("/sys/class/net").iterdir()) == interfaces


def test_doctor_says_the_same_beforehand(ordinary_user):
    ran = ordinary_user.run(ordinary_user.python, "-c", POWERLESS, "doctor", "--json")
    assert ran.returncode == 3
    found = {row["name"]: row for row in json.loads(ran.stdout)["capabilities"]}
    assert not found["netns"]["present"]
    assert found["netns"]["remedy"].startswith("as root: sysctl")
    assert f"netns: {found['netns']['why']}; {found['netns']['remedy']}\n" == ran.stderr


BLACK_HOLE = """
name: black-hole
seed: 1
topology:
  nodes: {h0: {}, h1: {}}
  links: [{endpoints: ["h0:p0", "h1:p0"]}]
transports: {rc: {kind: rc, mtu: 1024, timeout: 10, retry: 3}}
workload: [{op: write, from: h0, to: h1, size: 2KiB}]
faults: [{do: drop, where: {op: WRITE}, count: 100, on: "h0:p0"}]
"""


def test_an_error_says_what_stuck_how_often_and_how_long(tmp_path):
    """R13, L12: the stage, QP and PSN, the tries, the time; the knobs are in the lab file."""
    (tmp_path / "black-hole.yaml").write_text(BLACK_HOLE)
    ran = fabriclab("run", "black-hole.yaml", "--out", tmp_path / "run", cwd=tmp_path)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    why = json.loads((tmp_path / "run" / "run.json").read_text())["why"]
    sent = [frame for frame in captured(tmp_path / "run") if frame.port == "h0:p0"]
    first = [frame for frame in sent if "retransmission" not in "".join(frame.remarks)]
    assert len(first) == 2, "the WRITE is two packets long"
    assert len(sent) == 2 * (1 + 3)
    assert why.startswith("flow 0/h0->h1/0: RETRY_EXC_ERR: QP 0x")
    assert "no answer, 4 tries in " in why
