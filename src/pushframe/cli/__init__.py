"""One command, `pushframe`, with a subcommand for each thing a user does."""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from ..errors import PushframeError
from ..version import __version__
from . import demo, evaluate, info, run, simulate, train, validate
from .console import fail, print_json


class Commands(TyperGroup):
    """The subcommands; Ctrl-C in any of them is one line on stderr and exit code 130.

    A program that asked for JSON gets an error as JSON, too.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            # wrong options raise click's UsageError, of which typer may have a copy of its own
            own = isinstance(error, PushframeError)
            tell = error.__str__ if own else getattr(error, "format_message", None)
            if tell and "--json" in sys.argv:
                print_json({"error": tell()})
            raise
        except KeyboardInterrupt:  # here, because typer's own handler says nothing
            fail("stopped by Ctrl-C; nothing half-written was left")
            sys.exit(130)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Bursts of satellite frames to one image of twice the resolution, "
    "with an error bar for every pixel.",
    epilog="Exit codes: 0 good, 1 checked and not good, 2 wrong use or input, 130 interrupted.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (demo, run, train, simulate, evaluate, info, validate):
    app.command(module.__name__.rpartition(".")[2])(module.command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pushframe {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit code 2."""
    try:
        app(prog_name="pushframe")
    except PushframeError as error:
        fail(str(error))
        sys.exit(2)
