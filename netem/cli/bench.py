"""`fabriclab bench`: measured figures, each beside its ceiling of the same run."""

from collections.abc import Callable, Iterator

import click

from netem.bench.figures import Benchmark, report
from netem.cli import options, show


def _groups() -> dict[str, Callable[[], Iterator[Benchmark]]]:
    from netem.bench import codec, lab_start, rc, sim
    from netem.bench.switch import switch

    return {
        "codec": codec.codec,
        "rc-datagram": rc.rc_datagram,
        "rc-frame": rc.rc_frame,
        "switch": switch,
        "sim": sim.sim,
        "lab-start": lab_start.lab_start,
        "idle": lab_start.idle,
    }


@click.command()
@click.argument("names", nargs=-1, metavar="[GROUP]...")
@options.json_option
@options.exit_codes
def command(*, names: tuple[str, ...], as_json: bool) -> None:
    """Measure what this host makes of it, each figure with a ceiling.

    GROUP is codec, rc-datagram, rc-frame, switch, sim, lab-start or idle; without, all of them.
    The ratio to the ceiling travels from machine to machine, the absolute figure does not.

    Example:  fabriclab bench codec rc-frame
    """
    groups = _groups()
    if unknown := [name for name in names if name not in groups]:
        raise click.UsageError(f"no group {unknown[0]}; legal: {', '.join(groups)}")
    found: list[Benchmark] = []
    for name in names or groups:
        options.complain(f"measuring {name} ...")
        found += groups[name]()
    if as_json:
        options.print_json(report(found))
        return
    show.table(
        "",
        ("what", ">figure", "unit", "ceiling", ">figure", ">ratio"),
        (
            (b.name, _plain(b.value), b.unit, b.ceiling.name, _plain(b.ceiling.value),
             f"{b.ratio:.3g}")
            for b in found
        ),
    )  # fmt: skip


def _plain(value: float) -> str:
    """Return a figure as people read it: no exponent, and no digits that say nothing."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
