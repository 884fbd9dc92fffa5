"""A lab's picture: as text, as Mermaid (which Markdown viewers draw), and as dot (Graphviz).

Nodes stand in rows by how far they are from the hosts: hosts first, then what they are linked
to, and so on. All three forms name every node and every link; text says beside each link what
it does.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

from netem.impair.describe import describe
from netem.topology.plan import LinkPlan, NodeKind, Plan

Form = Literal["text", "mermaid", "dot"]
FORMS: tuple[Form, ...] = ("text", "mermaid", "dot")

# How each kind of node is drawn: around its name in Mermaid, as a shape in dot.
_MERMAID: Mapping[NodeKind, tuple[str, str]] = {
    "host": ("([", "])"), "switch": ("[", "]"), "linux": ("[[", "]]"), "bridge": ("{{", "}}"),
    "guest": ("([", "])"),
}  # fmt: skip
_DOT: Mapping[NodeKind, str] = {
    "host": "ellipse", "switch": "box", "linux": "box3d", "bridge": "hexagon",
    "guest": "ellipse",
}  # fmt: skip
_WIDTH = 96  # of a line of text


def graph(plan: Plan, form: Form = "text") -> str:
    """Return the picture of a lab, with a line end after each line."""
    lines = {"text": _text, "mermaid": _mermaid, "dot": _dot}[form](plan)
    return "".join(f"{line}\n" for line in lines)


def rows(plan: Plan) -> list[list[str]]:
    """Return the nodes by their distance from the hosts, in the order of the lab."""
    neighbours: dict[str, list[str]] = {node.name: [] for node in plan.nodes}
    for link in plan.links:
        a, b = _ends(link)
        neighbours[a].append(b)
        neighbours[b].append(a)
    row = [node.name for node in plan.nodes if node.kind in {"host", "guest"}]
    far = dict.fromkeys(row, 0)
    found = []
    while row:
        found.append(row)
        following = [n for one in row for n in neighbours[one] if n not in far]
        far |= dict.fromkeys(following, len(found))
        row = [name for name in neighbours if far.get(name) == len(found)]
    left = [name for name in neighbours if name not in far]
    return [*found, left] if left else found


def _ends(link: LinkPlan) -> tuple[str, str]:
    return link.a.partition(":")[0], link.b.partition(":")[0]


def _text(plan: Plan) -> Iterator[str]:
    kinds = {node.name: node.kind for node in plan.nodes}
    yield f"{plan.name}: {len(plan.nodes)} nodes, {len(plan.links)} links"
    yield ""
    for names in reversed(rows(plan)):
        for kind in dict.fromkeys(kinds[name] for name in names):
            yield from _wrapped(kind, [name for name in names if kinds[name] == kind])
    yield ""
    width = max((len(link.name) for link in plan.links), default=0)
    for link in plan.links:
        done = describe(link.a_to_b)
        if link.b_to_a != link.a_to_b:
            done = f"-> {done}, <- {describe(link.b_to_a)}"
        engine = " (tc)" if link.engine == "tc" else ""
        yield f"{link.name:{width}}  mtu {link.mtu} {done}{engine}"


def _wrapped(kind: str, names: list[str]) -> Iterator[str]:
    """Yield a row of names, the lines after the first below its names."""
    line = f"{kind:7}"
    for name in names:
        if len(line) + 1 + len(name) > _WIDTH:
            yield line
            line = " " * 7
        line = f"{line} {name}"
    yield line


def _mermaid(plan: Plan) -> Iterator[str]:
    yield "graph TD"
    kinds = {node.name: node.kind for node in plan.nodes}
    for number, names in enumerate(reversed(rows(plan))):
        yield f"  subgraph row{number} [ ]"
        for name in names:
            left, right = _MERMAID[kinds[name]]
            yield f'    {_id(name)}{left}"{name}"{right}'
        yield "  end"
    for link in plan.links:
        upper, lower = _ends(link)[::-1]
        label = describe(link.a_to_b)
        text = "" if label == "none" or label != describe(link.b_to_a) else f'|"{label}"|'
        yield f"  {_id(upper)} ---{text} {_id(lower)}"


def _id(name: str) -> str:
    """Return a name that Mermaid takes for nothing else: `end` is a word of its own there."""
    return "n_" + name.replace("-", "_")


def _dot(plan: Plan) -> Iterator[str]:
    kinds = {node.name: node.kind for node in plan.nodes}
    yield f'graph "{plan.name}" {{'
    yield "  rankdir=BT;"
    for names in rows(plan):
        yield "  { rank=same;"
        for name in names:
            yield f'    "{name}" [shape={_DOT[kinds[name]]}];'
        yield "  }"
    for link in plan.links:
        a, b = _ends(link)
        ports = link.a.partition(":")[2], link.b.partition(":")[2]
        label = describe(link.a_to_b)
        text = f', label="{label}"' if label not in {"none", ""} else ""
        yield f'  "{a}" -- "{b}" [taillabel="{ports[0]}", headlabel="{ports[1]}"{text}];'
    yield "}"
