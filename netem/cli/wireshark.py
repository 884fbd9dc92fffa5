"""`fabriclab wireshark --install`: the dissector."""

import errno
import sys
from pathlib import Path

import click

from netem.cli import options


@click.command()
@click.option("--install", "what", flag_value="install", help="Into your plug-in folder.")
@click.option("--remove", "what", flag_value="remove", help="Out of it again.")
@click.option("--where", "what", flag_value="where", help="Print where the script lies.")
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Another plug-in folder than your own."
)
@options.exit_codes
def command(what: str | None, folder: Path | None) -> None:
    """Teach Wireshark and tshark MRC, ICRC and trimming.

    Example:  fabriclab wireshark --install
    """
    from netem.wireshark import install as plugin

    if what is None:
        raise click.UsageError("say --install, --remove or --where")
    if what == "where":
        click.echo(plugin.SCRIPT)
        return
    named = folder is not None
    try:
        folder = folder or plugin.plugin_folder()
        if what == "install":
            target = plugin.install(folder)
            click.echo(f"{target}: installed; in a running Wireshark press Ctrl+Shift+L")
        elif plugin.remove(folder):
            click.echo(f"{folder / plugin.SCRIPT.name}: removed")
        else:
            click.echo(f"{folder}: there was none")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        said = f"{error.filename or folder}: {error.strerror}"
        options.complain(
            f"--folder {folder}: {said}; name one you may write to" if named else said
        )
        sys.exit(options.WRONG_USAGE if named else options.FAILED)
