"""`make experiments`: run them all in the simulator, and write the page of results."""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import click

from netem.experiments.conduct import Record, conduct, plan_of
from netem.experiments.judge import Result, judge
from netem.experiments.model import (
    FOLDER,
    Experiment,
    ExperimentError,
    Variant,
    load,
    names,
    variants,
)
from netem.experiments.page import page

PAGE = FOLDER / "RESULTS.md"


@click.command()
@click.argument("only", nargs=-1, metavar="[NAME]...")
@click.option(
    "--seeds", type=click.IntRange(1, 1000), help="As many; default the experiment's."
)
@click.option("--jobs", type=click.IntRange(1, 64), default=1, help="Runs at a time.")
@click.option("--show", is_flag=True, help="Print the page, and leave the committed one alone.")
@click.option("--times", is_flag=True, help="Say what CPU time each run took.")
def main(
    only: tuple[str, ...], seeds: int | None, jobs: int, *, show: bool, times: bool
) -> None:
    """Run experiments in virtual time and write the page: all of them, or those with a NAME.

    What the page says of others stays.

    Example:  python -m netem.experiments e06 --seeds 1 --show
    """
    try:
        chosen = {name: load(name) for name in only or names()}
        results = list(_run(chosen, seeds, jobs, times=times))
    except ExperimentError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    if show:
        click.echo(page(results))
    else:
        PAGE.write_text(page(results, PAGE.read_text() if only else ""))
    sys.exit(any(result.verdict != "pass" for result in results))


def _timed(variant: Variant, seed: int) -> tuple[Record, float]:
    """Run a lab; also return the seconds of CPU time that it took."""
    start = time.process_time()
    return conduct(variant, seed), time.process_time() - start


def _run(
    chosen: dict[str, Experiment], seeds: int | None, jobs: int, *, times: bool
) -> Iterator[Result]:
    """Run every variant with every seed; the results come in the order of the names."""
    with ProcessPoolExecutor(jobs) as pool:
        work = {}
        for name, one in chosen.items():
            tasks = [(v, s) for s in range(1, (seeds or one.seeds) + 1) for v in variants(one)]
            for variant, seed in tasks:
                plan_of(variant, seed)  # a lab that cannot be is found before hours of others
            work[name] = [pool.submit(_timed, *task) for task in tasks]
        for name, tasks_of in work.items():
            records: list[Record] = []
            for task in tasks_of:
                record, seconds = task.result()
                records.append(record)
                if times:
                    said = f"{name}: {record.variant}, seed {record.seed}: {seconds:.1f} s"
                    click.echo(said, err=True)
            result = judge(name, chosen[name], records)
            click.echo(f"{name}: {result.verdict}: {result.experiment.title}", err=True)
            for figure in result.figures:
                if figure.verdict != "pass":
                    click.echo(f"  {figure.figure.name}: {figure.values}", err=True)
            for complaint in result.complaints:
                click.echo(f"  {complaint}", err=True)
            yield result


if __name__ == "__main__":
    main()
