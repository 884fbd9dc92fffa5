"""Which labs there are, and the text of one: a built-in name or a file of the user's."""

from dataclasses import dataclass
from pathlib import Path

from netem.topology.spelling import suggestion

BUILT_IN = Path(__file__).parents[1] / "labs"


class LabNotFoundError(ValueError):
    """Neither a built-in lab nor a readable file."""


@dataclass(frozen=True, slots=True)
class LabSource:
    """Where a lab comes from: its short name, its text, and the file that holds it."""

    name: str
    text: str
    path: Path


def built_in() -> list[str]:
    """Return the names of the built-in labs, in order."""
    return sorted(path.parent.name for path in BUILT_IN.glob("*/lab.yaml"))


def title(name: str) -> str:
    """Return the first heading of a built-in lab's README, without its marks."""
    readme = BUILT_IN / name / "README.md"
    first = readme.read_text().splitlines()[0] if readme.exists() else ""
    return first.lstrip("# ").removeprefix(name).lstrip(":- ")


def find(lab: str) -> LabSource:
    """Return the lab that `lab` names; raise LabNotFoundError saying what would be legal."""
    path = BUILT_IN / lab / "lab.yaml"
    if "/" not in lab and path.is_file():
        return LabSource(lab, path.read_text(), path)
    path = Path(lab)
    if path.is_dir():
        path /= "lab.yaml"
    try:
        return LabSource(path.stem if path.stem != "lab" else path.parent.name,
                         path.read_text(), path)  # fmt: skip
    except UnicodeDecodeError as error:
        raise LabNotFoundError(f"{lab}: not a text file ({error.reason})") from error
    except OSError as error:
        why = error.strerror or "cannot be read"
        known = suggestion(lab, built_in(), legal="a lab is a file or one of")
        raise LabNotFoundError(f"{lab}: {why}{known}") from error
