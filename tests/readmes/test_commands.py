"""Every command of every README is run as it is written, or a table says which test does that.

What needs no more than Python runs here; what needs a sandbox, tshark or jq runs with the
judges, in a shell, the lines of a README one after the other.
"""

import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from click.testing import CliRunner

from netem.cli.main import cli
from tests.readmes.blocks import CHECKOUT, FENCE, READMES, commands, hidden
from tests.readmes.table import BEFORE, CHANGED, ELSEWHERE, FAILS, GIVEN

# Verbs that need nothing of the host; `conform` is one against our machine in this process
PURE = {"conform", "explain", "graph", "check", "labs", "report", "sim", "validate"}
LIMIT_S = 200
ENDED = "@@ ended with"  # beside the exit code of each command, in a line of its own
ALL = [line for text in READMES.values() for line in commands(text)]


def session(readme):
    """Return the lines of a README that are run here, as they stand there."""
    return [line for line in commands(READMES[readme]) if line not in ELSEWHERE]


def is_pure(readme):
    words = [shlex.split(line)[:2] for line in session(readme)]
    return readme not in BEFORE and all(
        word[0] == "fabriclab" and word[1] in PURE for word in words
    )


OURS = [readme for readme in READMES if session(readme)]
IN_PYTHON = [readme for readme in OURS if is_pure(readme)]
IN_SHELL = [readme for readme in OURS if not is_pure(readme)]


def name(readme):
    return str(Path(readme).parent)


def test_commands_stand_in_blocks_of_their_own():
    """Fenced with `sh`: there they are found, and coloured."""
    found = {readme: hidden(text) for readme, text in READMES.items()}
    assert not {readme: lines for readme, lines in found.items() if lines}


def test_the_table_is_about_commands_that_there_are():
    runs = {line for line in ELSEWHERE if line.startswith("fabriclab run ")}
    named = {*CHANGED, *FAILS, *ELSEWHERE} - runs
    assert not named - set(ALL)
    assert not {*GIVEN, *BEFORE} - set(READMES)
    assert not set(CHANGED) & set(ELSEWHERE)


@pytest.mark.parametrize("where", sorted(set(ELSEWHERE.values())))
def test_what_runs_elsewhere_is_run_there(where):
    file, _, test = where.partition("::")
    text = (CHECKOUT / file).read_text()
    assert not test or re.search(rf"^def {test}\(", text, re.MULTILINE)


@pytest.mark.parametrize("line", [line for line in ELSEWHERE if line.startswith("fabriclab ")])
def test_what_runs_elsewhere_is_a_command_as_it_stands(line):
    """As far as that can be told without doing it: verbs, flags and arguments."""
    verb, *arguments = shlex.split(line)[1:]
    cli.get_command(None, verb).make_context(verb, arguments)


def given(readme, folder):
    """Put the files there that a README's commands read: cases that it shows itself."""
    for path, begins in GIVEN.get(readme, {}).items():
        [text] = [block for _, block in FENCE.findall(READMES[readme]) if begins in block]
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def in_python(readme, folder):
    """Run the commands of a README in this process; return exit code and output of each."""
    os.chdir(folder)
    given(readme, folder)
    ended = []
    for line in session(readme):
        argv = shlex.split(CHANGED.get(line, line))[1:]
        ran = CliRunner().invoke(cli, argv)
        ended.append((ran.exit_code, ran.output))
    return ended


@pytest.fixture(scope="session")
def ends(tmp_path_factory):
    """All of them at once on all processors."""
    with (
        pytest.MonkeyPatch.context() as patch,
        ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool,
    ):
        patch.syspath_prepend(CHECKOUT)  # workers begin with it
        yield {
            readme: pool.submit(in_python, readme, tmp_path_factory.mktemp("readme"))
            for readme in IN_PYTHON
        }


@pytest.mark.slow
@pytest.mark.parametrize("readme", IN_PYTHON, ids=name)
def test_commands_end_as_a_readme_says(readme, ends):
    for line, (code, output) in zip(session(readme), ends[readme].result(), strict=True):
        judge(line, code, output)


def judge(line, code, output):
    said = FAILS.get(line)
    assert code == (said is not None), f"{line}\nexit {code}\n{output}"
    assert said is None or said in output, f"{line}\n{output}"


# tshark where a window would be: of a live capture as much as there surely is
WIRESHARK = """#!/bin/sh
case "$*" in
  "-k -i -") exec tshark -c 2 -i - ;;
  *) for file; do :; done; exec tshark -c 5 -r "$file" ;;
esac
"""


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.needs("netns", "tap", "seg6", "ping", "tshark", "wg")
@pytest.mark.parametrize("readme", IN_SHELL, ids=name)
def test_commands_work_in_a_shell_one_after_the_other(readme, tmp_path):
    place, programs, home = (tmp_path / part for part in ("place", "bin", "home"))
    for folder in (place, programs, home):
        folder.mkdir()
    (programs / "wireshark").write_text(WIRESHARK)
    (programs / "wireshark").chmod(0o755)
    given(readme, place)
    lines = [BEFORE.get(readme, ":"), *session(readme)]
    fill = {"checkout": CHECKOUT, "environment": sys.prefix}
    script = []
    for line in lines:
        done = CHANGED.get(line, line)
        for key, value in fill.items():
            done = done.replace(f"{{{key}}}", str(value))
        script += [done, f'echo "\n{ENDED} $?"']
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"HOME": str(home), "PATH": path, "XDG_CONFIG_HOME": str(home / ".config")}
    for line in lines:  # what is left up, if only since a line before `down` failed
        if line.startswith("fabriclab up "):
            script.append(f"fabriclab down {line.split()[2]} >/dev/null 2>&1")
    ran = subprocess.run(
        ["sh", "-c", "\n".join(script)],
        cwd=place, env=os.environ | own, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    *outputs, rest = re.split(rf"\n{ENDED} (\d+)\n", ran.stdout)
    ended = list(zip(map(int, outputs[1::2]), outputs[::2], strict=True))
    for line, (code, output) in zip(lines, ended, strict=False):
        judge(line, code, output)
    assert len(ended) == len(lines), rest
