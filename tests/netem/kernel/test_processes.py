"""Naming a process for good, and ending it."""

import os
import signal
import subprocess

import pytest

from netem.kernel import processes


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_kill_waits_for_the_end(sleeper):
    assert processes.kill(sleeper.pid)
    assert sleeper.poll() == -signal.SIGKILL


def test_a_pid_with_another_start_is_left_alone(sleeper):
    ticks = processes.start_ticks(sleeper.pid)
    assert not processes.kill(sleeper.pid, ticks + 1)
    assert sleeper.poll() is None
    assert processes.kill(sleeper.pid, ticks)


def test_a_zombie_and_a_pid_of_nobody_have_no_start(sleeper):
    processes.kill(sleeper.pid)
    assert processes.start_ticks(sleeper.pid) is None  # not yet waited for
    sleeper.wait()
    assert processes.start_ticks(sleeper.pid) is None
    assert not processes.kill(sleeper.pid)


def test_a_name_with_spaces_and_parentheses_does_not_confuse_it(tmp_path):
    program = tmp_path / "a) (b 7"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as process:
        assert processes.start_ticks(process.pid) >= processes.start_ticks(os.getpid())
        process.kill()


@pytest.mark.parametrize(("status", "code"), [(7 << 8, 7), (9, 137)])
def test_exit_codes_are_a_shells(status, code):
    assert processes.exit_code(status) == code


@pytest.mark.parametrize(("code", "words"), [
    (0, "ended with exit code 0"), (3, "ended with exit code 3"),
    (137, "was killed by SIGKILL"), (200, "ended with exit code 200"),
])  # fmt: skip
def test_an_end_is_told_by_its_signal_or_its_code(code, words):
    assert processes.end_in_words(code) == words
