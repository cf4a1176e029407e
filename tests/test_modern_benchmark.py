"""The arithmetic of the report of ``benchmarks/modern.py``, and what its competitors are given."""

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("the benchmarks are not part of the source distribution", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

import _missing  # noqa: E402
import modern  # noqa: E402
from polymargin._dataset import Dataset, DatasetNotFound  # noqa: E402


def row(dataset, method, split, loss, **others):
    scores = {"log_loss": loss, "accuracy": 0.5, "seconds": 1.0, "least": 0.1, "clipped": 0}
    return {"dataset": dataset, "method": method, "split": split, **scores, **others}


ROWS = [
    *(row("wine", "polymargin", split, loss) for split, loss in enumerate((0.1, 0.3))),
    *(row("wine", "catboost", split, loss) for split, loss in enumerate((0.2, 0.6))),
    *(
        row("glass", "polymargin", split, loss) for split, loss in enumerate((0.7, 0.9, 99.0))
    ),  # one split more
    *(row("glass", "catboost", split, loss) for split, loss in enumerate((0.5, 0.5))),
    row("sonar", "polymargin", 0, 0.4),
    row("sonar", "catboost", 0, 0.39),
    row("sonar", "xrfm", 0, 0.2),
]


def test_means_are_over_the_splits_that_all_methods_have():
    table = modern.Table(ROWS)
    names, losses = table.means("log_loss", ["polymargin", "catboost"])
    assert names == ["glass", "sonar", "wine"]
    np.testing.assert_allclose(losses, [[0.8, 0.5], [0.4, 0.39], [0.2, 0.4]])
    names, losses = table.means("log_loss", ["polymargin", "catboost", "xrfm"])
    assert names == ["sonar"]
    assert table.methods == ["polymargin", "catboost", "xrfm"]


def test_the_last_result_counts_and_failures_do_not():
    again = [*ROWS, row("sonar", "xrfm", 0, 0.3)]
    again.append({"dataset": "wine", "split": 0, "method": "catboost", "failed": "late"})
    table = modern.Table(again)
    assert table.rows["sonar", "xrfm", 0]["log_loss"] == 0.3
    assert table.rows["wine", "catboost", 0]["log_loss"] == 0.2


def test_ratios():
    losses = np.array([[0.8, 0.5], [0.4, 0.39], [0.2, 0.4]])
    median, mean = modern.ratios(losses)
    assert median == pytest.approx(0.4 / 0.39)
    assert mean == pytest.approx((1.6 * (0.4 / 0.39) * 0.5) ** (1 / 3))
    # Losses that are as good as none are equal.
    assert modern.ratios(np.array([[1e-9, 1e-4]])) == pytest.approx((1.0, 1.0))
    assert np.isnan(modern.ratios(np.empty((0, 2)))).all()


def test_report():
    failed = {"dataset": "iris", "split": 0, "method": "xrfm", "failed": "ValueError: no"}
    lines = list(modern.summary([*ROWS, failed]))
    assert lines[1].split() == ["glass", "33.5333", "0.5000", "-"]  # all that there is
    text = "\n".join(lines)
    assert "to catboost: all 1.026, 0.936 (3); three or more classes 0.894, 0.894 (2); two classes" in text
    assert "better on 1 of 3\n    worse by more than 5 %: glass 0.8000/0.5000\n" in text
    assert "to xrfm: all 2.000, 2.000 (1);" in text
    assert next(line for line in lines if line.startswith("mean rank")).split()[2:] == [
        "3.000",
        "2.000",
        "1.000",
    ]
    assert lines[-1] == "failed: iris xrfm 0: ValueError: no"
    assert list(modern.summary([])) == ["no results"]


def test_log_loss_clips_at_1e_15():
    proba = np.array([[1.0, 0.0], [0.25, 0.75]])
    assert modern.log_loss(np.array([1, 1]), proba) == pytest.approx(-(np.log(1e-15) + np.log(0.75)) / 2)


def test_every_class_is_in_every_training_part():
    y = np.repeat([0, 1, 2, 3], [40, 9, 2, 1])
    held_out = []
    for train, held in modern.folds(y):
        assert set(y[train]) == {0, 1, 2, 3}
        assert not set(train) & set(held)
        held_out.extend(held)
    assert sorted(held_out) == list(range(51))  # all but the single row, each once


def test_columns_of_trees_keep_categories_and_missing_values():
    def data(rows):
        X = np.array(rows, dtype=object)
        return Dataset("toy", X, np.zeros(len(X), dtype=int), ("colour", "size"), "here", nominal=("colour",))

    split = modern.Split.__new__(modern.Split)
    split.train_rows = data([["red", 1.5], ["blue", np.nan], [None, 2.5]])
    split.test_rows = data([["red", np.nan], ["green", 7.0]])
    columns = modern.Columns.of(split)
    assert columns.nominal == [0]
    np.testing.assert_array_equal(columns.train, [[1, 1.5], [0, np.nan], [np.nan, 2.5]])
    np.testing.assert_array_equal(columns.test, [[1, np.nan], [np.nan, 7.0]])


def test_a_missing_dataset_ends_a_benchmark_with_its_message():
    def main():
        raise DatasetNotFound("set POLYMARGIN_DATA")

    with pytest.raises(SystemExit) as ended:
        _missing.run(main)
    assert ended.value.code == "set POLYMARGIN_DATA"  # to stderr, with exit status 1
