"""The vectors beside this checkout: data of others, read where it lies, never copied."""

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3].parent / "shared" / "vectors" / "wireguard"

needs_vectors = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="no shared vectors beside this checkout"
)


def load(name):
    """Return what is in a file, or an empty dict, for parametrize, where there is none."""
    path = FOLDER / name
    return json.loads(path.read_text()) if path.is_file() else {}
