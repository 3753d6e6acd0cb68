"""The reference: one page per subject, with every public name, made of signatures, docstrings and the registry."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Iterable
from typing import Any

import wengert as wg
from tools.site.curves import plot
from tools.site.names import PAGES, TITLES, Name, by_path, public_names
from wengert.dtypes import DType
from wengert.foreign_names import ForeignMethod

# Methods that subclasses of the library define for their base, which explains them.
ONCE = {"extra_repr", "slots", "rule", "numbers", "check", "state_shapes"}
PROMPT = re.compile(r"^\s*(>>>|\.\.\.)")


def pages() -> dict[str, str]:
    """The Markdown of each page that has names, by file name, and the index of all names."""
    members: dict[str, list[Name]] = {page: [] for page, *_ in PAGES}
    for name in public_names():
        members[name.page].append(name)
    made = {f"{page}.md": _page(TITLES[page], names) for page, names in members.items() if names}
    return {"index.md": _index(members), **made}


def anchor(path: str) -> str:
    """Where a public path is explained: `losses.md#wg.mse_loss`, from within the reference."""
    name = by_path()[path]
    return f"{name.page}.md#{name.path}"


def _index(members: dict[str, list[Name]]) -> str:
    lines = [
        "# Reference",
        "",
        f"Every public name of wengert {wg.__version__}, {sum(map(len, members.values()))} of them, by subject and by the "
        "alphabet. The pages are made of the library's docstrings, and the examples in them are tests. They assume "
        "`import wengert as wg`.",
        "",
        "## By subject",
        "",
        "| page | names |",
        "| --- | --- |",
    ]
    for page, names in members.items():
        if names:
            shown = [f"[`{_short(n.path)}`]({page}.md#{n.path})" for n in names]
            more = f" and {len(shown) - 14} more" if len(shown) > 15 else ""
            lines.append(f"| [{TITLES[page]}]({page}.md) | {', '.join(shown[: 14 if more else 15])}{more} |")
    lines += ["", "## By the alphabet", ""]
    letters: dict[str, list[str]] = {}
    for path in sorted(by_path(), key=lambda p: (p.rpartition(".")[2].lower(), p)):
        letters.setdefault(path.rpartition(".")[2][0].upper(), []).append(f"[`{_short(path)}`]({anchor(path)})")
    for letter, links in letters.items():
        lines += [f"**{letter}**  {' · '.join(links)}", ""]
    return "\n".join(lines)


def _short(path: str) -> str:
    return path.removeprefix("wg.")


def _page(title: str, names: list[Name]) -> str:
    parts = [f"# {title}", ""]
    modules = dict.fromkeys(
        n.module for n in names if not n.module.startswith("wengert.ops") and n.module != "wengert._core"
    )
    lead = _module_lead(modules)
    if lead:
        parts += [lead, ""]
    dtypes = [n for n in names if isinstance(n.value, DType)]
    if dtypes:
        parts += _dtypes(dtypes)
    for name in sorted((n for n in names if n not in dtypes), key=_order):
        parts += entry(name)
    return "\n".join(parts) + "\n"


def _order(name: Name) -> tuple[str, str]:
    return name.path.rpartition(".")[0], name.path.rpartition(".")[2].lower()


def _module_lead(modules: Iterable[str]) -> str:
    """The first sentence of the module's documentation, where a page is about one module."""
    modules = list(modules)
    if len(modules) != 1:
        return ""
    documentation = inspect.getdoc(__import__(modules[0], fromlist=["_"])) or ""
    return documentation.split("\n\n")[0].replace("\n", " ")


def entry(name: Name) -> list[str]:
    """Heading, signature, documentation, plot; for classes their methods as well."""
    value, path = name.value, name.path
    made = [f'## `{path}` {{ #{path} data-toc-label="{_short(path)}" }}', ""]
    if signature := _signature(value):
        made += ["```python", _wrapped(path, signature), "```", ""]
    aliases = [a for a in name.aliases if not a.startswith(("wg.nn.functional", "wg.functional"))]
    own = getattr(value, "__name__", "") or ""
    original = f"wg.{own}"
    if type(value).__name__ == "Op" and original != path and original in by_path():
        made += [f"Another name of [`{original}`]({anchor(original)}).", ""]
    made += [_documentation(inspect.getdoc(value) or "", path), ""]
    if curve := plot(name):
        made += [curve, ""]
    notes = []
    if aliases:
        notes.append("Also " + ", ".join(f"`{a}`" for a in aliases) + ".")
    if not isinstance(value, type) and callable(getattr(wg.Tensor, own, None)) and path == original:
        notes.append(f"Method of tensors: `x.{own}(…)`.")
    if notes:
        made += [" ".join(notes), ""]
    if isinstance(value, type):
        made += _members(path, value)
    return made


def _dtypes(names: list[Name]) -> list[str]:
    lines = ["| name | kind | bytes | NumPy |", "| --- | --- | --- | --- |"]
    kinds = ("bool", "signed integer", "unsigned integer", "real floating", "complex floating")
    for name in names:
        zero = wg.zeros((), dtype=name.value)
        kind = next(k for k in kinds if wg.isdtype(name.value, k))
        lines.append(
            f'| <span id="{name.path}"></span>`{name.path}` | {kind} | {zero.nbytes} | `{zero.numpy().dtype}` |'
        )
    return [*lines, ""]


def _members(path: str, cls: type) -> list[str]:
    """Public methods and properties that the class, or a base of the library other than a documented one, defines."""
    bases = {n.value for n in public_names() if isinstance(n.value, type) and n.value is not cls}
    owners = [c for c in cls.__mro__ if c is cls or (c not in bases and c.__module__.startswith("wengert"))]
    inherited = [c for c in cls.__mro__[1:] if c in bases]
    found: dict[str, Any] = {}
    for owner in owners:
        for key, member in vars(owner).items():
            if not key.startswith("_") and key not in found and _is_documented(getattr(cls, key, None)):
                found[key] = member
    lines = []
    if inherited and not issubclass(cls, BaseException):
        links = (next(n.path for n in public_names() if n.value is base) for base in inherited)
        lines += ["Inherits from " + ", ".join(f"[`{p}`]({anchor(p)})" for p in links) + ".", ""]
    if cls is wg.Tensor:
        return lines + _tensor_members(found)
    for key, member in found.items():
        if inherited and (key in ONCE or _says_nothing_new(key, member)):
            continue
        is_property = not callable(getattr(cls, key)) or isinstance(member, property | functools.cached_property)
        if isinstance(member, type) or (issubclass(cls, BaseException) and not is_property):
            continue
        signature = (
            ""
            if is_property
            else _signature(getattr(cls, key), method=not isinstance(member, staticmethod | classmethod))
        )
        lines += _member(path, key, signature, inspect.getdoc(getattr(cls, key)) or "")
    return lines


def _is_documented(member: Any) -> bool:
    """Whether it has words of its own: a number or a tuple would repeat those of its type."""
    words = (inspect.getdoc(member) or "").strip()
    return (
        bool(words)
        and words != (inspect.getdoc(type(member)) or "").strip()
        and not words.startswith("Alias for field")
    )


def _says_nothing_new(key: str, member: Any) -> bool:
    """The `forward` of a layer that takes one tensor: the layer's own documentation says what it computes."""
    return key == "forward" and len(inspect.signature(member).parameters) == 2


def _tensor_members(found: dict[str, Any]) -> list[str]:
    """Of tensors: attributes, methods that no function has, what is written in place, and the functions that are methods."""
    functions = sorted(k for k in found if f"wg.{k}" in by_path() and _is_function(k))
    own = [k for k in dir(wg.Tensor) if not k.startswith("_") and k not in functions]
    own = [k for k in own if not isinstance(inspect.getattr_static(wg.Tensor, k), ForeignMethod)]
    documentation = {k: inspect.getdoc(getattr(wg.Tensor, k)) or "" for k in own}
    in_place = [k for k in own if documentation[k] == f"`{k[:-1]}` in place."]
    lines = ["| attribute or method | |", "| --- | --- |"]
    for key in sorted(set(own) - set(in_place)):
        summary = documentation[key].split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        if ">>>" in documentation[key]:
            lines.append(f"| [`x.{key}(…)`](#wg.Tensor.{key}) | {summary} |")
        else:
            shown = f"x.{key}{'()' if callable(getattr(wg.Tensor, key)) else ''}"
            lines.append(f'| <span id="wg.Tensor.{key}"></span>`{shown}` | {summary} |')
    lines.append("")
    for key in sorted(k for k in own if ">>>" in documentation[k]):
        signature = _signature(getattr(wg.Tensor, key), method=True)
        lines += _member("wg.Tensor", key, signature, documentation[key])
    return [
        *lines,
        "Functions of tensors are also methods: " + ", ".join(f"[`{k}`]({anchor(f'wg.{k}')})" for k in functions) + ".",
        "",
        "With an underscore at the end, they write the result into the tensor: "
        + ", ".join(f"[`{k}`]({anchor(f'wg.{k[:-1]}')})" for k in in_place)
        + ".",
        "",
    ]


def _is_function(key: str) -> bool:
    """Whether a method of tensors is the function of that name: `x.grad` is none, although there is `wg.grad`."""
    return inspect.getdoc(getattr(wg.Tensor, key)) == inspect.getdoc(getattr(wg, key))


def _member(path: str, key: str, signature: str, documentation: str) -> list[str]:
    short = len(key) + len(signature) <= 84
    return [
        f'<div class="wg-member" id="{path}.{key}" markdown>',
        "",
        f"**`{key}{signature}`**" if short else f"```python\n{_wrapped(key, signature)}\n```",
        "",
        _documentation(documentation, f"{path}.{key}"),
        "",
        "</div>",
        "",
    ]


def _signature(value: Any, *, method: bool = False) -> str:
    """`(x, alpha: float = 1.0) -> Tensor`: as it is typed, without annotations that say nothing."""
    if not callable(value):
        return ""
    try:
        signature = inspect.signature(value)
    except (ValueError, TypeError):
        return ""
    shown: list[str] = []
    last_kind = None
    for k, p in enumerate(signature.parameters.values()):
        if method and k == 0 and p.default is p.empty:
            continue
        if last_kind is p.POSITIONAL_ONLY and p.kind is not p.POSITIONAL_ONLY:
            shown.append("/")
        if p.kind is p.KEYWORD_ONLY and last_kind not in (p.KEYWORD_ONLY, p.VAR_POSITIONAL):
            shown.append("*")
        shown.append(_parameter(p))
        last_kind = p.kind
    if last_kind is inspect.Parameter.POSITIONAL_ONLY:
        shown.append("/")
    returned = _annotation(signature.return_annotation)
    return f"({', '.join(shown)})" + (f" -> {returned}" if returned not in ("", "None", "Any") else "")


def _parameter(p: inspect.Parameter) -> str:
    stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
    annotation = _annotation(p.annotation)
    text = f"{stars}{p.name}" + (f": {annotation}" if annotation not in ("", "Any") else "")
    if p.default is p.empty:
        return text
    default = repr(p.default) if len(repr(p.default)) < 40 else "…"
    return f"{text} = {default}" if ": " in text else f"{text}={default}"


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation.strip('"') if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _wrapped(path: str, signature: str) -> str:
    """One line, or one parameter a line."""
    if len(path) + len(signature) <= 84:  # the width of a block
        return path + signature
    inner, _, returned = signature[1:].rpartition(")")
    parts, depth, start = [], 0, 0
    for k, c in enumerate(inner):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(inner[start:k].strip())
            start = k + 1
    parts.append(inner[start:].strip())
    return f"{path}(\n" + "".join(f"    {p},\n" for p in parts if p) + f"){returned}"


def _documentation(text: str, path: str) -> str:
    """A docstring as Markdown: examples become blocks, indented formulas too, public names become links."""
    blocks: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = paragraph.split("\n")
        first = next((k for k, line in enumerate(lines) if PROMPT.match(line)), None)
        if first is not None:
            if first:
                blocks.append(_prose(lines[:first], path))
            blocks.append(_example(lines[first:], path))
        elif all(line.startswith("    ") for line in lines):
            blocks.append("```text\n" + inspect.cleandoc(paragraph) + "\n```")
        else:
            blocks.append(_prose(lines, path))
    joined = "\n\n".join(b for b in blocks if b)
    return joined.replace("\n```\n\n```pycon\n", "\n")  # examples in several paragraphs are one


def _prose(lines: list[str], path: str) -> str:
    pieces = re.split(r"(`[^`]+`)", "\n".join(lines))
    own = _own_words(path)
    return "".join(_linked(p, path, own) if p.startswith("`") else _escaped(p) for p in pieces)


def _escaped(text: str) -> str:
    return re.sub(r"([*_>\[])", r"\\\1", text).replace("<", "&lt;")


def _linked(code: str, path: str, own: frozenset[str]) -> str:
    """A public name in backquotes as a link to where it is explained."""
    word = code.strip("`")
    package = path.rpartition(".")[0]
    for candidate in (word, f"{package}.{word}", f"wg.{word}"):
        if candidate in by_path() and word not in own:
            return f"[{code}]({anchor(candidate)})"
    page = re.fullmatch(r"docs/([\w-]+\.md)", word)
    return f"[{page[1].removesuffix('.md')}](../{page[1]})" if page else code


@functools.cache
def _own_words(path: str) -> frozenset[str]:
    """Names that mean something else where this path is explained: itself, its parameters and attributes."""
    words = {path.rpartition(".")[2], path}
    name = by_path().get(path) or by_path().get(path.rpartition(".")[0])
    if name is None:
        return frozenset(words)
    if isinstance(name.value, type):
        words |= set(dir(name.value))
    with contextlib.suppress(ValueError, TypeError):
        words |= set(inspect.signature(name.value).parameters)
    return frozenset(words)


def _example(lines: list[str], path: str) -> str:
    """An example as people type it: names with their prefix."""
    prefix, _, own = path.rpartition(".")
    qualified = re.compile(rf"(?<![\w.\"']){re.escape(own)}(?=\()")
    kept = []
    for line in lines:
        if line.strip() in (">>> import wengert as wg", ">>> import wengert"):
            continue
        line = re.sub(r"\s+# doctest: .*", "", line)
        prompted = PROMPT.match(line) and f"def {own}" not in line and prefix.startswith("wg")
        kept.append(qualified.sub(path, line) if prompted else line)
    return "```pycon\n" + "\n".join(kept) + "\n```" if kept else ""
