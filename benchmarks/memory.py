"""Peak memory against the size of the scene: a burst on disk to a product on disk.

    python benchmarks/memory.py --method bicubic --height 256 --widths 1024 4096 20000
    python benchmarks/memory.py --method bicubic --height 2048 4096 --widths 1024
    python benchmarks/memory.py --method solver --window 192 --report --height 512 --widths 20000

Each size runs in a process of its own, whose peak resident memory is read from the kernel. The
burst is a folder of TIFF frames (uint16, tiled) made strip by strip from a repeated procedural
scene; the frames move by whole pixels. Default method: shift_and_add, the cheapest that uses every
frame: memory is that of reading, tiling, blending and writing. `--window`: the middle alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FRAMES = 8


def make_burst(folder: Path, height: int, width: int, striped: bool) -> Path:
    """A folder of frames, each a shifted look at a repeated scene, with a side-car."""
    import rasterio

    from pushframe.scenes import procedural_scene

    scene = procedural_scene((512, 512), 7)
    rng = np.random.default_rng(0)
    blocks = {} if striped else {"tiled": True, "blockxsize": 256, "blockysize": 256}
    profile = {
        "driver": "GTiff", "height": height, "width": width, "count": 1, "dtype": "uint16",
        "crs": "EPSG:32631", "transform": rasterio.transform.Affine(1, 0, 5e5, 0, -1, 4.8e6),
        **blocks,
    }  # fmt: skip
    folder.mkdir()
    for frame in range(FRAMES):
        with rasterio.open(folder / f"frame_{frame}.tif", "w", **profile) as sink:
            for row in range(0, height, 256):
                stop = min(row + 256, height)
                rows = (np.arange(row, stop) + frame % 3) % 512
                columns = (np.arange(width) + frame // 3) % 512
                lines = scene[rows][:, columns] + rng.normal(0, 10, (stop - row, width))
                window = ((row, stop), (0, width))
                sink.write(lines.clip(0).astype(np.uint16), 1, window=window)
    (folder / "burst.toml").write_text(
        f"exposure = {[1.0] * FRAMES}\nwhite_level = 3400.0\nnoise_a = 0.0\nnoise_b = 100.0\n"
    )
    return folder


def run_once(burst: Path, method: str, report: bool, part: int) -> dict[str, float]:
    """In a process of its own: seconds and peak memory of one delivery, MiB."""
    from pushframe.deliver import Order, deliver
    from pushframe.extent import Window
    from pushframe.io import open_burst

    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    begin = time.perf_counter()
    window = None
    if part:
        top, left = ((size - part) // 2 for size in open_burst(burst).shape)
        window = Window(top, left, part, part)
    product = burst.parent / "p.tif"
    made = deliver(Order(burst, product, method=method, report=report, window=window))
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pixels = made.shape[0] * made.shape[1]
    return {
        "seconds": round(seconds, 2),
        "hr_mp_per_s": round(pixels / 1e6 / seconds, 3),
        "idle_mib": round(idle, 1),
        "peak_mib": round(peak, 1),
        "product_mib_in_memory": round(3 * 4 * pixels / 2**20, 1),
        "frames_mib_in_memory": round(FRAMES * pixels / 2**20, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--widths", type=int, nargs="+", default=[1024, 4096, 20000])
    parser.add_argument("--height", type=int, nargs="+", default=[256], dest="heights")
    parser.add_argument("--striped", action="store_true", help="TIFF strips rather than tiles")
    parser.add_argument("--method", default="shift_and_add")
    parser.add_argument("--window", type=int, default=0, help="side of the middle, px; 0 is all")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run_once(options.one, options.method, options.report, options.window)))
        return
    rows = []
    for height, width in itertools.product(options.heights, options.widths):
        with tempfile.TemporaryDirectory() as room:
            burst = make_burst(Path(room) / "burst", height, width, options.striped)
            command = [sys.executable, __file__, "--one", str(burst), "--method", options.method]
            command += ["--window", str(options.window)]
            command += ["--report"] if options.report else []
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append({"height": height, "width": width, "frames": FRAMES, **json.loads(done.stdout)})
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if options.out:
        from record import record  # not at the top: a run that is measured imports nothing more

        record(
            options.out,
            "memory",
            method=options.method,
            report=options.report,
            window=options.window or None,
            striped=options.striped,
            rows=rows,
        )


if __name__ == "__main__":
    main()
