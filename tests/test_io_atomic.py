"""Outputs appear whole or not at all: on errors, on a kill, on a full disk, in a wrong place."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from pushframe.burst import Burst
from pushframe.errors import FileError
from pushframe.io import atomic_folder, atomic_path, sweep, write_burst, write_product
from pushframe.product import Product

pytest.importorskip("rasterio")


def test_a_reader_never_sees_a_draft(tmp_path):
    target = tmp_path / "new" / "deep" / "out.json"
    with atomic_path(target) as draft:
        draft.write_text("half")
        assert not target.exists()
        draft.write_text("whole")
    assert target.read_text() == "whole"
    with atomic_path(target) as draft:
        draft.write_text("later")
        assert target.read_text() == "whole"
    assert target.read_text() == "later"
    assert list(target.parent.iterdir()) == [target]


def interrupted_write(target, failure):
    with atomic_path(target) as draft:
        draft.write_text("half")
        draft.with_suffix(".aux").write_text("GDAL leaves such files")
        raise failure("killed")


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, OSError])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, failure):
    old = tmp_path / "out.txt"
    old.write_text("old")
    fresh = tmp_path / "made" / "fresh.txt"
    for target in (old, fresh):
        with pytest.raises(FileError if failure is OSError else failure):
            interrupted_write(target, failure)
    assert list(tmp_path.iterdir()) == [old]
    assert old.read_text() == "old"


def test_a_killed_process_leaves_the_old_file(tmp_path):
    (tmp_path / "out.txt").write_text("old")
    code = (
        "import os, sys\nfrom pushframe.io import atomic_path\n"
        "with atomic_path(sys.argv[1]) as draft:\n    draft.write_text('half')\n    os._exit(9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "out.txt")], check=False)
    assert done.returncode == 9
    assert (tmp_path / "out.txt").read_text() == "old"


def test_atomic_path_follows_links_and_keeps_the_usual_mode(tmp_path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    with atomic_path(tmp_path / "link.txt") as draft:
        draft.write_text("new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"
    (tmp_path / "plain.txt").write_text("")
    assert (tmp_path / "real.txt").stat().st_mode == (tmp_path / "plain.txt").stat().st_mode


def test_atomic_folder_replaces_only_its_own(tmp_path):
    target = tmp_path / "run"
    with atomic_folder(target, ["*.txt"]) as draft:
        (draft / "a.txt").write_text("1")
        assert not target.exists()
    with pytest.raises(ZeroDivisionError), atomic_folder(target, ["*.txt"]) as draft:
        (draft / "a.txt").write_text(str(1 / 0))
    assert (target / "a.txt").read_text() == "1"
    with atomic_folder(target, ["*.txt"]) as draft:
        (draft / "b.txt").write_text("3")
    assert [entry.name for entry in target.iterdir()] == ["b.txt"]
    (target / "thesis.doc").write_text("precious")
    with pytest.raises(FileError, match=r"thesis\.doc"), atomic_folder(target, ["*.txt"]):
        pass
    assert (target / "thesis.doc").read_text() == "precious"
    assert list(tmp_path.iterdir()) == [target]


# --- places that cannot be written ----------------------------------------------------------


def raw(shape, seed=0):
    return np.random.default_rng(seed).uniform(100, 3000, shape).astype(np.float32)


def product():
    return Product(*raw((3, 300, 200)), scale=2)


def fails(call, path):
    with pytest.raises(FileError) as caught:
        call(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def burst():
    return Burst.from_dn(raw((3, 100, 90)), [1.0, 1.0, 2.0], 3400.0)


WRITE = {
    "burst.npz": lambda path: write_burst(burst(), path),
    "burst.tif": lambda path: write_burst(burst(), path, flow_px=np.zeros((3, 2))),
    "burst": lambda path: write_burst(burst(), path),
    "product.tif": lambda path: write_product(product(), path),
    "product.npz": lambda path: write_product(product(), path),
    "report.json": lambda path: write_text(path),
}


def write_text(path):
    with atomic_path(path) as draft:
        draft.write_text("x" * 100_000)


@pytest.mark.parametrize("name", WRITE)
@pytest.mark.parametrize("place", ["under a file", "deep under a file", "in /proc", "on a folder"])
def test_no_place_to_write(tmp_path, name, place):
    (tmp_path / "file").write_text("old")
    if place == "on a folder":
        target = tmp_path / name
        target.mkdir()
        (target / "thesis.doc").write_text("precious")
    else:
        parents = {"under a file": tmp_path / "file", "deep under a file": tmp_path / "file/a/b"}
        target = parents.get(place, Path("/proc/pushframe")) / name
    fails(WRITE[name], target)
    assert (tmp_path / "file").read_text() == "old"
    left = {entry.name for entry in tmp_path.rglob("*")}
    assert left == {"file"} | ({name, "thesis.doc"} if place == "on a folder" else set())


def test_a_device_is_not_replaced():
    before = Path("/dev/full").stat()
    fails(write_text, Path("/dev/full"))
    assert Path("/dev/full").stat().st_rdev == before.st_rdev


@contextmanager
def full_disk(limit):
    """No file may grow beyond `limit` bytes: every writer fails in the midst of its work."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def everything_in(folder):
    return {entry: entry.is_file() and entry.read_bytes() for entry in folder.rglob("*")}


@pytest.mark.parametrize("name", WRITE)
@pytest.mark.parametrize("limit", [100, 9_000, "the last byte"])
@pytest.mark.parametrize("there", [False, True])
def test_full_disk(tmp_path, name, limit, there, capfd):
    target = tmp_path / "made" / name
    WRITE[name](target)
    if limit == "the last byte":
        limit = max(len(data) for data in everything_in(tmp_path).values() if data) - 1
    if not there:
        shutil.rmtree(tmp_path / "made")
    before = everything_in(tmp_path)
    with capfd.disabled(), pytest.raises(FileError) as caught, full_disk(limit):
        WRITE[name](target)
    assert "\n" not in str(caught.value)
    assert str(target) in str(caught.value)
    assert everything_in(tmp_path) == before


def test_drafts_of_the_dead_are_swept_and_those_of_the_living_kept(tmp_path):
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    host = socket.gethostname()
    names = {
        f".pushframe-{host}-{gone.stdout.strip()}-0123456789ab": False,
        f".pushframe-{host}-{os.getpid()}-0123456789ab": True,
        f".pushframe-elsewhere-{gone.stdout.strip()}-0123456789ab": True,
        ".pushframe-notes": True,
    }
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "p.tif").write_text("half")
    sweep(tmp_path)
    assert {name: (tmp_path / name).exists() for name in names} == names
    with atomic_path(tmp_path / "whole.txt") as draft:
        sweep(tmp_path)
        draft.write_text("whole")
    assert (tmp_path / "whole.txt").read_text() == "whole"
