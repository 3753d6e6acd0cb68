"""The `wengert` command: what this installation is, what each op can do, profiles of scripts, and a demonstration."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence

import wengert
from wengert.cli import demo, info, ops, profile

_COMMANDS = (info, ops, profile, demo)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    >>> main(["ops", "tanh", "--plain"])  # doctest: +ELLIPSIS
    op ...
    0
    """
    parser = argparse.ArgumentParser(prog="wengert", description="Automatic differentiation for Python.")
    parser.add_argument("--version", action="version", version=f"wengert {wengert.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for module in _COMMANDS:
        name = module.__name__.rpartition(".")[2]
        summary = (module.__doc__ or "").strip().split("\n")[0]
        module.add_arguments(commands.add_parser(name, help=summary, description=summary))
    options = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without our signs gets question marks, not an error
    try:
        status: int = options.run(options)
    except BrokenPipeError:  # wengert ops | head
        sys.stderr.close()
        return 0
    return status
