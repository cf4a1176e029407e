"""Codebooks: the standard codings, the ECOC search, what is refused, groups of columns and joining."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import naive
from polymargin import Codebook
from polymargin.codebooks import ecoc, join, minimal, one_vs_all, one_vs_one, resolve_codebook

sizes = pytest.mark.parametrize("K", [2, 3, 4, 5, 7, 12])


# The standard codings --------------------------------------------------------------------------------------


@sizes
def test_one_vs_one_equals_the_oracle(K):
    book = one_vs_one(K)
    assert_array_equal(book.matrix, naive.one_vs_one(K))
    assert book.n_columns == K * (K - 1) // 2
    assert book.is_pairwise
    assert book.is_dense == (K == 2)


@sizes
def test_one_vs_all_equals_the_oracle(K):
    book = one_vs_all(K)
    if K == 2:
        # Both columns of the oracle are the same dichotomy.
        assert_array_equal(book.matrix, [[-1], [1]])
        return
    assert_array_equal(book.matrix, naive.one_vs_all(K))
    assert book.is_dense
    assert not book.is_pairwise
    assert book.min_distance == 2


@sizes
def test_minimal_has_the_fewest_columns_that_separate_all_classes(K):
    book = minimal(K)
    assert book.n_columns == int(np.ceil(np.log2(K)))
    assert book.is_dense
    assert len({tuple(word) for word in book.matrix}) == K


def test_minimal_writes_class_numbers_in_binary():
    assert_array_equal(minimal(4).matrix, [[-1, -1], [-1, 1], [1, -1], [1, 1]])
    assert_array_equal((minimal(13).matrix + 1) // 2 @ [8, 4, 2, 1], np.arange(13))


# ECOC ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [2, 3, 4, 5, 6, 7, 10, 11, 16, 26])
def test_ecoc_columns_are_few_and_different(K):
    book = ecoc(K, random_state=0, n_tries=200)
    assert book.n_columns == min(10 * int(np.ceil(np.log2(K))), 2 ** (K - 1) - 1)
    assert book.is_dense
    # A column and its complement are one dichotomy: none appears twice, none is constant (Codebook refuses that).
    canonical = {tuple(column * column[0]) for column in book.matrix.T}
    assert len(canonical) == book.n_columns


@pytest.mark.parametrize("K", [2, 3, 4, 5])
def test_ecoc_of_few_classes_takes_every_column(K):
    columns = {tuple(column * column[0]) for column in ecoc(K).matrix.T}
    assert columns == {tuple(column) for column in naive.exhaustive_columns(K).T}


def test_ecoc_finds_the_optimum_where_it_can_be_enumerated():
    every = naive.exhaustive_columns(6)
    n_columns = 30
    best = max(
        naive.codebook_distance(every[:, list(kept)])[~np.eye(6, dtype=bool)].min()
        for kept in itertools.combinations(range(every.shape[1]), n_columns)
    )
    assert ecoc(6, random_state=0).min_distance == best


def test_ecoc_comes_near_the_plotkin_bound():
    # The mean distance of K codewords of L bits is at most L K/(2(K-1)) (K even), (K+1)/(2K) L (K odd).
    for K, L in [(7, 30), (8, 30), (10, 40)]:
        bound = L * K / (2 * (K - 1)) if K % 2 == 0 else L * (K + 1) / (2 * K)
        assert 0.75 * bound <= ecoc(K, random_state=0).min_distance <= bound


@pytest.mark.parametrize("K", [7, 12])
def test_ecoc_depends_on_the_random_state_alone(K):
    assert ecoc(K, 3, n_tries=300) == ecoc(K, 3, n_tries=300)
    assert ecoc(K, np.random.RandomState(3), n_tries=300) == ecoc(K, 3, n_tries=300)
    assert ecoc(K, 4, n_tries=300) != ecoc(K, 3, n_tries=300)


def test_more_tries_are_never_worse():
    distances = [ecoc(12, 0, n_tries=n).min_distance for n in (100, 1000, 10000)]
    assert distances == sorted(distances)
    assert distances[-1] > distances[0]


# What is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matrix", "reason"),
    [
        ([[1, -1], [1, -1], [-1, 1]], "separates class 0 from class 1"),
        ([[1, 1], [1, 0], [-1, -1]], "separates class 0 from class 1"),
        ([[-1, 1], [1, 1], [1, 1]], r"column 1 \(counted from 0\) has no class on one of its sides"),
        ([[-1, 0], [1, -1], [1, -1]], r"column 1 \(counted from 0\) has no class on one of its sides"),
        ([[-1, 0], [1, 0]], r"column 1 \(counted from 0\) has no class on one of its sides"),
        ([[-1, -1], [1, 1], [0, 0]], r"class 2 \(counted from 0\) has no bit"),
        ([[-1, 2], [1, -1]], "only -1, 0"),
        ([[-1, 0.5], [1, -1]], "only -1, 0"),
        ([[-1, np.nan], [1, -1]], "only -1, 0"),
        ([["a", "b"], ["c", "d"]], "only -1, 0"),
        ([-1, 1], r"one row per class and one column per dichotomy, not an array of shape \(2,\)"),
        (np.zeros((3, 0)), "not an array of shape"),
    ],
)
def test_a_codebook_that_cannot_work_is_refused(matrix, reason):
    with pytest.raises(ValueError, match=reason):
        Codebook(matrix)


def test_resolving():
    assert resolve_codebook("one-vs-one", 4) == one_vs_one(4)
    assert resolve_codebook("one-vs-all", 4) == one_vs_all(4)
    assert resolve_codebook("minimal", 4) == minimal(4)
    assert resolve_codebook("ecoc", 7, 1) == ecoc(7, 1)
    assert resolve_codebook([[-1, 1], [1, 1], [-1, -1]], 3) == Codebook([[-1, 1], [1, 1], [-1, -1]])
    with pytest.raises(ValueError, match=r"unknown coding 'ovo'; choose one of one-vs-one, one-vs-all"):
        resolve_codebook("ovo", 3)
    with pytest.raises(ValueError, match=r"3 rows \(codewords\) but y has 4 classes"):
        resolve_codebook(one_vs_one(3), 4)


# Properties ------------------------------------------------------------------------------------------------


@st.composite
def codebooks(draw):
    K = draw(st.integers(2, 6))
    extra = draw(st.lists(st.lists(st.sampled_from([-1, 0, 1]), min_size=K, max_size=K), max_size=5))
    extra = [column for column in extra if 1 in column and -1 in column]
    base = draw(st.sampled_from([one_vs_one, one_vs_all, minimal]))(K).matrix
    columns = draw(st.permutations([*base.T.tolist(), *extra]))
    return Codebook(np.array(columns).T)


@given(codebooks())
@settings(max_examples=60, deadline=None)
def test_distances_equal_the_oracle(book):
    distances = naive.codebook_distance(book.matrix)
    assert_allclose(book.distances, distances, atol=1e-12)
    assert book.min_distance == distances[~np.eye(book.n_classes, dtype=bool)].min()


@given(codebooks())
@settings(max_examples=60, deadline=None)
def test_groups_divide_the_columns_by_the_classes_they_use(book):
    columns = np.concatenate([group.columns for group in book.column_groups])
    assert_array_equal(np.sort(columns), np.arange(book.n_columns))
    for group in book.column_groups:
        for column in group.columns:
            assert_array_equal(book.matrix[:, column] != 0, group.classes)
    assert len({group.classes.tobytes() for group in book.column_groups}) == len(book.column_groups)


@given(st.lists(codebooks(), min_size=3, max_size=3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_joined_codebooks_find_their_columns_again(books, merge):
    books = [book for book in books if book.n_classes == books[0].n_classes]
    joined, parts = join(books, merge=merge)
    for book, part in zip(books, parts, strict=True):
        assert_array_equal(joined.matrix[:, part.columns] * part.signs, book.matrix)
    if merge:
        canonical = [tuple(column * column[np.flatnonzero(column)[0]]) for column in joined.matrix.T]
        assert len(set(canonical)) == joined.n_columns
    else:
        assert joined.n_columns == sum(book.n_columns for book in books)


def test_join_merges_complements():
    plain, flipped = Codebook([[-1, -1], [1, -1], [1, 1]]), Codebook([[1, -1], [-1, 1], [-1, -1]])
    joined, parts = join([plain, flipped])
    assert joined.n_columns == 3
    assert parts[0].columns[0] == parts[1].columns[0]
    assert parts[0].signs[0] == -parts[1].signs[0]
    side_by_side, parts = join([plain, flipped], merge=False)
    assert side_by_side.n_columns == 4
    assert_array_equal(parts[1].columns, [2, 3])


def test_a_codebook_is_a_value():
    book = one_vs_one(3)
    assert book == Codebook(book.matrix.tolist())
    assert hash(book) == hash(Codebook(book.matrix.tolist()))
    assert book != one_vs_all(3)
    assert pickle.loads(pickle.dumps(book)) == book
    with pytest.raises(ValueError, match="read-only"):
        book.matrix[0, 0] = 1
    assert_array_equal(book.targets(np.array([2, 0])), book.matrix[[2, 0]])
    given_array = one_vs_one(3).matrix.copy()
    taken = Codebook(given_array)
    given_array[0, 0] = 1
    assert taken.matrix[0, 0] == -1
