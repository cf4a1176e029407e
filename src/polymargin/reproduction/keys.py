"""Keys: the names of jobs and of table cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Key"]


@dataclass(frozen=True)
class Key:
    """An ordered, hashable set of named values that identifies a job or a cell.

    Values are kept as strings, so that a key is the same whether it comes from code, a csv or the journal.

    Parameters
    ----------
    pairs : tuple of (str, str)
        Names with their values, in order. `Key.of` is the convenient way to write it.

    Examples
    --------
    >>> job = Key.of(dataset="win", kernel="rbf", randomisation=3)
    >>> job["kernel"], int(job["randomisation"])
    ('rbf', 3)
    >>> str(job.extended(coding="ecoc"))
    'win/rbf/3/ecoc'
    >>> job.only(["kernel", "dataset"]).asdict()
    {'kernel': 'rbf', 'dataset': 'win'}
    """

    pairs: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, **values: object) -> Key:
        """Make a key from keyword arguments.

        Parameters
        ----------
        **values : object
            The named values, which become strings.

        Returns
        -------
        Key
        """
        return cls.from_mapping(values)

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> Key:
        """Make a key from a mapping, in its order.

        Parameters
        ----------
        values : mapping of str to object
            The named values, which become strings.

        Returns
        -------
        Key
        """
        return cls(tuple((name, str(value)) for name, value in values.items()))

    def __getitem__(self, name: str) -> str:
        for known, value in self.pairs:
            if known == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __str__(self) -> str:
        return "/".join(value for _, value in self.pairs)

    def asdict(self) -> dict[str, str]:
        """Return the values by name.

        Returns
        -------
        dict of str to str
        """
        return dict(self.pairs)

    def extended(self, **values: object) -> Key:
        """Return this key with further values appended.

        Parameters
        ----------
        **values : object
            The named values, which become strings.

        Returns
        -------
        Key
        """
        return Key(self.pairs + Key.of(**values).pairs)

    def only(self, names: Iterable[str]) -> Key:
        """Return the key restricted to some names, in the given order.

        Parameters
        ----------
        names : iterable of str
            The names to keep.

        Returns
        -------
        Key
        """
        return Key(tuple((name, self[name]) for name in names))
