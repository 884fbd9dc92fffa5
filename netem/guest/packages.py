"""Debian packages as a quarry: found by apt with all they need, unpacked, never installed.

The host's own list of installed packages is not looked at, so the same set comes out everywhere
where the same release of Debian is read.
"""

import os
import re
import subprocess
from pathlib import Path

from netem.kernel.run import CapabilityError

LIMIT_S = 240  # 90 MB on a slow line

TOOLS = (
    "busybox-static",
    "iproute2",
    "python3-minimal",
    "libpython3-stdlib",
    "ibverbs-utils",
    "ibverbs-providers",
    "rdmacm-utils",
    "perftest",
    "wireguard-tools",
)
KERNEL = "linux-image-amd64"  # its name stays, and it needs the image of the day

_EMPTY_HOST = ("-o", "Dir::State::status=/dev/null", "-o", "Debug::NoLocking=1")
_INST = re.compile(r"^Inst (\S+) \((\S+)", re.MULTILINE)


class PackageError(CapabilityError):
    """Debian's packages are not to be had; in apt's own words."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__("guest image", why, remedy)


def resolve() -> dict[str, str]:
    """Return every package that belongs into the guest, with its version."""
    try:
        return _resolve()
    except PackageError:
        _update()  # there are no lists yet, or they are too old
        return _resolve()


def unpack(packages: dict[str, str], debs: Path, root: Path) -> None:
    """Download to `debs` what is not there, and lay all files out below `root`."""
    debs.mkdir(parents=True, exist_ok=True)
    root.mkdir(parents=True, exist_ok=True)
    wanted = [
        f"{name}={version}"
        for name, version in packages.items()
        if not list(debs.glob(_pattern(name, version)))
    ]
    if wanted:
        try:
            _run("apt-get", "download", "-qq", *wanted, cwd=debs)
        except PackageError:
            _update()
            _run("apt-get", "download", "-qq", *wanted, cwd=debs)
    for name, version in packages.items():
        [deb] = debs.glob(_pattern(name, version))
        _run("dpkg-deb", "-x", str(deb), str(root))


def _resolve() -> dict[str, str]:
    tools = _run("apt-get", "install", "-s", "--no-install-recommends", *_EMPTY_HOST, *TOOLS)
    said = _run("apt-cache", "depends", "--important", KERNEL)
    images = re.findall(r"Depends: (linux-image-\S+)", said)
    if not images:
        raise PackageError(f"{KERNEL} is not known to apt")
    shown = _run("apt-cache", "show", "--no-all-versions", images[0])
    version = re.search(r"^Version: (\S+)", shown, re.MULTILINE)
    assert version is not None
    return dict(_INST.findall(tools)) | {images[0]: version[1]}


def _pattern(name: str, version: str) -> str:
    return f"{name}_{version.replace(':', '%3a')}_*.deb"


def _update() -> None:
    if os.geteuid() != 0:
        raise PackageError("apt's lists are missing or old", "as root: apt-get update")
    _run("apt-get", "update", "-qq")


def _run(*argv: str, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(
            argv, cwd=cwd, check=True, capture_output=True, text=True, timeout=LIMIT_S
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
        words = getattr(error, "stderr", None) or str(error)
        raise PackageError(f"{' '.join(argv[:4])}: {words}") from error
    return done.stdout
