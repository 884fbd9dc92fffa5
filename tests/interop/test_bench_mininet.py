"""The start of a large lab beside Mininet's: both are measured.

How they compare is a figure of the host's, which the test prints and does not judge.
"""

import json
import sys
from pathlib import Path

import jsonschema
import pytest

import netem.bench
from tests.labs.commands import fabriclab

SCHEMA = Path(netem.bench.__file__).with_name("bench.schema.json")

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.mark.needs("netns", "mininet")
def test_the_start_of_64_hosts_is_measured_beside_mininets(tmp_path, capsys):
    ran = fabriclab("bench", "lab-start", "--json", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    (figure,) = report["benchmarks"]
    assert figure["ceiling"]["name"].startswith("Mininet")
    ours, theirs = figure["value"], figure["ceiling"]["value"]
    assert min(ours, theirs) > 0
    with capsys.disabled():
        sys.stdout.write(f"\n64 hosts up and down: {ours:.2f} s, Mininet {theirs:.2f} s ")
