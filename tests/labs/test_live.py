"""The merged capture of a lab that is up, as it comes."""

import shutil
import signal

import pytest

from netem.analysis.reader import read_capture
from tests.labs.commands import captured, fabriclab, start, wait_until
from tests.labs.test_up_and_down import lab  # noqa: F401 - a fixture

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns", "tap", "ping")]


def frames_in(file):
    if not file.exists() or not file.stat().st_size:
        return []
    with file.open("rb") as stream:
        return list(read_capture(stream))


def ping(lab):  # noqa: F811
    name, _, place = lab
    words = ("exec", "--lab", name, "h0", "ping", "-c", "3", "-i", "0.05", "h1")
    assert fabriclab(*words, cwd=place).returncode == 0


def test_frames_reach_the_program_while_the_lab_is_up_and_all_of_them_in_the_end(lab):  # noqa: F811
    """P05: one stream with all links, each named by its port."""
    name, _, place = lab
    file = place / "live.pcapng"
    live = start(
        "capture", "--lab", name, "--program", f"dd bs=64k status=none of={file}", cwd=place
    )
    ping(lab)
    wait_until(lambda: len(frames_in(file)) >= 12, "frames while it is up")
    ping(lab)
    fabriclab("down", name, cwd=place)
    assert live.wait(30) == 0
    live.communicate()
    got, merged = frames_in(file), captured(place / "run")
    assert [(f.at, f.port, f.frame) for f in got] == [(f.at, f.port, f.frame) for f in merged]


def test_a_reader_that_leaves_ends_it_and_not_the_lab(lab):  # noqa: F811
    name, _, place = lab
    ping(lab)
    live = start(
        "capture",
        "--lab",
        name,
        "--program",
        "dd bs=10 count=1 status=none of=/dev/null",
        cwd=place,
    )
    ping(lab)  # something to write, to nobody
    assert live.wait(30) == 0
    live.communicate()
    ping(lab)


def test_ctrl_c_ends_it_in_order(lab):  # noqa: F811
    name, _, place = lab
    ping(lab)
    file = place / "live.pcapng"
    live = start(
        "capture", "--lab", name, "--program", f"dd bs=64k status=none of={file}", cwd=place
    )
    wait_until(lambda: frames_in(file), "what was there before")
    live.send_signal(signal.SIGINT)
    out, said = live.communicate(timeout=30)
    assert (live.returncode, out, said) == (0, "", "")


def test_without_a_lab_or_a_program_it_is_one_line(lab):  # noqa: F811
    name, _, place = lab
    wrong = fabriclab("capture", "--lab", name, "--program", "no-such-program", cwd=place)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (3, 1)
    assert fabriclab("capture", "--wireshark", "--live", cwd=place).returncode == 2
    assert fabriclab("capture", "--lab", "nowhere", "--live", cwd=place).returncode == 2


@pytest.mark.interop
@pytest.mark.needs("tshark")
def test_tshark_reads_it_from_the_pipe(lab):  # noqa: F811
    name, _, place = lab
    ping(lab)
    tshark = f"{shutil.which('tshark')} -i - -c 6 -T fields -e frame.interface_name"
    live = start("capture", "--lab", name, "--program", tshark, cwd=place)
    ping(lab)
    out, _ = live.communicate(timeout=60)
    assert set(out.split()) >= {"h0:p0", "br0:e1"}
