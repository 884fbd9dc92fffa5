"""Labs that stay: up, exec, inspect, down, as a person uses them."""

import json
import os
import uuid

import pytest

from netem.lab import registry
from tests.labs.commands import captured, fabriclab, start, wait_until, wrong_checksums

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns", "tap")]

LAB = """
name: {name}
seed: 1
topology:
  nodes: {{h0: {{}}, h1: {{}}, h2: {{}}, br0: {{kind: bridge}}}}
  links:
    - {{endpoints: ["h0:p0", "br0:e0"], delay: 1ms}}
    - {{endpoints: ["h1:p0", "br0:e1"]}}
    - {{endpoints: ["h2:p0", "br0:e2"]}}
"""


@pytest.fixture
def lab(tmp_path):
    """A lab that is up; down at the end whatever the test did."""
    name = f"t{uuid.uuid4().hex[:8]}"
    file = tmp_path / f"{name}.yaml"
    file.write_text(LAB.format(name=name))
    ran = fabriclab("up", file, "--out", tmp_path / "run", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    yield name, file, tmp_path
    fabriclab("down", name, cwd=tmp_path)
    assert registry.find(name) is None


# One process of a node answers a word over TCP, another asks it by the node's name.
ANSWER = """
import socket
with socket.create_server(("", 7777), family=socket.AF_INET6) as server:
    peer = server.accept()[0]
    peer.sendall(peer.recv(64).upper())
"""
ASK = """
import socket, time
for _ in range(500):
    try:
        peer = socket.create_connection(("h1", 7777), timeout=10)
        break
    except ConnectionRefusedError:
        time.sleep(0.02)
peer.sendall(b"hello")
print(peer.recv(64).decode())
"""


def test_programs_of_the_host_talk_between_nodes_by_name(lab):
    name, _, place = lab
    python = ("python3", "-c")
    with start("exec", "--lab", name, "h1", *python, ANSWER, cwd=place) as answering:
        asked = fabriclab("exec", "--lab", name, "h0", *python, ASK, cwd=place)
        answering.communicate(timeout=30)
    assert asked.stdout == "HELLO\n", asked.stderr
    ran = fabriclab("exec", "--lab", name, "h2", "cat", "/etc/hosts", cwd=place)
    assert {"h0", "h1", "h2"} <= set(ran.stdout.split())
    down = fabriclab("down", name, cwd=place)
    assert down.returncode == 0, down.stdout + down.stderr
    frames = captured(place / "run")
    assert {"h0:p0", "br0:e1", "h1:p0", "br0:e0"} <= {frame.port for frame in frames}
    wrong, checked = wrong_checksums(frames)
    assert checked > 10
    assert wrong == 0, "P10: what the kernel sends is finished by nobody else"


def test_exec_exits_as_the_command_does(lab):
    name, _, place = lab
    assert (
        fabriclab("exec", "--lab", name, "h0", "sh", "-c", "exit 7", cwd=place).returncode == 7
    )
    ran = fabriclab("exec", "--lab", name, "h9", "true", cwd=place)
    assert ran.returncode == 2
    assert "h0" in ran.stderr


def test_up_twice_is_up_once_and_down_twice_is_quiet(lab):
    name, file, place = lab
    pid = registry.find(name).pid
    again = fabriclab("up", file, "--json", cwd=place)
    assert again.returncode == 0
    assert json.loads(again.stdout)["pid"] == pid
    assert fabriclab("down", name, cwd=place).returncode == 0
    quiet = fabriclab("down", name, cwd=place)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


def test_inspect_shows_what_is_in_force(lab):
    """I01: keys on the link are applied at the start and can be read back."""
    name, _, place = lab
    ran = fabriclab("inspect", "--lab", name, "--json", cwd=place)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    facts = json.loads(ran.stdout)
    links = {link["direction"]: link for link in facts["links"]}
    assert links["h0:p0->br0:e0"]["impairment"]["delay"] == 1_000_000
    assert links["h1:p0->br0:e1"]["impairment"]["delay"] == 0


def test_an_idle_lab_is_silent(lab):
    """P07: no frames on links that nobody uses, for as long as the commands here take."""
    name, _, place = lab
    fabriclab("inspect", "--lab", name, cwd=place)
    assert fabriclab("down", name, cwd=place).returncode in {0, 4}
    assert captured(place / "run") == []


def test_a_killed_lab_is_down_and_can_be_brought_up_again(lab):
    """L01: nothing is in the way of the next one."""
    name, file, place = lab
    os.kill(registry.find(name).pid, 9)
    wait_until(lambda: registry.find(name) is None, "the lab is gone")
    ran = fabriclab("up", file, "--out", place / "again", cwd=place)
    assert ran.returncode == 0, ran.stdout + ran.stderr
