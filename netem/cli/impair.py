"""`fabriclab impair set|show|clear`: what links do to frames, in a lab that is up."""

import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from netem.cli import options, show
from netem.impair.describe import describe
from netem.topology.errors import LabError
from netem.topology.units import format_time

if TYPE_CHECKING:
    from netem.lab.impair import InForce, Layer

R = TypeVar("R")

# Keys of a link in the lab file: what a value looks like, and what it does.
KEYS = (
    ("delay", "TIME", "Latency, e.g. 2ms."),
    ("jitter", "TIME", "Its random part, e.g. 200us."),
    ("delay_corr", "PERCENT", "Correlation of jitter with the frame before, e.g. 25%."),
    ("distribution", "NAME", "Of the jitter: uniform, normal, pareto, paretonormal."),
    (
        "loss",
        "PERCENT|{model: ...}",
        "Frames lost, e.g. 5%, or {model: gemodel, p: 1%, r: 20%}.",
    ),
    ("ecn", "true|false", "Mark CE instead of losing, where the packet is ECN-capable."),
    ("corrupt", "PERCENT", "Frames of which a bit is flipped, e.g. 0.1%."),
    ("corrupt_corr", "PERCENT", "Correlation with the frame before."),
    ("corrupt_from", "SIZE", "First byte that may be hit, e.g. 0B; default: behind Ethernet."),
    ("duplicate", "PERCENT", "Frames sent twice."),
    ("duplicate_corr", "PERCENT", "Correlation with the frame before."),
    ("reorder", "PERCENT", "Frames that overtake those that are delayed."),
    ("reorder_corr", "PERCENT", "Correlation with the frame before."),
    ("gap", "N", "Only every N-th candidate overtakes."),
    ("rate", "RATE|none", "Serialisation, e.g. 10gbit."),
    ("overhead", "SIZE", "Added to each frame when its time on the wire is worked out."),
    ("limit", "SIZE", "What may wait, e.g. 64KiB."),
    ("keep_order", "true|false", "Jitter never reorders."),
)


class Steps(click.Group):
    """The three things to do, in the order in which one does them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's shape
        return ["set", "show", "clear"]


@click.group(cls=Steps)
def command() -> None:
    """Change, show or take back what links do in a lab that is up.

    LINK is a link, which means both its directions, a direction, or a sending port: h0--h1,
    "h0->h1" (in quotes: to a shell > is special), h0:p0. Times and rates are emulated.

    Example:  fabriclab impair set h0--h1 --loss 5% --for 10s
    """


def _lab(run: Callable[..., R]) -> Callable[..., R]:
    return click.option("--lab", "name", help="Which lab; needed only where several are up.")(
        run
    )


def _flags(run: Callable[..., R]) -> Callable[..., R]:
    for key, metavar, text in reversed(KEYS):
        run = click.option(f"--{key.replace('_', '-')}", key, metavar=metavar, help=text)(run)
    return run


@command.command("set")
@click.argument("links", nargs=-1, required=True, metavar="LINK...")
@_flags
@click.option("--down", is_flag=True, help="Take the link down: all frames are dropped.")
@click.option("--up", is_flag=True, help="Take it up again, after --down.")
@click.option(
    "--carrier", is_flag=True, help="With --down: the nodes know, and switches go another way."
)
@click.option("--for", "length", metavar="TIME", help="How long, e.g. 5s; then as before.")
@_lab
@options.json_option
@options.exit_codes
def set_(
    *,
    links: tuple[str, ...],
    name: str | None,
    length: str | None,
    as_json: bool,
    down: bool,
    up: bool,
    carrier: bool,
    **flags: str | None,
) -> None:
    """Change what is named and leave the rest; print what is then in force.

    With --for the values are laid over those that are there, and lifted when the time is over.
    What is then in force is what would be without them.

    Example:  fabriclab impair set "h0->h1" --delay 2ms --jitter 100us
    """
    from netem.lab import impair

    given = {key: text for key, text in flags.items() if text is not None}
    wanted = impair.parse_change(given, length=length)
    if down and up:
        raise click.UsageError("--down and --up contradict each other")
    if carrier and not down:
        raise click.UsageError("--carrier says how to take a link --down")
    if down or up:
        wanted.keys.update(down=down, carrier=carrier)
    if not wanted.keys:
        raise click.UsageError('say what to change, e.g. impair set "h0->h1" --loss 5%')
    running = options.running_lab(name)
    plan = impair.plan_of(running)
    ports = impair.ports_of(plan, links)
    if carrier and not impair.are_whole_links(plan, ports):
        raise click.UsageError("a carrier is lost at both ends: name the link, as h0--h1")
    _print(running.name, _ask(impair.change(running, plan, ports, wanted)), as_json)


@command.command("show")
@click.argument("links", nargs=-1, metavar="[LINK]...")
@_lab
@options.json_option
@options.exit_codes
def show_(*, links: tuple[str, ...], name: str | None, as_json: bool) -> None:
    """Print what is in force, read from those who enforce it.

    Without LINK: of all links.

    Example:  fabriclab impair show h0--h1
    """
    from netem.lab import impair

    running = options.running_lab(name)
    plan = impair.plan_of(running)
    ports = impair.ports_of(plan, links)
    _print(running.name, _ask(impair.show(running, plan, ports)), as_json)


@command.command("clear")
@click.argument("links", nargs=-1, metavar="[LINK]...")
@_lab
@options.json_option
@options.exit_codes
def clear(*, links: tuple[str, ...], name: str | None, as_json: bool) -> None:
    """Go back to the lab file's values and print them.

    Without LINK: on all links.

    Example:  fabriclab impair clear
    """
    from netem.lab import impair

    running = options.running_lab(name)
    plan = impair.plan_of(running)
    ports = impair.ports_of(plan, links)
    _print(running.name, _ask(impair.clear(running, plan, ports)), as_json)


def _ask(question: Coroutine[Any, Any, R]) -> R:  # what a coroutine yields is trio's
    """Ask the lab; leave with one line and exit code 1 where it does not answer."""
    import trio

    from netem.node.client import ControlError, RefusedError

    async def ask() -> R:
        return await question

    try:
        return trio.run(ask)
    except RefusedError as error:
        raise LabError([str(error)]) from None
    except ControlError as error:
        options.complain(str(error))
        sys.exit(options.FAILED)


def _print(lab: str, found: "Sequence[InForce]", as_json: bool) -> None:
    """Print what is in force."""
    if as_json:
        options.print_json({"lab": lab, "directions": found})
        return
    show.table(
        "",
        ("direction", "engine", "does", "laid over the lab file"),
        ((one.direction, one.engine, _does(one), _layers(one)) for one in found),
    )


def _does(one: "InForce") -> str:
    if one.down:
        return f"down ({', '.join(one.down)}); else {describe(one.impairment)}"
    return describe(one.impairment)


def _layers(one: "InForce") -> str:
    return "; ".join(_layer(layer, one.now) for layer in one.layers)


def _layer(layer: "Layer", now: int) -> str:
    keys = ", ".join(_words(layer.set))
    if layer.until is None:
        return keys
    return f"{keys} for {format_time(max(layer.until - now, 0) // 10**6 * 10**6)} more"


def _words(keys: dict[str, object]) -> Iterator[str]:
    for key, value in keys.items():
        if key in {"down", "carrier"}:
            if value:
                yield key
        else:
            yield key
