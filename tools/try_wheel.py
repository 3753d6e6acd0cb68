"""Install a wheel into a new environment and use it there: `python tools/try_wheel.py dist/wengert-….whl`.

The environment has nothing but the wheel and what it depends on, and the programs run outside the repository, so that
whatever the wheel lacks is missed. The README's first program that needs nothing else must print what the README says.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
NEEDED = ("py.typed", "__init__.pyi", "_core.pyi", "functional/__init__.pyi", "cli/coverage.json")
WHERE = "import pathlib, wengert; print(pathlib.Path(wengert.__file__).parent)"


def try_wheel(wheel: Path, environment: Path) -> None:
    """Install and use it; ends the program with a message if something is missing or wrong."""
    venv.create(environment, with_pip=True)
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    python = str(scripts / "python")
    _run(environment, python, "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel.resolve()))
    package = Path(_run(environment, python, "-I", "-c", WHERE).strip())
    if not package.is_relative_to(environment.resolve()):
        sys.exit(f"the environment uses {package}, which is not in it")
    missing = [name for name in NEEDED if not (package / name).exists()]
    if missing:
        sys.exit(f"{wheel.name} lacks {', '.join(missing)}")
    program, expected = first_program(README.read_text(encoding="utf-8"))
    printed = _run(environment, python, "-I", "-c", program)
    if printed != expected:
        sys.exit(f"the README's program printed {printed!r}, not {expected!r}")
    print(_run(environment, str(scripts / "wengert"), "info"), end="")


def first_program(readme: str) -> tuple[str, str]:
    """The first Python block that imports wengert and nothing else, and the text block with its output."""
    for program, printed in re.findall(r"```python\n(.*?)```\s+```text\n(.*?)```", readme, re.DOTALL):
        if re.findall(r"^(?:import|from) (\w+)", program, re.MULTILINE) == ["wengert"]:
            return program, printed
    sys.exit("README.md has no Python block that needs wengert alone, with its output")


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, encoding="utf-8", check=False)
    if done.returncode:
        sys.exit(f"failed with status {done.returncode}: {' '.join(command[:4])} …")
    return done.stdout


def main() -> None:
    """Read the path, try the wheel in a temporary environment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel
    with tempfile.TemporaryDirectory() as folder:
        try_wheel(wheel, Path(folder) / "environment")
    print(f"{wheel} works in a new environment: pip install {wheel}")


if __name__ == "__main__":
    main()
