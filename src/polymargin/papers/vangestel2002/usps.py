"""The paragraph on the US Postal data: one-vs-one LS-SVMs, 7291 training and 2007 test rows."""

from __future__ import annotations

from polymargin.papers.vangestel2002._coding_table import load_once
from polymargin.reproduction import (
    Experiment,
    Figure,
    Key,
    Layout,
    Row,
    load_protocol,
    read_figures,
    standardise,
)

__all__ = ["Usps"]

_PACKAGE = "polymargin.papers.vangestel2002"


class Usps(Experiment):
    """Test accuracies of Hamming and Bayesian decoding on the official split."""

    name = "vangestel2002-usps"
    title = "Van Gestel et al. (2002), §5, US Postal data: one-vs-one LS-SVMs, test accuracy in %"
    layout = Layout(rows=("dataset",), columns=("decoding",))

    def __init__(self) -> None:
        super().__init__(load_protocol(_PACKAGE, "usps"))

    def jobs(self) -> list[Key]:
        """Return the one job."""
        return [Key.of(dataset="usps")]

    def cells(self, job: Key) -> list[Key]:
        """Return both decodings."""
        return [job.extended(decoding=decoding) for decoding in self.protocol["decodings"]]

    def run(self, job: Key) -> list[Row]:
        """Standardise, fit all 45 dichotomies, decode twice."""
        from polymargin.decoders import Bayes
        from polymargin.papers._codings import compare_codings

        data = load_once(job["dataset"])
        assert data.split is not None
        X_train, X_test = standardise(data.X[data.split.train], data.X[data.split.test])
        scores = compare_codings(
            X_train,
            data.y[data.split.train],
            X_test,
            data.y[data.split.test],
            codings=["one-vs-one"],
            decodings={"hamming": "hamming", "bayes": Bayes(noise="model")},
            kernel=self.protocol["kernel"],
            shared_parameters=self.protocol["parameters"] == "shared",
        )
        accuracies = {score.decoding: 100.0 * score.accuracy for score in scores}
        return [
            {**cell.asdict(), "value": accuracies[cell["decoding"]], "seed": 0} for cell in self.cells(job)
        ]

    def paper_figures(self) -> list[Figure]:
        """Return the two figures of the paragraph."""
        return read_figures(_PACKAGE, "usps.csv")
