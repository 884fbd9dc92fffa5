"""Every lab that can be exported, by the schema that docker-compose 1.29 has installed.

Those of the Compose specification and of containerlab are not here: `tests/interop/README.md`
says when our files were last held against them.
"""

import json
from pathlib import Path

import jsonschema
import pytest

from netem.export.compose import compose
from netem.export.config import Source, planned
from netem.lab.find import built_in, find
from netem.topology.errors import LabError

SCHEMA = Path("/usr/lib/python3/dist-packages/compose/config/compose_spec.json")

pytestmark = [
    pytest.mark.interop,
    pytest.mark.needs("docker_compose"),
    pytest.mark.skipif(
        not SCHEMA.exists(), reason="docker-compose is not Debian's 1.29: later ones have none"
    ),
]


def test_every_exported_lab_is_valid():
    schema = json.loads(SCHEMA.read_text())
    judged = 0
    for lab in built_in():
        try:
            plan = planned(find(lab).text, Source("lab.yaml", lab), "compose")
        except LabError:
            continue
        tree = json.loads(json.dumps(compose(plan, "image")))
        jsonschema.Draft7Validator(schema).validate(tree)
        judged += 1
    assert judged > 15
