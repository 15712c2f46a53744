"""Weights load only if they fit, and say what they are; a file of them is a method."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from conftest import sources
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from pushframe import methods, weights
from pushframe.burst import Simulated
from pushframe.cli import app, main
from pushframe.errors import FileError, UsageError
from pushframe.evaluate import Case, evaluate
from pushframe.infer import super_resolve
from pushframe.io import write_burst
from pushframe.methods import find_methods, run_network
from pushframe.model import HdrDsp, HdrDspConfig
from pushframe.simulate import PRESETS, simulate_one, with_options
from pushframe.weights import load_weights, read_card, save_weights

CONFIG = HdrDspConfig(features=4, encoder_blocks=1, decoder_blocks=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_weights(HdrDsp(CONFIG), tmp_path / "w.safetensors", {"trained_on": {"images": 3}})
    return tmp_path / "w.safetensors"


@pytest.fixture(scope="module")
def burst() -> Simulated:
    setting = with_options(PRESETS["paper"], size=24, frames=4)
    return simulate_one(sources(setting, 1)[0], setting, 0)


def test_what_is_saved_comes_back(file: Path) -> None:
    torch.manual_seed(0)
    wanted = HdrDsp(CONFIG).state_dict()
    network, card = load_weights(file, scale=2)
    assert network.config == CONFIG
    assert not network.training
    assert all(torch.equal(value, wanted[name]) for name, value in network.state_dict().items())
    assert card == read_card(file)
    assert card["trained_on"] == {"images": 3}
    assert (card["network"], card["scale"]) == ("hdr_dsp", 2)


def rewritten(file: Path, drop: str = "", **changes: object) -> Path:
    """The file with another card, or without a tensor."""
    card = {**read_card(file), **changes}
    return with_card(file, {name: value for name, value in card.items() if value is not None}, drop)


def test_half_the_file_is_read_as_float32(file: Path, tmp_path: Path) -> None:
    network, card = load_weights(file)
    halves = {name: value.half() for name, value in network.state_dict().items()}
    save_weights(network, tmp_path / "half.safetensors", card, halves)
    again, _ = load_weights(tmp_path / "half.safetensors")
    for name, value in again.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, halves[name].float())
    assert {value.dtype for value in load_file(tmp_path / "half.safetensors").values()} == {
        torch.float16
    }


def with_card(file: Path, card: object, drop: str = "") -> Path:
    tensors = load_file(file)
    tensors.pop(drop, None)
    save_file(tensors, file, metadata={"card": json.dumps(card)})
    return file


def test_another_scale_is_refused(file: Path) -> None:
    with pytest.raises(UsageError, match="for scale 3, got weights for scale 2: use --scale 2"):
        load_weights(file, scale=3)


def test_a_truncated_file_is_refused(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(FileError, match=r"w\.safetensors.*truncated"):
        load_weights(file)
    file.write_bytes(b"")
    with pytest.raises(FileError, match=r"w\.safetensors"):
        load_weights(file)


def test_weights_of_something_else_are_refused(file: Path) -> None:
    with pytest.raises(FileError, match=r"expected weights of hdr_dsp.*'transformer'"):
        load_weights(rewritten(file, network="transformer"))
    save_file({"a": torch.zeros(1)}, file)
    with pytest.raises(FileError, match="no card"):
        load_weights(file)


def test_a_newer_schema_is_refused(file: Path) -> None:
    with pytest.raises(FileError, match="expected pushframe-weights/1, got 'pushframe-weights/9'"):
        load_weights(rewritten(file, schema="pushframe-weights/9"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale": None}, "card whose scale is a whole number, got None"),
        ({"scale": "2"}, "card whose scale is a whole number, got '2'"),
        ({"model": 3}, "card whose model is a table, got 3"),
        ({"network": ["hdr_dsp"]}, r"card whose network is a name, got \['hdr_dsp'\]"),
        ({"ancestors": "yes"}, "card whose ancestors are a list of cards.*, got 'yes'"),
        ({"ancestors": ["abc"]}, "card whose ancestors are a list of cards"),
        ({"ancestors": [{"name": "x"}]}, "card whose ancestors are .* each with its weights"),
        ({"scale": 3}, "one scale, got 3 and a network of scale 2"),
    ],
)
def test_a_card_that_says_nothing_of_use_is_refused(
    changes: dict, message: str, file: Path
) -> None:
    with pytest.raises(FileError, match=rf"w\.safetensors: expected a .*{message}"):
        load_weights(rewritten(file, **changes))


def test_ancestors_that_are_cards_are_told(file: Path, capsys, monkeypatch) -> None:
    whole = rewritten(file, ancestors=[{"weights": "1a2b", "name": "x"}])
    assert [one["weights"] for one in weights.ancestry(whole)][:-1] == ["1a2b"]
    assert "1a2b (x)" in CliRunner().invoke(app, ["info", str(whole)]).stdout
    broken = rewritten(file, ancestors=["abc"])
    monkeypatch.setattr("sys.argv", ["pushframe", "info", str(broken)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert (stop.value.code, "expected a card whose" in capsys.readouterr().err) == (2, True)


def test_a_card_that_is_no_table_is_refused(file: Path) -> None:
    with pytest.raises(FileError, match=r"w\.safetensors: expected pushframe-weights/1, got \[1\]"):
        read_card(with_card(file, [1]))


def test_tensors_that_do_not_fit_are_named(file: Path) -> None:
    with pytest.raises(FileError, match=r"tensor head\.bias of shape \(2,\), got none"):
        load_weights(rewritten(file, drop="head.bias"))
    other = {"scale": 2, "features": 5, "encoder_blocks": 1, "decoder_blocks": 1}
    with pytest.raises(FileError, match=r"tensor decoder\.0\.bias of shape \(5,\), got \(4,\)"):
        load_weights(rewritten(file, model=other))
    with pytest.raises(FileError, match="expected a known option"):
        load_weights(rewritten(file, model={"layers": 3}))


def test_names_and_paths_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected a \.safetensors file"):
        load_weights("nothing")
    with pytest.raises(FileError, match="no such file"):
        load_weights(tmp_path / "none.safetensors")
    with pytest.raises(UsageError, match="did you mean 'solver'"):
        find_methods(["solvr"])


def test_shipped_weights_go_by_name(file: Path, monkeypatch) -> None:
    monkeypatch.setattr(weights, "shipped_weights", lambda: {"base": file})
    assert read_card("base") == read_card(file)
    with pytest.raises(UsageError, match="did you mean 'base'"):
        load_weights("bas")


def test_a_file_of_weights_is_a_method(file: Path, burst: Simulated) -> None:
    result = evaluate([Case("scene", burst)], ["bicubic", str(file)], border_hpx=4)
    figures = result["methods"][str(file)]["all"]
    assert figures["nll"] is not None
    assert figures["flow_rmse_px"] < 0.2
    product = super_resolve(burst.burst, 2, str(file))
    assert product.mean.shape == (48, 48)
    assert product.provenance["method"] == str(file)


def test_the_method_leaves_holes_and_refuses_another_scale(file: Path, burst: Simulated) -> None:
    network, _ = load_weights(file)
    batch = burst.burst.batched()
    batch.valid[..., 5:15, 5:15] = False
    estimate = run_network(network, batch, 2, burst.flow_px[None])
    assert bool(torch.isnan(estimate.posterior.mean[0, 18:22, 18:22]).all())
    assert bool(torch.isfinite(estimate.posterior.mean[0, 36:, :]).all())
    with pytest.raises(UsageError, match="scale 2, that of the weights"):
        run_network(network, batch, 3, None)


def test_another_scale_is_refused_before_a_burst_is_opened(file: Path, tmp_path: Path) -> None:
    for options in (["run", "none.npz"], ["evaluate", "scene:1"]):
        words = [*options, "--out", str(tmp_path / "x"), "--scale", "3"]
        flag = "--method" if options[0] == "run" else "--methods"
        refused = CliRunner().invoke(app, [*words, flag, str(file)])
        assert f"scale 2, that of the weights {file}, got 3" in str(refused.exception)


def test_one_delivery_loads_its_weights_once(
    file: Path, burst: Simulated, tmp_path: Path, monkeypatch
) -> None:
    loaded = []

    def counting(name: str) -> object:
        loaded.append(name)
        return load_weights(name)

    monkeypatch.setattr(methods, "load_weights", counting)
    write_burst(burst.burst, tmp_path / "b.npz")
    words = ["run", str(tmp_path / "b.npz"), "--out", str(tmp_path / "s.tif"), "--method"]
    made = CliRunner().invoke(app, [*words, str(file)], catch_exceptions=False)
    assert made.exit_code == 0
    assert (tmp_path / "s.html").is_file()  # with its check
    assert loaded == [str(file)]


def test_info_prints_the_card(file: Path) -> None:
    shown = CliRunner().invoke(app, ["info", str(file)])
    assert shown.exit_code == 0
    for text in ("hdr_dsp", "model.features", "trained_on.images"):
        assert text in shown.stdout
    told = CliRunner().invoke(app, ["info", str(file), "--json"])
    assert json.loads(told.stdout)["model"]["features"] == 4
