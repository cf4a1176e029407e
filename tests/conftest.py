"""Small problems that several test files share, and one BLAS thread for all of them."""

import os

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  (brings a BLAS of its own, which must be there to be limited)
from threadpoolctl import threadpool_limits

# Many threads for small matrices, in several test processes at once, make the tests slower by a factor.
threadpool_limits(1)

#: Whether numba's functions run as plain Python, a hundred times slower (`make nojit`).
NO_JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")

#: Where tests of devices run: an array library and its device. ``POLYMARGIN_DEVICE=cuda`` (`make test-gpu`) adds torch
#: on the GPU.
PLACES = [("array_api_strict", "cpu"), ("torch", "cpu"), ("numpy", "cpu")]
if os.environ.get("POLYMARGIN_DEVICE", "").startswith("cuda"):
    PLACES.append(("torch", os.environ["POLYMARGIN_DEVICE"]))


@pytest.fixture(params=PLACES, ids="-".join)
def device(request):
    """A device of every array library that is there."""
    from polymargin.device import resolve_device

    library, name = request.param
    pytest.importorskip(library)
    return resolve_device(name, library=library)


def pytest_collection_modifyitems(items):
    """Leave out what takes long without the compiler, where there is none."""
    for item in items:
        if NO_JIT and item.get_closest_marker("slow_without_jit"):
            item.add_marker(pytest.mark.skip(reason="takes long without the compiler"))


def blobs(n=36, K=3, d=3, seed=0, spread=1.0, shift=1.6):
    """K overlapping classes of unequal size in d dimensions: rows X and class indices y, in random order."""
    rng = np.random.default_rng(seed)
    y = np.r_[np.arange(K), rng.choice(K, size=n - K, p=np.arange(2, K + 2) / np.arange(2, K + 2).sum())]
    centres = shift * rng.normal(size=(K, d))
    return centres[y] + spread * rng.normal(size=(n, d)), y


def cut_off(figure):
    """Return by how many pixels axes, names or legends leave the figure on the left, below, on the right and above."""
    figure.canvas.draw()
    size = figure.bbox
    boxes = [
        part.get_tightbbox(figure.canvas.get_renderer())
        for ax in figure.axes
        for part in (ax, *ax.child_axes)
    ]
    outer = type(boxes[0]).union(boxes)
    return max(size.x0 - outer.x0, size.y0 - outer.y0, outer.x1 - size.x1, outer.y1 - size.y1)
