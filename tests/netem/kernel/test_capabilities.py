"""What the host can do: that it is found out by doing, and said with a remedy."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from netem.kernel import capabilities
from netem.kernel.capabilities import missing, probe, require_host
from netem.kernel.run import CapabilityError
from tests.netem.kernel.labs import FRAMES, MIXED_6, planned

# What the design's documents name, for tests and CI.
KNOWN = {
    "netns", "userns", "netem_qdisc", "seg6", "tap", "udp_gso", "packet_ring", "wireguard",
    "rxe", "tshark", "docker", "qemu_guest", "wireguard_go", "mininet", "chromium", "ip_tc",
}  # fmt: skip


@pytest.fixture(scope="module")
def found():
    return probe()


def test_every_capability_that_tests_and_ci_name_is_known(found):
    assert {capability.name for capability in found} >= KNOWN


def test_a_missing_one_comes_with_reason_and_remedy(found):
    lacking = [capability for capability in found if not capability.present]
    assert all(capability.why and capability.remedy for capability in lacking)
    assert not [capability for capability in lacking if "\n" in capability.why]


def test_a_present_one_needs_no_remedy(found):
    assert not [capability for capability in found if capability.present and capability.remedy]


def test_missing_tells_the_reason_or_nothing(found):
    reasons = [None if capability.present else capability.why for capability in found]
    assert [missing(capability.name) for capability in found] == reasons


def test_a_name_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match="no capability is called teleport; known are: ip_tc"):
        missing("teleport")


def test_a_lab_with_bridges_needs_bridges():
    assert list(capabilities.needs(planned(FRAMES))) == ["ip_tc", "netns"]
    assert list(capabilities.needs(planned(MIXED_6))) == ["ip_tc", "netns", "bridge"]


@pytest.mark.needs("netns", "bridge")
def test_a_host_that_can_is_let_pass():
    require_host(planned(MIXED_6))


def test_without_ip_and_tc_nothing_is_made():
    """Field report L04, and the host part of bad input: one line, and a remedy."""
    code = """
        from netem.kernel import capabilities
        capabilities.program_path = lambda: "/nowhere"
        capabilities.Sandbox = None
        try:
            capabilities.require_host()
        except capabilities.CapabilityError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "ip_tc: ip is not installed; apt-get install iproute2\n"


@pytest.mark.needs("userns")
def test_where_user_namespaces_are_off_the_setting_is_named(ordinary_user):
    """A limit of none inside one user namespace is, for its root, a host that allows none."""
    code = """
        import json, os
        from netem.kernel import capabilities
        from netem.kernel.namespaces import enter_new_user_namespace
        enter_new_user_namespace()
        open("/proc/sys/user/max_user_namespaces", "w").write("0")
        capabilities.may_administer = lambda: False
        [found] = capabilities.probe(["userns"])
        print(json.dumps([found.present, found.why, found.remedy]))
    """
    done = ordinary_user.run(ordinary_user.python, "-c", textwrap.dedent(code))
    assert json.loads(done.stdout) == [
        False,
        "user namespaces are off: user.max_user_namespaces is 0",
        "as root: sysctl -w user.max_user_namespaces=65536",
    ], done.stderr


def test_an_ordinary_user_finds_out_for_himself(ordinary_user):
    code = """
        import json
        from netem.kernel.capabilities import probe
        print(json.dumps({c.name: c.present for c in probe()}))
    """
    done = ordinary_user.run(ordinary_user.python, "-c", textwrap.dedent(code))
    found = json.loads(done.stdout)
    assert set(found) >= KNOWN
    assert found["ip_tc"]


@pytest.mark.needs("netns")
def test_a_probe_that_ended_early_says_nothing_of_the_host(monkeypatch):
    """And nothing to install would help."""
    killed = capabilities._Probe(lambda: os._exit(3), "modprobe x")
    monkeypatch.setitem(capabilities._PROBES, "killed", killed)
    [found] = probe(["killed"])
    assert found.why == "the probe ended with exit code 3 without an answer"
    assert found.remedy == "find out again: this says nothing of the host"


def test_a_capability_error_is_what_require_host_raises(monkeypatch):
    absent = capabilities.Capability("netns", present=False, why="no", remedy="do")
    monkeypatch.setattr(capabilities, "probe", lambda names: [absent])
    with pytest.raises(CapabilityError, match="netns: no; do"):
        require_host()
