"""Programs that know nothing of us cross a lab: ping and traceroute between its nodes."""

import uuid

import pytest

from tests.labs.commands import captured, fabriclab

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.needs("netns", "tap", "ping", "traceroute"),
]

LAB = """
name: {name}
topology:
  nodes: {{h0: {{}}, h1: {{}}, br0: {{kind: bridge}}}}
  links:
    - {{endpoints: ["h0:p0", "br0:e0"], delay: 5ms}}
    - {{endpoints: ["h1:p0", "br0:e1"], delay: 5ms}}
defaults: {{host: {{family: {family}}}}}
"""


@pytest.mark.parametrize("family", ["ipv6", "ipv4"])
def test_ping_and_traceroute_meet_the_delay_of_the_links(family, tmp_path):
    name = f"t{uuid.uuid4().hex[:8]}"
    file = tmp_path / f"{name}.yaml"
    file.write_text(LAB.format(name=name, family=family))
    up = fabriclab("up", file, "--out", tmp_path / "run", cwd=tmp_path)
    assert up.returncode == 0, up.stderr
    try:
        inside = ("exec", "--lab", name, "h0", "--")
        ping = fabriclab(*inside, "ping", "-c", 3, "-i", "0.2", "h1", cwd=tmp_path)
        route = fabriclab(*inside, "traceroute", "-n", "-q", 1, "h1", cwd=tmp_path)
    finally:
        down = fabriclab("down", name, cwd=tmp_path)
    assert ping.returncode == 0, ping.stdout + ping.stderr
    assert "3 received, 0% packet loss" in ping.stdout
    shortest = float(ping.stdout.rpartition(" = ")[2].partition("/")[0])
    assert shortest >= 20.0  # ms: two links there, two back, 5 ms each
    assert route.returncode == 0, route.stdout + route.stderr
    hops = route.stdout.splitlines()[1:]
    assert len(hops) == 1, "a bridge is no hop"
    assert down.returncode == 0, down.stderr
    assert {frame.port for frame in captured(tmp_path / "run")} >= {"h0:p0", "h1:p0"}
