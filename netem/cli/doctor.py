"""`fabriclab doctor`: what this host can do, what is emulated instead, what to install."""

import sys

import click

from netem.cli import options, show


@click.command()
@options.json_option
@options.exit_codes
def command(as_json: bool) -> None:
    """Find out, by trying, what this host can do.

    Exit code 3 where a lab cannot run at all, with what is missing and the remedy.

    Example:  fabriclab doctor
    """
    from netem.guest.image import cache_folder
    from netem.kernel.capabilities import probe, require_host
    from netem.kernel.run import CapabilityError

    found = probe()
    if as_json:
        options.print_json({"capabilities": found})
    else:
        show.table(
            "",
            ("capability", "here", "why not, and what to do"),
            (
                (
                    c.name,
                    "yes" if c.present else "no",
                    "; ".join(filter(None, (c.why, c.remedy))),
                )
                for c in found
            ),
        )
        click.echo(
            "\nImpairment is fabriclab's own and needs no netem in the kernel. RoCE is made in "
            "user\nspace, so every packet is visible to captures; a hardware NIC's is not."
        )
        here = {c.name: "here" if c.present else "not here" for c in found}
        click.echo(
            f"Links with `engine: tc` have the kernel do it: netem is {here['netem_qdisc']}, "
            f"tbf (a rate alone)\nis {here['tbf_qdisc']}. run.json and `impair show` name the "
            "engine of each direction."
        )
        state = "there" if any(cache_folder().glob("image-*")) else "made when first needed"
        click.echo(
            f"Guests (kind: guest) boot an image that is {state}: from Debian's packages, some "
            "90 MB,\nkept below ~/.cache/fabriclab/guest. `python -m netem.guest.image` makes "
            "it now."
        )
    try:
        require_host()
    except CapabilityError as error:
        options.complain(str(error))
        sys.exit(options.HOST_CANNOT)
