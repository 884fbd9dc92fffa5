"""The sandbox: what it separates, how it ends, and that nothing is left of it."""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from netem.kernel import processes
from netem.kernel.join import run_inside
from netem.kernel.libc import CLONE_NEWNS, CLONE_NEWPID, mount
from netem.kernel.namespaces import Network, enter_new_user_namespace, keep_mounts_private
from netem.kernel.run import KernelError, Running, run, run_json
from netem.kernel.sandbox import (
    RUNTIME,
    Gate,
    Sandbox,
    detach,
    fork_node,
    fork_nodes,
    hold,
    may_administer,
    mount_hosts,
)
from tests.sandboxed import in_sandbox

pytestmark = pytest.mark.needs("netns")

KINDS = [
    pytest.param(True, id="user namespace", marks=pytest.mark.needs("userns")),
    pytest.param(
        False,
        id="no user namespace",
        marks=pytest.mark.skipif(not may_administer(), reason="only root may"),
    ),
]


def net_of(pid, kind="net"):
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def namespaces():
    return {kind: net_of("self", kind) for kind in ("net", "mnt", "uts")}


@pytest.mark.parametrize("user_namespace", KINDS)
class TestInside:
    def test_main_is_pid_1_of_namespaces_of_its_own(self, user_namespace):
        pid, inner, uid = in_sandbox(
            lambda: (os.getpid(), namespaces(), os.geteuid()), user_namespace=user_namespace
        )
        assert pid == 1
        assert uid == 0
        assert not set(inner.values()) & set(namespaces().values())

    def test_proc_shows_only_the_sandbox(self, user_namespace):
        def pids():
            return sorted(int(p.name) for p in Path("/proc").iterdir() if p.name.isdecimal())

        assert in_sandbox(pids, user_namespace=user_namespace) == [1]

    def test_there_is_one_interface_and_it_is_down(self, user_namespace):
        assert in_sandbox(socket.if_nameindex, user_namespace=user_namespace) == [(1, "lo")]

    def test_the_runtime_folder_is_empty_and_invisible_outside(self, user_namespace):
        def fill():
            before = list(RUNTIME.iterdir())
            (RUNTIME / "a.sock").write_text("x")
            return before

        assert in_sandbox(fill, user_namespace=user_namespace) == []
        assert not (RUNTIME / "a.sock").exists()

    def test_mounts_do_not_reach_the_host(self, user_namespace):
        before = Path("/proc/self/mountinfo").read_text()
        in_sandbox(mount_hosts, "::1 localhost\n", user_namespace=user_namespace)
        assert Path("/proc/self/mountinfo").read_text() == before

    def test_names_of_the_lab_are_looked_up_in_its_own_hosts_file(self, user_namespace):
        def look_up():
            mount_hosts("127.0.0.1 localhost\nfd00::7 h6\n")
            return socket.getaddrinfo("h6", 1, type=socket.SOCK_DGRAM)[0][4][0]

        assert in_sandbox(look_up, user_namespace=user_namespace) == "fd00::7"

    def test_a_host_without_a_hosts_file_gets_none_and_its_labs_do(self, user_namespace):
        def bare():
            mount("etc", "/etc", "tmpfs")

            def inner():
                covered = mount_hosts("fd00::7 h6\n")
                return covered, Path("/etc/hosts").read_text()

            return in_sandbox(inner), Path("/etc/hosts").exists()

        found = in_sandbox(bare, user_namespace=user_namespace)
        assert found == ((True, "fd00::7 h6\n"), False)

    def test_each_node_has_its_own_network_and_host_name(self, user_namespace):
        def describe():
            pids = fork_nodes({"h0": hold, "h1": hold})
            nets = {net_of(pid) for pid in (*pids.values(), "self")}
            names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids.values()]
            return len(nets), names

        assert in_sandbox(describe, user_namespace=user_namespace) == (3, ["h0", "h1"])


class TestHeldNetwork:
    def test_it_stays_when_its_last_process_is_gone(self):
        """Of both ends: a link goes with the first of its ends."""

        def outlive():
            pids = fork_nodes({"h0": hold, "h1": hold})
            run(
                ("ip", "link", "add", "p0", "type", "veth", "peer", "p0",
                 "netns", str(pids["h1"])), pids["h0"],
            )  # fmt: skip
            networks = [Network(pid) for pid in pids.values()]
            for pid in pids.values():
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            shown = ("ip", "-j", "link", "show", "p0")
            found = [Running(shown, network).result() for network in networks]
            try:
                run(shown, pids["h0"])
            except KernelError as error:
                return [json.loads(each)[0]["ifname"] for each in found], str(error)

        names, refusal = in_sandbox(outlive)
        assert names == ["p0", "p0"]
        assert "No such process" in refusal


class TestFolders:
    def test_folders_of_run_are_shown_as_they_were(self):
        own = {RUNTIME.name, "netns", "wireguard"}  # what means something outside only
        kept = {p.name for p in Path("/run").iterdir() if p.is_dir()} - own
        shown = in_sandbox(lambda: {p.name for p in Path("/run").iterdir()})
        assert kept <= shown
        assert shown & own == {RUNTIME.name}


class TestNodes:
    def test_a_node_waits_at_the_gate(self):
        def order():
            seen = []
            read_end, write_end = os.pipe()
            gate = Gate()
            pids = [
                fork_node(lambda: os.write(write_end, b"."), name=name, gate=gate)
                for name in ("h0", "h1")
            ]
            seen.append(processes.readable(read_end, 0))
            gate.open()
            ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
            seen.append(os.read(read_end, 9))
            return seen, ends

        assert in_sandbox(order) == ([False, b".."], [0, 0])

    def test_a_node_that_raises_ends_with_1_and_says_why(self, tmp_path):
        log = tmp_path / "h0.log"

        def fail():
            with log.open("wb") as out:
                pid = fork_node(lambda: 1 / 0, name="h0", output=out.fileno())
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        assert in_sandbox(fail) == 1
        assert "ZeroDivisionError" in log.read_text()

    def test_a_node_ends_with_the_process_that_forked_it(self):
        def orphan():
            read_end, write_end = os.pipe()
            parent = os.fork()
            if not parent:
                os.write(write_end, str(fork_node(hold, name="h0")).encode())
                signal.pause()
            node = int(os.read(read_end, 9))
            fd = os.pidfd_open(node)
            os.kill(parent, signal.SIGKILL)
            return processes.readable(fd, 5)

        assert in_sandbox(orphan)

    def test_a_node_that_cannot_be_made_is_a_kernel_error_and_none_is_left(self):
        def try_it():
            too_long = "x" * 100  # for a host name
            try:
                fork_nodes({"h0": hold, too_long: hold})
            except KernelError as error:
                left = [p for p in Path("/proc").iterdir() if p.name.isdecimal()]
                return error.namespace == too_long, len(left)

        assert in_sandbox(try_it) == (True, 1)


class TestEnd:
    def test_the_result_of_main_is_the_exit_code(self):
        with Sandbox.enter(lambda _: 7) as sandbox:
            assert sandbox.wait(5) == 7
            assert sandbox.kill() == 7  # nothing left to kill

    def test_an_exception_in_main_is_exit_code_1(self):
        with Sandbox.enter(lambda _: 1 // 0) as sandbox:
            assert sandbox.wait(5) == 1

    def test_the_channel_leads_both_ways_and_ends_with_the_sandbox(self):
        def echo(channel):
            channel.sendall(channel.recv(100).upper())
            return 0

        with Sandbox.enter(echo) as sandbox:
            sandbox.channel.sendall(b"hello")
            assert sandbox.channel.recv(100) == b"HELLO"
            assert sandbox.channel.recv(100) == b""

    def test_kill_returns_when_every_process_is_gone(self):
        def busy(channel):
            fork_nodes({f"h{i}": hold for i in range(8)})
            channel.sendall(b".")
            channel.recv(1)
            return 0

        with Sandbox.enter(busy) as sandbox:
            sandbox.channel.recv(1)
            assert len(processes_in(sandbox.pid)) == 9
            net = net_of(sandbox.pid)
            assert sandbox.kill() == 128 + signal.SIGKILL
            assert not in_namespace(net)

    def test_waiting_has_a_limit(self):
        with (
            Sandbox.enter(lambda channel: len(channel.recv(1))) as sandbox,
            pytest.raises(TimeoutError),
        ):
            sandbox.wait(0.01)

    def test_terminal_signals_do_not_reach_it(self):
        with Sandbox.enter(lambda channel: len(channel.recv(1))) as sandbox:
            assert os.getsid(sandbox.keeper) == sandbox.keeper
            assert os.getpgid(sandbox.pid) == sandbox.keeper


def processes_in(pid):
    """The processes of a pid namespace, given its pid 1, by walking down from it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(p for child in children for p in processes_in(int(child)))]


def in_namespace(net):
    """The processes of the host that are in a network namespace."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and net_of(entry.name) == net:
                found.append(entry.name)
        except OSError:
            continue
    return found


# A launcher that brings up a lab of two nodes and a link, says so, and waits to be killed.
LAUNCHER = """
import os, signal, sys
from netem.kernel.run import run
from netem.kernel.sandbox import Sandbox, detach, fork_nodes, hold

def main(channel):
    null = os.open(os.devnull, os.O_WRONLY)
    pids = fork_nodes({"h0": hold, "h1": hold}, outputs={"h0": null, "h1": null})
    run(("ip", "link", "add", "name", "p0", "netns", str(pids["h0"]), "type", "veth",
         "peer", "name", "p0", "netns", str(pids["h1"])))
    if sys.argv[1] == "up":
        detach()
    channel.sendall(b".")
    signal.pause()

sandbox = Sandbox.enter(main)
sandbox.channel.recv(1)
print(sandbox.keeper, sandbox.pid, sandbox.ticks, flush=True)
if sys.argv[1] == "up":
    sandbox.leave()
else:
    signal.pause()
"""


@pytest.fixture(params=["as I am", "as an ordinary user"])
def launcher(request):
    """Start LAUNCHER and return it with the pids of keeper, pid 1 and the nodes."""
    started = []

    def start(verb):
        if request.param == "as I am":
            process = subprocess.Popen(
                [sys.executable, "-c", LAUNCHER, verb], stdout=subprocess.PIPE, text=True
            )
        else:
            user = request.getfixturevalue("ordinary_user")
            process = user.start(user.python, "-c", LAUNCHER, verb, stderr=None)
        started.append(process)
        line = process.stdout.readline()
        assert line, "the launcher did not start"
        keeper, pid, ticks = map(int, line.split())
        return process, keeper, pid, ticks

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
        if process.stderr:
            process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("whom", ["launcher", "keeper"])
def test_killed_it_leaves_no_process_namespace_or_mount(launcher, number, whom):
    """Field report L01; one second is what is promised."""
    mounts = Path("/proc/self/mountinfo").read_text()
    interfaces = socket.if_nameindex()
    process, keeper, pid, _ = launcher("run")
    pids = processes_in(pid)
    nets = {net_of(inner) for inner in pids}
    assert len(pids) == 3
    assert len(nets) == 3
    fds = [os.pidfd_open(each) for each in (*pids, keeper)]
    os.kill(process.pid if whom == "launcher" else keeper, number)
    assert [processes.readable(fd, 1) for fd in fds] == [True] * 4
    for fd in fds:
        os.close(fd)
    assert not [found for net in nets for found in in_namespace(net)]
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert socket.if_nameindex() == interfaces


def test_a_lab_that_stays_outlives_its_launcher_and_ends_with_its_pid_1(launcher):
    process, keeper, pid, ticks = launcher("up")
    assert process.wait(5) == 0
    assert processes.start_ticks(keeper) is None
    assert processes.start_ticks(pid) == ticks
    assert len(processes_in(pid)) == 3
    assert not processes.kill(pid, ticks + 1)  # a process that only has the same number
    net = net_of(pid)
    assert processes.kill(pid, ticks)
    assert not in_namespace(net)
    assert not processes.kill(pid, ticks)


def test_a_lab_that_stays_holds_no_pipe_open(launcher):
    """Else `fabriclab up | cat` would not end."""
    process, _, pid, ticks = launcher("up")
    assert process.stdout.read() == ""
    assert processes.kill(pid, ticks)


def test_what_the_host_refuses_is_a_kernel_error_with_nothing_left(ordinary_user):
    """Field report L04: without the right, one line and nothing made."""
    code = """
import os
from netem.kernel.run import KernelError
from netem.kernel.sandbox import Sandbox
try:
    Sandbox.enter(lambda channel: 0, user_namespace=False)
except KernelError as error:
    print(error)
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("no child")
"""
    done = ordinary_user.run(ordinary_user.python, "-c", code)
    assert done.stdout == "unshare: [Errno 1] unshare: Operation not permitted\nno child\n"


def in_a_container(body):
    """Call body() where parts of /proc are covered and none may be mounted anew."""
    read_end, write_end = os.pipe()
    outer = os.fork()
    if not outer:
        enter_new_user_namespace(CLONE_NEWNS | CLONE_NEWPID)
        inner = os.fork()
        if not inner:
            keep_mounts_private()
            mount("proc", "/proc", "proc")
            mount("cover", "/proc/tty", "tmpfs")
            os.write(write_end, pickle.dumps(body()))
            os._exit(0)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]))
    assert os.waitpid(outer, 0)[1] == 0
    os.close(write_end)
    with os.fdopen(read_end, "rb") as answer:
        return pickle.load(answer)


@pytest.mark.needs("userns")
def test_a_lab_is_made_where_proc_is_covered_and_shows_other_pids():
    def make():
        def lab():
            pids = fork_nodes({"h0": hold, "h1": hold})
            run(("ip", "link", "add", "name", "p0", "netns", str(pids["h0"]), "type", "veth",
                 "peer", "name", "p0", "netns", str(pids["h1"])))  # fmt: skip
            links = [run_json(("ip", "-json", "link"), pid) for pid in pids.values()]
            return os.getpid(), Path("/proc/self").readlink(), [len(link) for link in links]

        def enter_it():
            def main(channel):
                channel.sendall(str(fork_node(hold, name="h0")).encode())
                channel.recv(1)

            with Sandbox.enter(main, user_namespace=True) as sandbox:
                node = int(sandbox.channel.recv(9))
                argv = ["sh", "-c", "test $(hostname) = h0"]
                return run_inside(sandbox.pid, argv, node=node)

        return in_sandbox(lab, user_namespace=True), enter_it()

    (pid, shown, links), code = in_a_container(make)
    assert pid == 1
    assert str(shown) != "1"
    assert links == [2, 2]
    assert code == 0


def test_output_after_detach_goes_to_the_log(tmp_path):
    log = tmp_path / "lab.log"

    def main(channel):
        detach(log)
        os.write(1, b"still here\n")
        channel.sendall(b".")
        channel.recv(1)
        return 0

    with Sandbox.enter(main) as sandbox:
        sandbox.channel.recv(1)
        assert log.read_text() == "still here\n"
