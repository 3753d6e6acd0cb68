"""Versions, instruction set, threads, BLAS, devices."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`wengert info` has no options."""
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what `wg.show_config()` prints."""
    from wengert.debug.config import show_config

    show_config()
    return 0
