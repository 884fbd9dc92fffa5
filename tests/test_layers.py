"""Three layers, one direction; inside netem, the pure parts stay pure."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PURE = {
    "abc", "bisect", "collections", "dataclasses", "enum", "functools", "heapq", "ipaddress",
    "itertools", "math", "operator", "struct", "typing", "zlib",
}  # fmt: skip
TRANSPORTS = PURE | {
    "wire", "transports", "base64", "cryptography", "hashlib", "hmac", "json", "random",
}  # fmt: skip
MAY_IMPORT = {
    "wire": PURE | {"wire", "isal"},
    "transports": TRANSPORTS,
    "netem/topology": TRANSPORTS | {"msgspec", "yaml", "re"},
    "netem/impair": TRANSPORTS | {"msgspec"},
    "netem/host": TRANSPORTS | {"msgspec", "re"},
    "netem/sim": TRANSPORTS | {"msgspec"},
    "netem/switch": TRANSPORTS | {"msgspec"},
}
# Inside netem: which of our own packages each part may use (style: world below people).
NETEM_MAY_USE = {
    "topology": {"topology", "impair"},
    "impair": {"topology", "impair"},
    "host": {"topology", "impair", "host"},
    "sim": {"topology", "impair", "host", "sim", "switch"},
    "switch": {"topology", "impair", "host", "switch"},
    "kernel": {"topology", "kernel", "impair"},
    "sockets": {"kernel", "sockets"},
    "guest": {"topology", "kernel", "guest"},
    "verbs": {"topology", "kernel", "sockets", "verbs"},
    "capture": {"topology", "kernel", "sockets", "capture", "clock"},
    "node": {
        "topology", "impair", "host", "kernel", "sockets", "capture", "node", "switch", "clock",
    },
    "overlay": {
        "topology", "impair", "host", "kernel", "sockets", "capture", "node", "switch", "clock",
        "overlay",
    },
}  # fmt: skip


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_layer_imports_nothing_above_it(layer):
    for path in sorted((ROOT / layer).rglob("*.py")):
        allowed = (
            MAY_IMPORT[layer] | {"netem"} if layer.startswith("netem") else MAY_IMPORT[layer]
        )
        assert {name.partition(".")[0] for name in imports(path)} <= allowed, path


@pytest.mark.parametrize("part", NETEM_MAY_USE)
def test_inner_part_of_netem_uses_only_what_lies_below_it(part):
    for path in sorted((ROOT / "netem" / part).rglob("*.py")):
        used = {name.split(".")[1] for name in imports(path) if name.startswith("netem.")}
        assert used <= NETEM_MAY_USE[part], path


def test_the_three_packages_are_this_project():
    for name in ("wire", "transports", "netem"):
        __import__(name)
        assert Path(sys.modules[name].__file__).parents[1] == ROOT
