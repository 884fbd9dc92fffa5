"""Links that are too small for a packet, by name, with the sum that says so."""

from collections.abc import Iterable, Iterator

from netem.topology.link_model import LinkSpec
from netem.topology.model import Lab
from netem.topology.mtu import MtuSum
from netem.topology.settings import link_mtu


def too_small(lab: Lab, links: Iterable[LinkSpec], needed: MtuSum, what: str) -> Iterator[str]:
    """Yield the links whose MTU is below a sum, generated ones of a tier together."""
    groups: dict[tuple[str, int], list[LinkSpec]] = {}
    for link in links:
        mtu = link_mtu(lab, link)
        if mtu < needed.packet:
            groups.setdefault((link.location, mtu), []).append(link)
    for (location, mtu), members in groups.items():
        first, more = "--".join(members[0].endpoints), len(members) - 1
        others = f" and {more} more" if more else ""
        where = f" ({first}{others})" if location.startswith("fabric.") else ""
        yield (
            f"{location}.mtu: {mtu} is too small for {what}{where};"
            f" legal: {needed.packet} or more: {needed.text}"
        )
