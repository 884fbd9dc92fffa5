"""Guests, commands, and RoCE that is left to programs: what may be, and what is planned."""

import pytest

from netem.kernel.capabilities import needs
from netem.kernel.steps import guest_lines, script
from netem.sim import world
from netem.topology.errors import LabError
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab

LAB = """
name: peers
topology:
  nodes:
    h0: {command: "true"}
    g0: {kind: guest, command: "ibv_devinfo"}
    h1: {}
    br0: {kind: bridge}
  links:
    - {endpoints: ["h0:p0", "g0:p0"], loss: 1%, delay: 1ms}
    - {endpoints: ["g0:p1", "br0:e0"], loss: 2%}
    - {endpoints: ["h1:p0", "br0:e1"]}
transports:
  rc: {kind: rc}
"""


def planned(text=LAB, **overrides):
    return plan_lab(load_lab(text, overrides=overrides))


def problems(text=LAB, **overrides):
    with pytest.raises(LabError) as refused:
        planned(text, **overrides)
    return str(refused.value)


def test_a_guest_has_a_hosts_number_and_addresses():
    guest = planned().node("g0")
    assert (guest.kind, guest.index, guest.command) == ("guest", 1, "ibv_devinfo")
    assert [(port.ipv6, port.mac) for port in guest.ports] == [
        ("fd00::2", "02:00:00:00:00:02"),
        ("fd00:1::2", "02:00:00:01:00:02"),
    ]
    assert [row.ip for row in guest.neighbours] == ["fd00::1", "fd00::3"]


def test_a_guest_may_have_a_family_of_its_own():
    guest = planned(LAB.replace("kind: guest,", "kind: guest, family: ipv4,")).node("g0")
    assert [port.ipv4 for port in guest.ports] == ["198.18.0.2", "198.18.32.2"]
    assert [port.ipv6 for port in guest.ports] == [None, None]


def test_whoever_faces_a_guest_impairs_for_it():
    plan = planned()
    [port] = plan.node("h0").ports
    assert port.ingress is not None
    assert port.ingress.loss is not None
    to_bridge = next(link for link in plan.links if "br0" in link.name and "g0" in link.name)
    assert to_bridge.wire, "two kernels: a process of ours between them"


def test_a_host_with_a_command_leaves_roce_to_it():
    plan = planned()
    assert plan.node("h0").stack == "programs"
    assert plan.node("h1").stack == "none"


def test_a_lab_with_a_guest_is_in_wall_time():
    assert planned(**{"defaults.link.rate": "400gbit"}).dilation == 1
    assert "dilation: h0 lives in wall time; write dilation: 1" in problems(dilation=2)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("kind: guest,", "kind: guest, stack: none,", "nodes.g0.stack: a guest has none"),
        ("kind: bridge", "kind: bridge, command: ls", "nodes.br0.command: a bridge has none"),
        (
            'h0: {command: "true"}',
            "h0: {command: ls, stack: none}",
            "has no network with stack",
        ),
        ("h1: {}", "h1: {stack: programs, mode: datagram}", "in frame mode only"),
    ],
)
def test_what_cannot_be_is_refused(old, new, why):
    assert why in problems(LAB.replace(old, new))


@pytest.mark.parametrize(
    ("source", "why"),
    [("g0", "g0 is a guest; what it does is its command:"),
     ("h0", "h0 leaves RoCE to programs; write stack: kernel or none")],
)  # fmt: skip
def test_the_workload_is_between_hosts_that_are_ours(source, why):
    target = {"g0": "h0", "h0": "g0"}[source]
    item = f"workload:\n  - {{op: send, from: {source}, to: {target}, size: 1B}}\n"
    assert why in problems(LAB + item)


def test_a_guest_cannot_be_killed():
    fault = "faults:\n  - {on: g0, kill: true, at: 1ms}\n"
    assert "g0 is a guest, which has no process to end" in problems(LAB + fault)


def test_a_guest_needs_what_carries_it():
    assert set(needs(planned())) >= {"bridge", "tap", "qemu_guest"}


def test_the_port_of_a_guest_is_bridged_to_its_card_and_gives_it_its_mac():
    lines = [line for line in script(planned()) if "$pid_g0" in line]
    assert any(line.endswith("ip tuntap add dev kp0 mode tap") for line in lines)
    assert any("link set dev kp0 mtu 1500 master bp0 up" in line for line in lines)
    assert any("link set dev p0 address 06:00:00:00:00:02" in line for line in lines)


def test_inside_a_guest_its_ports_have_addresses_and_neighbours():
    lines = list(guest_lines(planned().node("g0")))
    assert lines[:2] == ["link set dev p0 mtu 1500 up", "addr add fd00::2/128 dev p0 nodad"]
    assert "neigh add fd00::1 lladdr 02:00:00:00:00:01 dev p0 nud permanent" in lines


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LAB, "h0 runs a program, which cannot be simulated"),
        (LAB.replace('{command: "true"}', "{}"), "g0 is a guest, which cannot be simulated"),
    ],
)
def test_what_lives_in_wall_time_is_not_simulated(text, why):
    with pytest.raises(world.CannotSimulateError, match=why):
        world.run(planned(text), None)
