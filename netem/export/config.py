"""The file that a container is started with: `fabriclab node --config FILE`.

It names the lab file, which lies beside it, instead of holding a plan: whoever changes a loss
or a size there runs the changed lab with the next `up`, without exporting it anew.
"""

from pathlib import Path
from typing import TypeAlias

import msgspec

from netem.export.fitting import Form, contained, require_fit
from netem.topology.errors import LabError
from netem.topology.load import load_lab
from netem.topology.plan import Plan
from netem.topology.planner import plan_lab
from netem.topology.subset import subset

LAB = "/lab"  # in each container: the exported folder, to be read only
SHARED = "/run/fabriclab"  # of all containers of a lab: control sockets, spools
CAPTURES = "/captures"  # of the judge, a folder of the host: run folders


Tree: TypeAlias = dict[str, object]  # what YAML is to be made of


def command(config: str) -> list[str]:
    """Return the words that a container is started with, by the name of its config file."""
    return ["node", "--config", f"{LAB}/config/{config}.json"]


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which lab, and how it was asked for: the same file, flags and seed make the same plan."""

    lab: str  # a path, from the folder of the config file
    name: str  # of the lab, where the file says none
    set: dict[str, str] = {}
    nodes: tuple[str, ...] | None = None

    def plan(self, text: str) -> Plan:
        """Return the plan of the lab file `text`; raise LabError."""
        lab = load_lab(text, name_hint=self.name, overrides=self.set)
        return plan_lab(lab if self.nodes is None else subset(lab, self.nodes))


class ContainerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one container is."""

    source: Source
    form: Form
    name: str  # of the node or wire, or "judge"
    interfaces: dict[str, str] = {}  # address by which to find each; {}: they have their names
    shared: str = SHARED
    captures: str = CAPTURES


def planned(text: str, source: Source, form: Form) -> Plan:
    """Return the plan of a lab as containers run it; raise LabError where they cannot."""
    plan = source.plan(text)
    require_fit(plan, form)
    return contained(plan)


def read(path: Path) -> tuple[ContainerConfig, Plan]:
    """Return the config in a file and the plan of its lab; raise LabError."""
    try:
        config = msgspec.json.decode(path.read_bytes(), type=ContainerConfig)
        lab = path.parent / config.source.lab
        text = lab.read_text()
    except OSError as error:
        raise LabError([f"{error.filename}: {error.strerror}"]) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LabError([f"{path}: {error}"]) from None
    return config, planned(text, config.source, config.form)
