"""Many bursts: as they finish, killed workers, poisoned bursts, reruns, Ctrl-C."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import sources
from test_cli import run
from typer.testing import CliRunner

from pushframe import many, read_burst, write_burst
from pushframe.cli import app
from pushframe.deliver import Order, is_finished
from pushframe.errors import FileError, MissingPackageError, UsageError
from pushframe.many import Result, fulfil, run_here, run_on_cluster
from pushframe.orders import find_inputs, plan_orders
from pushframe.simulate import preset, simulate_one, with_options

pytest.importorskip("rasterio")


@pytest.fixture(scope="session")
def bursts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One quick burst and three that take some seconds."""
    folder = tmp_path_factory.mktemp("bursts")
    for index, (size, frames) in enumerate([(16, 3), (96, 12), (96, 12), (96, 12)]):
        setting = with_options(preset("paper"), size=size, frames=frames)
        made = simulate_one(sources(setting, 1, index)[0], setting, index)
        write_burst(made.burst, folder / f"burst_{index}.npz")
    return folder


def orders(bursts: Path, to: Path, **options: object) -> list[Order]:
    pattern = Order(Path(), to, report=False, **options)
    return plan_orders(find_inputs([str(bursts)]), pattern, None)


def check_all(found: list[Result], asked: list[Order]) -> None:
    assert {result.order for result in found} == set(asked)
    assert [result.error for result in found] == [None] * len(asked)
    assert all(is_finished(order) for order in asked)
    folder = asked[0].product.parent
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


def test_results_come_as_they_finish(bursts: Path, tmp_path: Path) -> None:
    asked = orders(bursts, tmp_path, method="shift_and_add")[::-1]
    found = list(run_here(asked, 2))
    check_all(found, asked)
    assert all(result.seconds > 0 for result in found)


def test_a_killed_worker_s_burst_is_done_again(bursts: Path, tmp_path: Path, monkeypatch) -> None:
    asked = orders(bursts, tmp_path)
    lost: list[Order] = []
    real = many._pooled

    def spied(*arguments: object) -> Iterator[tuple[Order, Result | None]]:
        for order, result in real(*arguments):
            lost.extend([order] if result is None else [])
            yield order, result

    monkeypatch.setattr(many, "_pooled", spied)
    found = []
    for result in run_here(asked, 2):
        if not found:  # the quick one: the other worker is in the midst of a slow one
            for child in multiprocessing.active_children():
                os.kill(child.pid, signal.SIGKILL)
        found.append(result)
    assert lost
    check_all(found, asked)


def test_a_burst_that_kills_its_workers_is_given_up(bursts: Path, tmp_path: Path, monkeypatch):
    """Those that were in flight beside it are not blamed."""
    asked = orders(bursts, tmp_path)
    widths = []

    def deadly(queue, width: int, _: int) -> Iterator[tuple[Order, Result | None]]:
        widths.append(width)
        flying = [queue.popleft() for _ in range(min(width, len(queue)))]
        if asked[1] in flying:
            yield from ((order, None) for order in flying)
        else:
            yield from ((order, Result(order, None)) for order in flying)

    monkeypatch.setattr(many, "_pooled", deadly)
    found = {result.order: result.error for result in run_here(asked, 2)}
    assert "3 that died over it" in found[asked[1]]
    assert [found[order] for order in asked if order != asked[1]] == [None] * 3
    assert widths[0] == 2
    assert widths[-1] == 1


@pytest.fixture
def cluster() -> Iterator[object]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as made:
        yield made


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_cluster_outlives_a_worker(bursts: Path, tmp_path: Path, cluster) -> None:
    from distributed import Client

    asked = orders(bursts, tmp_path)
    with Client(cluster) as client:
        before = set(client.run(os.getpid).values())
        found = []
        for result in run_on_cluster(asked, cluster.scheduler_address):
            if not found:  # busy workers, each with a burst of some seconds
                busy = {w: keys for w, keys in client.processing().items() if keys}
                victim = next(iter(busy))
                os.kill(client.run(os.getpid, workers=[victim])[victim], signal.SIGKILL)
            found.append(result)
        client.wait_for_workers(2)
        after = set(client.run(os.getpid).values())
    assert len(before & after) == 1
    check_all(found, asked)


def test_no_scheduler_or_no_dask_is_a_users_error(bursts, tmp_path, monkeypatch) -> None:
    asked = orders(bursts, tmp_path)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingPackageError, match=r"pushframe\[cluster\]"):
        list(run_on_cluster(asked, "tcp://127.0.0.1:9"))


def test_what_is_wrong_with_a_burst_becomes_words(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "bad.npz").write_text("junk")
    result = fulfil(Order(tmp_path / "bad.npz", tmp_path / "p.tif"))
    assert result.delivery is None
    assert "bad.npz: expected a burst" in result.error

    def surprise(_: Order) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(many, "deliver", surprise)
    assert (
        "RuntimeError: out of luck" in fulfil(Order(tmp_path / "b.npz", tmp_path / "p.tif")).error
    )


def test_a_poisoned_burst_is_reported_and_the_rest_is_skipped_next_time(
    bursts: Path, tmp_path: Path
) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for name in ("burst_0.npz", "burst_1.npz"):
        (folder / name).write_bytes((bursts / name).read_bytes())
    (folder / "poisoned.npz").write_bytes((bursts / "burst_1.npz").read_bytes()[:3000])
    (folder / "notes.txt").write_text("left out")
    asked = ["run", f"{folder}/*", "--out", str(out), "--method", "shift_and_add", "--no-report"]
    for turn in range(2):
        done = CliRunner().invoke(app, [*asked, "--json"])
        told = json.loads(done.stdout)
        assert done.exit_code == 1
        assert [entry["burst"] for entry in told["failed"]] == [str(folder / "poisoned.npz")]
        assert len(told["made"]) == (0 if turn else 2)
        assert len(told["skipped"]) == (2 if turn else 0)
    (folder / "poisoned.npz").unlink()
    text = run(*asked)
    assert "0 products made" in text
    assert "2 skipped as finished, 0 failed" in text


def alive_in(group: int) -> list[str]:
    """Processes of a group that still run; one that has given back its memory does not."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            its_group = int(entry.read_text().rpartition(")")[2].split()[2])
            running = entry.with_name("cmdline").read_bytes()
            found += [entry.parent.name] if its_group == group and running else []
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_ctrl_c_leaves_whole_products_and_no_worker(bursts: Path, tmp_path: Path) -> None:
    folder, to = tmp_path / "bursts", tmp_path / "products"
    folder.mkdir()
    for burst in bursts.glob("*.npz"):
        (folder / burst.name).write_bytes(burst.read_bytes())
    one = read_burst(bursts / "burst_0.npz")
    wide = dataclasses.replace(  # begun at once, and a minute's work: nothing ends before Ctrl-C
        one, frames=one.frames.repeat(1, 20, 20), valid=one.valid.repeat(1, 20, 20)
    )
    write_burst(wide, folder / "burst_00_wide.npz")
    # a shell's background job, as these tests may be, would ignore it
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heed}; from pushframe.cli import main; main()"
    asked = ["run", str(folder), "--out", str(to), "--jobs", "2", "--no-report"]
    running = subprocess.Popen(
        [sys.executable, "-c", code, *asked],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    first = running.stdout.readline()
    assert first.startswith("1/5")
    os.kill(running.pid, signal.SIGINT)  # the parent alone, as `kill -INT` does
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "stopped by Ctrl-C" in said
    assert alive_in(running.pid) == []
    assert not [name for name in os.listdir(to) if name.startswith(".")]
    finished = [order for order in orders(folder, to) if is_finished(order)]
    assert 1 <= len(finished) < 5


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_workers_end_with_a_parent_that_is_killed(bursts: Path, tmp_path: Path) -> None:
    asked = ["run", str(bursts), "--out", str(tmp_path), "--jobs", "2", "--no-report"]
    running = subprocess.Popen(
        [sys.executable, "-m", "pushframe", *asked],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline().startswith("1/4")
    running.send_signal(signal.SIGSTOP)  # or it might be done before it is killed
    try:
        assert len(alive_in(running.pid)) >= 3
        running.kill()
        running.communicate(timeout=60)  # workers hold the pipe: it ends when the last of them does
        assert alive_in(running.pid) == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)


def test_arguments_to_bursts(bursts: Path, tmp_path: Path) -> None:
    names = [f"burst_{k}.npz" for k in range(4)]
    assert [p.name for p in find_inputs([str(bursts)])] == names
    assert [p.name for p in find_inputs([f"{bursts}/burst_[12]*"])] == names[1:3]
    assert [p.name for p in find_inputs([str(bursts / names[0])] * 2)] == names[:1]
    assert find_inputs(["nothing.npz"]) == [Path("nothing.npz")]
    with pytest.raises(FileError, match="behind the pattern"):
        find_inputs([f"{bursts}/none_*"])
    twice = [bursts / names[0], tmp_path / names[0]]
    with pytest.raises(UsageError, match="collide"):
        plan_orders(twice, Order(Path(), tmp_path), None)


def test_a_folder_of_bursts_loses_none(bursts: Path, tmp_path: Path) -> None:
    folder, to = tmp_path / "bc", tmp_path / "pq"
    for name in ("p1", "p2", "q"):
        write_burst(read_burst(bursts / "burst_0.npz"), folder / name)
        if name != "q":
            (folder / name / "burst.toml").unlink()
    (folder / "masks").mkdir()
    (folder / "masks" / "m.tif").write_bytes(next((folder / "q").glob("*.tif")).read_bytes())
    told = json.loads(run("run", folder, "--out", to, "--no-report", "--method=bicubic", "--json"))
    assert [Path(made["product"]).name for made in told["made"]] == ["p1.tif", "p2.tif", "q.tif"]
    assert find_inputs([str(folder / "masks")]) == [folder / "masks"]  # named, it is a burst of one


@pytest.mark.parametrize("to", ["p", "p.tif"])
def test_a_folder_without_bursts_is_called_one(to: str, tmp_path: Path) -> None:
    (tmp_path / "bc" / "p1").mkdir(parents=True)
    done = CliRunner().invoke(app, ["run", str(tmp_path / "bc"), "--out", str(tmp_path / to)])
    assert isinstance(done.exception, FileError)
    assert f"{tmp_path / 'bc'}: expected a burst or a folder of bursts, got neither" in str(
        done.exception
    )


def test_the_folder_one_is_in_has_a_name(tmp_path: Path, monkeypatch) -> None:
    home = tmp_path / "pass_7"
    home.mkdir()
    monkeypatch.chdir(home)
    (order,) = plan_orders([Path()], Order(Path(), tmp_path / "products"), None)
    assert order.product.name == "pass_7.tif"


def test_one_product_takes_one_burst(bursts: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", str(bursts), "--out", str(tmp_path / "p.tif")])
    assert isinstance(done.exception, UsageError)
    assert "expected a folder as --out for 4 bursts" in str(done.exception)
