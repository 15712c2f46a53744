"""RPC from ground to image and back, against GDAL."""

from __future__ import annotations

import numpy as np
import pytest
from earth import rpc_at

from pushframe.burst import GeoRef
from pushframe.io.georef import profile_of
from pushframe.rpc import to_ground, to_image

rasterio = pytest.importorskip("rasterio")
from rasterio.transform import RPCTransformer  # noqa: E402

POINTS = np.array([[0.0, 0.0], [10.0, 700.0], [511.0, 3.25], [300.5, 404.75]])


def curved():
    """Coefficients of which every one matters, near those of a camera."""
    rng = np.random.default_rng(3)
    rpc = rpc_at((40, -25))
    for key in [key for key in rpc if key.endswith("COEFF")]:
        bent = np.array(rpc[key]) + rng.normal(0, 1e-4, 20)
        bent[0] = rpc[key][0]
        rpc[key] = tuple(bent.tolist())
    return rpc


@pytest.mark.parametrize("height_m", [0.0, 240.0, 900.0])
def test_ground_and_image_are_gdals(height_m):
    rpc = curved()
    ground = to_ground(rpc, POINTS, height_m)
    with RPCTransformer(profile_of(GeoRef(rpc=rpc))["rpcs"], RPC_HEIGHT=height_m,
                        RPC_PIXEL_ERROR_THRESHOLD=1e-6) as gdal:  # fmt: skip
        # GDAL counts from the corner of the first pixel
        x, y = gdal.xy(POINTS[:, 0], POINTS[:, 1], offset="center")
        np.testing.assert_allclose(ground, np.column_stack([x, y]), rtol=0, atol=1e-9)
        rows, columns = gdal.rowcol(ground[:, 0], ground[:, 1], op=lambda value: value)
    np.testing.assert_allclose(np.column_stack([rows, columns]) - 0.5, POINTS, atol=1e-3)
    np.testing.assert_allclose(to_image(rpc, ground, height_m), POINTS, atol=1e-9)
    # twins: the corner as origin, and (x, y)
    assert np.abs(to_ground(rpc, POINTS + 0.5, height_m)[:, 0] - x).max() > 1e-6
    assert np.abs(to_ground(rpc, POINTS[:, ::-1], height_m)[:, 0] - x).max() > 1e-4
