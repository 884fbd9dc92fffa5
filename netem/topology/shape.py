"""Shapes laid over one another: from the keys that were written to what a direction does."""

from collections.abc import Iterator

from msgspec.structs import replace

from netem.impair.model import NEUTRAL, Impairment
from netem.topology.link_model import NO_RATE, Shape

_KEYS = Shape.__struct_fields__


def impairment(*shapes: Shape) -> Impairment:
    """Return what the shapes say together; of a key written twice the last counts."""
    result = NEUTRAL
    for shape in shapes:
        result = changed(result, shape)
    return result


def changed(before: Impairment, shape: Shape) -> Impairment:
    """Return `before` with the keys that `shape` writes, the rest as it was."""
    written = {key: getattr(shape, key) for key in written_keys(shape)}
    if written.get("rate") == NO_RATE:
        written["rate"] = None
    return replace(before, **written)


def written_keys(shape: Shape) -> list[str]:
    """Return the keys that a shape writes."""
    return [key for key in _KEYS if getattr(shape, key) is not None]


def idle_keys(given: Impairment) -> Iterator[tuple[str, str]]:
    """Yield keys that cannot do what was asked, as tc refuses them, and what they need."""
    if given.reorder and not (given.delay or given.jitter):
        yield "reorder", "does nothing without delay: a frame overtakes those that wait"
    if given.gap and not given.reorder:
        yield "gap", "does nothing without reorder"
    if given.distribution != "uniform" and not given.jitter:
        yield "distribution", "does nothing without jitter"
