"""`fabriclab bench`: measured figures, each beside its ceiling of the same run."""

from collections.abc import Callable, Iterator

import click
from rich.markup import escape

from netem.bench.figures import Benchmark, Table, report
from netem.cli import options, show


def _groups() -> dict[str, Callable[[], Iterator[Benchmark | Table]]]:
    from netem.bench import check, codec, lab_start, mrc, overlay, perftest, rc, sim
    from netem.bench.switch import switch

    return {
        "codec": codec.codec,
        "check": check.check,
        "rc-datagram": rc.rc_datagram,
        "rc-frame": rc.rc_frame,
        "rc-bw": perftest.rc_bw,
        "rc-lat": perftest.rc_lat,
        "rc-many": rc.rc_many,
        "mrc-write": mrc.mrc_write,
        "mrc-switch": mrc.mrc_switch,
        "mrc-paths": mrc.mrc_paths,
        "mrc-loss": mrc.mrc_loss,
        "switch": switch,
        "overlay-tcp": overlay.overlay_tcp,
        "overlay-handshakes": overlay.overlay_handshakes,
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

    GROUP is codec, check, rc-datagram, rc-frame, rc-bw, rc-lat, rc-many, mrc-write, mrc-switch,
    mrc-paths, mrc-loss, switch, overlay-tcp, overlay-handshakes, sim, lab-start or idle; rc and
    mrc are all that begin so. Without, all of them.
    The ratio to the ceiling travels from machine to machine, the absolute figure does not.
    rc-bw and rc-lat print tables as perftest does.

    Example:  fabriclab bench codec rc
    """
    groups = _groups()
    chosen: dict[str, None] = {}
    for name in names or groups:
        some = [group for group in groups if name == group or group.startswith(f"{name}-")]
        if not some:
            raise click.UsageError(f"no group {name}; legal: {', '.join(groups)}, rc, mrc")
        chosen |= dict.fromkeys(some)
    found: list[Benchmark | Table] = []
    for name in chosen:
        options.complain(f"measuring {name} ...")
        found += groups[name]()
    if as_json:
        options.print_json(report(found))
        return
    for one in found:
        if isinstance(one, Table):
            show.table(
                one.name,
                [f">{escape(column)}" for column in one.columns],
                ([f"{figure:g}" for figure in row] for row in one.rows),
            )
    show.table(
        "",
        ("what", ">figure", "unit", "ceiling", ">figure", ">ratio"),
        (
            (b.name, _plain(b.value), b.unit, b.ceiling.name, _plain(b.ceiling.value),
             f"{b.ratio:.3g}")
            for b in found
            if isinstance(b, Benchmark)
        ),
    )  # fmt: skip


def _plain(value: float) -> str:
    """Return a figure as people read it: no exponent, and no digits that say nothing."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
