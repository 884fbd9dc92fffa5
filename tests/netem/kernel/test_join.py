"""Commands inside a lab: where they run, how they end, what they leave."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from netem.kernel import processes
from netem.kernel.join import run_inside
from netem.kernel.run import KernelError
from netem.kernel.sandbox import Sandbox, fork_nodes, hold, may_administer, mount_hosts

pytestmark = pytest.mark.needs("netns")

KINDS = [
    pytest.param(True, id="user namespace", marks=pytest.mark.needs("userns")),
    pytest.param(
        False,
        id="no user namespace",
        marks=pytest.mark.skipif(not may_administer(), reason="only root may"),
    ),
]


@pytest.fixture(params=KINDS)
def lab(request):
    """A lab of one node: its sandbox, and the node's pid as the sandbox knows it."""

    def main(channel):
        mount_hosts("fd00::1 h0\n")
        channel.sendall(str(fork_nodes({"h0": hold})["h0"]).encode())
        channel.recv(1)
        return 0

    with Sandbox.enter(main, user_namespace=request.param) as sandbox:
        yield sandbox, int(sandbox.channel.recv(10))


def net_of(sandbox):
    return str(Path(f"/proc/{sandbox.pid}/ns/net").readlink())


def output_of(lab, capfd, *argv, **keywords):
    sandbox, node = lab
    assert run_inside(sandbox.pid, argv, node=node, **keywords) == 0
    return capfd.readouterr().out.strip()


def test_it_runs_in_the_namespaces_of_the_node(lab, capfd):
    sandbox, _ = lab
    shown = output_of(
        lab, capfd, "sh", "-c", "hostname; cat /etc/hosts; readlink /proc/1/ns/net"
    )
    inner = net_of(sandbox)
    assert shown.splitlines() == ["h0", "fd00::1 h0", inner]
    assert output_of(lab, capfd, "readlink", "/proc/self/ns/net") != inner


def test_sys_shows_the_interfaces_of_the_node(lab, capfd):
    assert output_of(lab, capfd, "ls", "/sys/class/net") == "lo"


def test_it_keeps_the_folder_and_takes_the_environment_given(lab, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = {"PATH": os.environ["PATH"], "COLOUR": "green"}
    shown = output_of(lab, capfd, "sh", "-c", "pwd; echo $COLOUR; echo $HOME", env=env)
    assert shown.splitlines() == [str(tmp_path), "green"]


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
        (["no-such-program"], 127),
        (["/etc/hosts"], 126),
    ],
)
def test_the_exit_code_is_the_commands_as_a_shell_gives_it(lab, argv, code):
    sandbox, node = lab
    assert run_inside(sandbox.pid, argv, node=node) == code


def test_without_a_node_it_runs_beside_pid_1(lab, capfd):
    sandbox, _ = lab
    assert run_inside(sandbox.pid, ["readlink", "/proc/self/ns/net"]) == 0
    assert capfd.readouterr().out.strip() == net_of(sandbox)


IN_CHROOT = """
from netem.kernel.join import run_inside
from netem.kernel.sandbox import Sandbox, mount_hosts

def main(channel):
    mount_hosts("fd00::1 h0\\n")
    channel.sendall(b".")
    channel.recv(1)
    return 0

with Sandbox.enter(main, user_namespace=False) as sandbox:
    sandbox.channel.recv(1)
    run_inside(sandbox.pid, ["cat", "/etc/hosts"])
"""


@pytest.mark.slow
@pytest.mark.skipif(not may_administer(), reason="only root may")
def test_from_a_chroot_it_runs_in_that_chroot(tmp_path):
    """Where the mounts of the sandbox are: outside there are the host's own."""
    enter = 'mount --rbind / "$0" && exec chroot "$0" "$@"'
    python = (sys.executable, "-c", IN_CHROOT)
    shown = subprocess.run(
        ["unshare", "-m", "sh", "-c", enter, tmp_path, *python],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (shown.stdout, shown.stderr) == ("fd00::1 h0\n", "")


def test_a_broken_pipe_ends_a_command_as_it_would_outside(lab, capfd):
    shown = output_of(lab, capfd, "sh", "-c", "yes | head -1; echo done")
    assert shown.splitlines() == ["y", "done"]


def test_a_lab_that_is_gone_is_a_kernel_error():
    with Sandbox.enter(lambda _: 0) as sandbox:
        sandbox.wait(5)
        with pytest.raises(KernelError, match="No such file"):
            run_inside(sandbox.pid, ["true"])


def test_the_command_ends_when_the_caller_is_killed(lab):
    sandbox, node = lab
    code = f"""
from netem.kernel.join import run_inside
run_inside({sandbox.pid}, ["sh", "-c", "echo; exec sleep 60"], node={node})
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as caller:
        caller.stdout.readline()
        caller.kill()
        # The pipe ends when its last writer does: caller, visitor, command, in this order.
        assert caller.stdout.read() == b""


def test_the_command_ends_with_the_lab(lab):
    sandbox, node = lab
    read_end, write_end = os.pipe()
    visitor = os.fork()
    if not visitor:
        os.dup2(write_end, 1)
        os._exit(run_inside(sandbox.pid, ["sh", "-c", "echo; exec sleep 60"], node=node))
    os.close(write_end)
    os.read(read_end, 1)
    sandbox.kill()
    assert processes.exit_code(os.waitpid(visitor, 0)[1]) == 128 + signal.SIGKILL
    os.close(read_end)
