"""The recipe of a fit to many rows, for rows in memory, in files or on a cluster.

    sample ──► pilot: kernel, metric, C, gamma
    sample ──► landmarks ──► one pass: statistics of the classes ──► machines
    sample ──► size of leaves, tree ──► rows to their leaves ──► machines of every leaf
    honest outputs of a sample ──► decoder

A `RowSource` does what depends on where the rows are: it adds up what a function makes of all blocks of rows, and it
trains the leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin._progress import Progress
from polymargin.codebooks import Codebook
from polymargin.machines import LSSVMBank
from polymargin.rows import TrainingRows
from polymargin.scale._places import ON_CPU, Place
from polymargin.scale.bank import ScaledBank
from polymargin.scale.feature_maps import ExplicitMap, FeatureMap, LandmarkMap, centred
from polymargin.scale.landmark_bank import LandmarkBank, features_of, fit_landmark_bank
from polymargin.scale.landmark_search import Judge, Searched, fit_searched, search_feature_map
from polymargin.scale.landmarks import choose_landmarks
from polymargin.scale.leaf_search import GrownLeaves, search_leaf_rows
from polymargin.scale.leaves import LeafBank, LeafTraining
from polymargin.scale.plan import ScalePlan
from polymargin.scale.settings import ScaleSettings
from polymargin.scale.sources import BlockStatistics, MemoryRows, RowSource, Sample
from polymargin.scale.tree import Tree

Array = NDArray[Any]

#: The least number of rows of the sample for every leaf of the tree, so that medians of it cut all rows in two halves:
#: leaves differ in size by some 20 %.
_ROWS_PER_LEAF = 25
#: The largest number of rows of that sample, which must fit into memory, whatever the number of leaves.
_MOST_TREE_ROWS = 100_000
#: An explicit feature map is used if it has at most so many times as many features as there may be landmarks.
_EXPLICIT = 2.0


@dataclass(frozen=True)
class Pilot:
    """What was found on a sample.

    Attributes
    ----------
    bank : LSSVMBank
        The machines of the sample, with the kernel and its metric.
    smaller : float
        The factor by which C is smaller than the C of least PRESS.
    C, gamma : float or None
        The parameters that were given; None for those that were selected.
    criterion : dict
        The arguments of a selection of C and gamma.
    numbers : ndarray of int
        The numbers of the rows of the sample among all.
    judge : Judge or None
        The decoder, by which landmark machines are compared; None where it learns no probabilities.
    """

    bank: LSSVMBank
    smaller: float
    C: float | None
    gamma: float | None
    criterion: dict[str, Any]
    numbers: Array
    judge: Judge | None = None


def fit_scaled_bank(
    source: RowSource,
    codebook: Codebook,
    pilot: Pilot,
    plan: ScalePlan,
    settings: ScaleSettings,
    *,
    landmarks: Any = None,
    keep_statistics: bool = False,
    seen: Array | None = None,
    place: Place = ON_CPU,
    progress: Progress | None = None,
) -> tuple[ScaledBank, Sample, ScalePlan]:
    """Train the machines of many rows.

    Parameters
    ----------
    source : RowSource
        The training rows.
    codebook : Codebook
        The dichotomies.
    pilot : Pilot
        What was found on a sample.
    plan : ScalePlan
        How the fit is divided.
    settings : ScaleSettings
        The sizes of its parts.
    landmarks : array or sparse matrix of shape (r, d), or None
        The landmarks, if they are given; None to choose them.
    keep_statistics : bool
        Whether the statistics of the landmarks are kept.
    seen : ndarray of int or None
        The numbers of the rows that a metric was learned from.
    place : Place
        Where machines are trained.
    progress : callable or None
        Called with every step.

    Returns
    -------
    bank : ScaledBank
    decoded : Sample
        The rows whose honest outputs the bank has.
    plan : ScalePlan
        The plan as it came out: with the size and the number of leaves.
    """
    decoded = source.sample(plan.decoder_rows)
    decoded = replace(decoded, rows=replace(decoded.rows, kernel=pilot.bank.kernel))
    leaf_bank = landmark_bank = None
    exact, honest = [], []
    if plan.has_leaves:
        leaf_bank, *margins, plan = _fit_leaves(
            source, decoded, codebook, pilot, plan, settings, place, progress
        )
        exact.append(margins[0])
        honest.append(margins[1])
    if plan.has_landmarks:
        landmark_bank, *margins = _fit_landmarks(
            source, decoded.rows, codebook, pilot, plan, settings, landmarks, keep_statistics, place, progress
        )
        exact.append(margins[0])
        honest.append(margins[1])
    leak = None if seen is None else np.isin(decoded.numbers, seen)
    bank = ScaledBank(
        _as_frequent(decoded.rows, source.class_counts, plan.decoder_rows),
        codebook,
        pilot.bank,
        leaf_bank,
        landmark_bank,
        np.hstack(exact),
        np.hstack(honest),
        None if leak is None or leak.all() else leak,
        rounding_error=pilot.bank.rounding_error,
    )
    return bank, decoded, plan


def _as_frequent(rows: TrainingRows, class_counts: Array, n_rows: int) -> TrainingRows:
    """Return a sample of so many rows with weights by which its classes are as frequent as among all rows.

    Of a rare class it has more rows than its share, from which a decoder would learn too large a probability.
    """
    sampled = np.bincount(rows.class_index, minlength=class_counts.size)
    if (sampled <= np.ceil(class_counts * (n_rows / class_counts.sum()))).all():
        return rows
    factors = class_counts / np.maximum(sampled, 1) * (sampled.sum() / class_counts.sum())
    return replace(rows, weights=rows.weights * factors[rows.class_index])


def _fit_leaves(
    source: RowSource,
    decoded: Sample,
    codebook: Codebook,
    pilot: Pilot,
    plan: ScalePlan,
    settings: ScaleSettings,
    place: Place,
    progress: Progress | None,
) -> tuple[LeafBank, Array, Array, ScalePlan]:
    """Return the leaves, the leave-one-out margins of the decoder's sample, twice (n, L), and the plan."""
    sizes, n_sampled = plan.leaf_rows, decoded.numbers.size
    every = partial(
        _grow_leaves,
        codebook=codebook,
        pilot=pilot,
        plan=plan,
        settings=settings,
        place=place,
        progress=progress,
    )
    if len(sizes) > 1 and pilot.judge is not None:
        # Sizes are compared on the decoder's sample, whose leaves are those of all rows if it has all of them.
        rows = MemoryRows(decoded.rows, codebook.n_classes)
        sample = Sample(np.arange(n_sampled), decoded.rows)
        seen = np.flatnonzero(np.isin(decoded.numbers, pilot.numbers))
        significance = pilot.criterion["settings"].significance
        grown = search_leaf_rows(
            sizes, partial(every, rows, sample, seen, 1.0), sample, codebook, pilot.judge, significance
        )
        if not (isinstance(source, MemoryRows) and n_sampled == plan.n_rows):
            grown = every(source, decoded, pilot.numbers, plan.leaf_share, grown.leaf_rows)
    else:
        grown = every(source, decoded, pilot.numbers, plan.leaf_share, sizes[0])
    # Leaves of a cluster stay there.
    bank = getattr(source, "leaf_bank", LeafBank)
    leaves = bank(pilot.bank.kernel, grown.tree, [each.leaf for each in grown.leaves])
    found = replace(plan, n_leaves=len(grown.leaves), leaf_rows=(grown.leaf_rows,))
    return leaves, *grown.left_out(n_sampled, codebook.n_columns), found


def _grow_leaves(
    source: RowSource,
    decoded: Sample,
    seen: Array,
    share: float,
    leaf_rows: int,
    *,
    codebook: Codebook,
    pilot: Pilot,
    plan: ScalePlan,
    settings: ScaleSettings,
    place: Place,
    progress: Progress | None,
) -> GrownLeaves:
    """Cut a share of the rows into leaves, of which the pilot has seen some, and train these."""
    kernel, n_rows, seed = pilot.bank.kernel, int(share * source.class_counts.sum()), decoded.rows.deal.seed
    n_leaves = plan.n_leaves * plan.leaf_rows[0] / leaf_rows
    tree = _grown_tree(source, seen, pilot, settings, place, leaf_rows, n_leaves, n_rows, seed)
    training = LeafTraining(
        kernel,
        codebook,
        pilot.C,
        pilot.gamma,
        pilot.smaller,
        {name: value for name, value in pilot.criterion.items() if name != "pools"},
        largest=4 * leaf_rows,
        seed=seed,
        place=place,
    )
    return GrownLeaves(leaf_rows, tree, source.fit_leaves(tree, training, share, decoded, progress))


def _grown_tree(
    source: RowSource,
    seen: Array,
    pilot: Pilot,
    settings: ScaleSettings,
    place: Place,
    leaf_rows: int,
    n_leaves: float,
    n_rows: int,
    seed: int,
) -> Tree:
    """Return a tree for about so many leaves, grown on a sample that is large, and gone when leaves are trained."""
    sample = source.sample(int(min(max(_ROWS_PER_LEAF * n_leaves, settings.decoder_rows), _MOST_TREE_ROWS)))
    # Cuts follow the outputs of the pilot's machines at rows that these have not seen, not the labels: what a cut
    # learns from the labels of its rows leaks into their leave-one-out outputs, by 0.014 nats a row on waveform.
    unseen = np.flatnonzero(~np.isin(sample.numbers, seen))
    grown = sample.rows.X if unseen.size < sample.numbers.size / 2 else sample.rows.X[unseen]
    return Tree.grow(
        pilot.bank.kernel.scaled(grown),
        place.margins(pilot.bank, grown),
        leaf_rows=leaf_rows,
        overlap=settings.overlap,
        n_rows=n_rows,
        seed=seed,
    )


def _fit_landmarks(
    source: RowSource,
    decoded: TrainingRows,
    codebook: Codebook,
    pilot: Pilot,
    plan: ScalePlan,
    settings: ScaleSettings,
    landmarks: Any,
    keep_statistics: bool,
    place: Place,
    progress: Progress | None,
) -> tuple[LandmarkBank, Array, Array]:
    """Return the machines of the landmarks, and the leave-one-out margins of the decoder's sample, twice (n, L)."""
    kernel, gamma = pilot.bank.kernel, float(np.median(pilot.bank.gamma))
    n_features = kernel.n_features(decoded.X.shape[1])
    sample = pilot.bank.data.X

    def map_of(gamma: float) -> LandmarkMap | ExplicitMap:
        if landmarks is None and n_features is not None and n_features <= _EXPLICIT * plan.n_landmarks:
            return centred(ExplicitMap.of(kernel, gamma, sample), sample)
        if landmarks is not None:
            # About their own mean, so that models of the same landmarks have the same features, and can be merged.
            return centred(LandmarkMap.of(kernel, gamma, landmarks), landmarks)
        chosen = choose_landmarks(decoded, gamma, plan.n_landmarks, settings.landmarks)
        return centred(LandmarkMap.of(kernel, gamma, decoded.X[chosen]), sample)

    def make(gamma: float) -> FeatureMap:
        # The statistics of all rows are gathered, and those of samples.
        return place.feature_map(map_of(gamma), plan.n_rows)

    def statistics_of(features: FeatureMap) -> BlockStatistics:
        return BlockStatistics(features, codebook.n_classes, codebook.is_dense)

    significance = pilot.criterion["settings"].significance
    judged = pilot.judge if pilot.C is None and pilot.criterion["selection"] == "loo" else None
    found = Searched(make(gamma), pilot.smaller)
    if judged is not None:
        found = search_feature_map(
            make,
            lambda features, rows: statistics_of(features).in_blocks(rows),
            gamma,
            decoded,
            codebook,
            judged,
            significance=significance,
            fixed_gamma=pilot.gamma is not None,
        )
    statistics = source.add_up(statistics_of(found.features), found.features.n_features, progress)
    options: dict[str, Any] = {"keep_statistics": keep_statistics, "progress": progress}
    if pilot.C is not None:
        phi = features_of(found.features, decoded.X)
        return fit_landmark_bank(statistics, found.features, codebook, pilot.C, decoded, phi, **options)
    return fit_searched(found, statistics, codebook, decoded, judged, significance=significance, **options)
