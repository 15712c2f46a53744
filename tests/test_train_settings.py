"""Settings that cannot be meant are refused before anything starts, not trained as others."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from training import config, write_images

from pushframe.data import read_images, validation_cases
from pushframe.errors import TrainingError, UsageError
from pushframe.model.hdr_dsp import Given
from pushframe.train import TrainConfig, train
from pushframe.train.config import ScheduleConfig
from pushframe.train.memory import enough_memory

BURSTS = {"data__images": "", "data__bursts": "bursts", "data__validation_groups": []}
OWN_MOTION = {"model__finds_motion": True, "motion": "network"}


def refusal(**changes: object) -> str:
    """What is said of a configuration that is refused."""
    with pytest.raises(UsageError) as told:
        config(Path("images"), **changes)
    return str(told.value)


@pytest.mark.parametrize("pool", [1, 2])
def test_motion_is_taught_to_a_network_that_uses_its_own(pool: int) -> None:
    wanted = {"loss__kind": "motion", "data__pool": pool, "data__frames": [3, 3]}
    said = refusal(**wanted, motion="solver")
    assert said.startswith('expected motion = "network" with loss.kind = "motion"')
    assert 'got motion = "solver"' in said
    assert config(Path("images"), loss__kind="motion", **OWN_MOTION).loss.kind == "motion"


def test_a_network_uses_the_motion_that_it_learns() -> None:
    assert "a network that finds motion" in refusal(motion="network")
    said = refusal(model__finds_motion=True)  # with Lucas-Kanade's
    assert "nothing would have taught" in said
    taught = config(Path("images"), model__finds_motion=True, start="taught.safetensors")
    assert taught.motion == "lucas_kanade"
    for name in ("parts", "pool", "uses"):
        said = refusal(**OWN_MOTION, **{f"data__{name}": 2})
        assert "data.parts, pool and uses of 1" in said


@pytest.mark.parametrize(
    "change", [{"loss__kind": "supervised"}, {"loss__kind": "motion"}, {"motion": "true"}]
)
def test_bursts_are_not_asked_what_a_simulator_knows(change: dict) -> None:
    own = OWN_MOTION if change == {"loss__kind": "motion"} else {}
    assert "needs what a simulator knows, got data.bursts" in refusal(**BURSTS, **own, **change)
    assert config(Path("images"), **own, **change).data.images == "images"
    assert config(Path("images"), **BURSTS).data.bursts == "bursts"


@pytest.mark.parametrize(
    ("option", "kinds"),
    [
        ({"loss__detail": True}, ["supervised", "mse", "l1", "motion"]),
        ({"loss__noise_corrected": False}, ["supervised", "mse", "l1", "motion"]),
        ({"loss__outlier_nats": 3.0}, ["mse", "l1", "motion"]),
    ],
)
def test_a_loss_is_not_given_options_that_it_does_not_know(option: dict, kinds: list) -> None:
    ((name, value),) = option.items()
    for kind in kinds:
        said = refusal(**option, loss__kind=kind)
        assert f"with {name.replace('__', '.')} = {str(value).lower()}, got {kind}" in said
    assert getattr(config(Path("images"), **option).loss, name.removeprefix("loss__")) == value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss__outlier_nats": -1.0}, "loss.outlier_nats above 0, got -1"),
        ({"schedule__steps": -5, "schedule__minutes": 3.0}, "schedule.steps of at least 0"),
        ({"schedule__learning_rate": 0.0}, "schedule.learning_rate above 0"),
        ({"schedule__warmup": 1.0}, "schedule.warmup from 0 to below 1"),
        ({"schedule__clip": -1.0}, "schedule.clip above 0"),
        ({"schedule__weight_decay": -1.0}, "schedule.weight_decay of at least 0"),
        ({"schedule__averaging": 1.5}, "schedule.averaging from 0 to 1"),
        ({"seed": -1}, "seed of at least 0, got -1"),
    ],
)
def test_numbers_that_train_nothing_or_for_ever_are_refused(change: dict, message: str) -> None:
    assert message in refusal(**change)


def test_want_of_memory_is_said_of_a_network_of_any_settings(tmp_path: Path) -> None:
    @dataclasses.dataclass(frozen=True)
    class Plain:
        scale: int = 2

    config = dataclasses.replace(TrainConfig(), model=Plain())
    with (
        pytest.raises(TrainingError, match=r"size = \d+ and data.frames = \[5, 20\], got less"),
        enough_memory(config, tmp_path),
    ):
        raise MemoryError


def test_a_run_has_an_end() -> None:
    with pytest.raises(UsageError, match=r"schedule\.minutes of at least 0 and finite, got inf"):
        ScheduleConfig(minutes=math.inf).check()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drifting": 0.5, "bend_px": [0, 12]}, "data.mixture: expected a margin_hpx of at least"),
        ({"bend_px": [2.0, 1.0]}, "data.mixture.bend_px from low to high"),
        ({"psf_hpx": [-1.0, 0.7]}, "data.mixture.psf_hpx from low to high"),
        ({"noise_std_dn": [5.0, 1.0]}, "data.mixture.noise_std_dn from low to high"),
        ({"noise_a": [-0.1, 0.1], "affine": 1.0}, "data.mixture.noise_a from low to high"),
        ({"exposure_error": [0.0, -0.1]}, "data.mixture.exposure_error from low to high"),
    ],
)
def test_what_may_be_drawn_can_be_simulated(change: dict, message: str) -> None:
    assert message in refusal(**{f"data__mixture__{name}": x for name, x in change.items()})


def test_how_far_motion_may_bend_depends_on_the_scale() -> None:
    bent = {"data__mixture__drifting": 0.5, "data__mixture__bend_px": [0.0, 4.0]}
    assert config(Path("images"), **bent).data.mixture.bend_px == (0, 4)
    assert "of at least 20, the largest motion, got 12" in refusal(**bent, model__scale=4)


def test_held_out_images_that_hold_no_burst_are_named(tmp_path: Path) -> None:
    """They would be left out of the validation, and nobody would be told."""
    images = read_images(write_images(tmp_path, side=80))
    data = config(tmp_path, data__validation=["paper:3", "continuous:3"]).data
    with pytest.raises(UsageError, match="at least 112x112 px to validate on continuous:3, got no"):
        validation_cases(images, data, 2)
    assert validation_cases([], data, 2) == {"paper:3": [], "continuous:3": []}


def test_bent_and_rigid_motion_can_be_pooled(tmp_path: Path) -> None:
    """Which a batch has is drawn at random, or found in it."""
    images = write_images(tmp_path / "images")
    same = {"data__pool": 8, "data__frames": [3, 3], "motion": "true", "schedule__steps": 1}
    mixed = config(images, **same, data__mixture__drifting=0.5)
    assert train(mixed, tmp_path / "run").progress.step == 1
    rigid = Given(*(torch.rand(2, 3, *rest) for rest in ((3, 4, 4), (4, 4), (2,), (8,), (1,))))
    bent = rigid._replace(flow_px=rigid.flow_px[..., None, None].expand(-1, -1, -1, 4, 4))
    joined = Given.joined([rigid, bent]).flow_px
    assert torch.equal(joined, torch.cat([bent.flow_px, bent.flow_px]))
    assert Given.joined([rigid, rigid]).flow_px.shape == (4, 3, 2)
