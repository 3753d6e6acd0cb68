"""Versions, instruction set, threads, BLAS, devices."""

from __future__ import annotations

import argparse
import json

EXAMPLES = """\
examples:
  wengert info            for people, and for bug reports
  wengert info --json     for programs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """In which form."""
    parser.epilog = EXAMPLES
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what `wg.show_config()` prints."""
    from wengert.debug.config import installation, show_config

    if options.json:
        print(json.dumps(installation(), indent=1))
    else:
        show_config()
    return 0
