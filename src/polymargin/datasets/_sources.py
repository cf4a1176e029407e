"""The sources after the user's own folder: scikit-learn's bundled sets, the generators, OpenML."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from sklearn.datasets import fetch_openml, load_breast_cancer, load_digits, load_iris, load_wine

from polymargin._dataset import Dataset, DatasetNotFound, Split
from polymargin.datasets._catalog import Known
from polymargin.datasets._files import as_labels
from polymargin.datasets.generators import generators


def from_sklearn(known: Known) -> Dataset | None:
    """Return a dataset that is part of scikit-learn, with the names and labels of the UCI file."""
    maker = _BUNDLED.get(known.name)
    return maker() if maker else None


def _iris() -> Dataset:
    bunch = load_iris()
    X = bunch.data.copy()
    # scikit-learn holds Fisher's table; the UCI file, which the papers used, differs from it in three cells.
    X[34, 3] = 0.1
    X[37, 1:3] = 3.1, 1.5
    return Dataset(
        name="iris",
        X=X,
        y=np.array([f"Iris-{name}" for name in bunch.target_names])[bunch.target],
        feature_names=tuple(name.removesuffix(" (cm)").replace(" ", "_") for name in bunch.feature_names),
        source="scikit-learn load_iris, three cells changed to those of the UCI file",
    )


def _wine() -> Dataset:
    bunch = load_wine()
    names = (name.replace("od280/od315_of_diluted_wines", "od280_od315") for name in bunch.feature_names)
    return Dataset(
        name="wine",
        X=bunch.data,
        y=bunch.target.astype(np.int64) + 1,
        feature_names=tuple(names),
        source="scikit-learn load_wine",
    )


def _wdbc() -> Dataset:
    bunch = load_breast_cancer()
    return Dataset(
        name="wdbc",
        X=bunch.data,
        y=np.array(["M", "B"])[bunch.target],
        feature_names=tuple(str(name).replace(" ", "_") for name in bunch.feature_names),
        source="scikit-learn load_breast_cancer",
    )


def _digits() -> Dataset:
    bunch = load_digits()
    return Dataset(
        name="digits",
        X=bunch.data,
        y=bunch.target.astype(np.int64),
        feature_names=tuple(bunch.feature_names),
        source="scikit-learn load_digits",
    )


_BUNDLED: dict[str, Callable[[], Dataset]] = {
    "digits": _digits,
    "iris": _iris,
    "wine": _wine,
    "wdbc": _wdbc,
}
_GENERATED = {"led7_3200": "led7", "led7digit": "led7", "twonorm": "twonorm", "waveform": "waveform"}


def from_generator(known: Known) -> Dataset | None:
    """Draw an artificial dataset: as many rows as the file has, but other ones."""
    if known.name not in _GENERATED:
        return None
    generator = generators()[_GENERATED[known.name]]
    X, y = generator.sample(known.n_samples, random_state=0)
    prefix = "led" if known.name.startswith("led") else "x"
    return Dataset(
        name=known.name,
        X=X,
        y=y,
        feature_names=tuple(f"{prefix}{j}" for j in range(1, known.n_features + 1)),
        source=f"drawn by the {generator.name} generator, random_state=0; other rows than the file's",
    )


def from_openml(known: Known) -> Dataset | None:
    """Fetch a pinned set from OpenML through scikit-learn, which caches it, and check its size.

    Raises
    ------
    DatasetNotFound
        If OpenML does not answer, or answers with something else.
    """
    if known.openml is None:
        return None
    pin = known.openml
    try:
        bunch = fetch_openml(
            data_id=pin.data_id,
            as_frame=False,
            # pandas is an extra; it is the faster parser by far.
            parser="pandas" if find_spec("pandas") else "liac-arff",
            n_retries=1,
            delay=0.5,
        )
    except (OSError, ValueError) as error:
        raise DatasetNotFound(f"OpenML {pin.data_id} could not be had ({error}).") from error
    texts = [str(label).strip("'\"") for label in bunch.target]
    y = as_labels([pin.labels.get(text, text) for text in texts])
    size = (*np.shape(bunch.data), len(np.unique(y)))
    expected = (known.n_samples, known.n_features, known.n_classes)
    if size != expected:
        raise DatasetNotFound(
            f"OpenML {pin.data_id} has rows, features, classes = {size}, but {expected} are expected."
        )
    return Dataset(
        name=known.name,
        X=np.asarray(bunch.data).astype(known.dtype),
        y=y,
        feature_names=tuple(bunch.feature_names),
        source=f"OpenML {pin.data_id} through scikit-learn",
        split=Split(np.arange(pin.split[0]), np.arange(*pin.split)) if pin.split else None,
    )
