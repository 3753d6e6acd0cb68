"""The `wengert` command: this installation, the ops, checking, timing, profiles of scripts, and a demonstration."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence

import wengert
from wengert.cli import bench, check, demo, info, ops, profile

_COMMANDS = (info, ops, check, bench, profile, demo)
_EPILOG = """\
wengert COMMAND --help explains each command, with examples and the meaning of the exit status. Output is plain text
when it does not go to a terminal; --json is for programs.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    >>> main(["ops", "tanh", "--plain"])  # doctest: +ELLIPSIS
    op ...
    0
    """
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="wengert", description="Automatic differentiation for Python.", epilog=_EPILOG, formatter_class=as_written
    )
    parser.add_argument("--version", action="version", version=f"wengert {wengert.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for module in _COMMANDS:
        name = module.__name__.rpartition(".")[2]
        about = (module.__doc__ or "").strip()
        summary = about.split("\n")[0]
        module.add_arguments(commands.add_parser(name, help=summary, description=about, formatter_class=as_written))
    options = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without our signs gets question marks, not an error
    try:
        status: int = options.run(options)
    except BrokenPipeError:  # wengert ops | head
        sys.stderr.close()
        return 0
    return status
