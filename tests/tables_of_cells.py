"""Discrete problems whose cells, and the class probabilities in each, are known: for test_discrete and test_copies."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from polymargin.datasets import generators

FOUR_SIGMA = 6.3e-5  # the two-sided probability of more than four standard errors
ENOUGH = 25  # rows of a cell that is compared on its own


@dataclass(frozen=True)
class Cells:
    """A table of m cells and K classes."""

    X: np.ndarray
    """The rows of the cells, shape (m, d)."""
    P: np.ndarray
    """The class probabilities in each cell, shape (m, K)."""
    mass: np.ndarray
    """The probability of each cell, shape (m,)."""
    n_free: int
    """How many numbers the class probabilities of all cells are made of."""

    @property
    def entropy(self):
        return self.log_loss(self.P)

    def log_loss(self, proba):
        """Return the expected log-loss of probabilities of the cells on new rows; no sampling is involved."""
        joint = self.mass[:, None] * self.P
        return -float((joint * np.log(np.where(joint > 0, np.maximum(proba, 1e-300), 1.0))).sum())

    def exact(self, n):
        """Return n rows (their cells and labels) in exactly the expected numbers, in random order."""
        counts = n * self.mass[:, None] * self.P
        assert np.allclose(counts, counts.round()), "the table has no such sample"
        counts = counts.round().astype(int)
        cell = np.repeat(np.arange(len(counts)), counts.sum(axis=1))
        y = np.concatenate([np.repeat(np.arange(counts.shape[1]), row) for row in counts])
        order = np.random.default_rng(0).permutation(y.size)
        return cell[order], y[order]

    def draw(self, n, seed):
        """Return the cells and labels of n random rows."""
        rng = np.random.default_rng(seed)
        cell = rng.choice(self.mass.size, n, p=self.mass)
        return cell, (self.P[cell].cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)

    def luck(self, cell, y):
        """Return how much the true probabilities lose on these rows beyond the entropy.

        Taken from an estimate of the log-loss that rests on the same rows, it removes most of its sampling error.
        """
        return -float(np.log(self.P[cell, y]).mean()) - self.entropy

    def most_that_labels_tell(self):
        """Return the log-loss of the best probabilities that depend on each cell's most probable class only."""
        merged = np.zeros_like(self.P)
        label = self.P.argmax(axis=1)
        for kind in np.unique(label):
            joint = (self.mass[:, None] * self.P)[label == kind].sum(axis=0)
            merged[label == kind] = joint / joint.sum()
        return self.log_loss(merged)


def binary_feature():
    """One binary feature, P(1) = 0.2 and 0.8."""
    return Cells(np.array([[0.0], [1.0]]), np.array([[0.8, 0.2], [0.2, 0.8]]), np.full(2, 0.5), 2)


def two_columns(one_hot):
    """Two nominal columns of four values each, three classes, no structure between the cells."""
    rng = np.random.default_rng(1)
    values = np.array([[a, b] for a in range(4) for b in range(4)])
    X = np.hstack([np.eye(4)[values[:, 0]], np.eye(4)[values[:, 1]]]) if one_hot else values.astype(float)
    return Cells(X, rng.dirichlet([1.0, 1.0, 1.0], 16), rng.dirichlet(np.full(16, 5.0)), 32)


def led7():
    """The seven segments of a display, each wrong with probability 0.1; ten digits, 128 cells."""
    generator = generators()["led7"]
    X = np.array([[number >> bit & 1 for bit in range(7)] for number in range(128)], dtype=float)
    P = generator.posterior(X)
    # Given the digit, a pattern has the probability 0.1^h 0.9^(7-h), h its Hamming distance from the digit's own.
    patterns = ("1110111", "0010010", "1011101", "1011011", "0111010",
                "1101011", "1101111", "1010010", "1111111", "1111011")  # fmt: skip
    own = np.array([[int(bit) for bit in pattern] for pattern in patterns])
    wrong = (X[:, None, :] != own).sum(axis=2)
    joint = 0.1 * 0.1**wrong * 0.9 ** (7 - wrong)
    np.testing.assert_allclose(joint / joint.sum(axis=1, keepdims=True), P, atol=1e-12)
    return Cells(X, P, joint.sum(axis=1), 9 * 8)  # the log-odds are sums over the columns


# Passengers and crew of the Titanic (Dawson 1995): class, sex, age; the numbers of those who died and who survived.
TITANIC = {
    ("1st", "male", "child"): (0, 5), ("1st", "male", "adult"): (118, 57),
    ("1st", "female", "child"): (0, 1), ("1st", "female", "adult"): (4, 140),
    ("2nd", "male", "child"): (0, 11), ("2nd", "male", "adult"): (154, 14),
    ("2nd", "female", "child"): (0, 13), ("2nd", "female", "adult"): (13, 80),
    ("3rd", "male", "child"): (35, 13), ("3rd", "male", "adult"): (387, 75),
    ("3rd", "female", "child"): (17, 14), ("3rd", "female", "adult"): (89, 76),
    ("crew", "male", "adult"): (670, 192), ("crew", "female", "adult"): (3, 20),
}  # fmt: skip


def titanic():
    """The table of the Titanic, with indicators for columns; its own frequencies are the truth."""
    counts = np.array(list(TITANIC.values()), dtype=float)
    columns = [np.unique(column, return_inverse=True)[1] for column in np.array(list(TITANIC)).T]
    X = np.hstack([np.eye(column.max() + 1)[column] for column in columns])
    return Cells(X, counts / counts.sum(axis=1, keepdims=True), counts.sum(axis=1) / counts.sum(), 14)


def furthest(proba, cell, y):
    """Return the least p-value of exact binomial tests of probabilities (m, K) against the cells' class counts.

    Each cell of at least 25 rows is compared class by class, the others together.
    """
    counts = np.zeros(proba.shape)
    np.add.at(counts, (cell, y), 1)
    rows = counts.sum(axis=1)
    large = rows >= ENOUGH
    tests = [(counts[c], rows[c], proba[c]) for c in np.flatnonzero(large)]
    few = rows[~large].sum()
    if few > 0:
        tests.append(
            (counts[~large].sum(axis=0), few, (rows[~large, None] * proba[~large]).sum(axis=0) / few)
        )
    return min(
        binomtest(int(k), int(n), float(np.clip(p, 0.0, 1.0))).pvalue
        for count, n, probabilities in tests
        for k, p in zip(count, probabilities, strict=True)
    )


def furthest_by_label(proba, cell, y):
    """Return the largest difference of mean probabilities and frequencies over the cells that get the same label.

    Labels that fewer than 25 rows get are not compared.
    """
    label = proba.argmax(axis=1)[cell]
    truth = np.eye(proba.shape[1])[y]
    kinds = [kind for kind in np.unique(label) if (label == kind).sum() >= ENOUGH]
    return max(np.abs((proba[cell] - truth)[label == kind].mean(axis=0)).max() for kind in kinds)
