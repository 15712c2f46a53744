"""A burst in TIFF: a folder of single-band frames, or the bands or pages of one file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from ..burst import Burst
from ..checks import frame_label, require
from ..errors import BurstError
from ..geometry import upscale_georef
from .atomic import atomic_folder, atomic_path
from .contents import SCALARS, exposures, flag, number, numbers
from .exposure import stated_exposure
from .frames import Frame
from .georef import crs_name, pixel_size, same_crs, same_pixel
from .guard import naming
from .npz import burst_fields, load_npy
from .opened import Opened, Verified
from .raster import EXTRACT, RasterFrame, open_layers, write_layers
from .sidecar import NAME, Sidecar, find_sidecar, sidecar_text, strings
from .source import BurstSource
from .udm import udm_masks

LIST_THEM = f"list the frames with `frames` in {NAME}"
JPEG = (
    "Frames are compressed with JPEG, which loses detail: what it changed is no noise of any law, "
    "and error bars may be too short. Use frames as they were recorded."
)
OWN_FILES = (NAME, "frame_*.tif", "truth.tif", "flow_px.npy")


def open_tiff(path: Path) -> Opened:
    """The burst of TIFF files; truth and flows are read when asked for."""
    side = find_sidecar(path)
    table = side.table
    with naming(side.home if table else path, within=side.home.parent):
        if side.stack is None:
            frames = [_single(side.file(name), i) for i, name in enumerate(side.frames)]
            names = side.frames
        else:
            frames = open_layers(side.file(side.stack))
            _check_stack(frames, side)
            names = tuple(frame.name for frame in frames)
        for frame, name in zip(frames, names, strict=True):
            frame.name = name
        _check_alike(frames)
        exposure, said = exposures(table.get("exposure"), len(frames)), []
        if exposure is None:
            found = stated_exposure(side.home.parent, frames)
            if found is not None:
                exposure, said = found[0], [found[1]]
        if "valid" in table:
            masks: tuple[Frame, ...] = _masks(side, frames)
        else:
            masks, told = udm_masks(side.home.parent, frames)
            said.extend(told)
        if any(frame.is_jpeg for frame in frames):
            said.append(JPEG)
        source = BurstSource(
            frames=tuple(frames),
            stated_exposure=exposure,
            scalars={key: number(key, table[key]) for key in SCALARS if key in table},
            masks=masks,
            reference=_reference(table.get("reference", 0), names),
            chosen="reference" in table,
            days=flag("days", table.get("days", False)),
            clean=flag("clean", table.get("clean", False)),
            said=(*strings("notes", table.get("notes", [])), *said),
        )
        return Opened(source, lambda: _verified(side))


def _verified(side: Sidecar) -> Verified:
    """Truth and flows, where the side-car names them."""
    with naming(side.home, within=side.home.parent):
        return Verified(
            _truth(side) if "truth" in side.table else None,
            _flow(side) if "flow_px" in side.table else None,
        )


def _single(path: Path, frame: int | None) -> RasterFrame:
    """The only band of a file; BurstError where there are more. frame: its place, if it is one."""
    layers = open_layers(path, frame)
    if len(layers) != 1:
        where = str(path) if frame is None else frame_label(frame, str(path))
        rest = "" if frame is None else f"; or, if it is no frame, {LIST_THEM}"
        raise BurstError(f"{where}: expected one band, got {len(layers)}: {EXTRACT}{rest}")
    return layers[0]


def _check_stack(layers: Sequence[RasterFrame], side: Sidecar) -> None:
    """BurstError where the bands of a file say that they are colours, and no side-car objects."""
    require(
        bool(side.table) or len(layers) == 1 or not any(layer.is_colour for layer in layers),
        "a stack whose bands are frames",
        f"{len(layers)} bands of one colour image",
        f"{EXTRACT}; or, if the bands are frames, say "
        f'frames = "{side.stack}" in {side.home.name} beside it',
    )


def _check_alike(frames: Sequence[RasterFrame]) -> None:
    """All frames have the size, the dtype, the CRS and the pixel size of the first."""
    first = frames[0]
    for index, frame in enumerate(frames):
        for what, same, here, there, do in (
            (
                "size",
                first.shape == frame.shape,
                _size(first),
                _size(frame),
                f"crop them alike; or, if one is no frame, {LIST_THEM}",
            ),
            ("dtype", first.dtype == frame.dtype, first.dtype, frame.dtype, "convert them alike"),
            (
                "CRS",
                same_crs(first.georef, frame.georef),
                crs_name(first.georef),
                crs_name(frame.georef),
                "give frames as they were taken, in one projection",
            ),
            (
                "pixel size",
                same_pixel(first.georef, frame.georef),
                pixel_size(first.georef),
                pixel_size(frame.georef),
                "leave this frame out; frames are never resampled",
            ),
        ):
            require(
                same,
                f"frames of one {what}",
                f"{here} in {frame_label(0, first.name)} and "
                f"{there} in {frame_label(index, frame.name)}",
                do,
            )


def _size(frame: RasterFrame) -> str:
    return "x".join(map(str, frame.shape))


def _reference(value: Any, names: Sequence[str]) -> int:
    """The index of the reference frame, given as such or by the name of its file."""
    if isinstance(value, str):
        require(
            value in names,
            "a reference among the frames",
            f"'{value}'",
            f"choose one of {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}",
        )
        return list(names).index(value)
    return int(number("reference", value, kinds="ui"))


def _masks(side: Sidecar, frames: Sequence[RasterFrame]) -> tuple[RasterFrame, ...]:
    """The masks, a frame each, non-zero where valid: one file for all frames, or one a frame."""
    value, count = side.table["valid"], len(frames)
    if isinstance(value, str):
        masks = open_layers(side.file(value))
    else:
        files = [side.file(name) for name in strings("valid", value)]
        masks = [_single(path, None) for path in files]
    require(
        len(masks) == count or (isinstance(value, str) and len(masks) == 1),
        f"{count} masks, one for each frame, or one file for all",
        f"{len(masks)}",
        "correct `valid`",
    )
    for mask in masks:
        require(
            mask.shape == frames[0].shape,
            f"a mask of the size of the frames, {_size(frames[0])}",
            f"{_size(mask)} in {mask.name}",
            "crop the mask like the frames",
        )
    return tuple(masks) if len(masks) == count else tuple(masks) * count


def _truth(side: Sidecar) -> np.ndarray:
    """The truth in DN, from the file that the side-car names."""
    name = side.table["truth"]
    require(isinstance(name, str), "truth as the name of a TIFF", repr(name)[:60], "name it")
    return _single(side.file(name), None).read()


def _flow(side: Sidecar) -> np.ndarray:
    """The flows, from the side-car or from the .npy that it names."""
    value = side.table["flow_px"]
    return numbers("flow_px", load_npy(side.file(value)) if isinstance(value, str) else value)


def write_folder(
    burst: Burst, path: Path, truth_dn: np.ndarray | None, flow_px: np.ndarray | None
) -> None:
    """Write a folder of float32 TIFF frames with burst.toml."""
    dn = burst.raw_dn().cpu().numpy()
    digits = max(2, len(str(len(dn) - 1)))
    names = [f"frame_{index:0{digits}d}.tif" for index in range(len(dn))]
    with atomic_folder(path, OWN_FILES) as draft:
        for name, frame in zip(names, dn, strict=True):
            write_layers(draft / name, [frame], burst.georef, path)
        _write_rest(burst, names, "", truth_dn, flow_px, lambda name: draft / name, path, NAME)


def write_stack(
    burst: Burst, path: Path, truth_dn: np.ndarray | None, flow_px: np.ndarray | None
) -> None:
    """Write one float32 TIFF with a band for each frame, and its side-car beside it."""
    # The drafts are renamed last-in first-out, so the pixels come before what speaks of them.
    with ExitStack() as drafts:

        def place(name: str) -> Path:
            return drafts.enter_context(atomic_path(path.with_name(name)))

        _write_rest(
            burst, path.name, f"{path.stem}_", truth_dn, flow_px, place, path, f"{path.stem}.toml"
        )
        write_layers(place(path.name), list(burst.raw_dn().cpu().numpy()), burst.georef, path)


def _write_rest(
    burst: Burst,
    frames: str | list[str],
    prefix: str,
    truth_dn: np.ndarray | None,
    flow_px: np.ndarray | None,
    place: Callable[[str], Path],
    target: Path,
    sidecar: str,
) -> None:
    """Write truth, flows and side-car, each at `place(its name)`."""
    fields: dict[str, Any] = {"frames": frames, **burst_fields(burst)}
    if truth_dn is not None:
        fields["truth"] = f"{prefix}truth.tif"
        scale = len(truth_dn) // burst.shape[0]
        georef = None if burst.georef is None else upscale_georef(burst.georef, scale)
        write_layers(place(fields["truth"]), [truth_dn], georef, target)
    if flow_px is not None and flow_px.ndim == 2:
        fields["flow_px"] = flow_px.tolist()
    elif flow_px is not None:
        fields["flow_px"] = f"{prefix}flow_px.npy"
        np.save(place(fields["flow_px"]), flow_px)
    place(sidecar).write_text(sidecar_text(fields), encoding="utf-8")
