"""The documents stay true: names, commands, links, keys and examples are those of the code."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import shlex
import subprocess
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest
import typer
from conftest import sources

import pushframe
from pushframe import methods, theory, write_burst
from pushframe.cli import app
from pushframe.cli.console import flattened
from pushframe.model import NETWORKS
from pushframe.simulate import PRESETS, Simulation, simulate_one, with_options
from pushframe.train import TrainConfig, load_train_config

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
SCRIPTS = [
    path
    for folder in ("benchmarks", "examples")
    for path in sorted((ROOT / folder).glob("*.py"))
    if "ArgumentParser" in path.read_text()  # record.py is shared by the others
]
MODULES = {module.name for module in pkgutil.iter_modules(pushframe.__path__)}
SETTINGS = {
    name
    for kind in NETWORKS.values()
    for name in flattened(asdict(replace(TrainConfig(), model=kind.Config())))
}
FILES = r"\.(cff|css|html|jp2|js|json|md|npy|npz|png|py|jsonl|safetensors|svg|tiff?|toml|txt)$"


def missing_names(text: str) -> list[str]:
    """`module.name`, `Class.name` in backticks that do not exist; `burst.x` may be a Burst's."""
    quoted = re.findall(r"`([A-Za-z_]\w*(?:\.\w+)+)(?:\([^`]*\))?`", text)
    return [name for name in quoted if not re.search(FILES, name) and not _exists(name)]


def _exists(name: str) -> bool:
    """Whether the package holds a dotted name; those of other packages are not judged."""
    if name in SETTINGS:
        return True
    first, *rest = name.removeprefix("pushframe.").split(".")
    if first in MODULES:
        module = importlib.import_module(f"pushframe.{first}")
        return (
            not rest or _has(module, rest) or _has(getattr(module, first.capitalize(), None), rest)
        )
    ours = hasattr(pushframe, first) or name.startswith("pushframe.")
    return not ours or _has(pushframe, [first, *rest])


def _has(here: object, parts: list[str]) -> bool:
    there = hasattr(here, parts[0]) or parts[0] in getattr(here, "__annotations__", {})
    return there and (not parts[1:] or _has(getattr(here, parts[0], None), parts[1:]))


def missing_tests(text: str) -> list[str]:
    """`tests/file.py::name` without such a function in such a file."""
    files = {path: path.read_text() for path in ROOT.glob("tests/**/*.py")}
    named = re.findall(r"(tests/[\w/]+\.py)::(\w+)", text)
    return [f"{f}::{name}" for f, name in named if f"\ndef {name}(" not in files.get(ROOT / f, "")]


def missing_links(text: str, page: Path) -> list[str]:
    """Relative links and images without a file, or to a heading that is not there."""
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)|<img[^>]+src=\"([^\"]+)\"", text):
        target, _, part = "".join(link).partition("#")
        path = page.parent / target if target else page
        if re.match(r"[a-z]+:", target) or (path.exists() and not part):
            continue
        heads = re.findall(r"^#+ (.+)$", path.read_text(), re.M) if path.is_file() else []
        if part not in [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads]:
            lost.append("".join(link))
    return lost


def blocks(text: str, language: str) -> str:
    return "".join(re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M))


def parse_commands(text: str) -> int:
    """Parse each `pushframe` command of the bash blocks; an unknown option or name raises."""
    count, group = 0, typer.main.get_command(app)
    for line in re.split(r"&&|\n", blocks(text, "bash").replace("\\\n", " ")):
        words = shlex.split(line, comments=True)
        if words[:1] == ["pushframe"] and not words[1].startswith("-"):
            group.commands[words[1]].make_context(words[1], words[2:])  # parses, runs nothing
            count += 1
    return count


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    assert missing_names(text) + missing_tests(text) + missing_links(text, page) == []
    parse_commands(text)


@pytest.mark.parametrize(
    ("page", "keys"), [("conventions.md", 0), ("evaluation.md", 30), ("theory.md", 0)]
)
def test_examples_run_and_keys_are_documented(page: str, keys: int, monkeypatch) -> None:
    monkeypatch.setattr(methods, "METHODS", dict(methods.METHODS))
    text, space = (ROOT / "docs" / page).read_text(), {}
    exec(blocks(text, "python"), space)
    found = set(re.findall(r'"(\w+)":', json.dumps(space.get("result")))) - set(methods.METHODS)
    assert {key for key in found if f"`{key}`" not in text} == set()
    assert len(found) >= keys


@pytest.mark.parametrize("page", ["files.md", "products.md"])
def test_each_example_runs_by_itself(page: str, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("rasterio")
    pytest.importorskip("rioxarray")
    setting = with_options(PRESETS["paper"], size=48, frames=4)
    write_burst(simulate_one(sources(setting, 1)[0], setting, 0).burst, tmp_path / "burst")
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.S | re.M)
    assert len(examples) >= 3
    for example in examples:
        exec(example, {})


def test_every_setting_of_every_preset_is_documented() -> None:
    table = (ROOT / "docs/method.md").read_text()
    for name in (field.name for field in fields(Simulation)):
        values = "|".join(str(getattr(setting, name)).lower() for setting in PRESETS.values())
        shown = re.findall(rf"^\| `{name}` \|[^|]*\|([^|]*\|[^|]*\|[^|]*)\|", table, re.M)
        words = [re.findall(r"[a-z]+|[\d.]+", text) for text in (values, *shown)]
        assert [w[:6].removesuffix(".0") for w in words[0]] == [w[:6] for w in words[1]]


def test_every_public_name_of_the_theory_is_documented() -> None:
    text = (ROOT / "docs/theory.md").read_text()
    assert [name for name in theory.__all__ if f"`theory.{name}`" not in text] == []


@pytest.mark.parametrize("network", NETWORKS)
def test_every_setting_of_training_is_documented_with_its_default(network: str) -> None:
    """Of every network; a cell `64; 128 for `on_solver`` states the default of all but that one."""
    table = (ROOT / "docs/training.md").read_text().partition("## Every setting")[2]
    shown = dict(re.findall(r"^\| `([\w.]+)` \| *([^|]*?) *\|", table, re.M))
    config = replace(TrainConfig(), model=NETWORKS[network].Config())
    wrong = {
        name: (shown.get(name), value)
        for name, value in flattened(asdict(config)).items()
        if default_for(network, shown.get(name, "missing")) != spelt(value)
    }
    assert wrong == {}


def default_for(network: str, cell: str) -> str:
    """What a cell of the table states for a network."""
    usual, *others = cell.split("; ")
    own = [text.split(" for ")[0] for text in others if f"`{network}`" in text]
    return (own[0] if own else usual).replace("`", "")


def spelt(value: object) -> str:
    """A default as the table has it."""
    if value is None:
        return "the preset's"
    if isinstance(value, list):
        return ", ".join(map(spelt, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def test_the_configuration_shown_loads(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(blocks((ROOT / "docs/training.md").read_text(), "toml"))
    assert load_train_config(own).data.bursts == "bursts"
    own.write_text(own.read_text().replace("minutes", "minuets"))
    with pytest.raises(pushframe.PushframeError, match="minuets"):
        load_train_config(own)


def test_what_is_wrong_is_caught() -> None:
    assert missing_names("`geometry.subsampel` `burst.notes` `a.tif`") == ["geometry.subsampel"]
    assert missing_names("`Burst.gian` `torch.no` `pushframe.no`") == ["Burst.gian", "pushframe.no"]
    assert missing_tests("tests/test_docs.py::test_none") == ["tests/test_docs.py::test_none"]
    assert missing_links("[a](no.md) [b](docs/files.md#keys)", ROOT / "x.md") == ["no.md"]
    assert parse_commands("```bash\npushframe info a && pushframe info\n```\n") == 2
    for wrong in ("info --jsn", "evaluate scene:1", "inof"):
        with pytest.raises(Exception, match=r"jsn|Missing parameter: to|inof"):
            parse_commands(f"```bash\npushframe {wrong}\n```\n")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_benchmarks_and_examples_begin(script: Path) -> None:
    """What documents tell to run is there, with all that it imports."""
    done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout
