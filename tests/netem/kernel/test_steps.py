"""From plan to kernel: that printed and executed steps do the same, and what they make."""

import os
import select
import shutil
import socket
import struct
import subprocess
import time

import pytest

from netem.kernel import processes
from netem.kernel.links import is_local
from netem.kernel.namespaces import control_socket
from netem.kernel.offloads import GROUPS, Offloads
from netem.kernel.run import KernelError, program_path
from netem.kernel.sandbox import fork_nodes, hold
from netem.kernel.steps import Stage, execute, namespaces, script, steps, tap_name, wire_name
from netem.sockets.packet import PacketSocket
from netem.sockets.tap import Tap
from tests.netem.kernel.labs import (
    DATAGRAM_PAIR,
    FRAMES,
    MIXED_4,
    MIXED_6,
    at,
    build,
    configuration,
    planned,
)
from tests.sandboxed import in_sandbox

WIRE = wire_name("b0:e2--b1:e2")
PORTS = [("h0", "p0"), ("h1", "p0"), ("h2", "p0"), ("b0", "e0"), ("b0", "e2"), (WIRE, "a")]

TAPS = [
    pytest.param(True, id="TAP", marks=pytest.mark.needs("tap")),
    pytest.param(False, id="veth in place of a TAP"),
]
on_kernel = pytest.mark.needs("netns", "bridge")


class TestPlanned:
    def test_every_process_of_the_plan_is_named_wires_included(self):
        assert namespaces(planned(MIXED_6)) == ["h0", "h1", "h2", "h3", "b0", "b1", WIRE]

    def test_steps_are_in_the_order_of_their_stages(self):
        stages = [step.stage for step in steps(planned(MIXED_6))]
        assert stages == sorted(stages)
        assert set(stages) == set(Stage)

    def test_a_link_is_made_by_one_command_with_both_namespaces(self):
        [line] = [line for line in script(planned(FRAMES)) if "type veth" in line]
        assert line == (
            "ip link add"
            " name p0 index 10 mtu 4500 address 02:00:00:00:00:01 numtxqueues 1 numrxqueues 1"
            " netns $pid_h0 type veth peer"
            " name p0 index 11 mtu 4500 address 02:00:00:00:00:02 numtxqueues 1 numrxqueues 1"
            " netns $pid_h1"
        )

    def test_mtu_and_offloads_come_before_a_link_goes_up(self):
        lines = script(planned(FRAMES))
        up = lines.index("nsenter -t $pid_h0 -n ip link set dev p0 arp off up")
        [offloads] = [
            at for at, line in enumerate(lines) if "$pid_h0 -n ethtool -K p0 tx off" in line
        ]
        assert offloads < up


def build_by_script(plan):
    """Let a shell build the plan from what a dry run prints; return the pids."""
    lines = script(plan, taps=False)
    if shutil.which("ethtool", path=program_path()) is None:
        lines = [line for line in lines if "ethtool" not in line]
    variables = " ".join(f"$pid_{name}" for name in shell_names(plan))
    text = "\n".join(["set -e", *lines, f"echo {variables}"])
    shell = subprocess.Popen(
        ["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={"PATH": program_path()},
    )  # fmt: skip
    shell.stdin.write(text)
    shell.stdin.close()
    pids = map(int, shell.stdout.readline().split())
    return dict(zip(namespaces(plan), pids, strict=True))


def shell_names(plan):
    return ["".join(c if c.isalnum() else "_" for c in name) for name in namespaces(plan)]


@on_kernel
@pytest.mark.parametrize("text", [MIXED_6, MIXED_4, DATAGRAM_PAIR], ids=["v6", "v4", "pair"])
def test_a_shell_makes_the_same_of_the_printed_steps(text):
    plan = planned(text)

    def made(build_it):
        pids = build_it(plan)
        return {name: configuration(pid) for name, pid in pids.items()}

    executed = in_sandbox(made, lambda plan: build(plan, taps=False))
    typed = in_sandbox(made, build_by_script)
    assert executed == typed


@on_kernel
class TestBuilt:
    def test_a_step_that_fails_is_named_with_its_command_and_its_node(self):
        plan = planned(DATAGRAM_PAIR)

        def twice():
            pids = build(plan)
            try:
                execute([step for step in steps(plan) if step.stage == Stage.CONFIGURE], pids)
            except KernelError as error:
                return str(error)

        refused = in_sandbox(twice)
        assert refused.startswith("ip addr add fd00::1/128 dev p0 nodad in h0: ")

    def test_the_kernel_takes_packets_for_every_address_of_its_own(self):
        """A busy host is late to: the first packets to a new address were then lost."""

        def local():
            pids = build(planned(DATAGRAM_PAIR))
            return [
                [at(pids[node], is_local, f"fd00::{n}") for n in (1, 2, 3)] for node in pids
            ]

        assert in_sandbox(local) == [[True, False, False], [False, True, False]]

    def test_a_node_that_has_ended_is_named(self):
        plan = planned(FRAMES)

        def try_it():
            pids = fork_nodes({"h0": hold, "h1": hold})
            processes.kill(pids["h1"])
            os.waitpid(pids["h1"], 0)
            try:
                execute(steps(plan), pids)
            except KernelError as error:
                return str(error)

        assert "netns" in in_sandbox(try_it)

    @pytest.mark.parametrize(("node", "interface"), PORTS)
    def test_a_byte_accurate_port_leaves_frames_alone(self, node, interface):
        def features():
            pids = build(planned(MIXED_6), taps=False)
            with at(pids[node], control_socket) as control:
                return Offloads(control).read(interface)

        found = in_sandbox(features)
        for group in ("tx", "tso", "gso", "gro", "lro", "rxvlan", "txvlan"):
            assert not any(found[name] for name in GROUPS[group]), group
        assert not found["tx-udp-segmentation"]

    def test_a_port_for_trains_sends_true_frames_and_joins_what_arrives(self):
        def features():
            pids = build(planned(DATAGRAM_PAIR))
            with at(pids["h0"], control_socket) as control:
                return Offloads(control).read("p0")

        found = in_sandbox(features)
        assert not found["tx-checksum-ip-generic"]
        assert not found["tx-udp-segmentation"]
        assert found["tx-generic-segmentation"]
        assert found["rx-gro"]
        assert found["rx-udp-gro-forwarding"]

    def test_what_is_sent_first_on_a_new_link_arrives(self):
        """Through a bridge, whose ports are slow to notice that they may forward."""

        def send():
            pids = build(planned(MIXED_6), taps=False)
            with at(pids["h3"], udp, MIXED_6) as there, at(pids["h2"], udp, MIXED_6) as here:
                here.sendto(b"hello", there.getsockname()[:2])
                return there.recv(100)

        assert in_sandbox(send) == b"hello"

    @pytest.mark.slow
    def test_lab_links_are_silent_when_idle(self):
        """Field report P07."""

        def listen():
            pids = build(planned(MIXED_6), taps=False)
            sockets = [
                at(pids[node], PacketSocket, interface)
                for node, interface in [*PORTS, ("b1", "e0"), ("b1", "e1"), (WIRE, "b")]
            ]
            for sock in sockets:
                sock.receive()
            return [frame.hex() for frame in frames(sockets, wait_s=2.5)]

        assert in_sandbox(listen) == []


ADDRESS_OF = {MIXED_6: "fd00::{}", MIXED_4: "198.18.0.{}"}


def udp(text):
    """A UDP socket on the one address of the node we are in."""
    family = socket.AF_INET6 if text is MIXED_6 else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.settimeout(5)
    for n in range(1, 5):
        try:
            sock.bind((ADDRESS_OF[text].format(n), 0))
        except OSError:
            continue
        return sock
    raise AssertionError("no address of the lab is here")


def frames(sockets, wait_s):
    """Frames that arrive at any of the sockets before there was none for a while."""
    by_fd = {sock.fileno(): sock for sock in sockets}
    while ready := select.select(by_fd, [], [], wait_s)[0]:
        for fd in ready:
            for frame in by_fd[fd].receive():
                yield bytes(frame)


def echo_request(source, target, family):
    """An Ethernet frame with an ICMP or ICMPv6 echo request; nodes are numbered from 1."""
    head = bytes([2, 0, 0, 0, 0, target, 2, 0, 0, 0, 0, source])
    if family == 6:
        a, b = (socket.inet_pton(socket.AF_INET6, f"fd00::{n}") for n in (source, target))
        echo = struct.pack("!BBHHH", 128, 0, 0, 1, 1)
        pseudo = a + b + struct.pack("!II", len(echo), 58)
        echo = struct.pack("!BBHHH", 128, 0, ones(pseudo + echo), 1, 1)
        return head + struct.pack("!HIHBB", 0x86DD, 6 << 28, len(echo), 58, 64) + a + b + echo
    a, b = (socket.inet_aton(f"198.18.0.{n}") for n in (source, target))
    echo = struct.pack("!BBHHH", 8, 0, ones(struct.pack("!BBHHH", 8, 0, 0, 1, 1)), 1, 1)
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 28, 0, 0, 64, 1, 0) + a + b
    ip = ip[:10] + struct.pack("!H", ones(ip)) + ip[12:]
    return head + b"\x08\x00" + ip + echo


def ones(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


def arp_request(source, target):
    a, b = (socket.inet_aton(f"198.18.0.{n}") for n in (source, target))
    mac = bytes([2, 0, 0, 0, 0, source])
    arp = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + a + bytes(6) + b
    return b"\xff" * 6 + mac + b"\x08\x06" + arp


@on_kernel
@pytest.mark.parametrize("taps", TAPS)
@pytest.mark.parametrize(("text", "family"), [(MIXED_6, 6), (MIXED_4, 4)], ids=["v6", "v4"])
class TestKernelStackOfAFrameModeHost:
    def test_the_kernel_hears_nothing_on_the_port_itself(self, taps, text, family):
        """Only what the process passes on reaches it: nothing is answered twice, or at all."""

        def answers():
            pids = build(planned(text), taps=taps)
            with at(pids["h0"], PacketSocket, "p0") as port, at(pids["h1"], Tap, "kp0"):
                port.send(echo_request(1, 2, family))
                port.send(arp_request(1, 2))
                return list(frames([port], wait_s=0.2))

        assert in_sandbox(answers) == []

    def test_the_kernel_answers_once_what_the_process_passes_on(self, taps, text, family):
        def answers():
            pids = build(planned(text), taps=taps)
            with at(pids["h1"], Tap, "kp0") as tap:
                tap.send(echo_request(1, 2, family))
                found = []
                deadline = time.monotonic() + 5
                while not found or select.select([tap], [], [], 0.2)[0]:
                    assert time.monotonic() < deadline
                    select.select([tap], [], [], 5)
                    try:
                        found.append(tap.receive())
                    except BlockingIOError:
                        continue
                return found

        [reply] = in_sandbox(answers)
        assert reply[:12] == bytes([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2])
        assert reply[34 if family == 4 else 54] == (0 if family == 4 else 129)

    def test_the_kernel_of_such_a_host_can_send(self, taps, text, family):
        def sent():
            pids = build(planned(text), taps=taps)
            with at(pids["h1"], Tap, tap_name("p0")) as tap, at(pids["h1"], udp, text) as sock:
                sock.sendto(b"hello", (ADDRESS_OF[text].format(1), 9))
                assert select.select([tap], [], [], 5)[0]
                return tap.receive()

        frame = in_sandbox(sent)
        ip = 14
        length = len(frame) - ip
        assert frame[:12] == bytes([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2])
        assert frame.endswith(b"hello")
        transport = frame[ip + (20 if family == 4 else 40) :]
        addresses = frame[ip + 12 : ip + 20] if family == 4 else frame[ip + 8 : ip + 40]
        pseudo = addresses + struct.pack("!HH", 17, len(transport))
        assert ones(pseudo + transport + b"\0" * (length % 2)) == 0  # finished by the kernel
