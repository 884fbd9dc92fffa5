"""`fabriclab wireshark`: the folder that is named, and the exit codes."""

import pytest
from click.testing import CliRunner

from netem.cli.main import cli
from netem.wireshark.install import SCRIPT


def wireshark(*words):
    return CliRunner().invoke(cli, ["wireshark", *map(str, words)])


def test_a_folder_that_is_named_is_made_and_gets_the_script(tmp_path):
    folder = tmp_path / "not" / "there"
    ran = wireshark("--install", "--folder", folder)
    assert ran.exit_code == 0, ran.output
    assert (folder / SCRIPT.name).read_bytes() == SCRIPT.read_bytes()
    assert wireshark("--remove", "--folder", folder).exit_code == 0
    assert not any(folder.iterdir())


def a_file(tmp_path):
    path = tmp_path / "file"
    path.touch()
    return path


def below_a_file(tmp_path):
    return a_file(tmp_path) / "plugins"


def of_the_kernel(tmp_path):
    return "/proc/plugins"


def with_a_folder_in_the_way(tmp_path):
    (tmp_path / SCRIPT.name).mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "place", [a_file, below_a_file, of_the_kernel, with_a_folder_in_the_way]
)
def test_an_impossible_folder_is_wrong_usage_and_one_line(place, tmp_path):
    folder = place(tmp_path)
    ran = wireshark("--install", "--folder", folder)
    assert ran.exit_code == 2
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"--folder {folder}: ")
    assert not ran.stdout
    assert not list(tmp_path.rglob("*.part"))
