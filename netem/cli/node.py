"""`fabriclab node --config F`: one node process, for containers."""

from pathlib import Path

import click
import msgspec

from netem.cli import options


@click.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="Lab or plan, node name and folders, as JSON.",
)
@options.exit_codes
def command(config: Path) -> None:
    """Be one node of a lab, in the network namespace of the caller.

    In a container of an exported lab the file names the lab, and may ask for its judge.

    Example:  fabriclab node --config h0.json
    """
    if not _is_of_container(config):
        from netem.node.process import main_from_config

        main_from_config(config)
        return
    from netem.export.config import read
    from netem.export.fitting import JUDGE

    container, plan = read(config)
    if container.name != JUDGE:
        from netem.export.container import be_member

        be_member(container, plan)
        return
    from netem.cli.run import finish
    from netem.export.judge import judge

    result, folder = judge(container, plan)
    finish(result, Path(folder.path.parent.name, folder.path.name), as_json=False)


def _is_of_container(config: Path) -> bool:
    """Say whether a file names a lab; what it is otherwise, others will say."""
    try:
        return "source" in msgspec.json.decode(config.read_bytes(), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return False
