"""Our dissector, as tests ask it: by `-X` and installed, in one pass and two, never in error.

What one way of asking finds may not show what another breaks: a preference on the command line
alone makes the built-in dissector take its port back.
"""

import os
import re
import shutil
import subprocess

from netem.wireshark.install import SCRIPT
from tests.interop.wireshark import LIMIT_S, tshark
from tests.labs.commands import fabriclab

LUA = ("-X", f"lua_script:{SCRIPT}")
BROKEN = re.compile(r".*\bLua\b.{0,3}\b(?:error|bug)\b.*", re.IGNORECASE)
SHOWN = ("-c", "100")  # of each file, in full: enough for every kind of packet
MESSAGE = "_ws.expert.message"


def no_lua_error(text):
    """Fail with the first line that tells of an error in a script."""
    found = BROKEN.search(text)
    assert found is None, found.group()


class Dissector:
    """Two homes: an empty one, where the script is named, and one where it is installed."""

    def __init__(self, folder):
        self._empty, self._installed = folder / "empty", folder / "installed"
        for home in (self._empty, self._installed):
            home.mkdir()
        self.verb("--install")

    def verb(self, *words):
        """Return what `fabriclab wireshark` prints in the home that has the script."""
        done = fabriclab(
            "wireshark", *words, cwd=self._installed, within=("env", *_home(self._installed))
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def read(self, path, fields, *options):
        """Return one dict a packet, of `fields`; several of one are a list with commas.

        The beginning is shown in full, too, each way: without an error and both ways the same.
        """
        for passes in ((), ("-2",)):
            named = self.show(path, *LUA, *passes, *options, *SHOWN)
            assert self.show(path, *passes, *options, *SHOWN, installed=True) == named
        wanted = [*fields, *({MESSAGE} - set(fields))]
        rows = tshark(path, wanted, *LUA, *options, home=self._empty)
        for row in rows:
            no_lua_error(row[MESSAGE])
        return [{name: row[name] for name in fields} for row in rows]

    def show(self, path, *options, installed=False, how=("-V",)):
        """Return what tshark prints with no preference set, once it tells of no error."""
        home = self._installed if installed else self._empty
        done = subprocess.run(
            [shutil.which("tshark"), "-n", *options, "-r", str(path), *how],
            env=os.environ | dict(pair.split("=", 1) for pair in _home(home)),
            capture_output=True, text=True, check=True, timeout=LIMIT_S,
        )  # fmt: skip
        no_lua_error(done.stderr)
        no_lua_error(done.stdout)
        return done.stdout


def _home(folder):
    return f"HOME={folder}", f"XDG_CONFIG_HOME={folder / 'config'}"
