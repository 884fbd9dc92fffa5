"""The forms in which built-in labs are run: what is added to the command line."""

from functools import cache

import pytest

from netem.lab.find import built_in, find
from netem.topology.errors import LabError
from netem.topology.load import load_lab
from netem.topology.planner import plan_lab

FORMS = {
    "frame-ipv6": (),
    "frame-ipv4": ("--set", "defaults.host.family=ipv4"),
    "datagram": ("--set", "defaults.host.mode=datagram"),
}
FRAMES = tuple(form for form in FORMS if form.startswith("frame"))


@cache
def forms_of(lab):
    """Return the forms that a lab can have; none where it needs a guest: see tests/interop.

    In datagram mode the kernel writes the headers, so no path leads, and no pause is obeyed;
    of a lab with tags, DCQCN or MRC it is refused, and so are our labs of MRC over IPv4.
    """
    plan = planned(lab)
    if any(node.command for node in plan.nodes):
        return ()
    is_led = any(qp.source_route for node in plan.nodes for qp in node.qps)
    switches = [node.switch for node in plan.nodes if node.kind == "switch"]
    is_lossless = any(queue.pfc for switch in switches for queue in switch.queues)
    forms = FRAMES if is_led or is_lossless else FORMS
    return tuple(form for form in forms if can_be(lab, form))


def planned(lab, form="frame-ipv6"):
    overrides = dict(word.split("=") for word in FORMS[form][1::2])
    return plan_lab(load_lab(find(lab).text, name_hint=lab, overrides=overrides))


def can_be(lab, form):
    try:
        planned(lab, form)
    except LabError:
        return False
    return True


def has_switches(lab):
    return any(node.kind in {"switch", "linux"} for node in planned(lab).nodes)


# Each lab in each of its forms; of a fabric, which takes seconds, the second form and the third
# are for long nights.
RUNS = [
    pytest.param(lab, form, marks=[pytest.mark.soak] if number and has_switches(lab) else [])
    for lab in built_in()
    for number, form in enumerate(forms_of(lab))
]
