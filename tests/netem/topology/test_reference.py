"""The lab file reference names every key that there is, and its example is a lab."""

import re
from pathlib import Path

import pytest

import netem.topology
from netem.topology import (
    congestion_model,
    fabric_model,
    fault_model,
    link_model,
    model,
    overlay_model,
    srv6_model,
    switch_model,
)
from netem.topology.expectations import BOUNDS, METRICS, STATEMENTS
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab
from netem.topology.reading import keys_of
from transports.roce.completion import WcStatus

TEXT = (Path(netem.topology.__file__).parent / "README.md").read_text()
PROSE = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
CODE = set(re.findall(r"`([^`\n]+)`", PROSE))
SPECS = [
    model.Lab, model.TopologySpec, model.DefaultsSpec, model.NodeSpec, model.TransportSpec,
    model.ItemSpec, model.CaptureSpec,
    link_model.LinkSpec, link_model.LossOfRandom, link_model.LossOfGilbertElliott,
    link_model.LossOfFourStates,
    fault_model.FaultSpec, fault_model.WhereSpec, fault_model.ChangeSpec,
    fault_model.EventSpec, fault_model.FlapKeys,
    switch_model.BufferKeys, switch_model.ClassifyKeys, switch_model.CommonQueueKeys,
    switch_model.QueueKeys, switch_model.EcnKeys, switch_model.PfcKeys, switch_model.TrimKeys,
    switch_model.WatchdogKeys, switch_model.BalanceKeys,
    congestion_model.DcqcnKeys,
    overlay_model.OverlaySpec, overlay_model.SiteSpec, overlay_model.TimersSpec,
    srv6_model.SidSpec, srv6_model.SteerSpec, srv6_model.Srv6Spec,
    *fabric_model.KINDS.values(),
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.__name__)
def test_every_key_is_described(spec):
    assert [key for key in keys_of(spec) if key not in CODE | {"model"}] == []


def test_every_expectation_is_described():
    assert {*STATEMENTS, *METRICS, *BOUNDS} <= CODE


def test_the_example_is_a_lab():
    example, *_ = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    planned = plan_lab(load_lab(example))
    assert planned.name == "example"
    assert len(planned.faults) + len(planned.changes) == 5


@pytest.mark.parametrize("word", [*model.OPS, *model.RIGHTS, *model.PATTERNS])
def test_every_value_of_a_closed_list_is_described(word):
    assert re.search(rf"\b{word}\b", TEXT)


def test_statuses_are_those_of_completions():
    assert set(model.STATUSES) <= set(WcStatus.__members__)
