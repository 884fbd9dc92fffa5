"""`fabriclab node --config F`: one node process, for containers."""

from pathlib import Path

import click

from netem.cli import options


@click.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="Plan, node name and folders, as JSON.",
)
@options.exit_codes
def command(config: Path) -> None:
    """Be one node of a lab, in the network namespace of the caller.

    Example:  fabriclab node --config h0.json
    """
    from netem.node.process import main_from_config

    main_from_config(config)
