"""A person in a lab of switches and a kernel router: ping by name, traceroute end to end."""

import re
import uuid

import pytest

from tests.labs.commands import fabriclab

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.needs("netns", "tap", "ping", "traceroute"),
]

LAB = """
name: {name}
topology:
  nodes: {{h0: {{}}, s1: {{kind: switch}}, r2: {{kind: linux}}, s3: {{kind: switch}}, h1: {{}}}}
  links:
    - {{endpoints: ["h0:p0", "s1:e0"]}}
    - {{endpoints: ["s1:e1", "r2:e0"]}}
    - {{endpoints: ["r2:e1", "s3:e0"]}}
    - {{endpoints: ["s3:e1", "h1:p0"]}}
defaults: {{host: {{family: {family}}}}}
"""


@pytest.mark.parametrize("family", ["ipv6", "ipv4"])
def test_every_hop_answers_by_its_name(family, tmp_path):
    name = f"t{uuid.uuid4().hex[:8]}"
    file = tmp_path / f"{name}.yaml"
    file.write_text(LAB.format(name=name, family=family))
    up = fabriclab("up", file, "--out", tmp_path / "run", cwd=tmp_path)
    assert up.returncode == 0, up.stderr
    version = f"-{family[-1]}"
    try:
        inside = ("exec", "--lab", name, "h0", "--")
        pings = [
            fabriclab(*inside, "ping", version, "-c", 2, "-i", "0.01", hop, cwd=tmp_path)
            for hop in ("s1", "r2", "s3", "h1")
        ]
        route = fabriclab(*inside, "traceroute", version, "-q", 1, "h1", cwd=tmp_path)
    finally:
        down = fabriclab("down", name, cwd=tmp_path)
    for ping in pings:
        assert "2 received, 0% packet loss" in ping.stdout, ping.stdout + ping.stderr
    hops = re.findall(r"^ *\d+ +(\w+) \(", route.stdout, re.MULTILINE)
    assert hops == ["s1", "r2", "s3", "h1"], route.stdout + route.stderr
    assert down.returncode == 0, down.stderr
