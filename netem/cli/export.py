"""`fabriclab export compose|clab LAB`: a lab's other forms."""

from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING

import click

from netem.cli import options

if TYPE_CHECKING:
    from netem.export.config import Source
    from netem.export.fitting import Form
    from netem.topology.plan import Plan

IMAGE = "fabriclab"


@click.group()
def command() -> None:
    """Write a lab as a compose file or a containerlab topology.

    Example:  fabriclab export compose two-hosts && cd two-hosts-compose && docker compose up
    """


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    for decorate in (
        click.option("--image", default=IMAGE, show_default=True, help="Image of all roles."),
        click.option(
            "--out", type=click.Path(path_type=Path), help="Folder; default ./LAB-FORM."
        ),
        click.option("--force", is_flag=True, help="Overwrite what is no export of this lab."),
        options.lab_options,
    ):
        command = decorate(command)
    return command


@command.command("compose")
@_shared
@click.option(
    "--subnet",
    default=None,
    metavar="NET/LEN",
    help="Addresses by which interfaces are found, eight for a link; default 198.19.128.0/17.",
)
@click.option(
    "--interface-names",
    is_flag=True,
    help="Let the engine name interfaces: Compose 2.36, engine 28.1 or later.",
)
@options.exit_codes
def compose_(
    *,
    lab: str,
    overrides: tuple[str, ...],
    nodes: str | None,
    seed: int | None,
    dilation: str | None,
    out: Path | None,
    force: bool,
    image: str,
    subnet: str | None,
    interface_names: bool,
) -> None:
    """Write docker-compose.yaml and what its containers read.

    Example:  fabriclab export compose mrc-two-plane --out mrc
    """
    from netem.export import folder
    from netem.export.compose import compose, configs
    from netem.export.places import DEFAULT_SUBNET

    text, source, plan = _asked(lab, overrides, nodes, seed, dilation, form="compose")
    pool = DEFAULT_SUBNET if subnet is None else _network(subnet)
    tree = compose(plan, image, subnet=pool, interface_names=interface_names)
    out = out or Path(f"{plan.name}-compose")
    own = configs(plan, source, pool)
    folder.write(out, folder.COMPOSE, tree, text, own, force=force)
    _say(out, f"docker compose -f {out / folder.COMPOSE} up", len(own))


@command.command("clab")
@_shared
@options.exit_codes
def clab_(
    *,
    lab: str,
    overrides: tuple[str, ...],
    nodes: str | None,
    seed: int | None,
    dilation: str | None,
    out: Path | None,
    force: bool,
    image: str,
) -> None:
    """Write a containerlab topology and what its containers read.

    Its links are veths and carry PFC, too, which no bridge does.

    Example:  fabriclab export clab pfc-pause --out pfc
    """
    from netem.export import folder
    from netem.export.clab import clab, configs

    text, source, plan = _asked(lab, overrides, nodes, seed, dilation, form="clab")
    out, name = out or Path(f"{plan.name}-clab"), f"{plan.name}.clab.yaml"
    own = configs(plan, source)
    folder.write(out, name, clab(plan, image), text, own, force=force)
    (out / folder.SHARED).mkdir(exist_ok=True)
    _say(out, f"containerlab deploy -t {out / name}", len(own))


def _asked(
    lab: str,
    overrides: tuple[str, ...],
    nodes: str | None,
    seed: int | None,
    dilation: str | None,
    *,
    form: "Form",
) -> "tuple[str, Source, Plan]":
    """Return the lab's text, how containers make their plan of it, and that plan."""
    from netem.export.config import Source, planned
    from netem.export.folder import LAB
    from netem.lab.find import find

    found = find(lab)
    changes = options.asked_changes(overrides, seed, dilation)
    source = Source(f"../{LAB}", found.name, changes, options.asked_nodes(nodes))
    plan = planned(found.text, source, form)
    options.say_remarks(plan)
    return found.text, source, plan


def _network(text: str) -> IPv4Network:
    try:
        return IPv4Network(text)
    except ValueError as error:
        raise click.UsageError(f"--subnet: {error}; write 10.77.0.0/16") from None


def _say(out: Path, start: str, containers: int) -> None:
    click.echo(f"{out}: {containers} containers; start them:  {start}")
