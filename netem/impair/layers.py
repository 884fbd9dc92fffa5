"""What holds in one direction: the lab file's values, and what people have laid over them.

    timed     loss 5% until 12s          lifted when their time is over,
    layers    delay 2ms until 9s         the latest counts
    set       rate 1gbit                 without an end
    ground    the lab file's values      as its schedule changes them

Each layer holds only the keys that it was given; of a key in several of them the uppermost
counts. So *for a time* means: when it is over, the layer is lifted, and what lies below holds
again, as it is by then. What was set without an end meanwhile stays, since a key that is set
so is taken out of all timed layers: who spoke last is heard.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

from msgspec.structs import replace

from netem.impair.model import Impairment
from transports.clock import Ns

# Limit: 64 timed layers of one direction: people and scripts need two or three.
MOST = 64
# Beside the keys of an Impairment: whether the link is taken down, and the nodes at it know.
DOWN, CARRIER = "down", "carrier"

Change = Mapping[str, object]  # keys of an Impairment, DOWN, CARRIER


class LayersFullError(ValueError):
    """So many timed changes of one direction are in force that this one is refused."""


class Layer(NamedTuple):
    """Some keys and how long they hold; None: without an end."""

    until: Ns | None
    keys: Change


class Layers:
    """The layers of one direction."""

    def __init__(self, ground: Impairment, above: Iterable[Layer] = ()) -> None:
        """Lay `above` over `ground`: what has no end first, as the property gives it."""
        self.ground = ground
        self._set: dict[str, object] = {}
        self._timed: list[Layer] = []
        for layer in above:
            self.lay(layer.keys, layer.until)

    def lay(self, change: Change, until: Ns | None = None) -> None:
        """Let `change` hold, up to `until` or without an end; raise LayersFullError."""
        if until is not None:
            if len(self._timed) >= MOST:
                raise LayersFullError(f"{MOST} changes for a time are in force already")
            self._timed.append(Layer(until, dict(change)))
            return
        self._set |= change
        kept = (
            Layer(layer.until, {k: v for k, v in layer.keys.items() if k not in change})
            for layer in self._timed
        )
        self._timed = [layer for layer in kept if layer.keys]

    def copy(self) -> Self:
        """Return layers that say the same and change on their own."""
        return type(self)(self.ground, self.above)

    def clear(self) -> None:
        """Go back to the lab file's values."""
        self._set.clear()
        self._timed.clear()

    def expire(self, now: Ns) -> None:
        """Lift the layers whose time is over."""
        self._timed = [layer for layer in self._timed if _end(layer) > now]

    @property
    def deadline(self) -> Ns | None:
        """When the next layer is lifted, or None."""
        return min(map(_end, self._timed), default=None)

    @property
    def above(self) -> list[Layer]:
        """Return what is laid over the ground, from below."""
        below = [Layer(None, dict(self._set))] if self._set else []
        return below + self._timed

    @property
    def impairment(self) -> Impairment:
        """Return what holds."""
        keys = self._keys()
        for key in (DOWN, CARRIER):
            keys.pop(key, None)
        return replace(self.ground, **keys) if keys else self.ground

    @property
    def is_down(self) -> bool:
        """Say whether a layer takes the link down."""
        return bool(self._keys().get(DOWN))

    @property
    def is_dark(self) -> bool:
        """Say whether a layer takes the link down, and the nodes at its ends are to know."""
        return self.is_down and bool(self._keys().get(CARRIER))

    def _keys(self) -> dict[str, object]:
        keys: dict[str, object] = {}
        for layer in self.above:
            keys |= layer.keys
        return keys


def _end(layer: Layer) -> Ns:
    assert layer.until is not None
    return layer.until
