"""The folder of an exported lab: what `docker compose up` or `containerlab deploy` starts from.

docker-compose.yaml, or NAME.clab.yaml    the topology
lab.yaml                                  the lab file, to be changed at will
config/NAME.json                          what each container is, see `config`
captures/                                 where the judge puts its run folders
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import yaml

from netem.export.config import ContainerConfig
from netem.topology.errors import LabError

COMPOSE = "docker-compose.yaml"
LAB = "lab.yaml"
CONFIG = "config"
CAPTURES = "captures"
SHARED = "shared"  # where no volume does it


def write(
    out: Path,
    topology: str,
    tree: object,
    text: str,
    configs: Mapping[str, ContainerConfig],
    *,
    force: bool = False,
) -> None:
    """Write the folder `out`; what was there of an export of the same lab before is replaced.

    Raise LabError where that cannot be, in one line; without `force` also where something else
    would be overwritten.
    """
    try:
        if not force and (other := _of_another(out, topology, text, configs)) is not None:
            remedy = "give another folder with --out, or overwrite it with --force"
            raise LabError([f"{other} is not of an export of this lab; {remedy}"])
        (out / CONFIG).mkdir(parents=True, exist_ok=True)
        (out / CAPTURES).mkdir(exist_ok=True)
        (out / CAPTURES / ".gitignore").write_text("*\n!.gitignore\n")
        if not (out / LAB).exists() or (out / LAB).read_text() != text:
            (out / LAB).write_text(text)
        (out / topology).write_text(rendered(tree))
        for name, config in configs.items():
            (out / CONFIG / f"{name}.json").write_bytes(as_json(config))
        for old in (out / CONFIG).glob("*.json"):
            if old.stem not in configs:
                old.unlink()
    except OSError as error:
        raise LabError([f"{error.filename or out}: {error.strerror}"]) from None


def _of_another(
    out: Path, topology: str, text: str, configs: Mapping[str, ContainerConfig]
) -> Path | None:
    """Return the first file that is in the way and came by no export of the same lab.

    The same lab is one of the same name, or one that lies in the folder word by word: changed
    there, it is exported again from there.
    """
    own = out / LAB
    is_here = own.exists() and own.read_bytes() == text.encode()
    mine = next(iter(configs.values()))
    before = sorted((out / CONFIG).glob("*.json"))
    for path in before:
        try:
            config = msgspec.json.decode(path.read_bytes(), type=ContainerConfig)
        except msgspec.MsgspecError:
            return path
        is_of_same_lab = is_here or config.source.name == mine.source.name
        if not is_of_same_lab or config.form != mine.form:
            return path
    in_the_way = () if before else (own,) * (not is_here) + (out / topology,)
    return next((path for path in in_the_way if path.exists()), None)


def rendered(tree: object) -> str:
    """Return the YAML of a topology file, in the order in which it was made."""
    text: str = yaml.safe_dump(tree, sort_keys=False, width=96)
    return text


def as_json(config: ContainerConfig) -> bytes:
    """Return a config file's content: indented, for people."""
    return msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n"
