"""Wheels of what is installed here: files packed again, so that nothing is downloaded."""

import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_STORED, ZipFile

CHECKOUT = Path(__file__).parents[3]
OURS = "fabriclab"
SOURCES = ("LICENSE", "README.md", "netem", "pyproject.toml", "transports", "wire")
WANTED = (OURS, "pip")
OF_INSTALLING = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}


def fill(folder):
    """Put the wheels of this checkout, of all that it needs, and of pip into a folder."""
    folder.mkdir(exist_ok=True)
    for name in sorted(_closure() - {OURS}):
        _pack(metadata.distribution(name), folder)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    with TemporaryDirectory() as copy:  # building leaves things beside the sources
        for name in SOURCES:
            source, target = CHECKOUT / name, Path(copy) / name
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
        command = [*pip, "--no-deps", "-w", str(folder), copy]
        subprocess.run(command, check=True, capture_output=True)


def _closure():
    """Return the names of what is wanted and all that it needs here, without extras."""
    found, todo = set(), list(WANTED)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        try:
            needs = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:  # for another Python or system
            continue
        found.add(name)
        todo += [_name(need) for need in needs if "extra ==" not in need]
    return found


def _name(requirement):
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0]


def _pack(package, folder):
    tag = re.findall(r"^Tag: (.*)$", package.read_text("WHEEL"), re.MULTILINE)[-1]
    name = re.sub(r"[-.]", "_", package.name)
    files = [
        file
        for file in package.files
        if ".." not in file.parts
        and file.suffix != ".pyc"
        and not (file.parts[0].endswith(".dist-info") and file.name in OF_INSTALLING)
    ]
    home = next(file.parts[0] for file in files if file.parts[0].endswith(".dist-info"))
    with ZipFile(folder / f"{name}-{package.version}-{tag}.whl", "w", ZIP_STORED) as wheel:
        for file in files:
            wheel.write(file.locate(), str(file))
        wheel.writestr(f"{home}/RECORD", "".join(f"{file},,\n" for file in files))
