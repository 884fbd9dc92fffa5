"""What is chosen for CI has each value of the columns, and the pairs that are asked for.

Said here once more in the words of the table, not of `runs.aims`, so that neither can lose any.
"""

import itertools

import pytest

from tests.interop.roce.cable import MTU
from tests.interop.roce.runs import (
    BOTH_WAYS,
    DUPLICATES,
    FAMILIES,
    LOSES,
    RC,
    REORDERS,
    ROLES,
    UC,
    UD,
    WITH_CLASS,
    aims,
    aims_impaired,
    chosen,
    chosen_impaired,
    impaired,
    product,
)

PRODUCT, CHOSEN = list(product()), chosen()
PINGPONGS = {"ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"}
BANDWIDTH = {f"ib_{verb}_bw" for verb in ("write", "read", "send", "atomic")}
LATENCY = {f"ib_{verb}_lat" for verb in ("write", "read", "send", "atomic")}
BY_CM = {"rping", "ucmatose", "rdma_client", "udaddy"}
TOOLS = PINGPONGS | BANDWIDTH | LATENCY | BY_CM


def found(*columns, of=CHOSEN):
    """Return the values of columns that occur together."""
    return {tuple(getattr(run, column) for column in columns) for run in of}


def test_the_link_has_room_for_the_largest_path_mtu():
    """Soft-RoCE takes 80 bytes of the interface's MTU for headers."""
    assert MTU >= 4096 + 80


def test_it_is_not_much_and_an_example_of_all():
    assert len(CHOSEN) <= 60
    assert set(CHOSEN) <= set(PRODUCT)
    assert set().union(*map(aims, CHOSEN)) == set().union(*map(aims, PRODUCT))
    assert found("tool", of=PRODUCT) == {(tool,) for tool in TOOLS}


@pytest.mark.parametrize("runs", [CHOSEN, PRODUCT], ids=["chosen", "product"])
def test_every_value_occurs(runs):
    is_pingpong = [run for run in runs if run.tool in PINGPONGS - {"ibv_ud_pingpong"}]
    assert found("tool", "size", of=is_pingpong) == {
        ("ibv_rc_pingpong", 1024),  # row T1 of the conformance list
        *itertools.product(PINGPONGS - {"ibv_ud_pingpong"}, (1, 4096, 65_537)),
    }
    assert max(run.size for run in runs if run.tool == "ibv_ud_pingpong") == 4096
    assert {(mtu,) for mtu in (256, 512, 1024, 2048, 4096)} <= found("path_mtu", of=runs)
    assert found("qps", of=runs) == {(1,), (4,)}
    perftest = BANDWIDTH | LATENCY
    assert {tool for tool in perftest if "atomic" not in tool} <= {
        run.tool for run in runs if run.size % 4
    }
    assert found("tool", "kind", of=runs) >= {
        *itertools.product(("ib_atomic_bw", "ib_atomic_lat"), ("FETCH_AND_ADD", "CMP_AND_SWAP"))
    }
    services = found("tool", "service", of=runs)
    assert {("ib_write_bw", UC), ("ib_write_lat", UC)} <= services
    assert {*itertools.product(("ib_send_bw", "ib_send_lat"), (RC, UC, UD))} <= services
    assert {(tool, RC) for tool in perftest} <= services


def test_every_pair_of_tool_and_role_family_and_exchange_occurs():
    assert found("tool", "role") == {*itertools.product(TOOLS, ROLES)}
    assert found("tool", "family") == {*itertools.product(TOOLS, FAMILIES)}
    both = {*itertools.product(BANDWIDTH | LATENCY, ("tcp", "-R"))}
    assert found("tool", "exchange") == both | {
        *((tool, "tcp") for tool in PINGPONGS),
        *((tool, "-R") for tool in BY_CM),
    }
    assert found("service", "exchange") == {
        (RC, "tcp"), (UC, "tcp"), (UD, "tcp"), (RC, "-R"), (UD, "-R"),
    }  # fmt: skip


def test_both_ways_and_traffic_classes_occur_with_every_tool_that_has_them():
    for option in BOTH_WAYS, WITH_CLASS:
        assert found("tool", "option") >= {(tool, option) for tool in BANDWIDTH}
        assert found("option", "role") >= {(option, role) for role in ROLES}
        assert found("option", "family") >= {(option, family) for family in FAMILIES}
        assert found("option", "exchange") >= {(option, "tcp"), (option, "-R")}


def test_every_reliable_tool_meets_every_impairment():
    ran = chosen_impaired()
    assert set().union(*map(aims_impaired, ran)) == set().union(*map(aims_impaired, impaired()))
    reliable = TOOLS - {"ibv_uc_pingpong", "ibv_ud_pingpong", "udaddy"}
    for how in LOSES, DUPLICATES, REORDERS:
        every = [one.run for one in impaired() if one.how == how and one.run.service is RC]
        few = [one.run for one in ran if one.how == how and one.run.service is RC]
        assert found("tool", "role", of=every) == {*itertools.product(reliable, ROLES)}
        assert found("tool", "family", of=every) == {*itertools.product(reliable, FAMILIES)}
        assert found("tool", of=few) == {(tool,) for tool in reliable}
        assert found("role", of=few) == {(role,) for role in ROLES}
        assert found("family", of=few) == {(family,) for family in FAMILIES}
        assert found("exchange", of=few) == {("tcp",), ("-R",)}
