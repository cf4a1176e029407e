"""Table IV: the canonical SVM and the posterior probability SVM on two-class data, eq. (6)."""

from __future__ import annotations

from polymargin.papers.gonen2008._real_table import RealTable

__all__ = ["Table4", "Table4Fast"]


class Table4(RealTable):
    """Two-class data: Tao et al.'s machine, eq. (6); see `RealTable`."""

    name = "gonen2008-table4"
    title = "Gönen et al. (2008), Table IV: two-class data, eq. (6), accuracy and support vectors in %"
    table = "4"


class Table4Fast(Table4):
    """The same with a coarser grid of C."""

    name = "gonen2008-table4-fast"
    title = "Gönen et al. (2008), Table IV, fast: two-class data, eq. (6) (coarser grid of C), in %"
    fast = True
