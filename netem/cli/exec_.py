"""`fabriclab exec NODE COMMAND ...`: run a command inside a node of a lab that is up."""

import sys

import click

from netem.cli import options


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option("--lab", "name", help="Which lab; needed only where several are up.")
@click.argument("node")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
@options.exit_codes
def command(*, name: str | None, node: str, argv: tuple[str, ...]) -> None:
    """Run a command in the namespace of a node, and exit as it does.

    Example:  fabriclab exec h0 ping -c 3 h1
    """
    from netem.kernel.join import run_inside

    if argv[0] == "--":  # what many type before the command
        argv = argv[1:]
    if not argv:
        raise click.UsageError("say which command to run, e.g. fabriclab exec h0 ping -c 3 h1")
    running = options.running_lab(name)
    nodes = running.nodes()
    if node not in nodes:
        options.complain(f"lab {running.name} has no node {node}; it has {', '.join(nodes)}")
        sys.exit(options.WRONG_USAGE)
    sys.exit(run_inside(running.pid, argv, node=nodes[node]))
