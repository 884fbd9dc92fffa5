"""A browser that is not ours opens the page of a run, with no network at all."""

import re
import subprocess
from shutil import which

import pytest

from netem.capture.runfolder import RunFolder
from netem.cli.options import make_plan
from netem.lab.simulate import simulate
from netem.report.page import page

pytestmark = [pytest.mark.interop, pytest.mark.needs("chromium")]

BROWSER = next(filter(None, map(which, ("chromium", "chromium-browser", "google-chrome"))), "")


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    folder = RunFolder.create("run", tmp_path_factory.mktemp("runs") / "run")
    plan, _ = make_plan("mrc-two-plane")
    simulate(plan, folder, lambda _done, _total: None)
    path = folder.path / "report.html"
    path.write_text(page(folder.path))
    return path


def browse(html, *flags):
    return subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={html.parent / 'profile'}", "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND", *flags, html.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )  # fmt: skip


def test_it_is_shown_whole_and_without_complaint(html):
    ran = browse(html, "--dump-dom")
    titles = re.findall(r"<h2>(.*?)</h2>", ran.stdout)
    assert titles[:2] == ["Fabric", "Flows"]
    assert {"Goodput by plane", "Around the faults", "Entropy values"} <= set(titles)
    assert ran.stdout.count("<svg") >= 4
    assert "CONSOLE" not in ran.stderr


def test_it_can_be_seen(html):
    picture = html.with_suffix(".png")
    browse(html, f"--screenshot={picture}", "--window-size=1300,2000")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
