"""The papers whose tables can be reproduced.

Each is a subpackage named by author and year, holding its protocol (toml), its figures typed from the text
(csv), a README, and one module per table. Its ``TABLES`` maps a table's number to a callable that makes the
experiment; ``FAST_TABLES`` does the same for a coarser protocol, where there is one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from polymargin.reproduction import Experiment, ReproductionError

__all__ = ["PAPERS", "Paper", "available", "fast_tables", "tables"]


@dataclass(frozen=True)
class Paper:
    """Name, authors and title of a paper.

    Attributes
    ----------
    name : str
        First author and year, the name of the subpackage.
    authors : tuple of str
        The surnames of the authors.
    title : str
        The title.
    """

    name: str
    authors: tuple[str, ...]
    title: str


PAPERS = {
    paper.name: paper
    for paper in (
        Paper(
            "vangestel2002",
            ("Van Gestel", "Suykens", "Lanckriet", "Lambrechts", "De Moor", "Vandewalle"),
            "Multiclass LS-SVMs: Moderated Outputs and Coding-Decoding Schemes",
        ),
        Paper(
            "mayoraz1998", ("Mayoraz", "Alpaydın"), "Support Vector Machines for Multi-Class Classification"
        ),
        Paper(
            "gonen2008",
            ("Gönen", "Tanuğur", "Alpaydın"),
            "Multiclass Posterior Probability Support Vector Machines",
        ),
        Paper(
            "bravo2010",
            ("Bravo", "L'Huillier", "Lobato", "Weber"),
            "Probability Estimation for Multiclass Problems Combining SVMs and Neural Networks",
        ),
        Paper(
            "shim2008",
            ("Shim", "Bae", "Hwang"),
            "Multiclass Classification via Least Squares Support Vector Machine Regression",
        ),
    )
}


def available() -> list[str]:
    """Return the names of the papers whose experiments are in the package.

    Returns
    -------
    list of str
    """
    return [name for name in PAPERS if find_spec(f"{__name__}.{name}") is not None]


def tables(name: str) -> Mapping[str, Callable[..., Experiment]]:
    """Return a paper's tables by number.

    Parameters
    ----------
    name : str
        The name of the paper, such as ``"vangestel2002"``.

    Returns
    -------
    mapping of str to callable
        Each makes the `Experiment` of a table.

    Raises
    ------
    ReproductionError
        If there is no such paper; the message suggests the nearest.
    """
    offered = available()
    if name not in offered:
        nearest = _suggest(name, offered)
        hint = f"did you mean {nearest}? " if nearest else ""
        raise ReproductionError(f"no paper {name!r}; {hint}available: {', '.join(offered)}")
    found: Mapping[str, Callable[..., Experiment]] = import_module(f"{__name__}.{name}").TABLES
    return found


def fast_tables(name: str) -> Mapping[str, Callable[..., Experiment]]:
    """Return the tables of a paper that have a fast protocol, by number.

    Parameters
    ----------
    name : str
        The name of the paper.

    Returns
    -------
    mapping of str to callable
        Its ``FAST_TABLES``; empty if it has none.
    """
    found: Mapping[str, Callable[..., Experiment]] = getattr(
        import_module(f"{__name__}.{name}"), "FAST_TABLES", {}
    )
    return found


def _suggest(name: str, offered: list[str]) -> str | None:
    """Return the paper that a name probably means: a misspelling, an author, or a part of one."""
    wanted = _simple(name)
    spellings = {known: known for known in offered}
    for known in reversed(offered):  # a first author's own paper wins over a later author's
        for author in reversed(PAPERS[known].authors):
            spellings[_simple(author)] = known
    if len(wanted) > 2:
        for spelling, known in spellings.items():
            if wanted in spelling or _simple(spelling) in wanted:
                return known
    close = difflib.get_close_matches(wanted, spellings, n=1)
    return spellings[close[0]] if close else None


def _simple(name: str) -> str:
    """Lower case, letters and digits only, the Turkish letters of the authors' names as they are typed."""
    plain = name.casefold().translate(str.maketrans("öğıü", "ogiu"))
    return "".join(character for character in plain if character.isalnum())
