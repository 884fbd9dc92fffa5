"""The `needs` marker and `--require`: a missing capability skips, or fails the run, aloud."""

import shutil
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TEST = """
import pytest

@pytest.mark.needs("ip_tc", "teleporter")
def test_it():
    raise AssertionError("never run")
"""


@pytest.fixture
def project(pytester):
    """A project of one test that needs something, and of our conftest."""
    here = Path(__file__).parent
    conftest = (here / "conftest.py").read_text()
    fake = conftest.replace(
        "from netem.kernel.capabilities import missing\n",
        "missing = {'ip_tc': None, 'teleporter': 'not invented'}.__getitem__\n",
    )
    assert fake != conftest
    pytester.makeconftest(fake)
    (pytester.path / "tests").mkdir()
    shutil.copy(here / "ordinary_user.py", pytester.path / "tests")
    pytester.makeini("[pytest]\nmarkers = needs(*capabilities): skipped where one lacks\n")
    pytester.makepyfile(TEST)
    pytester.syspathinsert()
    return pytester


def test_a_test_that_needs_what_is_missing_is_skipped_with_the_reason(project):
    result = project.runpytest_subprocess("-ra")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*needs teleporter: not invented*"])


def test_where_it_is_required_the_run_fails_and_says_why(project):
    result = project.runpytest_subprocess("--require=ip_tc,teleporter")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_it needs teleporter: not invented*"])
