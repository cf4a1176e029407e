"""Table V: the canonical SVM and the posterior probability SVM on multiclass data, single machine."""

from __future__ import annotations

from polymargin.papers.gonen2008._real_table import RealTable

__all__ = ["Table5", "Table5Fast"]


class Table5(RealTable):
    """Multiclass data: the single machine of eqs. (12) and (13); see `RealTable`."""

    name = "gonen2008-table5"
    title = "Gönen et al. (2008), Table V: multiclass data, single machine, accuracy and support vectors in %"
    table = "5"


class Table5Fast(Table5):
    """The same with a coarser grid of C."""

    name = "gonen2008-table5-fast"
    title = "Gönen et al. (2008), Table V, fast: multiclass data, single machine (coarser grid of C), in %"
    fast = True
