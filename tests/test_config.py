"""Configuration: typed, and explicit about what does not fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from pushframe.config import load_config
from pushframe.errors import FileError, UsageError


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1
    span: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Outer:
    steps: int = 10
    kind: Literal["a", "b"] = "a"
    name: str = "x"
    fast: bool = False
    limit: float | None = None
    inner: Inner = field(default_factory=Inner)


def test_file_then_overrides(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('steps = 20\nkind = "b"\n[inner]\nrate = 1\n')
    config = load_config(Outer(), file, ["inner.span=[1, 2.5]", "name=hello", "fast=true"])
    assert config == Outer(20, "b", "hello", True, None, Inner(1.0, (1.0, 2.5)))
    assert load_config(Outer(), overrides=["limit=3"]).limit == 3.0


@dataclass(frozen=True)
class Span:
    low: int = 0
    high: int = 1

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise UsageError(f"expected low up to {self.high}, got {self.low}")


@pytest.mark.parametrize("order", [1, -1])
def test_values_are_judged_together_in_whatever_order(order: int, tmp_path: Path) -> None:
    overrides = ["low=5", "high=9"][::order]
    assert load_config(Span(), overrides=overrides) == Span(5, 9)
    file = tmp_path / "span.toml"
    file.write_text("low = 3\n")  # refused alone
    assert load_config(Span(), file, [*overrides[:1], "high=7"]).high == 7
    with pytest.raises(UsageError, match="low up to 1, got 3"):
        load_config(Span(), file)
    with pytest.raises(UsageError, match="low up to 9, got 10"):
        load_config(Span(), overrides=[*overrides, "low=10"])


def test_the_later_value_of_a_key_counts_and_leaves_its_neighbours(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[inner]\nrate = 1\nspan = [2, 3]\n")
    inner = load_config(Outer(), file, ["inner.rate=4", "inner={rate=5}"]).inner
    assert inner == Inner(5.0, (2.0, 3.0))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("step=3", "did you mean 'steps'"),
        ("inner.rat=3", r"got 'inner\.rat': did you mean 'rate'"),
        ("qqq=3", "use one of fast, inner"),
        ("steps=3.5", "steps to be int, got 3.5"),
        ("steps=true", "steps to be int, got True"),
        ("kind=c", "kind to be 'a' or 'b', got 'c'"),
        ("inner.span=[1]", r"inner\.span to be tuple\[float, float\]"),
        ("steps", "expected key=value"),
    ],
)
def test_what_does_not_fit_is_named(override: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_config(Outer(), overrides=[override])


def test_the_file_at_fault_is_named(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    for text, said in (("step = 3", "did you mean 'steps'"), ("steps = 0.5", "to be int, got 0.5")):
        file.write_text(f"{text}\n")
        with pytest.raises(UsageError, match=rf"run\.toml: expected .*{said}"):
            load_config(Outer(), file, ["kind=b"])
    file.write_text("steps = 3\n")
    with pytest.raises(UsageError, match=r"^expected a known option, got 'stepz'"):
        load_config(Outer(), file, ["stepz=3"])  # no fault of the file
    with pytest.raises(UsageError, match=r"^expected steps within 1e\+18, got 10000"):
        load_config(Outer(), file, [f"steps={10**19}"])


def test_a_mark_of_byte_order_is_no_statement(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("", encoding="utf-8-sig")
    assert file.read_bytes() == b"\xef\xbb\xbf"
    assert load_config(Outer(), file) == Outer()


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="expected a TOML file"):
        load_config(Outer(), tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("steps = = 3")
    with pytest.raises(FileError, match=r"broken\.toml"):
        load_config(Outer(), broken)
