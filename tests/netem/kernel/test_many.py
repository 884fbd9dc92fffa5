"""Many nodes, many times, and two labs at once: field reports L02 and L03."""

import pytest

from netem.kernel.namespaces import namespace_id
from netem.kernel.sandbox import Sandbox
from netem.kernel.steps import namespaces
from tests.netem.kernel.labs import MIXED_6, build, planned
from tests.sandboxed import in_sandbox

pytestmark = pytest.mark.needs("netns", "bridge")

LEAVES = 8
PER_LEAF = 8


def tree():
    """A lab of 64 hosts on eight bridges, and a ninth between these."""
    hosts = [f"h{n}" for n in range(LEAVES * PER_LEAF)]
    links = [f'"{host}:p0", "b{n // PER_LEAF}:e{n % PER_LEAF}"' for n, host in enumerate(hosts)]
    links += [f'"b{leaf}:e{PER_LEAF}", "b{LEAVES}:e{leaf}"' for leaf in range(LEAVES)]
    nodes = [f"{host}: {{kind: host}}" for host in hosts]
    nodes += [f"b{n}: {{kind: bridge}}" for n in range(LEAVES + 1)]
    return planned(
        "name: tree\ntopology:\n"
        f"  nodes: {{{', '.join(nodes)}}}\n"
        "  links:\n" + "".join(f"  - endpoints: [{ends}]\n" for ends in links)
    )


@pytest.mark.slow
def test_64_hosts_on_9_bridges_come_up_and_go_down_ten_times():
    plan = tree()
    assert [len(in_sandbox(build, plan)) for _ in range(10)] == [len(namespaces(plan))] * 10


def test_two_labs_from_the_same_file_are_up_at_the_same_time():
    plan = planned(MIXED_6)

    def main(channel):
        build(plan, taps=False)
        channel.sendall(b".")
        channel.recv(1)
        return 0

    with Sandbox.enter(main) as one, Sandbox.enter(main) as other:
        assert one.channel.recv(1) == other.channel.recv(1) == b"."
        assert namespace_id(one.pid, "net") != namespace_id(other.pid, "net")
