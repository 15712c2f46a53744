"""The paper's evaluation in miniature: twins, parts, tables beside the paper's numbers."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from training import settings, write_images

from pushframe.weights import read_card

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import paper_tables  # noqa: E402

BLOCKS = {
    "paper_twins": ("encoder_blocks", "decoder_blocks"),
    "paper_twins_on_solver": ("proposal_blocks", "verdict_blocks"),
}
NETWORKS = ("hdr_dsp", "on_solver")


def small_config(name: str, folder: Path) -> str:
    """A configuration of the repository with a tiny network: keys that no other network has."""
    text = re.sub(r"\[model\][^\[]*", "", (ROOT / f"configs/{name}.toml").read_text())
    lines = ["[model]", "features = 4", *(f"{key} = 1" for key in BLOCKS[name])]
    (folder / f"{name}.toml").write_text("\n".join([text, *lines]))
    return str(folder / f"{name}.toml")


def small_settings(images: Path) -> list[str]:
    """Those of the tiniest run that suit every network."""
    own = ("schedule.", "model.")
    return [f"--set={text}" for text in settings(images) if not text.startswith(own)]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("twins")
    images = write_images(folder / "images")
    words = ["--config", *(small_config(name, folder) for name in BLOCKS)]
    words += ["--out", str(folder / "out"), "--steps", "4", "3", "--ablations"]
    words += ["--test", "scene:5", "--frames", "3", "4", "--size", "16", "--border", "4"]
    words += [*small_settings(images), "--set=compile=false", "--set=data.parts=1"]
    words += ["--set=data.pool=1"]
    paper_tables.main([*words, "--stop-after-minutes", "0"])
    assert not (folder / "out").exists()  # time was up before anything began
    paper_tables.main(words)
    return folder / "out"


def test_tables_stand_beside_the_papers_numbers(out: Path) -> None:
    text = (out / "tables.md").read_text()
    for printed in ("54.05", "54.24", "0.79 1.90<br>1.80 1.75", "0.021 0.023<br>0.024 0.027"):
        assert printed in text
    assert "paper, self-sup." in text
    results = json.loads((out / "tables.json").read_text())
    assert tuple(results) == NETWORKS
    for network, found in results.items():
        assert f"# {network}: twins" in text
        assert set(found["by_frames"]) == {"3", "4"}
        assert found["twins"]["frames"] == 4
        supervised = found["true_motion"]["methods"][f"{network} supervised"]
        assert supervised["all"]["flow_rmse_px"] == 0
        names = {name.removeprefix(f"{network} ") for name in found["ablations"]["methods"]}
        assert names == {
            *("self-sup.", "uncorrected", "detail", "without reference", "Laine's fusion"),
            "uncorrected, R subtracted",
        }
        assert 0 <= found["negative_share"] <= 1
        for name in (f"coverage-{network}.png", f"figure1-{network}.png"):
            assert (out / name).read_bytes().startswith(b"\x89PNG")


def test_twins_share_steps_and_start(out: Path) -> None:
    found = json.loads((out / "tables.json").read_text())
    runs = {p.name: load_file(p / "checkpoint.safetensors") for p in (out / "runs").iterdir()}
    names = ("self-sup", "supervised", "uncorrected", "detail")
    assert set(runs) == {f"{network}-{name}" for network in NETWORKS for name in names}
    for network, steps in zip(NETWORKS, (4, 3), strict=True):
        card = read_card(out / "runs" / f"{network}-self-sup" / "weights.safetensors")
        assert card["network"] == network
        assert set(found[network]["steps"].values()) == {steps}
        one, other = (runs[f"{network}-{name}"] for name in ("self-sup", "supervised"))
        gap = max(float((one[name] - other[name]).abs().max()) for name in one if "network" in name)
        assert 0 < gap < 0.05  # a few small steps from one start


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
    words = ["--config", small_config("paper_twins", tmp_path), "--out", str(tmp_path)]
    words += [*small_settings(out.parent / "images"), "--set=data.parts=2", "--set=data.uses=1"]
    words += ["--set=compile=false", "--set=schedule.optimiser=adam"]
    options = paper_tables.parse([*words, "--minutes", "0.5"])
    steps = paper_tables.planned_steps("hdr_dsp", options)
    plan = json.loads((tmp_path / "plan-hdr_dsp.json").read_text())
    assert steps == plan["steps"] == max(1, round(30 * plan["samples_per_s"]))  # of one burst each
    (tmp_path / "plan-hdr_dsp.json").write_text(json.dumps({"steps": 77}))
    assert paper_tables.planned_steps("hdr_dsp", options) == 77


def refusal(words: list[str], capsys: pytest.CaptureFixture) -> str:
    """What is said of options that are refused."""
    with pytest.raises(SystemExit) as stop:
        paper_tables.parse(["--out", "nowhere", *words])
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_configurations_that_do_not_fit_are_refused(tmp_path: Path, capsys) -> None:
    both = [small_config(name, tmp_path) for name in BLOCKS]
    said = refusal(["--config", both[0], both[0]], capsys)
    assert f"got {both[0]} and {both[0]}, both of hdr_dsp: leave one out" in said
    said = refusal(["--config", *both, "--steps", "4", "3", "2"], capsys)
    assert "expected one number of --steps, or 2, one for each --config, got 3" in said
    said = refusal(["--config", *both, "--set=model.encoder_blocks=2"], capsys)
    assert "expected a known option, got 'model.encoder_blocks'" in said
    assert "Traceback" not in said


def test_the_commands_of_the_documents_are_those_of_the_script(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    found = []
    for page in (ROOT / "docs/paper.md", ROOT / "docs/training.md"):
        for line in page.read_text().replace("\\\n", " ").splitlines():
            if line.startswith("python benchmarks/paper_tables.py"):
                found.append(paper_tables.parse(shlex.split(line)[2:]))
    assert {tuple(options.networks) for options in found} >= {("hdr_dsp",), NETWORKS}
    assert len(found) >= 3


def test_the_script_explains_itself() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/paper_tables.py"), "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--stop-after-minutes" in done.stdout
