"""A base image of the host's own Debian packages: no registry, no mirror, no download.

A few packages and all that they depend on are copied as they are installed here, files only,
for `docker import`. What comes out is a small Debian with Python, `ip` and `tc`.
"""

import re
import subprocess
import tarfile
from importlib.util import cache_from_source
from io import BytesIO
from pathlib import Path

WANTED = ("python3", "python3-venv", "iproute2", "dash", "coreutils")
# What those depend on for what nobody does in a container
LEFT_OUT = {"debconf", "dpkg", "perl-base", "tar", "media-types", "mime-support", "tzdata"}
UNREAD = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/")
# What installing would have made beside the packages' files
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
FOLDERS = ("dev", "etc", "proc", "root", "run", "sys", "tmp", "usr/local/bin", "var/tmp")
USERS = b"root:x:0:0:root:/root:/bin/sh\n"


def make(archive):
    """Write the file system of the base to `archive`, a tar file."""
    with tarfile.open(archive, "w") as tar:
        for folder in FOLDERS:
            _add(tar, folder, tarfile.DIRTYPE, mode=0o1777 if folder.endswith("tmp") else 0o755)
        for name, target in LINKS.items():
            _add(tar, name, tarfile.SYMTYPE, target=target)
        for inside, path in sorted(_files(_closure()).items()):
            tar.add(path, arcname=inside, recursive=False)
        tar.add("/etc/ld.so.cache", arcname="etc/ld.so.cache")
        _add(tar, "etc/passwd", tarfile.REGTYPE, content=USERS)


def _add(tar, name, kind, *, target="", mode=0o755, content=b""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size = kind, target, mode, len(content)
    tar.addfile(info, BytesIO(content))


def _files(packages):
    """Return the files and links that packages have installed, by their place in the base."""
    found, skipped = {}, {f"/{name}" for name in LINKS}
    for path in _query("-L", *packages).splitlines():
        if path in skipped or not path.startswith("/") or path.startswith(UNREAD):
            continue
        if Path(path).is_symlink() or Path(path).is_file():  # folders come with their files
            compiled = cache_from_source(path) if path.endswith(".py") else path
            for file in {path, compiled}:
                if Path(file).exists():
                    found[_place(file)] = file
    return found


def _place(path):
    return re.sub(r"^/(bin|sbin|lib|lib64)/", r"usr/\1/", path).lstrip("/")


def _closure():
    """Return the packages wanted and all that they depend on, as far as installed here."""
    depends, provided = {}, {}
    form = "${Package}\t${Provides}\t${Pre-Depends}, ${Depends}\n"
    for line in _query("-W", "-f", form).splitlines():
        package, provides, needs = line.split("\t")
        depends[package] = [group.split("|") for group in needs.split(",") if group.strip()]
        for name in filter(None, map(_name, provides.split(","))):
            provided.setdefault(name, package)
    found, todo = set(), list(WANTED)
    while todo:
        package = todo.pop()
        if package in found or package in LEFT_OUT:
            continue
        found.add(package)
        for group in depends[package]:
            names = [
                name if name in depends else provided.get(name) for name in map(_name, group)
            ]
            todo += list(filter(None, names))[:1]
    return sorted(found)


def _name(text):
    return re.split(r"[ (:]", text.strip())[0]


def _query(*words):
    command = ["dpkg-query", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
