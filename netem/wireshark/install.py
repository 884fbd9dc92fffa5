"""Putting the dissector where Wireshark and tshark of the present user find it."""

import os
import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).with_name("fabriclab.lua")
_ASK_LIMIT_S = 20.0
_TITLE = "Personal Lua Plugins:"


def plugin_folder() -> Path:
    """Return the folder of the user's own Lua plug-ins, which tshark knows best.

    Without a tshark to ask: where Wireshark 4 has it on Unix.
    """
    tshark = shutil.which("tshark")
    if tshark is not None:
        try:
            said = subprocess.run(  # noqa: S603 - the program that was found, no input of others
                (tshark, "-G", "folders"), capture_output=True, text=True, timeout=_ASK_LIMIT_S,
                check=False,
            ).stdout  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            said = ""
        for line in said.splitlines():
            if line.startswith(_TITLE) and (folder := line.removeprefix(_TITLE).strip()):
                return Path(folder)
    home = Path(os.environ.get("HOME") or Path.home())
    return home / ".local/lib/wireshark/plugins"


def install(folder: Path) -> Path:
    """Put the script into `folder`, in place of an older one; raise OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / SCRIPT.name
    part = target.with_suffix(".part")
    try:
        shutil.copyfile(SCRIPT, part)
        part.replace(target)  # whole or not at all: Wireshark may be starting
    except OSError:
        part.unlink(missing_ok=True)
        raise
    return target


def remove(folder: Path) -> bool:
    """Take the script out of `folder` again; say whether it was there. Raise OSError."""
    target = folder / SCRIPT.name
    was_there = target.exists()
    target.unlink(missing_ok=True)
    return was_there
