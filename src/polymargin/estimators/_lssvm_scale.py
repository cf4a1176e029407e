"""How `LSSVMClassifier` fits any number of rows: exactly, in leaves, in landmarks, or on a device."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymargin._accelerator import Accelerator, accelerated
from polymargin._progress import Progress, logger, shown
from polymargin._threads import blas_threads_for, count_jobs
from polymargin._warnings import warn
from polymargin.codebooks import Codebook, adaptive_coding
from polymargin.codebooks.default import default_coding, many_classes
from polymargin.decoders import Decoder, ProbabilisticDecoder, resolve_decoder
from polymargin.decoders.pooled import Pooled
from polymargin.estimators._candidates import Plan
from polymargin.estimators._choice import Choice
from polymargin.estimators._flow import DichotomyClassifier
from polymargin.estimators._scaled import fit_many_rows
from polymargin.estimators._validation import check_landmarks, settings_of
from polymargin.machines import TrainingRows
from polymargin.machines._workspace import SharedWork
from polymargin.scale._places import place_for
from polymargin.scale.plan import ScalePlan, plan_scale
from polymargin.scale.settings import DEFAULT, ScaleSettings
from polymargin.scale.sources import RowSource

Array = NDArray[Any]


class ScaleMixin(DichotomyClassifier):
    """What `LSSVMClassifier` has for many rows: the plan, and fits that are divided."""

    # Parameters, and what the other parts of the estimator have.
    scale: str
    n_landmarks: Any
    scaling: ScaleSettings | None
    device: str | None
    n_jobs: int | None
    n_features_in_: int
    _weight_unit: float
    _search_plan: Any
    _keep_choice: Any

    #: Whether scale="auto" is not "exact", as where other members of a pool are not.
    _divided = False
    #: The bytes of a worker, where leaves are on a cluster.
    _worker_memory: float | None = None

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any, shared: SharedWork) -> Any:
        """Fit; what does not fit onto a device after all is divided."""
        try:
            return super()._fit(X, y, sample_weight, groups, shared)
        except MemoryError as error:
            if type(error).__name__ != "OutOfDeviceMemory" or self.scale == "exact":
                raise
            warn(f"{error}: the rows are divided into leaves and landmarks instead", UserWarning)
        self._divided = True
        try:
            return super()._fit(X, y, sample_weight, groups, shared)
        finally:
            self._divided = False

    def _scale_plan(
        self,
        class_counts: Array,
        n_features: int,
        codebook: Codebook,
        decoder: Decoder,
    ) -> ScalePlan:
        """Decide between exact machines, leaves and landmarks."""
        return plan_scale(
            self.scale,
            class_counts,
            n_features,
            codebook,
            self._kernels,
            pooled=decoder.learns_probabilities and not decoder.in_sample,
            variances=decoder.needs_variances,
            n_landmarks=self._landmark_number,
            settings=self._scaling,
            n_jobs=count_jobs(self.n_jobs),
            device=self._gpu,
            device_memory=None if self._gpu is None else _free_memory(self._gpu),
            divided=self._divided,
            worker_memory=self._worker_memory,
        )

    def _planned(self, class_counts: Array, n_features: int, codebook: Codebook, decoder: Decoder) -> Decoder:
        """Set the plan; return the decoder that goes with it, which pools leaves and landmarks."""
        self._class_counts = class_counts
        self.plan_ = self._scale_plan(class_counts, n_features, codebook, decoder)
        if self.verbose:
            if self.coding is None and self.coding_ == default_coding(codebook.n_classes) == "one-vs-all":
                # Commands name an option in its place.
                note = many_classes(codebook.n_classes)
                logger.info('%s (coding="one-vs-one")', note, extra={"names_parameters": True})
            logger.info("%s", self.plan_)
        if self.plan_.scale != "both":
            return decoder
        assert isinstance(decoder, ProbabilisticDecoder)
        return Pooled(decoder, 2)

    @property
    def _gpu(self) -> str | None:
        """The name of the GPU to compute on; None: the CPU."""
        name = self._rows_on if self.device is None else self.device
        return None if name == "cpu" else name

    @property
    def _accelerator(self) -> Accelerator | None:
        return place_for(self.plan_.device).accelerator

    @property
    def _scaling(self) -> ScaleSettings:
        return settings_of("scaling", self.scaling, DEFAULT)

    @property
    def _landmark_number(self) -> int | None:
        """The number of landmarks that was asked for; None to choose it."""
        given = self.n_landmarks
        if given is None:
            return None
        if self.scale == "exact":
            raise ValueError(
                'scale="exact" has no landmarks: leave n_landmarks out, or choose scale="landmarks" or "auto"'
            )
        if np.ndim(given) == 2:
            return np.shape(given)[0]
        if not isinstance(given, Integral) or isinstance(given, bool) or given < 1:
            raise ValueError(
                f"n_landmarks must be a positive whole number, an array of rows, or None; not {given!r}"
            )
        return int(given)

    def _resolved_codebook(self, data: TrainingRows, progress: Progress | None = None) -> Codebook:
        """Return the codebook; one that is grown is grown on a sample, if there are many rows."""
        n, largest = data.class_index.size, self._scaling.sample_rows
        if self.scale != "exact" and n > 2 * largest and adaptive_coding(self.coding) is not None:
            data = data.take(data.deal.sample(largest / n, 20))
        return super()._resolved_codebook(data, progress)

    def _fit_many(
        self,
        source: RowSource,
        codebook: Codebook,
        decoder: Decoder,
        plan: Plan,
        progress: Progress | None,
    ) -> tuple[Choice, Array]:
        """Train leaves and landmarks; return what was tried on a sample, and the rows of the decoder's sample."""
        found = fit_many_rows(
            source,
            codebook,
            decoder.decoder if isinstance(decoder, Pooled) else decoder,
            plan,
            self.plan_,
            self._scaling,
            landmarks=check_landmarks(self.n_landmarks, self.n_features_in_),
            progress=progress,
            n_jobs=self.n_jobs,
        )
        self.bank_, self.plan_ = found.bank, found.plan
        # The rows of the decoder's sample are as good as drawn by random numbers, of which they have the least.
        n = int(source.class_counts.sum())
        drawn = np.random.default_rng(found.bank.data.deal.seed).random(found.sample.size)
        self.n_rows_, self._priorities = n, drawn * (found.sample.size / n)
        return found.choice, found.sample

    def _fit_source(self, source: RowSource, classes: Array, progress: Progress | None = None) -> Any:
        """Fit to rows that are not in memory: in files, or on a cluster. They are never fitted exactly.

        Parameters
        ----------
        source : RowSource
            The rows.
        classes : ndarray of shape (K,)
            The class labels, ascending.
        progress : callable or None
            Called with every step; None: steps are shown if the estimator is verbose.
        """
        self.__dict__.pop("decoder_", None)
        sample = source.sample(self._scaling.sample_rows).rows
        self.classes_, self.n_features_in_ = classes, sample.X.shape[1]
        self._weight_unit = getattr(source, "weight_unit", 1.0)
        decoder = resolve_decoder(self.decoding, self._loss)
        with shown(self.verbose if progress is None else 0) as shown_here:
            progress = progress or shown_here
            with blas_threads_for(sample.class_index.size):
                codebook = self._resolved_codebook(sample, progress)
            decoder.check(codebook)
            self._divided, self._worker_memory = True, getattr(source, "worker_memory", None)
            try:
                decoder = self._planned(source.class_counts, self.n_features_in_, codebook, decoder)
            finally:
                del self._divided, self._worker_memory
            if self.plan_.scale == "exact":
                raise ValueError('rows that are not in memory cannot be fitted with scale="exact"')
            plan = self._search_plan(
                replace(sample, kernel=self._kernels[0].fitted(sample.X, sample.weights))
            )
            with accelerated(self._accelerator):
                choice, self.support_ = self._fit_many(source, codebook, decoder, plan, progress)
                self._trained_rows = self.support_
                self._keep_choice(choice)
                self.codebook_ = codebook
                self.decoder_ = self._fit_decoder(decoder, self.bank_.data, SharedWork(keep=False), progress)
        return self


def _free_memory(device: str) -> float:
    """Return the free bytes of a device."""
    from polymargin.device import resolve_device

    return resolve_device(device).free_memory()
