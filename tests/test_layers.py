"""The shape of the package: who may import whom, and what the core needs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pushframe

ROOT = Path(pushframe.__file__).parent
CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"

# A module imports only from rows above its own.
RANKS = [
    ["errors", "version", "once"],
    ["checks", "raw"],
    ["burst", "posterior", "config", "bootstrap", "tally", "brightness"],
    [
        "geometry",
        "filters",
        "scenes",
        "linear",
        "folding",
        "rpc",
        "extent",
        "product",
        "kernel",
        "notes",
    ],
    ["noise", "forward"],
    ["ops"],
    ["spectral", "prior", "local_prior", "theory", "registration"],
    ["simulate", "io"],
    ["gaussian", "arrays"],
    ["baselines", "windows", "metrics", "solver", "loss"],
    ["noise_law", "model"],
    ["weights", "data", "days"],
    ["methods", "train", "align"],
    ["left_out", "seams"],
    ["motion_table", "residuals", "scene_motion", "uneven"],
    ["infer", "evaluate"],
    ["heldout", "validate"],
    ["sources", "tables", "plots", "report"],
    ["deliver"],
    ["many", "orders"],
    ["cli"],
    ["__main__"],
]
CORE = [name for row in RANKS[: RANKS.index(["heldout", "validate"]) + 1] for name in row]
OPTIONAL = ("rasterio", "tifffile", "matplotlib", "PIL", "jinja2", "typer", "rich", "scipy")


def test_the_table_of_ranks_is_the_one_that_is_checked() -> None:
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", CONTRIBUTING.read_text(), re.MULTILINE)
    assert [(int(rank), names.split(", ")) for rank, names in rows] == list(enumerate(RANKS))
    assert (
        f"Ranks 0 to {RANKS.index(['heldout', 'validate'])} are the core"
        in CONTRIBUTING.read_text()
    )


def modules() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in ROOT.rglob("*.py"):
        top = path.relative_to(ROOT).parts[0].removesuffix(".py")
        found.setdefault(top, []).append(path)
    return found


def imported(path: Path, source: str | None = None) -> set[str]:
    """Top-level modules of the package that a file imports, however deep it lies."""
    depth = len(path.relative_to(ROOT).parts)
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text() if source is None else source)):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            first = (node.module or "").split(".")[0]
            names |= {first} if first else {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pushframe."):
            names.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            parts = [alias.name.split(".") for alias in node.names]
            names |= {part[1] for part in parts if part[0] == "pushframe" and len(part) > 1}
    return names


def violations(module: str, names: set[str]) -> set[str]:
    rank = {name: row for row, group in enumerate(RANKS) for name in group}
    return {name for name in names - {module} if rank[name] >= rank[module]}


def test_every_module_has_a_rank() -> None:
    assert set(modules()) - {"__init__"} == {name for row in RANKS for name in row}


@pytest.mark.parametrize("module", sorted(set(modules()) - {"__init__"}))
def test_imports_go_up(module: str) -> None:
    for path in modules()[module]:
        assert not violations(module, imported(path)), path


def test_a_downward_import_is_caught() -> None:
    path = ROOT / "geometry.py"
    assert violations("geometry", imported(path, "from .simulate import simulate")) == {"simulate"}
    deep = ROOT / "io" / "npz.py"
    assert violations("io", imported(deep, "from ..cli import app")) == {"cli"}


def test_the_core_needs_no_optional_package() -> None:
    code = (
        "import sys\n"
        f"for name in {OPTIONAL!r}: sys.modules[name] = None\n"
        "import importlib, pushframe\n"
        f"for name in {CORE!r}: importlib.import_module('pushframe.' + name)\n"
        "print('imported')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "imported\n", done.stderr


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = ("rasterio", "matplotlib", "tifffile", "PIL", "typer", "triton")
    code = f"import sys, pushframe; print([n for n in {heavy!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_public_names() -> None:
    assert sorted(pushframe.__all__) == [
        "Burst",
        "GeoRef",
        "NoiseLaw",
        "Posterior",
        "Product",
        "PushframeError",
        "Simulated",
        "__version__",
        "read_burst",
        "super_resolve",
        "write_burst",
        "write_product",
    ]
