"""The coding of estimators that were given none."""

from __future__ import annotations

#: One-vs-one coding is the default up to this many classes, which have 2016 machines. It has the lower log-loss, but
#: its time grows faster than the square of the number of classes. (One-vs-all on four synthetic sets of 60 classes with
#: 12 or 30 rows each: 1.07 times the log-loss, in 1 to 5 seconds for 10 to 30, in a pool 8 to 20 for 40 to 80; on three
#: of 90 classes with 12 rows 1.13 times, in 4 seconds for 40: benchmarks/many_classes.py.)
_MOST_CLASSES = 64


def default_coding(n_classes: int) -> str:
    """Return the coding of an estimator whose ``coding`` is None: one-vs-all if classes are many.

    Parameters
    ----------
    n_classes : int
        The number of classes.

    Returns
    -------
    {"one-vs-one", "one-vs-all"}

    Examples
    --------
    >>> default_coding(26), default_coding(120)
    ('one-vs-one', 'one-vs-all')
    """
    return "one-vs-one" if n_classes <= _MOST_CLASSES else "one-vs-all"


def many_classes(n_classes: int) -> str:
    """Return that one-vs-all coding was chosen, and why.

    Parameters
    ----------
    n_classes : int
        The number of classes.

    Returns
    -------
    str

    Examples
    --------
    >>> many_classes(120)
    '120 classes: one-vs-all coding, 120 machines; one-vs-one would have 7140'
    """
    return (
        f"{n_classes} classes: one-vs-all coding, {n_classes} machines; one-vs-one would have "
        f"{n_classes * (n_classes - 1) // 2}"
    )
