"""Which module's code runs, while a profile does: the core is told whenever one is entered or left."""

from __future__ import annotations

import functools
import threading
from typing import Any

from wengert import _core
from wengert.nn.module import Module


class ModuleNames:
    """Numbers for modules, each with its path from the outermost one that was called, and its class.

    Calls of modules are seen by replacing `Module.__call__`, so that they cost nothing where nothing is profiled.
    """

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = [("", "")]
        self.outermost: list[Any] = []  # modules that were called outside of any other
        self._numbers: dict[tuple[int, int], int] = {}
        self._paths: dict[int, dict[int, str]] = {}
        self._kept: list[Any] = []  # an id is that of one object only while it lives
        self._open = threading.local()

    def call(self, original: Any, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a module; what runs inside is its."""
        stack = self._stack()
        stack.append(module)
        before = _core.profile_module(self._number(stack))
        try:
            return original(module, *args, **kwargs)
        finally:
            _core.profile_module(before)
            stack.pop()

    def _stack(self) -> list[Any]:
        if not hasattr(self._open, "stack"):
            self._open.stack = []
        stack: list[Any] = self._open.stack
        return stack

    def _number(self, stack: list[Any]) -> int:
        root, module = stack[0], stack[-1]
        key = (id(root), id(module))
        if key not in self._numbers:
            self._kept += [root, module]
            if module is root:
                self.outermost.append(root)
            self._numbers[key] = len(self.found)
            self.found.append((self._path(stack), type(module).__name__))
        return self._numbers[key]

    def _path(self, stack: list[Any]) -> str:
        root, module = stack[0], stack[-1]
        if module is root:
            return type(root).__name__
        if id(root) not in self._paths:
            self._paths[id(root)] = {id(m): name for name, m in root.named_modules()}
        inside = self._paths[id(root)].get(id(module))
        if inside is not None:
            return f"{type(root).__name__}.{inside}"
        return f"{self._path(stack[:-1])}.{type(module).__name__}"  # made on the way, or held where nobody looks


_watching: list[ModuleNames] = []  # of the profiles that run, outermost first
_lock = threading.Lock()
_original: Any = None


def watch() -> ModuleNames:
    """Names for a profile that starts; profiles inside of another one share its names."""
    global _original
    with _lock:
        _watching.append(_watching[0] if _watching else ModuleNames())
        if len(_watching) == 1:
            _original = original = Module.__call__
            names = _watching[0]

            @functools.wraps(original)
            def call(self: Any, *args: Any, **kwargs: Any) -> Any:
                return names.call(original, self, args, kwargs)

            Module.__call__ = call  # type: ignore[method-assign]
        return _watching[-1]


def unwatch() -> None:
    """After the last profile, modules are called as before."""
    with _lock:
        _watching.pop()
        if not _watching:
            Module.__call__ = _original  # type: ignore[method-assign]
