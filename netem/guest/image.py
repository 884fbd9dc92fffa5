"""The guest's kernel and first file system, made from Debian's packages and kept in a cache.

What goes in: a few programs with all libraries that the guest's own loader names for them,
Python, the kernel modules that labs and tests ask for with those that these need, `init` and
`agent.py`. The folder it is kept in carries a hash of the packages' versions and of the files
beside this one, so a changed image is another image, and nothing has to be cleared by hand.
"""

import hashlib
import json
import lzma
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from struct import Struct

from netem.guest import cpio, packages

HERE = Path(__file__).parent

PROGRAMS = (
    *("busybox", "ip", "tc", "rdma", "wg", "python3"),
    *("ibv_devinfo", "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong"),
    *("ibv_srq_pingpong", "rping", "ucmatose", "udaddy", "rdma_client", "rdma_server"),
    *("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw"),
    *("ib_write_lat", "ib_read_lat", "ib_send_lat", "ib_atomic_lat"),
)
FIRST_MODULES = ("virtio_pci", "virtio_console")  # without these nobody can ask for others
MODULES = (
    *FIRST_MODULES,
    *("virtio_net", "veth", "sch_netem", "sch_tbf", "9p", "9pnet_virtio", "configfs"),
    "wireguard",
    # rdma_rxe asks for the hash crc32 by name, not by a symbol: nobody lists it as needed.
    *("crc32_generic", "crc32c_generic", "rdma_rxe", "rdma_ucm", "ib_umad"),
)
# Loaded by name at run time, so no program lists them as needed.
_PLUGINS = ("libgcc_s.so.1", "libibverbs/librxe-*.so")
_DATA = ("etc/libibverbs.d/rxe.driver", "usr/lib/*/tc/*.dist")
_NO_PYTHON = {"test", "idlelib", "lib2to3", "pydoc_data", "turtledemo", "ensurepip", "tkinter"}
_COMPILED = ("collections", "ctypes", "encodings", "importlib", "json", "re", "")


@dataclass(frozen=True, slots=True)
class Image:
    """What QEMU boots, and what can be loaded into it."""

    kernel: Path
    initrd: Path
    release: str  # of the kernel
    modules: dict[str, list[str]]  # a module, and all to be loaded for it, in order


def image() -> Image:
    """Return the image, made now if it is not in the cache; PackageError if it cannot be."""
    versions = _versions()
    made = cache_folder() / f"image-{_key(versions)}"
    if not made.exists():
        _make(versions, made)
    about = json.loads((made / "about.json").read_text())
    return Image(made / "kernel", made / "initrd", about["release"], about["modules"])


def cache_folder() -> Path:
    """Return where packages and images are kept, outside of any checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fabriclab" / "guest"


def _versions() -> dict[str, str]:
    """Ask apt, which takes seconds, only where its lists are others than last time."""
    lists = sorted(
        (path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for path in Path("/var/lib/apt/lists").glob("*")
        if path.is_file()
    )
    asked = _hash(repr((lists, packages.TOOLS, packages.KERNEL)).encode())
    answer = cache_folder() / f"versions-{asked}.json"
    if not answer.exists():
        answer.parent.mkdir(parents=True, exist_ok=True)
        _replace(answer, json.dumps(packages.resolve()).encode())
    versions: dict[str, str] = json.loads(answer.read_text())
    return versions


def _key(versions: dict[str, str]) -> str:
    names = ("image.py", "packages.py", "cpio.py", "init", "agent.py")
    sources = [(HERE / name).read_bytes() for name in names]
    return _hash(repr(sorted(versions.items())).encode(), *sources)


def _hash(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, whoever else is at it."""
    fd, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(fd, "wb") as out:
        out.write(data)
    Path(name).replace(path)


def _make(versions: dict[str, str], made: Path) -> None:
    with tempfile.TemporaryDirectory(dir=made.parent, prefix="making-") as folder:
        root, new = Path(folder) / "root", Path(folder) / "new"
        new.mkdir()
        packages.unpack(versions, made.parent / "debs", root)
        [kernel] = root.glob("boot/vmlinuz-*")
        release = kernel.name.removeprefix("vmlinuz-")
        modules = Modules(root / "lib/modules" / release)
        (new / "kernel").write_bytes(_unpacked(kernel.read_bytes()))
        with (new / "initrd").open("wb") as out:
            out.writelines(cpio.archive(_entries(root, modules)))
        loads = {name: modules.order(name) for name in MODULES}
        about = {"release": release, "modules": loads, "packages": versions}
        (new / "about.json").write_text(json.dumps(about, indent=1))
        if not made.exists():  # else somebody was faster
            new.rename(made)


def _unpacked(kernel: bytes) -> bytes:
    """Return the kernel proper: unpacking itself would take it a third of the time to boot.

    Documentation/arch/x86/boot.rst of the kernel. One packed in another way stays as it is.
    """
    [sectors] = Struct("<B").unpack_from(kernel, 0x1F1)
    offset, size = Struct("<II").unpack_from(kernel, 0x248)
    start = (sectors + 1) * 512 + offset
    packed = kernel[start : start + size]
    if not packed.startswith(b"\xfd7zXZ"):
        return kernel
    return lzma.LZMADecompressor().decompress(packed)  # behind its end is the size, again


def _entries(root: Path, modules: "Modules") -> Iterator[cpio.Entry]:
    """Yield all that the guest starts with."""
    for name in ("dev", "proc", "run", "sys", "tmp", "root", "mnt"):
        yield cpio.folder(name)
    for name in ("bin", "sbin", "lib", "lib64"):  # as Debian has it since usr was merged
        yield cpio.link(name, f"usr/{name}")
    yield cpio.link("bin/sh", "busybox")
    yield cpio.file("init", (HERE / "init").read_bytes(), 0o755)
    yield cpio.file("agent.py", (HERE / "agent.py").read_bytes())
    wanted = dict.fromkeys(name for first in FIRST_MODULES for name in modules.order(first))
    yield cpio.file("modules/first", "".join(f"{name}\n" for name in wanted).encode())
    for name in dict.fromkeys(name for first in MODULES for name in modules.order(first)):
        yield cpio.file(f"modules/{name}.ko", modules.data(name))
    for path in _files(root):
        yield _entry(root, path)


def _entry(root: Path, path: Path) -> cpio.Entry:
    name = str(path.relative_to(root))
    if name.partition("/")[0] in {"bin", "sbin", "lib", "lib64"}:
        name = f"usr/{name}"
    if path.is_symlink():
        return cpio.link(name, str(path.readlink()))
    return cpio.file(name, path.read_bytes(), path.stat().st_mode & 0o777)


def _files(root: Path) -> Iterator[Path]:
    """Yield programs, libraries, Python and data, in the unpacked packages."""
    programs = [_program(root, name) for name in PROGRAMS]
    plugins = [path for name in _PLUGINS for path in _libraries(root, name)]
    python = next(root.glob("usr/lib/python3.[0-9]*"))
    _compile(root, python)
    extensions = [*python.glob("lib-dynload/*.so")]
    needed = _needed(root, (*programs, *plugins, *extensions))
    yield from _with_targets((*programs, *plugins, *sorted(needed), *root.glob("lib64/*")))
    for path in sorted(python.rglob("*")):
        inside = path.relative_to(python)
        if path.is_file() and not _NO_PYTHON & set(inside.parts):
            yield path
    for pattern in _DATA:
        yield from sorted(root.glob(pattern))


def _with_targets(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield each path, and behind a link what it leads to."""
    for start in paths:
        path = start
        while path.is_symlink() and not path.readlink().is_absolute():
            yield path
            path = path.parent / path.readlink()
        yield path


def _program(root: Path, name: str) -> Path:
    for folder in ("bin", "sbin", "usr/bin", "usr/sbin"):
        if (path := root / folder / name).exists():
            return path
    raise packages.PackageError(f"no package brought the program {name}")


def _libraries(root: Path, name: str) -> list[Path]:
    found = [path for folder in _library_folders(root) for path in sorted(folder.glob(name))]
    if not found:
        raise packages.PackageError(f"no package brought the library {name}")
    return found


@cache
def _library_folders(root: Path) -> tuple[Path, ...]:
    tuples = [*root.glob("lib/*-linux-gnu"), *root.glob("usr/lib/*-linux-gnu")]
    return tuple(dict.fromkeys(tuples))


def _loader(root: Path, *argv: str | Path) -> str:
    """Run the guest's own loader here: it runs programs of the guest, or names their needs."""
    [loader] = _libraries(root, "ld-linux-*")
    where = ":".join(map(str, _library_folders(root)))
    done = subprocess.run(
        (loader, "--library-path", where, *argv),
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    if done.returncode:
        raise packages.PackageError(f"{argv}: {done.stderr or done.stdout}")
    return done.stdout


def _needed(root: Path, programs: Iterable[Path]) -> set[Path]:
    """Return the libraries that all these name, and those that they name in turn."""
    needed: set[Path] = set()
    for program in programs:
        if program.name.startswith("busybox"):
            continue  # static: it needs nothing, and the loader says so by failing
        listed = _loader(root, "--list", program)
        for path in re.findall(r" => (\S+)", listed):
            if not Path(path).is_relative_to(root):
                raise packages.PackageError(f"{program.name} needs {path} of this host")
            needed.add(Path(path))
    return needed


def _compile(root: Path, python: Path) -> None:
    """Compile what is imported often: under emulation that takes a second or two each time."""
    program = _program(root, "python3").resolve()
    for name in _COMPILED:
        _loader(root, program, "-I", "-m", "compileall", "-q", "-l",
                "--invalidation-mode", "unchecked-hash", python / name)  # fmt: skip


class Modules:
    """The modules of one kernel, below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._files = {
            path.name.partition(".")[0].replace("-", "_"): path
            for path in folder.rglob("*.ko*")
        }
        builtin = (folder / "modules.builtin").read_text().split()
        self._builtin = {Path(line).stem.replace("-", "_") for line in builtin}

    def data(self, name: str) -> bytes:
        path = self._files[name]
        data = path.read_bytes()
        return lzma.decompress(data) if path.suffix == ".xz" else data

    def order(self, name: str) -> list[str]:
        """Return what is to be loaded for `name`, itself last; nothing where it is built in."""
        if name in self._builtin:
            return []
        if name not in self._files:
            raise packages.PackageError(f"this kernel has no module {name}")
        found = re.search(rb"\0depends=([^\0]*)\0", self.data(name))
        needs = found[1].decode().split(",") if found and found[1] else []
        before = [other for need in needs for other in self.order(need.replace("-", "_"))]
        return list(dict.fromkeys([*before, name]))


if __name__ == "__main__":
    sys.stdout.write(f"{image().initrd.parent}\n")
