"""Train a convolutional network on handwritten digits, and report how it went, on the terminal and as a page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

EXAMPLES = """\
examples:
  wengert demo                       25 epochs, and demo/report.html
  wengert demo --epochs 5 --alone    shorter, and without PyTorch beside it

exit status: 0; 1 if a package that it needs is missing, or the report cannot be written; 2 for wrong arguments.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Epochs, batch size, seed, where the report goes."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--epochs", type=int, default=25, help="passes over the 1,347 training images (default: %(default)s)"
    )
    parser.add_argument("--batch", type=int, default=32, help="images per step (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the weights and the order of the images (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder of the report (default: %(default)s)")
    parser.add_argument("--alone", action="store_true", help="do not compare with PyTorch, even if it is installed")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Train, show, write the report; returns the exit status."""
    for name in ("epochs", "batch"):
        if getattr(options, name) < 1:
            print(f"wengert demo: --{name} must be at least 1, got {getattr(options, name)}", file=sys.stderr)
            return 2
    try:  # these need the packages of the extra
        from wengert.cli.digits import page, peer, picture, terminal, training
    except ImportError as e:
        print(f"wengert demo needs {e.name}: pip install 'wengert[demo]'", file=sys.stderr)
        return 1

    try:  # before training, not after
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        print(f"wengert demo: the folder {options.out} cannot be made: {e.strerror or e}", file=sys.stderr)
        return 1
    digits = training.load(options.seed)
    net = training.network(options.seed)
    screen = terminal.Screen()
    screen.show_model(training.layers(net, digits), digits)
    start = {name: value.numpy().copy() for name, value in net.state_dict().items()}
    with screen.progress("wengert", options.epochs) as report:
        runs = [training.train(net, digits, options.epochs, options.batch, options.seed, report)]
    if not options.alone and peer.is_installed():
        with screen.progress("PyTorch", options.epochs) as report:
            runs.append(peer.train(start, digits, options.epochs, options.batch, options.seed, report))
    result = training.Result(runs, training.layers(net, digits), digits, *training.predict(net, digits.test_images))
    screen.show_result(result)
    picture.draw(result, options.out / "report.png")
    page.write(result, options.out / "report.png", options.out / "report.html")
    screen.close(result, options.out / "report.html")
    return 0
