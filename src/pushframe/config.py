"""Typed dataclasses from TOML files and `key=value` overrides; what does not fit is refused."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from .errors import FileError, UsageError

LARGEST = 10**18  # of whole numbers, which must fit into 64 bits

T = TypeVar("T")


def load_config(base: T, path: Path | None = None, overrides: Sequence[str] = ()) -> T:
    """`base` with the values of a TOML file, then of `a.b=c` overrides, put in its place."""
    return load_values(base, read_values(path, overrides), path, overrides)


def read_values(path: Path | None, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The nested values of a TOML file with those of overrides in their place, not yet checked.

    All together, since one value may be right only beside another; the later of two counts.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise FileError(
                f"expected a TOML file, got {path} ({error}): correct or replace it"
            ) from error
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign:
            raise UsageError(f"expected key=value, got {override!r}: write for example frames=8")
        nested: Any = _parse(text.strip())
        for part in reversed(key.strip().split(".")):
            nested = {part: nested}
        values = _laid_over(values, nested)
    return values


def load_values(
    base: T, values: Mapping[str, Any], path: Path | None = None, overrides: Sequence[str] = ()
) -> T:
    """`base` with nested `values` put in its place; what does not fit is refused.

    path, overrides: where the values were read; the file is named unless it is free of the fault.
    """
    try:
        merged: T = _merge(base, values, "")
    except UsageError as error:
        if path is None or _fault(base, read_values(None, overrides)) == str(error):
            raise
        raise UsageError(f"{path}: {error}") from error
    return merged


def _fault(base: Any, values: Mapping[str, Any]) -> str:
    """What is said of values that do not fit; nothing of those that do."""
    try:
        _merge(base, values, "")
    except UsageError as error:
        return str(error)
    return ""


def suggestion(name: str, known: Sequence[str]) -> str:
    """What to do about an unknown name: the nearest known one, or the list of them."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(sorted(known))}"


def _laid_over(below: Any, above: Any) -> Any:
    """Nested values with others in their place; tables are joined, all else is replaced."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {name: _laid_over(below.get(name), value) for name, value in above.items()}


def _merge(base: Any, values: Mapping[str, Any], prefix: str) -> Any:
    hints = typing.get_type_hints(type(base))
    known = [field.name for field in dataclasses.fields(base)]
    changes = {}
    for name, value in values.items():
        full = f"{prefix}{name}"
        if name not in known:
            raise UsageError(f"expected a known option, got {full!r}: {suggestion(name, known)}")
        current = getattr(base, name)
        if dataclasses.is_dataclass(current) and isinstance(value, Mapping):
            changes[name] = _merge(current, value, f"{full}.")
        else:
            changes[name] = _fit(value, hints[name], full)
    return dataclasses.replace(base, **changes)


def _fit(value: Any, hint: Any, name: str) -> Any:
    """`value` as the type `hint`, or an error that names the option."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        word = str(value).lower() if isinstance(value, bool) else value  # `motion=true` is a word
        if word in arguments:
            return word
    elif origin in (typing.Union, types.UnionType):
        for choice in arguments:
            try:
                return None if choice is type(None) and value is None else _fit(value, choice, name)
            except UsageError:
                continue
    elif origin is tuple and isinstance(value, list | tuple):
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        if len(kinds) == len(value):
            return tuple(_fit(item, kind, name) for item, kind in zip(value, kinds, strict=True))
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif hint is int and type(value) is int and abs(value) > LARGEST:
        raise UsageError(f"expected {name} within {LARGEST:.0e}, got {value}: lower it")
    elif hint in (int, bool, str) and type(value) is hint:
        return value
    wanted = " or ".join(map(repr, arguments)) if origin is typing.Literal else _spell(hint)
    raise UsageError(f"expected {name} to be {wanted}, got {value!r}: correct that value")


def _spell(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _parse(text: str) -> Any:
    """A TOML value; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
