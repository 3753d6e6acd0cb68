"""Targets of commands, given by name: `module:function`, or `file.py:function`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any


class TargetError(Exception):
    """A name that leads to nothing; the message is for the user."""


def load(name: str) -> Any:
    """The object that `module:attribute` or `file.py:attribute` names. Modules of the current folder are found, too.

    >>> load("math:pi")
    3.141592653589793
    """
    where, _, attribute = name.rpartition(":")
    if not where or not attribute:
        raise TargetError(f"{name!r} is not of the form module:function, such as examples.fit:loss or fit.py:loss")
    found: Any = _module(where)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise TargetError(f"{where} has no {attribute!r}; it has {', '.join(_public(found)) or 'no public names'}")
        found = getattr(found, part)
    return found


def _module(where: str) -> Any:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        if not where.endswith(".py"):
            return importlib.import_module(where)
        path = Path(where)
        if not path.is_file():
            raise TargetError(f"there is no file {where}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module
    except TargetError:
        raise
    except ModuleNotFoundError as e:
        if e.name != where.split(".")[0] and e.name != where:
            raise TargetError(f"importing {where} failed: {type(e).__name__}: {e}") from e
        raise TargetError(f"there is no module {where}; run the command where it can be imported from") from e
    except Exception as e:
        raise TargetError(f"importing {where} failed: {type(e).__name__}: {e}") from e


def _public(owner: Any) -> list[str]:
    return [n for n, v in vars(owner).items() if not n.startswith("_") and callable(v)][:12]
