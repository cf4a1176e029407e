"""Leaves: the tree of overlapping regions, soft routing, and the exact machines of the regions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import naive
import naive_scale
from conftest import blobs
from polymargin import Codebook
from polymargin.codebooks import one_vs_all, one_vs_one
from polymargin.codebooks.partial import Restriction
from polymargin.kernels import RBF, Scaled
from polymargin.machines import TrainingRows, fit_lssvm_bank
from polymargin.scale.leaves import LeafBank, LeafTraining
from polymargin.scale.tree import Tree
from polymargin.selection.settings import DEFAULT

GAMMA, C = 0.2, 3.0
MIXED = Codebook([[1, 1, 0, 1], [-1, 0, 1, 1], [0, -1, -1, -1]])
SELECTION = {"selection": "loo", "settings": DEFAULT, "noise_floor": 0.25}


def grown(X, y, leaf_rows, overlap=0.1, **more):
    return Tree.grow(X, np.eye(int(y.max()) + 1)[y], leaf_rows=leaf_rows, overlap=overlap, **more)


def nested(tree, number=None):
    """A tree as the oracle wants it."""
    number = (0 if len(tree.children) else -1) if number is None else number
    if number < 0:
        return ("leaf", -1 - number)
    left, right = (nested(tree, int(child)) for child in tree.children[number])
    return ("cut", tree.directions[number], tree.low[number], tree.high[number], left, right)


def membership(tree, X):
    """The weight of every row in every leaf, shape (n, n_leaves)."""
    weights = np.zeros((X.shape[0], tree.n_leaves))
    for leaf, (rows, own) in enumerate(tree.route(X)):
        assert (np.diff(rows) > 0).all()
        assert (own >= 0.0).all()
        weights[rows, leaf] = own
    return weights


def discrete(n=600, seed=0):
    """Rows of one-hot columns, a column with three values and a constant one, many of them equal."""
    rng = np.random.default_rng(seed)
    level = rng.integers(0, 5, n)
    X = np.column_stack([np.eye(5)[level], rng.integers(0, 3, n), np.full(n, 7.0)]).astype(float)
    return X, (level + X[:, 5] + (rng.random(n) < 0.2) > 3).astype(int)


DATA = {
    "blobs": lambda: blobs(n=600, K=3, d=3, seed=0),
    "many columns": lambda: blobs(n=500, K=3, d=300, seed=0),
    "one column": lambda: blobs(n=400, K=2, d=1, seed=0),
    "one-hot": discrete,
    "duplicates": lambda: tuple(np.repeat(part, 6, axis=0) for part in blobs(n=100, K=3, d=2, seed=1)),
    "constant columns": lambda: (
        np.column_stack([blobs(n=500, K=3, d=2)[0], np.full((500, 2), 1e6)]),
        blobs(n=500, K=3, d=2)[1],
    ),
    "far from zero": lambda: (blobs(n=500, K=3, d=3)[0] + 1e6, blobs(n=500, K=3, d=3)[1]),
    "outlier": lambda: (
        np.vstack([blobs(n=499, K=3, d=3)[0], [[1e6, 0.0, 0.0]]]),
        np.append(blobs(n=499, K=3, d=3)[1], 0),
    ),
}
every_set = pytest.mark.parametrize("name", DATA)


# The tree --------------------------------------------------------------------------------------------------


@every_set
@pytest.mark.parametrize("overlap", [0.0, 0.1, 0.25])
def test_weights_sum_to_one_and_leaves_are_small(name, overlap):
    X, y = DATA[name]()
    tree = grown(X, y, 80, overlap)
    weights = membership(tree, X)
    assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
    sizes = (weights > 0.0).sum(axis=0)
    assert sizes.min() > 0
    # Regions of more rows are those that no cut divides: too many rows are equal.
    for leaf in np.flatnonzero(sizes > 80):
        own = X[weights[:, leaf] > 0.0]
        largest = np.unique(own, axis=0, return_counts=True)[1].max()
        assert largest > 0.1 * len(own), (name, leaf, len(own))
    # What overlaps is a part of all rows.
    assert sizes.sum() <= {0.0: 1.2, 0.1: 2.0, 0.25: 8.0}[overlap] * len(y)


@every_set
def test_routing_is_that_of_the_oracle(name):
    X, y = DATA[name]()
    tree = grown(X, y, 80)
    Z = X if tree.sketch is None else X @ tree.sketch
    weights = membership(tree, X)
    for i in range(0, len(X), 17):
        expected = naive_scale.route(nested(tree), Z[i])
        assert_allclose(weights[i, list(expected)], list(expected.values()), atol=1e-7)
        assert_allclose(sum(weights[i, list(expected)]), 1.0)


@every_set
def test_routing_is_continuous_along_lines_across_the_cuts(name):
    """Wherever weights change most between two points, they change as little as one likes between closer ones."""
    X, y = DATA[name]()
    tree = grown(X, y, 80)
    rng = np.random.default_rng(0)
    for _ in range(5):
        a, b = X[rng.choice(len(X), 2, replace=False)]
        a, b = a - (b - a), b + (b - a)
        for _ in range(5):
            line = a + np.linspace(0.0, 1.0, 101)[:, np.newaxis] * (b - a)
            steps = np.abs(np.diff(membership(tree, line), axis=0)).sum(axis=1)
            a, b = line[steps.argmax()], line[steps.argmax() + 1]
        assert steps.max() < 1e-3


def test_cuts_of_zero_width_do_not_occur():
    for name in DATA:
        X, y = DATA[name]()
        for overlap in (0.0, 0.1, 0.25):
            tree = grown(X, y, 40, overlap)
            assert (tree.high > tree.low).all(), name


def test_the_cut_is_at_the_median_and_shares_the_rows_next_to_it():
    X = np.random.default_rng(0).normal(size=(400, 1))
    tree = Tree.grow(X, X, leaf_rows=399, overlap=0.1)
    assert tree.n_leaves == 2
    (left, _), (right, _) = tree.route(X)
    order = np.argsort(X[:, 0])
    shared = np.intersect1d(left, right)
    assert_array_equal(np.sort(order[160:240]), shared)
    assert left.size == right.size == 240


def test_the_first_cut_is_along_the_direction_in_which_classes_differ():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 4)) * np.array([5.0, 1.0, 1.0, 1.0])
    y = (X[:, 2] > 0.0).astype(int)
    assert np.abs(grown(X, y, 600).directions[0]).argmax() == 2
    # Where there is one class, that of the largest variance.
    assert np.abs(grown(X, np.zeros(1000, dtype=int), 600).directions[0]).argmax() == 0


def test_few_rows_are_one_leaf():
    X, y = blobs(n=50)
    tree = grown(X, y, 50)
    assert tree.n_leaves == 1
    ((rows, weights),) = tree.route(X[:7])
    assert_array_equal(rows, np.arange(7))
    assert_array_equal(weights, np.ones(7))


@pytest.mark.parametrize("row", [np.zeros(3), np.array([0.1, 0.2, 0.3]), np.array([1e8, 1e-8, 0.3])])
def test_equal_rows_are_not_divided(row):
    """By rounding they would be: sums of many equal rows are no multiples of one."""
    for n in (101, 1000, 1003):
        X = np.tile(row, (n, 1))
        y = np.arange(n) % 2
        assert grown(X, y, 30).n_leaves == 1


def test_no_cut_divides_equal_rows():
    """Copies are in the same leaves, with the same weights."""
    X, y = DATA["duplicates"]()
    weights = membership(grown(X, y, 70), X)
    assert_allclose(
        weights.reshape(100, 6, -1), weights.reshape(100, 6, -1)[:, :1].repeat(6, axis=1), atol=1e-9
    )


@pytest.mark.parametrize("name", ["blobs", "one-hot", "duplicates", "many columns"])
def test_the_last_bits_of_the_rows_change_nothing(name):
    X, y = DATA[name]()
    rng = np.random.default_rng(0)
    noisy = X * (1.0 + 1e-9 * rng.normal(size=X.shape))
    before, after = (membership(grown(rows, y, 80, seed=1), rows) for rows in (X, noisy))
    assert before.shape == after.shape
    assert_allclose(before, after, atol=1e-5)


@pytest.mark.parametrize("name", ["blobs", "one-hot", "duplicates"])
def test_order_of_rows_names_of_classes_and_units_change_nothing(name):
    X, y = DATA[name]()
    expected = membership(grown(X, y, 80), X)
    order = np.random.default_rng(0).permutation(len(y))
    assert_allclose(membership(grown(X[order], y[order], 80), X), expected, atol=1e-7)
    assert_allclose(membership(grown(X, y.max() - y, 80), X), expected, atol=1e-7)
    assert_allclose(membership(grown(3.0 * X, y, 80), 3.0 * X), expected, atol=1e-7)


@pytest.mark.parametrize("name", ["blobs", "many columns", "one-hot"])
def test_sparse_rows_are_routed_as_dense_ones(name):
    X, y = DATA[name]()
    tree, of_sparse = grown(X, y, 80, seed=3), grown(sparse.csr_matrix(X), y, 80, seed=3)
    assert tree.n_leaves == of_sparse.n_leaves
    assert_allclose(membership(of_sparse, sparse.csr_matrix(X)), membership(tree, X), atol=1e-9)


def test_many_columns_are_projected():
    X, y = DATA["many columns"]()
    tree = grown(X, y, 100, seed=5)
    assert tree.sketch.shape == (300, 256)
    assert tree.directions.shape[1] == 256
    # The same seed, the same tree.
    assert_array_equal(grown(X, y, 100, seed=5).directions, tree.directions)
    assert tree.n_leaves > 4


def test_a_sample_cuts_all_rows_into_leaves_of_the_same_size():
    X, y = blobs(n=6000, K=3, d=3, seed=0)
    sample = np.random.default_rng(0).choice(6000, 1500, replace=False)
    tree = grown(X[sample], y[sample], 400, n_rows=6000)
    whole = grown(X, y, 400)
    assert 0.5 < tree.n_leaves / whole.n_leaves < 2.0
    sizes = np.array([rows.size for rows, _ in tree.route(X)])
    assert sizes.max() < 1.4 * 400
    assert_allclose(membership(tree, X).sum(axis=1), 1.0, rtol=1e-12)


def test_soft_labels_may_be_targets():
    X, y = blobs(n=600, K=3, d=3, seed=0)
    hard, soft = (
        Tree.grow(X, 0.9 * np.eye(3)[y] + rest, leaf_rows=100, overlap=0.1) for rest in (0.0, 0.1 / 3)
    )
    assert_allclose(membership(soft, X), membership(hard, X), atol=1e-7)


# Codebooks of some classes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("present", [[0], [1, 3], [0, 2, 3], [0, 1, 2, 3], []])
@pytest.mark.parametrize("book", [one_vs_one(4), one_vs_all(4)], ids=["one-vs-one", "one-vs-all"])
def test_columns_among_some_classes(book, present):
    found = Restriction.of(book, np.array(present, dtype=int))
    for column, bits in enumerate(book.matrix.T):
        sides = set(bits[present]) - {0}
        if len(sides) == 2:
            place = list(found.columns).index(column)
            assert_array_equal(found.codebook.matrix[:, place], bits[present])
            assert found.constants[column] == 0.0
        else:
            assert column not in found.columns
            assert found.constants[column] == (sides.pop() if sides else 0)
    assert (found.codebook is None) == (found.columns.size == 0)


# Machines of leaves ----------------------------------------------------------------------------------------


def rbf(A, B):
    return naive.kernel_matrix("rbf", A, B, gamma=GAMMA)


def training(book, *, largest=10_000, **more):
    arguments = {"C": C, "gamma": GAMMA, "smaller": 1.0, "criterion": SELECTION, **more}
    return LeafTraining(RBF(), book, largest=largest, **arguments)


def fit_tree(tree, X, y, book, *, weights=None, groups=None, **more):
    """The machines of all leaves, and the leave-one-out margins of all rows, as `scale.fitting` puts them together."""
    rows = TrainingRows(
        RBF(), X, y, np.ones(len(y)) if weights is None else weights, groups=groups
    ).shuffled()
    leaves, exact, honest = [], np.zeros((len(y), book.n_columns)), np.zeros((len(y), book.n_columns))
    for own, shares in tree.route(X):
        leaf, *margins = training(book, **more).fit(rows.take(own))
        leaves.append(leaf)
        exact[own] += shares[:, np.newaxis] * margins[0]
        honest[own] += shares[:, np.newaxis] * margins[1]
    return LeafBank(RBF(), tree, leaves), exact, honest


@pytest.mark.parametrize("book", [one_vs_one(3), one_vs_all(3), MIXED], ids=["pairs", "one-vs-all", "mixed"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("shift", [1.6, 4.0], ids=["all classes", "absent classes"])
def test_margins_and_leave_one_out_equal_those_of_the_oracle(book, weighted, grouped, shift):
    X, y = blobs(n=70, K=3, d=2, seed=4, shift=shift)
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.3, 2.0, 70) if weighted else np.ones(70)
    groups = rng.integers(0, 30, 70) if grouped else None
    tree = grown(X, y, 20)
    assert tree.n_leaves > 4
    new = blobs(n=15, K=3, d=2, seed=5, shift=shift, spread=2.0)[0]
    bank, exact, _ = fit_tree(tree, X, y, book, weights=weights, groups=groups)
    if shift == 4.0:
        assert any(leaf.constants.any() for leaf in bank.leaves)
    margins, left_out = naive_scale.forest_outputs(
        nested(tree), rbf, X, y, weights, book.matrix, C, new, groups
    )
    assert_allclose(bank.margins(new), margins, atol=1e-7)
    if groups is None:
        assert_allclose(exact, left_out, atol=1e-6)
    else:
        # A row that a column does not use is new to its machine, whatever its group.
        used = book.matrix[y] != 0
        assert_allclose(exact[used], left_out[used], atol=1e-6)


def test_honest_margins_of_shared_rows_are_means_by_their_weights():
    X, y = blobs(n=90, K=3, d=2, seed=4)
    tree, book = grown(X, y, 30, 0.2), one_vs_one(3)
    _, exact, honest = fit_tree(tree, X, y, book)
    routes = tree.route(X)
    row = int(np.flatnonzero((membership(tree, X) > 0.0).sum(axis=1) > 1)[0])
    expected = np.zeros((2, 3))
    for rows, shares in routes:
        if row not in rows:
            continue
        place = int(np.flatnonzero(rows == row)[0])
        own = TrainingRows(RBF(), X[rows], y[rows], np.ones(rows.size))
        bank = fit_lssvm_bank(own, book, C=C, gamma=GAMMA)
        expected += shares[place] * np.array([bank.loo_margins[place], bank.honest_margins[place]])
    assert_allclose([exact[row], honest[row]], expected, atol=1e-8)


def test_a_leaf_of_one_class_is_constant():
    X, _ = blobs(n=30, K=3, d=2)
    rows = TrainingRows(RBF(), X, np.full(30, 2), np.ones(30))
    leaf, exact, honest = training(one_vs_one(3)).fit(rows)
    assert leaf.bank is None
    assert leaf.columns.size == 0
    expected = np.sign(one_vs_one(3).matrix[2].astype(float))
    for margins in (leaf.margins(X[:4]), exact, honest):
        assert_array_equal(margins, np.tile(expected, (len(margins), 1)))


def test_an_empty_leaf_says_nothing():
    nothing = TrainingRows(RBF(), np.empty((0, 2)), np.empty(0, dtype=int), np.empty(0))
    leaf, exact, honest = training(one_vs_one(3)).fit(nothing)
    assert exact.shape == honest.shape == (0, 3)
    assert_array_equal(leaf.margins(np.zeros((2, 2))), np.zeros((2, 3)))


@pytest.mark.parametrize("grouped", [False, True])
def test_of_a_class_that_a_row_is_alone_with_nothing_is_known_without_it(grouped):
    """Without the row a leaf has no class of a column whose other side is absent: it cannot say which side it is."""
    X, y = blobs(n=40, K=2, d=2, seed=0)
    book = one_vs_one(5)
    X, y = np.vstack([X, X[:2] + 0.1]), np.append(y, [3, 3])
    rows = np.arange(42) if grouped else np.arange(41)
    groups = np.append(np.arange(40), [40, 40])[rows] if grouped else None
    data = TrainingRows(RBF(), X[rows], y[rows], np.ones(rows.size), groups=groups)
    _, exact, honest = training(book).fit(data.shuffled())
    _, left_out = naive_scale.leaf_machine_outputs(
        rbf, X[rows], y[rows], np.ones(rows.size), book.matrix, C, X[:1], groups
    )
    used = book.matrix[y[rows]] != 0
    assert_allclose(exact[used], left_out[used], atol=1e-6)
    # Columns of class 3 with the absent classes 2 and 4.
    unknown = np.flatnonzero((book.matrix[3] != 0) & (book.matrix[[0, 1]] == 0).all(axis=0))
    assert unknown.size == 2
    assert_array_equal(exact[40:, unknown], 0.0)
    assert_array_equal(honest[40:, unknown], 0.0)
    assert_array_equal(np.abs(exact[:40, unknown]), 1.0)


def test_soft_labels_in_a_leaf():
    """The machines of a leaf are those of its rows by themselves."""
    X, _ = blobs(n=40, K=3, d=2, seed=3)
    soft = np.random.default_rng(0).dirichlet(np.ones(3), 40)
    soft[:, 1] = 0.0
    soft /= soft.sum(axis=1, keepdims=True)
    rows = TrainingRows(RBF(), X, soft.argmax(axis=1), np.ones(40), soft).shuffled()
    leaf, exact, honest = training(one_vs_one(3)).fit(rows)
    two = TrainingRows(RBF(), X, (soft[:, 2] > 0.5).astype(int), np.ones(40), soft[:, [0, 2]])
    bank = fit_lssvm_bank(two, Codebook([[-1], [1]]), C=C, gamma=GAMMA)
    column = int(np.flatnonzero(one_vs_one(3).matrix[1] == 0)[0])
    assert_array_equal(leaf.columns, [column])
    assert_allclose(exact[:, column], bank.loo_margins[:, 0], atol=1e-9)
    assert_allclose(honest[:, column], bank.honest_margins[:, 0], atol=1e-9)
    assert_allclose(leaf.margins(X)[:, column], bank.margins(X)[:, 0], atol=1e-9)


def test_parameters_are_selected_in_every_leaf_unless_they_are_given():
    X, y = blobs(n=200, K=3, d=2, seed=4)
    tree = grown(X, y, 80)
    bank, _, _ = fit_tree(tree, X, y, one_vs_one(3), C=None, gamma=None)
    assert np.unique(bank.C).size > 1
    assert np.unique(bank.gamma).size > 1
    smaller, _, _ = fit_tree(tree, X, y, one_vs_one(3), C=None, gamma=None, smaller=4.0)
    assert_allclose(smaller.C, bank.C / 4.0)
    assert_array_equal(smaller.gamma, bank.gamma)
    of_given, _, _ = fit_tree(tree, X, y, one_vs_one(3), C=2.0, gamma=None, smaller=4.0)
    assert_array_equal(of_given.C, np.full(tree.n_leaves, 2.0))
    # They are those of the rows of the leaf.
    rows, _ = tree.route(X)[0]
    own = TrainingRows(RBF(), X[rows], y[rows], np.ones(rows.size)).shuffled(0)
    alone = fit_lssvm_bank(
        own, one_vs_one(3), C=None, gamma=None, pools=[np.arange(3)], **SELECTION, keep_factors=False
    )
    assert_allclose([bank.C[0], bank.gamma[0]], [alone.C[0], alone.gamma[0]], rtol=1e-6)


@pytest.mark.parametrize("grouped", [False, True])
def test_of_too_many_equal_rows_a_sample_is_taken(grouped):
    rng = np.random.default_rng(0)
    X, y = np.repeat([[0.0, 0.0], [1.0, 1.0]], 200, axis=0), rng.integers(0, 3, 400)
    groups = rng.integers(0, 40, 400) if grouped else None
    rows = TrainingRows(RBF(), X, y, np.ones(400), groups=groups).shuffled()
    leaf, exact, honest = training(one_vs_one(3), largest=100).fit(rows)
    used = leaf.bank.data.class_index.size
    assert 20 < used <= 100
    assert exact.shape == honest.shape == (400, 3)
    plain = leaf.margins(X)
    seen = np.abs(exact - plain).max(axis=1) > 1e-9
    # Rows beyond the sample are new to the machines; those of a group are in the sample together or not at all.
    assert 0 < seen.sum() <= used
    if grouped:
        for group in np.unique(groups):
            assert seen[groups == group].all() or not seen[groups == group].any()


def test_the_sample_of_too_many_rows_does_not_depend_on_their_order():
    rng = np.random.default_rng(0)
    X, y = blobs(n=300, K=3, d=2, seed=0)
    order = rng.permutation(300)
    new = rng.normal(size=(5, 2))
    one, other = (
        training(one_vs_one(3), largest=80).fit(TrainingRows(RBF(), X[rows], y[rows], np.ones(300)))[0]
        for rows in (np.arange(300), order)
    )
    assert_allclose(one.margins(new), other.margins(new), atol=1e-9)


def test_margins_are_continuous_across_cuts():
    X, y = blobs(n=300, K=3, d=2, seed=4)
    tree = grown(X, y, 60)
    bank, _, _ = fit_tree(tree, X, y, one_vs_one(3))
    a, b = X.min(axis=0), X.max(axis=0)
    steps = []
    for n_points in (1001, 10_001):
        line = a + np.linspace(0.0, 1.0, n_points)[:, np.newaxis] * (b - a)
        assert (membership(tree, line) > 0.0).any(axis=0).sum() > 2
        steps.append(np.abs(np.diff(bank.margins(line), axis=0)).max())
    assert steps[1] < 0.15 * steps[0]


def test_rows_are_routed_as_the_kernel_compares_them():
    """A column of width zero takes no part in the cuts either."""
    X, y = blobs(n=200, K=3, d=2, seed=4)
    kernel = Scaled(RBF(), [1.0, 0.0])
    tree = grown(kernel.scaled(X), y, 60)
    rows = TrainingRows(kernel, X, y, np.ones(200)).shuffled()
    learn = LeafTraining(kernel, one_vs_one(3), C, GAMMA, 1.0, SELECTION, largest=10_000)
    leaves = [learn.fit(rows.take(own))[0] for own, _ in tree.route(kernel.scaled(X))]
    bank = LeafBank(kernel, tree, leaves)
    moved = X + np.array([0.0, 100.0])
    assert_allclose(bank.margins(moved), bank.margins(X), atol=1e-9)


def test_a_leaf_keeps_only_what_prediction_needs():
    X, y = blobs(n=60, K=3, d=2)
    leaf, exact, _ = training(one_vs_one(3)).fit(
        TrainingRows(RBF(), X, y, np.ones(60), groups=np.arange(60)).shuffled()
    )
    assert leaf.bank.loo_margins.size == 0
    assert leaf.bank.blocks is None
    assert leaf.bank.data.groups is None
    assert np.isfinite(exact).all()
