"""A lab's whole topology: what `fabric:` makes, and what `topology:` adds to it or changes.

A node of `topology.nodes` that a generator has made keeps its place and its links, and has its
own keys laid over what the generator gave it; so a generated switch becomes a kernel router by
`t0-p0-0: {kind: linux}`. A link whose two ends are those of a generated one likewise says more
about that one. Whatever else is there is added. Then nodes get their numbers: hosts theirs,
everything else theirs, in the order of the lab. With the number of hosts known, an all-reduce
of the workload becomes the messages that it is made of.
"""

from msgspec.structs import replace

from netem.topology.fabric import FabricError, generate
from netem.topology.layers import laid
from netem.topology.link_model import LinkSpec
from netem.topology.model import MAX_LINKS, MAX_NODES, ItemSpec, Lab, NodeSpec, TopologySpec
from netem.topology.settings import kind_of


def assembled(lab: Lab, problems: list[str]) -> Lab:
    """Return the lab with all its nodes and links, numbered; note what cannot be."""
    topology = TopologySpec()
    if lab.fabric is not None:
        try:
            topology = generate(lab.fabric, lab.defaults.link)
        except FabricError as error:
            where = ".".join(filter(None, ("fabric", error.key)))
            problems.append(f"{where}: {error}")
    nodes = _nodes(topology.nodes, lab.topology.nodes, problems)
    links = _links(topology.links, lab.topology.links)
    for what, count, most in (
        ("nodes", len(nodes), MAX_NODES),
        ("links", len(links), MAX_LINKS),
    ):
        if count > most:
            problems.append(
                f"topology.{what}: {count} with those of the fabric; at most {most}"
            )
    hosts = sum(kind_of(node) in {"host", "guest"} for node in nodes.values())
    return replace(
        lab,
        topology=TopologySpec(nodes=_numbered(nodes), links=links),
        workload=tuple(_in_pieces(item, hosts) for item in lab.workload),
    )


def _in_pieces(item: ItemSpec, hosts: int) -> ItemSpec:
    """Return an all-reduce as the messages of its ring, anything else as it is.

    What a host holds is cut in one piece per host, and a piece over the queue pairs. In the
    first half of the steps a host adds up what comes and passes it on, in the second it hands
    on the sums: each goes once round but for its last link, twice. Patarasuk and Yuan, 2009.
    """
    hosts = len(item.over) or hosts
    if item.pattern != "all_reduce" or hosts < 2:
        return item
    pieces = hosts * item.qps
    return replace(
        item,
        size=tuple(-(-size // pieces) for size in item.size),
        count=item.count * 2 * (hosts - 1),
    )


def _nodes(
    made: dict[str, NodeSpec], written: dict[str, NodeSpec], problems: list[str]
) -> dict[str, NodeSpec]:
    nodes = dict(made)
    for name, spec in written.items():
        own = nodes.get(name)
        if own is None:
            nodes[name] = replace(spec, kind=kind_of(spec))
            continue
        if spec.kind is not None and (spec.kind == "host") != (own.kind == "host"):
            problems.append(f"{spec.location}.kind: the fabric's {name} is a {own.kind}")
        nodes[name] = laid(own, spec)
    return nodes


def _links(made: tuple[LinkSpec, ...], written: tuple[LinkSpec, ...]) -> tuple[LinkSpec, ...]:
    links = {frozenset(link.endpoints): link for link in made}
    added = []
    for link in written:
        ends = frozenset(link.endpoints)
        own = links.get(ends)
        if own is None:
            added.append(link)
        else:
            links[ends] = replace(laid(own, link), endpoints=own.endpoints)
    return (*links.values(), *added)


def _numbered(nodes: dict[str, NodeSpec]) -> dict[str, NodeSpec]:
    hosts = others = 0
    numbered = {}
    for name, spec in nodes.items():
        if spec.kind in {"host", "guest"}:
            numbered[name] = replace(spec, number=hosts)
            hosts += 1
        else:
            numbered[name] = replace(spec, number=others)
            others += 1
    return numbered
