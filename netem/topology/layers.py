"""Keys laid over one another: a node's own over the defaults, a class's over the queue's."""

from msgspec.structs import fields, replace

from netem.topology.reading import Spec, SpecT


def laid(base: SpecT, top: Spec) -> SpecT:
    """Return `base` with what `top` writes over it, key by key, mappings inside them as well.

    A key that `top` does not write is None or an empty mapping. Keys that only one of the two
    has stay as they are in `base`.
    """
    known = {field.name for field in fields(base)}
    changes = {}
    for field in fields(top):
        if field.name in known:
            below, above = getattr(base, field.name), getattr(top, field.name)
            changes[field.name] = _over(below, above)
    return replace(base, **changes)


def _over(below: object, above: object) -> object:
    """Return one value: the upper one, the lower one, or one over the other."""
    if isinstance(below, Spec) and type(above) is type(below):
        return laid(below, above)
    if isinstance(below, dict) and isinstance(above, dict):
        merged = {key: _over(below.get(key), above.get(key)) for key in below | above}
        return dict(sorted(merged.items())) if above else below
    return below if above is None else above
