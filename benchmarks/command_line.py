"""The options that every benchmark has."""

from __future__ import annotations

import argparse
from collections.abc import Iterable


def parse(
    module: str, description: str, rows: Iterable[str], rounds: int, listed: Iterable[str] | None = None
) -> argparse.Namespace:
    """Options of `python -m MODULE`: `rows` (those that were asked for; all by default), `rounds` and `dry`.

    `listed` is what the help names instead of the rows, where these are too many.
    """
    known = list(rows)
    shown = ", ".join(known if listed is None else listed)
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"measure only rows with NAME in their name, and write nothing: {shown}",
    )
    parser.add_argument("--rounds", type=int, default=rounds, help="samples of each contender (default: %(default)s)")
    parser.add_argument("--dry", action="store_true", help="only print; leave benchmarks/results/ as it is")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {options.rounds}")
    for name in options.names:
        if not any(name in row for row in known):
            parser.error(f"no row has {name!r} in its name; there are {shown}")
    options.rows = [row for row in known if not options.names or any(name in row for name in options.names)]
    options.dry = options.dry or bool(options.names)
    return options
