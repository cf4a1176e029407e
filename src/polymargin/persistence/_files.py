"""Saving, loading and describing models."""

from __future__ import annotations

import importlib
import io
import json
import os
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from polymargin import _memory
from polymargin._output import write_atomically
from polymargin._version import __version__
from polymargin.persistence._container import SCHEMA, open_archive, pack, read_manifest, read_members
from polymargin.persistence._errors import PARSER_ERRORS, ModelFileError, ModelVersionWarning
from polymargin.persistence._schema import check, forget_what_can_be_computed, renumbered
from polymargin.persistence._summary import library_versions, plain, training_summary

#: The format that is written, and the oldest that is still read. A format is what the classes in a file store, too: it
#: is raised when one of them gets another name, place or attribute. 1 is that of polymargin 0.1.
FORMAT, OLDEST_FORMAT = 2, 2


def save(model: Any, path: str | os.PathLike[str], summary: Mapping[str, Any] | None = None) -> None:
    """Save a fitted model to a file that `load` gives back and anyone can look into safely.

    The model may be any estimator of polymargin, alone or in a scikit-learn pipeline. What comes back predicts the
    same, bit for bit. The file is there completely or not at all: a failure leaves an older file of this name as it
    was. ``loo_log_loss_``, which is part of the summary, is computed now if it has not been yet. Needs skops:
    install polymargin with its persist extra.

    Parameters
    ----------
    model : estimator
        A fitted model.
    path : str or path
        The file, which is replaced if there is one.
    summary : mapping or None, default=None
        What else the file shall tell about the model: numbers, texts, and lists and dictionaries of them.

    Raises
    ------
    ModelFileError
        If the model holds what a file cannot: a function as kernel, or objects of other libraries.

    Examples
    --------
    >>> import os, tempfile
    >>> import polymargin
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = polymargin.KNNPosterior().fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = os.path.join(folder, "iris.model")
    ...     polymargin.save(model, file, summary={"data": "iris"})
    ...     polymargin.persistence.describe(file)["summary"], polymargin.load(file).predict(X[:2])
    ({'data': 'iris'}, array([0, 0]))
    """
    if not isinstance(model, BaseEstimator):
        raise ModelFileError(f"only models can be saved, not objects of the type {type(model).__name__}")
    check_is_fitted(model)
    if hasattr(model, "best_estimator_"):
        raise ModelFileError(
            f"a fitted {type(model).__name__} holds folds and functions, which model files do not: save the model "
            "that it has found, its best_estimator_"
        )
    facts = {
        "format": FORMAT,
        "versions": library_versions(),
        "training": training_summary(model),
        "summary": plain({} if summary is None else summary, "summary"),
    }
    write_atomically(path, pack(facts, _members(model)))


def load(path: str | os.PathLike[str]) -> Any:
    """Load a model that `save` wrote.

    Only polymargin's own types are loaded, and what skops trusts of scikit-learn, numpy and scipy; no code comes from
    the file. A file that is damaged is refused. That tells nothing about who made it: see `polymargin.persistence`.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    model : estimator
        The fitted model.

    Raises
    ------
    ModelFileError
        If the file is damaged, holds other types, or has a format that is not known; the message says which.

    Warns
    -----
    ModelVersionWarning
        If another release of scikit-learn wrote the file.

    Examples
    --------
    See `save`.
    """
    try:
        return _loaded(_contents(path))
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be loaded: {error}") from error


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a model file tells about its model, without loading it.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    description : dict
        ``format``, the version of the file's format; ``versions``, those of the libraries that wrote it; ``training``,
        what the model is, its classes, features, rows, kernel and parameters, and its honest log-loss where it has one;
        and the user's ``summary``.

    Raises
    ------
    ModelFileError
        If the file is damaged.

    Examples
    --------
    >>> import os, tempfile
    >>> from polymargin import KNNPosterior
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = os.path.join(folder, "two.model")
    ...     save(KNNPosterior(1).fit([[0.0], [1.0]], ["a", "b"]), file)
    ...     describe(file)["training"]["classes"]
    ['a', 'b']
    """
    try:
        manifest = read_manifest(open_archive(_contents(path)))
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be read: {error}") from error
    return {name: manifest.get(name) for name in ("format", "versions", "training", "summary")}


def _contents(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ModelFileError("it is no file")
    _memory.require(path.stat().st_size, "the model file", "load it on a machine with more memory")
    return path.read_bytes()


def _members(model: Any) -> dict[str, bytes]:
    """Return the members of the model's skops file, checked as `load` will check them."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(_skops().dumps(model)))
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise ModelFileError(f"the model holds something that cannot be saved: {error}") from error
    schema = json.loads(archive.read(SCHEMA))
    every = {name: archive.read(name) for name in archive.namelist()}
    try:
        check(schema, every)
    except ModelFileError as error:
        raise ModelFileError(f"this model cannot be saved: {error}") from error
    forget_what_can_be_computed(schema)
    used = renumbered(schema, every)
    return {SCHEMA: json.dumps(schema, ensure_ascii=False, separators=(",", ":")).encode(), **used}


def pack_part(value: Any) -> bytes:
    """Return the bytes of a file with an object of the types that models are made of, which need not be a model."""
    return pack({"format": FORMAT, "versions": library_versions()}, _members(value))


def unpack_part(data: bytes) -> Any:
    """Return the object that `pack_part` made bytes of; raise ModelFileError if they are damaged."""
    return _object(data)[0]


def _loaded(data: bytes) -> Any:
    """Return the model from the bytes of a file."""
    model, manifest = _object(data)
    if not isinstance(model, BaseEstimator):
        raise ModelFileError(f"it holds no model but an object of the type {type(model).__name__}")
    _warn_of_other_release(manifest)
    return model


def _object(data: bytes) -> tuple[Any, dict[str, Any]]:
    """Return the object of a file, which is checked, and its manifest."""
    archive = open_archive(data)
    manifest = read_manifest(archive)
    _check_format(manifest)
    members = read_members(archive, manifest, len(data))
    skops = _skops()
    try:
        trusted = check(json.loads(members.get(SCHEMA, b"")), members)
        model = skops.loads(data, trusted=sorted(trusted))
    except ModelFileError:
        raise
    except PARSER_ERRORS as error:
        raise ModelFileError(f"its objects cannot be made: {error}{_other_version(manifest)}") from error
    return model, manifest


def _check_format(manifest: Mapping[str, Any]) -> None:
    """Refuse a format that is too new or too old, and say which version of polymargin reads it."""
    found, writer = manifest.get("format"), _version(manifest, "polymargin")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ModelFileError(f"its format is {found!r}, which is none")
    if found > FORMAT:
        raise ModelFileError(
            f"it has format {found}, and polymargin {__version__} reads formats up to {FORMAT}: upgrade to "
            f"polymargin {writer}, which wrote it, or newer"
        )
    if found < OLDEST_FORMAT:
        raise ModelFileError(
            f"it has format {found}, which polymargin {__version__} no longer reads: load it with polymargin "
            f"{writer}, which wrote it, and train the model again with this version"
        )


def _warn_of_other_release(manifest: Mapping[str, Any]) -> None:
    """Warn if another release of scikit-learn wrote the file; bug-fix releases do not count."""
    written, running = _version(manifest, "scikit-learn"), library_versions()["scikit-learn"]
    if written.split(".")[:2] != running.split(".")[:2]:
        warnings.warn(
            f"the model was saved with scikit-learn {written} and is loaded with {running}: check that it still "
            f"predicts what it did, or load it with {written}",
            ModelVersionWarning,
            stacklevel=4,
        )


def _other_version(manifest: Mapping[str, Any]) -> str:
    """Say that another version of polymargin wrote the file, if one did."""
    writer = _version(manifest, "polymargin")
    return "" if writer == __version__ else f" (polymargin {writer} wrote it, this is {__version__})"


def _version(manifest: Mapping[str, Any], library: str) -> str:
    versions = manifest.get("versions")
    return (
        str(versions.get(library, "of unknown version"))
        if isinstance(versions, dict)
        else "of unknown version"
    )


def _skops() -> Any:
    try:
        return importlib.import_module("skops.io")
    except ImportError as error:
        raise ImportError("model files need skops: install polymargin with its persist extra") from error
