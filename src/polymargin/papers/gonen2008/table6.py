"""Table VI: the canonical SVM and the posterior probability SVM on multiclass data, one-vs-all."""

from __future__ import annotations

from polymargin.papers.gonen2008._real_table import RealTable

__all__ = ["Table6", "Table6Fast"]


class Table6(RealTable):
    """Multiclass data: eq. (6) for each class against the others; see `RealTable`."""

    name = "gonen2008-table6"
    title = "Gönen et al. (2008), Table VI: multiclass data, one-vs-all, accuracy and support vectors in %"
    table = "6"


class Table6Fast(Table6):
    """The same with a coarser grid of C."""

    name = "gonen2008-table6-fast"
    title = "Gönen et al. (2008), Table VI, fast: multiclass data, one-vs-all (coarser grid of C), in %"
    fast = True
