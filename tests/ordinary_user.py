"""Running things as a user without rights, where the tests run as root.

That user may not be able to enter the folder of the checkout, and must not write into it. So he
gets a copy of the checkout in a folder of his own, and of the environment where he cannot use
the one there is. Where the tests are run by an ordinary user, that user is who he is.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
UID = 54321  # of nobody in particular: it needs no entry in /etc/passwd
LIMIT_S = 120
COPIED = ("wire", "transports", "netem", "tests", "pyproject.toml", "Makefile", "README.md")


@dataclass(frozen=True)
class OrdinaryUser:
    """Runs programs as that user, in his checkout, with this environment's Python."""

    folder: Path  # his own, to write to
    checkout: Path
    environment: Path
    prefix: tuple[str, ...]

    def run(self, *argv, timeout=LIMIT_S, **kwargs) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, whatever its exit code."""
        return subprocess.run(
            [*self.prefix, *argv], **self._settings(kwargs), timeout=timeout, check=False
        )

    def start(self, *argv, **kwargs) -> subprocess.Popen[str]:
        """Start a program; the caller ends it."""
        return subprocess.Popen([*self.prefix, *argv], **self._settings(kwargs))

    @property
    def python(self) -> str:
        return str(self.environment / "bin/python")

    def pytest(self, *arguments) -> subprocess.CompletedProcess[str]:
        """Run tests of his checkout."""
        return self.run(self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)

    def _settings(self, given):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        env = {
            "PATH": f"{self.environment / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "PYTHONPATH": str(self.checkout),
        }
        return {"cwd": self.checkout, "env": env} | pipes | given


@contextlib.contextmanager
def become():
    """Give an ordinary user for a while; a skip where we neither are nor can become one."""
    environment = Path(sys.prefix)
    # Not below pytest's own folder, which only root may enter.
    with tempfile.TemporaryDirectory(prefix="fabriclab-user-") as name:
        folder = Path(name)
        if os.geteuid():
            yield OrdinaryUser(folder, CHECKOUT, environment, ())
            return
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv, of util-linux")
        prefix = ("setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", "--")
        checkout = folder / "checkout"
        _copy_checkout(checkout)
        _give(folder)
        user = OrdinaryUser(folder, checkout, environment, prefix)
        if not _works_for(user):
            shutil.copytree(environment, folder / "environment", symlinks=True)
            _give(folder / "environment")
            user = OrdinaryUser(folder, checkout, folder / "environment", prefix)
            if not _works_for(user):
                pytest.skip(f"{sys.base_prefix} is where no other user may enter")
        yield user


def _works_for(user: OrdinaryUser) -> bool:
    try:
        done = user.run(user.python, "-c", "import msgspec, pytest, trio")
    except PermissionError:
        return False
    return not done.returncode


def _copy_checkout(checkout: Path) -> None:
    checkout.mkdir()
    for name in COPIED:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(
                source, checkout / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        elif source.exists():
            shutil.copy2(source, checkout / name)
    shared = CHECKOUT.parent / "shared"  # read by tests that find it beside the checkout
    if shared.is_dir():
        (checkout.parent / "shared").symlink_to(shared)


def _give(folder: Path) -> None:
    subprocess.run(["chown", "-hR", f"{UID}:{UID}", folder], check=True)
