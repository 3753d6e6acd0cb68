"""The rules of the ops, one module per family. Importing it joins both halves of every op, or fails with its name."""

import importlib
import os

for _file in sorted(os.listdir(os.path.dirname(__file__))):
    if _file.endswith(".py") and _file != "__init__.py":
        importlib.import_module(f"{__name__}.{_file.removesuffix('.py')}")

from wengert.ops.documentation import install as install_documentation
from wengert.registry.record import OPS, Op, check_complete

check_complete()
install_documentation()

__all__ = ["OPS", "Op"]
