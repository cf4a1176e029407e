"""CodebookDisplay: which classes each machine sets against which."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from polymargin.codebooks import Codebook
from polymargin.plots._matplotlib import axes_for, class_names, matplotlib_part

Array = NDArray[Any]

#: −1, don't care, +1: told apart without colour vision too, and in print.
_COLOURS = ("#2166ac", "#f2f2f2", "#e08214")
_MEANINGS = ("−1", "0, not used", "+1")
#: Signs are written into the cells of a codebook of up to so many; thin lines part up to so many columns.
_WRITTEN_CELLS, _PARTED_COLUMNS = 150, 80
#: Inches of a character of a name, and of the legend, which stands above the cells.
_CHARACTER, _LEGEND = 0.08, 2.2


class CodebookDisplay:
    """The matrix of a codebook as a picture: a row for every class, a column for every machine.

    It is recommended to make it with `from_estimator` or `from_codebook`.

    Parameters
    ----------
    codebook : Codebook
        What to draw.
    class_names : list of str
        The names of its rows.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn, after `plot`.
    image_ : matplotlib QuadMesh
        The cells.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from sklearn.datasets import load_iris
    >>> from polymargin import LSSVMClassifier
    >>> from polymargin.plots import CodebookDisplay
    >>> model = LSSVMClassifier(kernel="linear").fit(*load_iris(return_X_y=True))
    >>> display = CodebookDisplay.from_estimator(model)
    >>> display.codebook
    Codebook(3 classes × 3 columns)
    """

    def __init__(self, codebook: Codebook, class_names: list[str]):
        self.codebook = codebook
        self.class_names = class_names

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> CodebookDisplay:
        """Draw the codebook of a fitted estimator, or of a Pipeline that ends in one.

        Parameters
        ----------
        estimator : estimator
            With ``codebook_`` and ``classes_``.
        ax : matplotlib axes or None
            Where to draw; None for new axes.
        **kwargs
            Handed to ``Axes.pcolormesh``.
        """
        estimator = estimator[-1] if isinstance(estimator, Pipeline) else estimator
        check_is_fitted(estimator)
        codebook = getattr(estimator, "codebook_", None)
        if codebook is None:
            hint = ": give one of members_" if hasattr(estimator, "members_") else ""
            raise ValueError(f"{type(estimator).__name__} has no codebook{hint}")
        return cls(codebook, class_names(estimator.classes_)).plot(ax, **kwargs)

    @classmethod
    def from_codebook(
        cls, codebook: Codebook | ArrayLike, *, classes: Any = None, ax: Any = None, **kwargs: Any
    ) -> CodebookDisplay:
        """Draw a codebook.

        Parameters
        ----------
        codebook : Codebook or array-like of shape (K, L)
            What to draw.
        classes : array-like of shape (K,) or None
            The names of the classes; None for 0, …, K−1.
        ax : matplotlib axes or None
            Where to draw; None for new axes.
        **kwargs
            Handed to ``Axes.pcolormesh``.
        """
        book = codebook if isinstance(codebook, Codebook) else Codebook(codebook)
        names = class_names(np.arange(book.n_classes) if classes is None else classes)
        if len(names) != book.n_classes:
            raise ValueError(
                f"classes must name the {book.n_classes} classes of the codebook, not {len(names)}"
            )
        return cls(book, names).plot(ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> CodebookDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib axes or None
            Where to draw; None for new axes, as large as the codebook needs.
        **kwargs
            Handed to ``Axes.pcolormesh``.

        Returns
        -------
        CodebookDisplay
            Itself.
        """
        n_classes, n_columns = self.codebook.matrix.shape
        longest = max(map(len, self.class_names))
        width = 1.2 + _CHARACTER * longest + max(0.4 * n_columns, _LEGEND)
        figsize = (
            float(np.clip(width, 4.0, 14.0)),
            float(np.clip(1.3 + 0.3 * n_classes, 2.2, 12.0)),
        )
        self.ax_, self.figure_ = axes_for(ax, figsize)
        colours = matplotlib_part("colors").ListedColormap(_COLOURS)
        lines = {"edgecolors": "white", "linewidth": 0.5 if n_columns > 30 else 1.5}
        options = (
            {"cmap": colours, "vmin": -1.5, "vmax": 1.5}
            | (lines if n_columns <= _PARTED_COLUMNS else {})
            | kwargs
        )
        self.image_ = self.ax_.pcolormesh(self.codebook.matrix, **options)
        self.ax_.invert_yaxis()
        self._name_rows_and_columns()
        if n_columns > _PARTED_COLUMNS:  # lines to follow with the eye from the name to the far right
            self.ax_.hlines(np.arange(1, n_classes), 0, n_columns, colors="#d0d0d0", linewidth=0.5)
        if self.codebook.matrix.size <= _WRITTEN_CELLS:
            self._write_signs()
        self._explain()
        return self

    def _name_rows_and_columns(self) -> None:
        n_classes, n_columns = self.codebook.matrix.shape
        size = "medium" if n_classes <= 15 else "small" if n_classes <= 40 else "xx-small"
        self.ax_.set_yticks(np.arange(n_classes) + 0.5, self.class_names, fontsize=size)
        step = int(np.ceil(n_columns / 20))
        # Round steps are easier to count by.
        step = next(s for s in (1, 2, 5, 10, 20, 25, 50, 100, 200, 500, n_columns) if s >= step)
        numbers = np.arange(0, n_columns, step)
        self.ax_.set_xticks(numbers + 0.5, [str(number) for number in numbers], fontsize="small")
        self.ax_.tick_params(length=0 if step == 1 else 2)
        self.ax_.set(xlabel="machine", ylabel="class")

    def _write_signs(self) -> None:
        for (row, column), bit in np.ndenumerate(self.codebook.matrix):
            if bit:
                self.ax_.text(
                    column + 0.5, row + 0.5, "+" if bit > 0 else "−", color="white", ha="center", va="center"
                )

    def _explain(self) -> None:
        Patch = matplotlib_part("patches").Patch
        used = [bit for bit in (-1, 0, 1) if (self.codebook.matrix == bit).any()]
        handles = [
            Patch(facecolor=_COLOURS[bit + 1], edgecolor="#999999", label=_MEANINGS[bit + 1]) for bit in used
        ]
        self.ax_.legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            ncols=3,
            frameon=False,
            fontsize="small",
            borderaxespad=0.2,
            handlelength=1.0,
            columnspacing=1.0,
        )
