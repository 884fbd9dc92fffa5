"""Lab file text to a Lab, or to a LabError that lists everything wrong with it."""

import re
from collections.abc import Mapping

from msgspec.structs import replace

from netem.topology.assembly import assembled
from netem.topology.checks import check
from netem.topology.errors import LabError, shown
from netem.topology.model import LAB_NAME, Lab
from netem.topology.reading import read_keys
from netem.topology.transport_model import TransportSpec
from netem.topology.tree import Tree, copied, read_tree

_STEP = re.compile(r"([^.\[\]]+)|\[([0-9]{1,4})\]")


def load_lab(
    text: str, *, name_hint: str = "lab", overrides: Mapping[str, object] | None = None
) -> Lab:
    """Return the lab that `text` describes, with `overrides` laid over it.

    An override's key is a path as the messages print it, `defaults.host.mode` or
    `topology.links[0].delay`; its value is read as the lab file's are. `name_hint` is the name
    of a lab that does not say its own. Raises LabError, and nothing else, for any text.
    """
    tree = read_tree(text)
    if tree is None:
        raise LabError(
            ["the lab is empty; it needs at least fabric: {...} or topology: {nodes: {...}}"]
        )
    if not isinstance(tree, dict):
        raise LabError([f"the lab is {shown(tree)}; it must be a mapping of keys"])
    problems: list[str] = []
    for path, value in (overrides or {}).items():
        _override(tree, path, value, problems)
    tree.setdefault("name", _name_from(name_hint))
    lab = read_keys(Lab, tree, "", problems)
    if not tree.keys() & {"fabric", "topology"}:
        problems.append("topology: missing; or write fabric: {kind: clos, ...}")
    elif lab is not None and _has_topology(tree, lab):
        if not lab.transports and "transports" not in tree:
            lab = replace(lab, transports={"rc": TransportSpec()})
        before = len(problems)
        lab = assembled(lab, problems)
        if len(problems) == before:
            check(lab, problems)
    if problems or lab is None:
        raise LabError(problems)
    return lab


def _has_topology(tree: dict[str, Tree], lab: Lab) -> bool:
    """Say whether what is written of nodes and links could be read at all."""
    written = tree.get("topology")
    is_readable = written is None or isinstance(written, dict)
    return is_readable and (lab.fabric is not None or "fabric" not in tree)


def _name_from(hint: str) -> str:
    """Return a legal lab name as close to `hint` as may be."""
    name = re.sub(r"[^a-z0-9-]+", "-", hint.lower()).strip("-")[:40]
    return name if LAB_NAME.pattern.fullmatch(name) else "lab"


def _override(tree: dict[str, Tree], path: str, value: object, problems: list[str]) -> None:
    """Set one key of the tree; mappings on the way are made where they are missing."""
    try:
        new = read_tree(value) if isinstance(value, str) else _plain(value)
    except LabError as error:
        problems.extend(f"{shown(path)}: {line}" for line in error.problems)
        return
    steps = _steps(path)
    if not steps:
        problems.append(
            f"{shown(path)}: not a key; write for example defaults.host.mode"
            " or topology.links[0].delay"
        )
        return
    inside: Tree = tree
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if isinstance(inside, dict) and isinstance(step, str):
            if following is None:
                inside[step] = new
            elif inside.get(step) is None:
                inside[step] = {}
            inside = inside[step]
        elif isinstance(inside, list) and isinstance(step, int) and step < len(inside):
            if following is None:
                inside[step] = new
            inside = inside[step]
        else:
            where = f"[{step}]" if isinstance(step, int) else step
            problems.append(f"{shown(path)}: the lab has nothing at {shown(where)}")
            return


def _steps(path: str) -> list[str | int]:
    """Return the keys and indices of `a.b[2].c`; nothing where it is not a path."""
    steps: list[str | int] = []
    for part in path.split("."):
        end = 0
        while match := _STEP.match(part, end):
            if (match[1] is not None) != (end == 0):
                return []
            steps.append(match[1] if match[1] is not None else int(match[2]))
            end = match.end()
        if end != len(part) or not part:
            return []
    return steps


def _plain(value: object) -> Tree:
    """Return a value that is not text as a tree of its own."""
    match value:
        case None | bool() | int() | float():
            return value
        case list() | tuple():
            return [_plain(one) for one in value]
        case dict():
            return {str(key): copied(_plain(one)) for key, one in value.items()}
    return str(value)
