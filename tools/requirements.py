"""Print requirements from pyproject.toml: of the `build`, to `run`, or those of an extra."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
lists = {
    "build": project["build-system"]["requires"],
    "run": project["project"]["dependencies"],
    **project["project"]["optional-dependencies"],
}
print(*dict.fromkeys(requirement for name in sys.argv[1:] for requirement in lists[name]))
