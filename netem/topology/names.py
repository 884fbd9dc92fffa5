"""Names of nodes, ports, links and directions: one parser for lab files, flags and captures.

| what | written | stands for |
|---|---|---|
| node | `h0` | |
| port | `h0:p0` | the end of the one link that is there |
| link | `h0:p0--h1:p0` | or `h0--h1` where there is one such link; ends in either order |
| direction | `h0:p0->h1:p0` | or `h0->h1`: what the first sends to the second |

What a name means depends on the lab, so a `Names` is made from its nodes and links. A refusal
says what is legal and which known names are close.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Self

from netem.topology.errors import shown
from netem.topology.plan import Plan
from netem.topology.spelling import suggestion

# IFNAMSIZ is 16 bytes with the closing zero; a port's name is an interface's name.
MAX_INTERFACE_NAME = 15
MAX_HOST_PORTS = 16  # planes that 198.18.0.0/15 has room for at 8192 hosts each

_HOST_PORT = re.compile(r"p(0|[1-9][0-9]?)")
_OTHER_PORT = re.compile(r"e(0|[1-9][0-9]{0,3})")


class NameRefusedError(ValueError):
    """A name that means nothing in this lab. The message is one line."""


def split_port(text: str) -> tuple[str, str]:
    """Return node and interface of `h0:p0`."""
    node, colon, port = text.partition(":")
    if not (node and colon and port) or ":" in port:
        raise NameRefusedError(f"{shown(text)} is not a port; write for example h0:p0")
    return node, port


def check_port_name(port: str, kind: str) -> None:
    """Raise NameRefusedError unless a node of that kind may call an interface `port`."""
    if len(port) > MAX_INTERFACE_NAME:
        raise NameRefusedError(
            f"{shown(port)} has {len(port)} characters; the kernel allows an interface"
            f" {MAX_INTERFACE_NAME}"
        )
    if kind in {"host", "guest"}:
        match = _HOST_PORT.fullmatch(port)
        if match is None or int(match[1]) >= MAX_HOST_PORTS:
            last = MAX_HOST_PORTS - 1
            raise NameRefusedError(
                f"{shown(port)} is no port of a {kind}; legal: p0 to p{last}"
            )
    elif _OTHER_PORT.fullmatch(port) is None:
        raise NameRefusedError(f"{shown(port)} is no port of a {kind}; legal: e0 to e9999")


def plane_of(port: str) -> int:
    """Return the number in a port's name: the plane of a host's port."""
    return int(port[1:])


def is_of(flow: str, wanted: str | None) -> bool:
    """Say whether a flow is meant: "1/h0->h2" means "1/h0->h2/0", "1" does too; None is any."""
    return wanted is None or flow == wanted or flow.startswith(f"{wanted}/")


class Names:
    """What the names of one lab stand for."""

    def __init__(self, nodes: Iterable[str], links: Iterable[tuple[str, str]]) -> None:
        """`links` are pairs of ports, in the order in which the lab names their ends."""
        self.nodes = dict.fromkeys(nodes)
        self.links = {f"{a}--{b}": (a, b) for a, b in links}
        self._peer = dict(self.links.values())
        self._peer |= {b: a for a, b in self.links.values()}
        self._short: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for a, b in self.links.values():
            ends = a.partition(":")[0], b.partition(":")[0]
            self._short.setdefault(ends, []).append((a, b))
            self._short.setdefault(ends[::-1], []).append((b, a))

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Return the names of a planned lab."""
        return cls(
            (node.name for node in plan.nodes), ((link.a, link.b) for link in plan.links)
        )

    @property
    def peers(self) -> Mapping[str, str]:
        """Each port, and the port at the other end of its link."""
        return self._peer

    def node(self, text: str) -> str:
        """Return a node's name."""
        if text not in self.nodes:
            raise NameRefusedError(f"no node {shown(text)}{suggestion(text, self.nodes)}")
        return text

    def port(self, text: str) -> str:
        """Return a port that has a link."""
        node, _ = split_port(text)
        self.node(node)
        if text not in self._peer:
            here = [port for port in self._peer if port.startswith(f"{node}:")]
            rest = suggestion(text, here, f"ports of {node}")
            raise NameRefusedError(f"no link at {shown(text)}{rest}")
        return text

    def link(self, text: str) -> str:
        """Return a link's full name, `a:p0--b:p0` with its ends in the lab's order."""
        a, b = self._ends(text, "--", "a link", "h0:p0--h1:p0 or h0--h1")
        return f"{a}--{b}" if f"{a}--{b}" in self.links else f"{b}--{a}"

    def direction(self, text: str) -> tuple[str, str]:
        """Return the sending and the receiving port of one direction."""
        return self._ends(text, "->", "a direction", "h0:p0->h1:p0 or h0->h1")

    def egress(self, text: str) -> str:
        """Return the sending port that a port or a direction stands for."""
        if "--" in text:
            raise NameRefusedError(
                f"{shown(text)} has two directions; write one: {text.replace('--', '->', 1)}"
            )
        return self.direction(text)[0] if "->" in text else self.port(text)

    def egresses(self, text: str) -> tuple[str, ...]:
        """Return the sending ports of a port, a direction, or both directions of a link."""
        return self.links[self.link(text)] if "--" in text else (self.egress(text),)

    def _ends(self, text: str, mark: str, what: str, example: str) -> tuple[str, str]:
        """Return the two ports that `text` names around `mark`, in its order."""
        one, found, other = text.partition(mark)
        if not found or not one or not other or mark in other:
            raise NameRefusedError(f"{shown(text)} is not {what}; write for example {example}")
        if (":" in one) != (":" in other):
            raise NameRefusedError(f"{shown(text)} is a port and a node; write {example}")
        if ":" in one:
            if self._peer.get(self.port(one)) != self.port(other):
                raise NameRefusedError(
                    f"no link between {one} and {other}; {one} is linked to {self._peer[one]}"
                )
            return one, other
        candidates = self._short.get((self.node(one), self.node(other)), [])
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            full = ", ".join(mark.join(ends) for ends in candidates[:8])
            raise NameRefusedError(
                f"{shown(text)} is one of {len(candidates)} links; legal: {full}"
            )
        at = [self._peer[port] for port in self._peer if port.startswith(f"{one}:")]
        near = ", ".join(sorted({port.partition(":")[0] for port in at})) or "nothing"
        raise NameRefusedError(f"no link between {one} and {other}; {one} is linked to {near}")
