"""What `bench --json` prints, against the schema in the package."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

import netem.bench
from netem.bench.figures import NAME, SCHEMA_VERSION, Benchmark, Ceiling, Table, report

SCHEMA = json.loads(Path(netem.bench.__file__).with_name("bench.schema.json").read_text())
FIGURE = Benchmark("rc-write-4096-datagram", 4e9, "bit/s", Ceiling("bare loop", 16e9))


def printed(*benchmarks):
    return json.loads(msgspec.json.encode(report(list(benchmarks))))


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_report_is_strict_json_that_the_schema_accepts():
    """L06, L07: machine-readable, versioned, with a schema in the package."""
    jsonschema.validate(printed(FIGURE), SCHEMA)
    jsonschema.validate(printed(), SCHEMA)


def test_a_report_has_the_version_that_the_schema_has():
    assert printed()["schema_version"] == SCHEMA_VERSION
    assert SCHEMA["properties"]["schema_version"] == {"const": SCHEMA_VERSION}


def test_a_table_goes_beside_the_figures():
    table = Table("rc-write-bw-frame", ("#bytes", "MsgRate[Mpps]"), [(2, 0.01)])
    tree = printed(FIGURE, table)
    jsonschema.validate(tree, SCHEMA)
    assert tree["tables"] == [
        {"name": table.name, "columns": list(table.columns), "rows": [[2, 0.01]]}
    ]
    assert len(tree["benchmarks"]) == 1


def test_a_table_with_a_row_of_another_width_is_refused():
    with pytest.raises(ValueError, match="a row has not 2 figures"):
        Table("x", ("a", "b"), [(1,)])


def test_the_ratio_is_value_over_ceiling():
    assert printed(FIGURE)["benchmarks"][0]["ratio"] == 0.25


def test_without_a_ceiling_there_is_no_ratio_to_divide_by():
    nothing = Benchmark("x", 1.0, "s", Ceiling("nothing", 0.0))
    assert printed(nothing)["benchmarks"][0]["ratio"] == 0


def test_a_name_that_the_schema_would_refuse_is_refused_at_once():
    with pytest.raises(ValueError, match="lab-start \\(64\\)"):
        Benchmark("lab-start (64)", 1.0, "s", Ceiling("nothing", 0.0))
    pattern = SCHEMA["$defs"]["benchmark"]["properties"]["name"]["pattern"]
    assert pattern == f"^{NAME.pattern}$"


@pytest.mark.parametrize(
    "change",
    [
        {"colour": "red"},
        {"name": "RC write"},
        {"value": "12"},
        {"ceiling": {"name": "bare loop"}},
        {"unit": ""},
    ],
)
def test_the_schema_refuses_what_is_not_a_figure(change):
    tree = printed(FIGURE)
    tree["benchmarks"][0] |= change
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tree, SCHEMA)
