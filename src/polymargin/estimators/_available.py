"""Methods that an estimator has with some parameters only; the error says why it does not have them."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper, wraps
from types import MethodType
from typing import Any


class _Available:
    """A method that is there if a check of the estimator does not raise AttributeError."""

    def __init__(self, fn: Callable[..., Any], check: Callable[[Any], object]) -> None:
        self.fn, self.check = fn, check
        update_wrapper(self, fn)  # type: ignore[arg-type]

    def __get__(self, estimator: Any, owner: type | None = None) -> Callable[..., Any]:
        if estimator is not None:
            self._check(estimator)
            return MethodType(self.fn, estimator)

        @wraps(self.fn)
        def unbound(estimator: Any, *args: Any, **kwargs: Any) -> Any:
            self._check(estimator)
            return self.fn(estimator, *args, **kwargs)

        return unbound

    def _check(self, estimator: Any) -> None:
        try:
            self.check(estimator)
        except Exception as error:
            raise AttributeError(
                f"this {type(estimator).__name__} has no attribute {self.fn.__name__!r}: {error}"
            ) from error


def available_if(check: Callable[[Any], object]) -> Callable[[Callable[..., Any]], Any]:
    """Make a method available if a check raises no error, as scikit-learn's function of this name does.

    Parameters
    ----------
    check : callable (estimator) -> object
        Raises AttributeError with the reason. scikit-learn hides it in the cause of the error, which nobody reads.

    Returns
    -------
    callable
        A decorator.

    Examples
    --------
    >>> class Bird:
    ...     def _can_fly(self):
    ...         raise AttributeError("penguins cannot")
    ...
    ...     @available_if(_can_fly)
    ...     def fly(self): ...
    >>> hasattr(Bird(), "fly")
    False
    >>> Bird().fly()
    Traceback (most recent call last):
    ...
    AttributeError: this Bird has no attribute 'fly': penguins cannot
    """
    return lambda fn: _Available(fn, check)
