"""Running programs: what comes back, and what an error says."""

import pytest

from netem.kernel import run as running
from netem.kernel.run import CapabilityError, KernelError, Running, run, run_json, start_batch
from netem.kernel.sandbox import fork_node, hold
from tests.sandboxed import in_sandbox


def test_output_comes_back_and_input_goes_in():
    assert run(("cat",), stdin="hello") == "hello"


def test_a_failure_names_command_exit_code_and_words():
    with pytest.raises(KernelError) as caught:
        run(("sh", "-c", "echo it is so >&2; exit 3"), name="h0")
    assert str(caught.value) == "sh -c echo it is so >&2; exit 3 in h0: it is so"
    assert caught.value.exit_code == 3
    assert caught.value.namespace == "h0"


def test_a_program_that_is_not_there_is_a_kernel_error():
    with pytest.raises(KernelError, match="No such file"):
        run(("no-such-program",))


def test_a_program_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(running, "TIME_OUT_S", 0.05)
    with pytest.raises(KernelError, match="no end after"):
        run(("sleep", "60"))


def test_what_should_be_json_and_is_not_is_a_kernel_error():
    assert run_json(("echo", '[{"a": 1}]')) == [{"a": 1}]
    assert run_json(("true",)) == []
    with pytest.raises(KernelError, match="no JSON"):
        run_json(("echo", "a: 1"))


def test_an_abandoned_command_is_over():
    command = Running(("sleep", "60"))
    command.abandon()
    command.abandon()


def test_shell_characters_mean_nothing():
    assert run(("echo", "$HOME; `id` | cat")) == "$HOME; `id` | cat\n"


def test_a_missing_capability_is_one_line_with_its_remedy():
    error = CapabilityError("tap", "no /dev/net/tun", "modprobe tun")
    assert str(error) == "tap: no /dev/net/tun; modprobe tun"


@pytest.mark.needs("netns")
class TestInANamespace:
    def test_a_batch_names_the_line_that_failed(self):
        def fail():
            try:
                start_batch(
                    "ip", ["link set lo up", "link set nonesuch up"], None, "h7"
                ).result()
            except KernelError as error:
                return error.argv, str(error)

        argv, words = in_sandbox(fail)
        assert argv == ("ip", "link", "set", "nonesuch", "up")
        assert words == 'ip link set nonesuch up in h7: Cannot find device "nonesuch"'

    def test_a_command_runs_in_the_namespace_of_the_process_given(self):
        def names():
            pid = fork_node(hold)
            run(("ip", "link", "add", "dev", "br7", "type", "bridge"), pid)
            return [[row["ifname"] for row in run_json(("ip", "-json", "link"), where)]
                    for where in (pid, None)]  # fmt: skip

        assert in_sandbox(names) == [["lo", "br7"], ["lo"]]

    def test_a_namespace_that_is_gone_is_a_kernel_error(self):
        def try_it():
            try:
                run(("true",), 2**22 - 1, name="h9")
            except KernelError as error:
                return str(error)

        assert "No such process" in in_sandbox(try_it)
