"""Van Gestel et al. (2002), "Multiclass LS-SVMs: Moderated Outputs and Coding-Decoding Schemes"."""

from collections.abc import Callable

from polymargin.papers.vangestel2002.table2 import Table2, Table2PerBit
from polymargin.papers.vangestel2002.table3 import Table3
from polymargin.papers.vangestel2002.usps import Usps
from polymargin.reproduction import Experiment

__all__ = ["TABLES"]

TABLES: dict[str, Callable[..., Experiment]] = {
    "2": Table2,
    "2-per-bit": Table2PerBit,
    "3": Table3,
    "usps": Usps,
}
