"""One engine and one image for all tests with containers."""

import shutil
import time
from pathlib import Path

import pytest

from tests.interop.docker import base, engine, wheels

CHECKOUT = Path(__file__).parents[3]
IMAGE = "fabriclab"
BASE = "fabriclab-base"


class Image:
    """The image, and what making it took."""

    def __init__(self, size, base_size, seconds):
        self.size, self.base_size, self.seconds = size, base_size, seconds


@pytest.fixture(scope="session")
def docker(tmp_path_factory):
    with engine.running(tmp_path_factory.mktemp("engine")) as found:
        yield found


@pytest.fixture(scope="session")
def image(docker, tmp_path_factory):
    """The image, made of a base that is made here, and of wheels, without a network."""
    folder = tmp_path_factory.mktemp("image")
    base.make(folder / "base.tar")
    docker.docker("import", str(folder / "base.tar"), BASE)
    context = folder / "context"
    shutil.copytree(CHECKOUT / "docker", context / "docker")
    wheels.fill(context / "docker" / "wheels")
    begun = time.monotonic()
    file = context / "docker" / "Dockerfile"
    arguments = ("-f", str(file), "-t", IMAGE, "--build-arg", f"BASE={BASE}")
    docker.docker("build", *arguments, str(context))
    took = time.monotonic() - begun
    return Image(_size(docker, IMAGE), _size(docker, BASE), took)


def _size(docker, name):
    return int(docker.docker("image", "inspect", "-f", "{{.Size}}", name).stdout)
