"""Figure 5.1: CV and GCV along the bandwidth, for the three datasets."""

from __future__ import annotations

from pathlib import Path

from polymargin.papers.shim2008.curves import LeaveOneOutCurves, leave_one_out_curves
from polymargin.papers.shim2008.rows import bandwidths, draw_rows
from polymargin.papers.shim2008.table51 import PRINTED_SIGMA2, Table51
from polymargin.reproduction.pictures import new_picture, save_picture

__all__ = ["curves", "draw"]


def curves() -> dict[str, LeaveOneOutCurves]:
    """Return the curves of the first training set of every dataset of Table 5.1."""
    protocol = Table51().protocol
    found = {}
    for dataset in protocol["datasets"]:
        rows = draw_rows(protocol, dataset, 1)
        found[dataset] = leave_one_out_curves(
            rows.X[rows.train], rows.y[rows.train], gammas=1.0 / bandwidths(protocol), C=protocol["C"]
        )
    return found


def draw(path: Path) -> Path:
    """Draw Figure 5.1: CV (solid) and GCV (dashed) of LS-SVMs on iris, wine and glass along σ², C = 10.

    Parameters
    ----------
    path : Path
        The file to write; its suffix says which format (.png, .svg, .pdf).

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ReproductionError
        If matplotlib is not installed.
    """
    figure = new_picture((11.0, 3.8))
    found = curves()
    for axes, (dataset, curve) in zip(figure.subplots(1, 3), found.items(), strict=True):
        curve.plot(axes, bandwidth=True)
        for printed, style in zip(PRINTED_SIGMA2[dataset], ("-", "--"), strict=True):
            axes.axvline(printed, color="0.7", linestyle=style, linewidth=1.0, zorder=0)
        axes.set_title(dataset, loc="left")
        # The curves differ where they are low.
        least = min(curve.cv.min(), curve.gcv.min())
        axes.set_ylim(0.9 * least, 2.5 * least)
    figure.suptitle(
        "Leave-one-out error, C = 10; grey: the σ² of the paper, by CV and (dashed) by GCV", fontsize=11
    )
    return save_picture(figure, path)
