"""The paper's evaluation in miniature: twins, parts, tables beside the paper's numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from training import settings, write_images

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import paper_tables  # noqa: E402


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("twins")
    images = write_images(folder / "images")
    small = [f"--set={text}" for text in settings(images) if not text.startswith("schedule.")]
    words = ["--config", str(ROOT / "configs/paper_twins.toml"), "--out", str(folder / "out")]
    words += ["--steps", "4", "--ablations", "--test", "scene:5", "--frames", "3", "4"]
    words += ["--size", "16", "--border", "4", *small, "--set=compile=false", "--set=data.parts=1"]
    paper_tables.main([*words, "--stop-after-minutes", "0"])
    assert not (folder / "out").exists()  # time was up before anything began
    paper_tables.main(words)
    return folder / "out"


def test_tables_stand_beside_the_papers_numbers(out: Path) -> None:
    text = (out / "tables.md").read_text()
    for printed in ("54.05", "54.24", "0.79 1.90<br>1.80 1.75", "0.021 0.023<br>0.024 0.027"):
        assert printed in text
    assert "paper, self-sup." in text
    found = json.loads((out / "tables.json").read_text())["hdr_dsp"]
    assert set(found["by_frames"]) == {"3", "4"}
    assert found["twins"]["frames"] == 4
    assert found["true_motion"]["methods"]["hdr_dsp supervised"]["all"]["flow_rmse_px"] == 0
    names = {name.removeprefix("hdr_dsp ") for name in found["ablations"]["methods"]}
    assert names == {
        *("self-sup.", "uncorrected", "detail", "without reference", "Laine's fusion"),
        "uncorrected, R subtracted",
    }
    assert 0 <= found["negative_share"] <= 1
    for name in ("coverage-hdr_dsp.png", "figure1-hdr_dsp.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")


def test_twins_share_steps_and_start(out: Path) -> None:
    found = json.loads((out / "tables.json").read_text())["hdr_dsp"]
    assert set(found["steps"].values()) == {4}
    runs = {p.name: load_file(p / "checkpoint.safetensors") for p in (out / "runs").iterdir()}
    assert set(runs) == {
        f"hdr_dsp-{n}" for n in ("self-sup", "supervised", "uncorrected", "detail")
    }
    one, other = (runs[f"hdr_dsp-{name}"] for name in ("self-sup", "supervised"))
    gap = max(float((one[name] - other[name]).abs().max()) for name in one if "network" in name)
    assert 0 < gap < 0.05  # four small steps from one start


def test_laines_fusion_is_the_product_of_two_gaussians() -> None:
    from conftest import sources

    from pushframe.model import HdrDsp, HdrDspConfig
    from pushframe.simulate import PRESETS, simulate, with_options

    setting = with_options(PRESETS["paper"], size=16, frames=4)
    made = simulate(sources(setting, 1), setting, torch.Generator().manual_seed(0))
    network = HdrDsp(HdrDspConfig(features=4, encoder_blocks=1, decoder_blocks=1)).eval()
    before = paper_tables.without_reference(network, made.burst, 2, made.flow_px).posterior
    after = paper_tables.fused(network, made.burst, 2, made.flow_px).posterior
    noise_var = float(made.burst.noise.b[0] / made.burst.gain[0, 0] ** 2)
    precision = 1 / before.var[:, ::2, ::2] + 1 / noise_var
    torch.testing.assert_close(after.var[:, ::2, ::2], 1 / precision, rtol=1e-3, atol=0)
    weighed = before.mean / before.var
    mean = (weighed[:, ::2, ::2] + made.burst.frames[:, 0] / noise_var) / precision
    torch.testing.assert_close(after.mean[:, ::2, ::2], mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(after.mean[:, 1::2], before.mean[:, 1::2])


def test_minutes_become_steps_once(out: Path, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paper_tables, "PROBE_STEPS", 6)
    words = [f"--set={text}" for text in settings(out.parent / "images")]
    words = [word for word in words if "schedule" not in word] + ["--set=data.parts=2"]
    options = paper_tables.parse(["--out", str(tmp_path), "--minutes", "0.5", *words])
    options.config = None
    steps = paper_tables.planned_steps("hdr_dsp", options)
    plan = json.loads((tmp_path / "plan-hdr_dsp.json").read_text())
    assert steps == plan["steps"] == max(1, round(30 * plan["samples_per_s"]))  # of one burst each
    (tmp_path / "plan-hdr_dsp.json").write_text(json.dumps({"steps": 77}))
    assert paper_tables.planned_steps("hdr_dsp", options) == 77


def test_the_script_explains_itself() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/paper_tables.py"), "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--stop-after-minutes" in done.stdout
