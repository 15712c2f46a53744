"""Training data: pure functions of seed, step and shard; groups kept apart; mistakes named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from training import config, write_images

from pushframe.data import DataConfig, ImageStream, held_out, read_images, validation_cases
from pushframe.data.bursts import BurstStream, cut
from pushframe.data.config import draws
from pushframe.data.mixture import Mixture, draw_setting, random_holes
from pushframe.errors import BurstError, FileError, UsageError
from pushframe.simulate import PRESETS, simulate_one, with_options
from pushframe.train.config import load_train_config

ROOT = Path(__file__).parents[1]
TINY = DataConfig(images="x", batch=4, shards=2, frames=(2, 5), size=16)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    folder = write_images(tmp_path_factory.mktemp("scenes"))
    return [np.load(path) for path in sorted(folder.iterdir())]


def stream(scenes: list[np.ndarray], seed: int = 0, data: DataConfig = TINY) -> ImageStream:
    return ImageStream(scenes, data, 2, seed, "cpu")


def test_a_batch_is_a_function_of_seed_step_and_shard(scenes) -> None:
    wanted = stream(scenes).batch(7, 1)
    again = stream(scenes)
    again.batch(3, 0)  # whatever was asked before
    assert torch.equal(again.batch(7, 1).burst.frames, wanted.burst.frames)
    assert torch.equal(again.batch(7, 1).truth, wanted.truth)
    for other in (again.batch(7, 0), again.batch(8, 1), stream(scenes, seed=1).batch(7, 1)):
        same = other.burst.frames.shape == wanted.burst.frames.shape
        assert not (same and torch.equal(other.burst.frames, wanted.burst.frames))
    assert wanted.burst.frames.shape[0] == 2
    counts = {again.batch(step, 0).burst.count for step in range(30)}
    assert counts == {2, 3, 4, 5}
    assert again.batch(7, 0).burst.count == again.batch(7, 1).burst.count


def test_windows_are_cut_from_the_images_turned_in_eight_ways() -> None:
    image = np.arange(60 * 64, dtype=np.float32).reshape(60, 64)
    maker = ImageStream([image], TINY, 2, 0, "cpu")
    windows = maker._windows(draws(0)[0], 64, 60) * 3400
    steps = {(round(float(w[1, 0] - w[0, 0])), round(float(w[0, 1] - w[0, 0]))) for w in windows}
    assert steps == {
        (a * s, b * t) for a, b in ((64, 1), (1, 64)) for s in (1, -1) for t in (1, -1)
    }
    corners = {round(float(w.min())) for w in windows}
    assert corners == {0, 1, 2, 3, 4}
    with pytest.raises(UsageError, match="at least 112x112 px, got 60x64 at most"):
        stream([image], data=replace(TINY, mixture=Mixture(continuous=0.1)))


def test_every_kind_of_burst_is_drawn() -> None:
    mix = Mixture(
        affine=1.0,
        continuous=1.0,
        psf_hpx=(0.45, 0.8),
        noise_std_dn=(1.0, 40.0),
        noise_a=(0.0, 0.3),
        exposure_error=(0.0, 0.02),
        drifting=0.3,
        saturated=0.3,
    )
    data = DataConfig(frames=(3, 20), size=16, mixture=mix)
    settings = [draw_setting(draws(k)[0], data, 2) for k in range(300)]
    assert {s.frames for s in settings} == set(range(3, 21))
    kinds = [(s.noise_a > 0, s.oversampling) for s in settings]
    for kind in ((False, 1), (True, 1), (False, 2)):
        assert 70 < kinds.count(kind) < 130  # a third of 300, within four standard deviations
    psf = [s.psf_hpx for s in settings if s.oversampling == 2]
    assert min(psf) >= 0.45
    assert max(psf) <= 0.8
    assert np.ptp(psf) > 0.25
    lows, highs = np.array([s.noise_std_dn for s in settings]).T
    assert np.allclose(highs, 4 * lows)
    assert 1 <= lows.min() < 2
    assert 20 < highs.max() <= 40.001
    assert 0.3 < (lows < 10**0.5).mean() < 0.7  # evenly in the logarithm
    assert 0.005 < np.mean([s.exposure_error for s in settings]) < 0.015
    assert 50 < sum(s.motion == "drift" for s in settings) < 130
    assert 50 < sum(s.saturate for s in settings) < 130
    plain = draw_setting(draws(0)[0], DataConfig(frames=(15, 15)), 2)
    assert plain == PRESETS["paper"]


def test_few_frames_are_drawn_more_often_where_told() -> None:
    host = draws(0)[0]
    counts = [DataConfig(frames=(3, 20), few_frames=True).draw_count(host) for _ in range(4000)]
    assert (min(counts), max(counts)) == (3, 20)
    share = np.mean(np.array(counts) <= 7)
    assert share == pytest.approx(np.log(8 / 3) / np.log(21 / 3), abs=0.03)
    even = [DataConfig(frames=(3, 20)).draw_count(host) for _ in range(4000)]
    assert np.mean(np.array(even) <= 7) == pytest.approx(5 / 18, abs=0.03)


def test_the_longest_exposure_may_be_the_reference() -> None:
    settings = [
        draw_setting(draws(k)[0], DataConfig(mixture=mix), 2)
        for k in range(200)
        for mix in [Mixture(longest_first=0.5, saturated=0.5)]
    ]
    shares = [
        np.mean([s.longest_first for s in settings if s.saturate is kind]) for kind in (False, True)
    ]
    assert 0.3 < shares[0] < 0.7
    assert shares[1] == 0  # it would be white all over


def test_holes_are_drawn_in_their_share(scenes) -> None:
    burst = stream(scenes).batch(0, 0).burst
    many = [
        random_holes(burst, torch.Generator().manual_seed(k)).valid.flatten(0, 1) for k in range(60)
    ]
    frames = torch.cat(many)
    bitten = (~frames).flatten(1).float().mean(1) > 0.01
    assert 0.15 < float(bitten.float().mean()) < 0.35  # some holes are cut off by the border


def test_groups_are_kept_apart(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "train")
    rows = ["file,group,licence", "train/scene0.npy,town,Open", "train/scene1.npy,town,Open"]
    (tmp_path / "MANIFEST.csv").write_text("\n".join([*rows, "test/scene2.npy,coast,x"]))
    images = read_images(folder)
    assert [image.group for image in images] == ["town", "town", "scene2"]
    assert images[0].licence == "Open"
    groups = [image.group for image in images]
    data = DataConfig(validation_groups=("town",))
    assert held_out(groups, data) == [True, True, False]
    with pytest.raises(UsageError, match=r"among scene2, town, got twon"):
        held_out(groups, DataConfig(validation_groups=("twon",)))
    with pytest.raises(UsageError, match="all groups held out"):
        held_out(groups, DataConfig(validation_groups=("town", "scene2")))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (b"name,group\na,b\n", "MANIFEST.csv with a column `file`, got columns name, group"),
        (b"", "MANIFEST.csv with a column `file`, got none"),
        (b"file\n\xff\xfe\n", "expected a table, got .*MANIFEST.csv"),
    ],
)
def test_a_manifest_that_names_no_files_is_refused(
    table: bytes, message: str, tmp_path: Path
) -> None:
    (write_images(tmp_path) / "MANIFEST.csv").write_bytes(table)
    with pytest.raises(FileError, match=message):
        read_images(tmp_path)


def test_a_manifest_may_leave_cells_out(tmp_path: Path) -> None:
    rows = "\ufefffile,group,licence\nscene0.npy,town\nscene1.npy\nscene2.npy,,Open\n"
    (write_images(tmp_path) / "MANIFEST.csv").write_text(rows)
    images = read_images(tmp_path)
    assert [image.group for image in images] == ["town", "scene1", "scene2"]
    assert [image.licence for image in images] == ["", "", "Open"]


def test_validation_shows_every_image_and_is_always_the_same(tmp_path: Path) -> None:
    images = read_images(write_images(tmp_path, side=160))
    data = DataConfig(size=16, validation=("paper:3", "continuous:4"), validation_bursts=3)
    cases = validation_cases(images, data, 2)
    assert list(cases) == ["paper:3", "continuous:4"]
    assert [name for name, _ in cases["paper:3"]] == ["scene0.npy", "scene1.npy", "scene2.npy"]
    assert cases["continuous:4"][0][1].burst.count == 4
    again = validation_cases(images, data, 2)["paper:3"][2][1]
    assert torch.equal(again.burst.frames, cases["paper:3"][2][1].burst.frames)
    with pytest.raises(UsageError, match="preset:frames, got paper"):
        validation_cases(images, DataConfig(validation=("paper",)), 2)


def test_bad_images_are_named_and_skipped_only_if_told(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images")
    pixels = np.load(folder / "scene1.npy")
    pixels[3, 4] = np.nan
    np.save(folder / "scene1.npy", pixels)
    with pytest.raises(BurstError, match=r"scene1\.npy without nodata, got 1 such"):
        read_images(folder)
    left_out: list[str] = []
    assert [image.name for image in read_images(folder, left_out)] == [
        "scene0.npy",
        "scene2.npy",
    ]
    assert len(left_out) == 1
    assert left_out[0].startswith("scene1.npy was left out: expected ")
    for name in ("scene0", "scene2"):
        (folder / f"{name}.npy").unlink()
    with pytest.raises(BurstError, match=r"got none in .*; scene1\.npy was left out: expected"):
        read_images(folder, [])
    with pytest.raises(FileError, match="a folder of images"):
        read_images(tmp_path / "none")


def test_crops_of_bursts_are_turned_frames() -> None:
    setting = with_options(PRESETS["paper"], size=24, frames=4)
    burst = simulate_one(torch.rand(72, 72), setting, 0).burst
    crop = cut(burst, (3, 5), 16, (1, 0, 1))
    assert torch.equal(crop.frames[0], burst.frames[:, 3:19, 5:21].flip(1).mT)
    data = DataConfig(bursts="x", batch=6, frames=(3, 9), size=16)
    maker = BurstStream([burst, burst.select(range(3))], data, 0, "cpu")
    batches = [maker.batch(step, 0) for step in range(12)]
    assert {batch.burst.count for batch in batches} == {3, 4}
    assert torch.equal(maker.batch(5, 0).burst.frames, batches[5].burst.frames)
    references = {round(float(b.burst.exposure[k, 0]), 5) for b in batches for k in range(6)}
    assert len(references) == len(set(burst.exposure.tolist()))  # any frame may be it
    assert batches[0].truth is None


def test_a_crop_with_a_masked_reference_is_avoided() -> None:
    setting = with_options(PRESETS["paper"], size=40, frames=3)
    burst = simulate_one(torch.rand(104, 104), setting, 0).burst
    burst.valid[:, :, :20] = False
    maker = BurstStream([burst], DataConfig(bursts="x", batch=16, frames=(3, 3), size=16), 0, "cpu")
    share = maker.batch(0, 0).burst.valid[:, 0].float().mean((-1, -2))
    assert float(share.min()) > 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data__batch": 0}, r"data\.batch of at least 1, got 0"),
        ({"data__shards": 3}, r"multiple of data\.shards x parts = 3, got 2"),
        ({"data__frames": [1, 5]}, "fewest of at least 2"),
        ({"data__frames": [6, 5]}, "fewest, most"),
        ({"data__size": 8}, r"data\.size of at least 16"),
        ({"data__bursts": "b"}, r"one of data\.images and data\.bursts, got both"),
        ({"data__images": ""}, "got neither"),
        ({"data__mixture__masked": 2.0}, r"data\.mixture\.masked from 0 to 1"),
        ({"data__mixture__paper": 0.0}, "one above zero"),
        ({"schedule__minutes": 3.0}, r"one of schedule\.steps and schedule\.minutes"),
        ({"log_every": 0}, "log_every of at least 1"),
        ({"schedule__stepz": 3}, r"'schedule\.stepz': did you mean 'steps'"),
        ({"network": "hdr_dps"}, "did you mean 'hdr_dsp'"),
        ({"network": ["hdr_dsp"]}, r"network of hdr_dsp, on_solver, got \['hdr_dsp'\]"),
        ({"model__features": "many"}, r"model\.features to be int, got 'many'"),
    ],
)
def test_impossible_settings_are_refused(change: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config(Path("images"), **change)


@pytest.mark.parametrize(
    ("file", "changes", "length"),
    [
        ("minutes = 60.0", ["schedule.steps=5"], (5, 0.0)),
        ("minutes = 60.0", ["schedule.steps=0"], (0, 60.0)),
        ("minutes = 60.0", ["schedule.minutes=2"], (0, 2.0)),
        ("steps = 9", ["schedule.minutes=2"], (0, 2.0)),
        ("steps = 9", ["schedule.minutes=2", "schedule.steps=0"], (0, 2.0)),
        ("steps = 9", ["schedule.minutes=2", "schedule.steps=5"], None),
        ("steps = 9\nminutes = 60.0", [], None),
    ],
)
def test_a_length_that_is_set_replaces_that_of_the_file(
    file: str, changes: list[str], length: tuple[int, float] | None, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text(f'[data]\nimages = "x"\n[schedule]\n{file}\n')
    if length is None:
        with pytest.raises(UsageError, match=r"one of schedule\.steps and schedule\.minutes"):
            load_train_config(tmp_path / "own.toml", changes)
        return
    schedule = load_train_config(tmp_path / "own.toml", changes).schedule
    assert (schedule.steps, schedule.minutes) == length


def test_a_network_that_is_no_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('network = ["hdr_dsp"]')
    with pytest.raises(UsageError, match=r"network of hdr_dsp, on_solver, got \['hdr_dsp'\]"):
        load_train_config(tmp_path / "own.toml")


@pytest.mark.parametrize("order", [1, -1])
def test_weights_of_presets_are_judged_together(order: int) -> None:
    weights = {"data__mixture__paper": 0.0, "data__mixture__affine": 1.0}
    chosen = config(Path("images"), **dict(list(weights.items())[::order]))
    assert (chosen.data.mixture.paper, chosen.data.mixture.affine) == (0, 1)


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.toml")), ids=lambda p: p.stem)
def test_the_example_configurations_load(path: Path) -> None:
    chosen = load_train_config(path)
    assert chosen.data.validation_groups
    assert "test" not in chosen.data.images


@pytest.mark.shared_data
def test_the_example_groups_are_those_of_the_images(shared_images: Path) -> None:
    chosen = load_train_config(ROOT / "configs" / "base.toml")
    images = read_images(shared_images / "train")
    outside = held_out([image.group for image in images], chosen.data)
    assert 4 <= sum(outside) <= 12


def test_true_motion_may_be_written_bare() -> None:
    assert config(Path("images"), motion=True).motion == "true"
    with pytest.raises(UsageError, match="motion to be"):
        config(Path("images"), motion=False)
