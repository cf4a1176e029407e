"""Fits to Dask collections on a real cluster of processes, and lazy predictions."""

import _thread
import contextvars
import gc
import os
import pickle
import signal
import threading
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from polymargin import AutoKernelClassifier, KernelLogisticClassifier, LSSVMClassifier, SVMClassifier
from polymargin.codebooks import one_vs_all
from polymargin.kernels import RBF, Linear
from polymargin.rows import TrainingRows
from polymargin.scale import ScaleSettings
from polymargin.scale.leaves import LeafBank, LeafTraining
from polymargin.scale.sources import Block, FittedLeaf, MemoryRows, Sample

pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

import dask  # noqa: E402
import dask.array as da  # noqa: E402
import dask.dataframe as dd  # noqa: E402
import pandas as pd  # noqa: E402

from polymargin.cluster import blocks  # noqa: E402
from polymargin.cluster.blocks import Blocks, priorities  # noqa: E402
from polymargin.cluster.dask_rows import DaskRows  # noqa: E402
from polymargin.cluster.leaf_files import LeafFile  # noqa: E402
from polymargin.cluster.remote_leaves import Holder, RoutedRows  # noqa: E402

SETTINGS = ScaleSettings(leaf_rows=300, sample_rows=600, decoder_rows=1200)


def waveform(n, seed):
    """Return rows of Breiman's waveform data: noisy mixtures of two of three triangles."""
    random = np.random.default_rng(seed)
    triangles = np.array([np.maximum(6 - abs(np.arange(21) - centre), 0) for centre in (6, 14, 10)])
    y = random.integers(0, 3, n)
    one, other = triangles[np.array([0, 0, 1])[y]], triangles[np.array([1, 2, 2])[y]]
    u = random.random((n, 1))
    return u * one + (1.0 - u) * other + random.normal(size=(n, 21)), y


X, Y = waveform(4000, 0)
NEW = waveform(500, 1)[0]
NAMES = np.array(["left", "middle", "right"])[Y]


def model(**parameters):
    given = {"kernel": "rbf", "scale": "both", "n_landmarks": 80, "scaling": SETTINGS} | parameters
    return LSSVMClassifier(**given)


def on_dask(rows=X, labels=Y, size=700):
    return da.from_array(rows, chunks=(size, 21)), da.from_array(labels, chunks=size)


def cluster_of(n_workers):
    return distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, dashboard_address=None, silence_logs=50
    )


@pytest.fixture(scope="module")
def cluster():
    with cluster_of(2) as two:
        yield two


@pytest.fixture(scope="module")
def cluster_of_four():
    with cluster_of(4) as four:
        yield four


@pytest.fixture(autouse=True)
def client(cluster):
    with distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def expected(cluster):
    """The probabilities of new rows by a fit with two workers and blocks of 700 rows."""
    with distributed.Client(cluster):
        return model().fit(*on_dask()).predict_proba(NEW)


def test_priorities_are_uniform_and_belong_to_rows():
    u = priorities(np.arange(100_000), 3)
    assert (u >= 0.0).all()
    assert (u < 1.0).all()
    np.testing.assert_allclose(np.bincount((10 * u).astype(int)), 10_000, rtol=0.05)
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 0.02
    assert abs(np.corrcoef(u, priorities(np.arange(100_000), 4))[0, 1]) < 0.02
    assert not np.isin(u, priorities(np.arange(100_000), 4)).any()
    np.testing.assert_array_equal(u[500:], priorities(np.arange(500, 100_000), 3))


def test_many_classes_have_one_vs_all_machines(monkeypatch):
    monkeypatch.setattr("polymargin.codebooks.default._MOST_CLASSES", 2)
    fitted = model(scale="landmarks").fit(*on_dask())
    assert (fitted.coding_, fitted.codebook_) == ("one-vs-all", one_vs_all(3))


def test_samples_do_not_depend_on_blocks_are_nested_and_have_every_class():
    rare = np.where(np.arange(Y.size) % 400 == 7, 3, Y)
    sources = [DaskRows.of(*on_dask(labels=rare, size=size), seed=5, drawn_rows=500) for size in (4000, 311)]
    for n_rows in (100, 500, 2000, 10_000):
        one, other = (source.sample(n_rows) for source in sources)
        np.testing.assert_array_equal(one.numbers, other.numbers)
        np.testing.assert_array_equal(one.rows.X, X[one.numbers])
        np.testing.assert_array_equal(one.rows.class_index, rare[one.numbers])
        assert (np.diff(one.numbers) > 0).all()
        assert (np.bincount(one.rows.class_index) >= np.minimum(20, np.bincount(rare))).all()
        assert set(sources[0].sample(n_rows // 2).numbers) <= set(one.numbers)
    assert abs(sources[0].sample(500).numbers.size - 500) < 100
    np.testing.assert_array_equal(sources[0].sample(10**6).numbers, np.arange(4000))


def test_the_result_does_not_depend_on_the_workers(expected, cluster_of_four):
    with distributed.Client(cluster_of_four):
        fitted = model().fit(*on_dask())
        np.testing.assert_allclose(fitted.predict_proba(NEW), expected, atol=1e-8)


def test_the_result_does_not_depend_on_the_blocks(expected):
    for size in (4000, 333):
        fitted = model().fit(*on_dask(size=size))
        np.testing.assert_allclose(fitted.predict_proba(NEW), expected, atol=1e-8)


@dataclass(frozen=True)
class SameSamples(MemoryRows):
    """Rows in memory, with the samples of rows on a cluster."""

    source: object = None

    def sample(self, n_rows):
        numbers = self.source.sample(n_rows).numbers
        rows = TrainingRows(Linear(), X[numbers], Y[numbers], np.ones(numbers.size))
        return Sample(numbers, rows.shuffled(self.source.seed))


def test_a_fit_in_memory_with_the_same_samples_is_the_same(expected):
    rows = TrainingRows(Linear(), X, Y, np.ones(Y.size)).shuffled(0)
    source = SameSamples(rows, 3, source=DaskRows.of(*on_dask(), seed=0))
    fitted = model()._fit_source(source, np.arange(3))
    np.testing.assert_allclose(fitted.predict_proba(NEW), expected, atol=1e-8)


def test_predictions_are_lazy_and_the_same(expected):
    fitted = model().fit(*on_dask(labels=NAMES))
    rows = da.from_array(NEW, chunks=(120, 7))
    lazy = fitted.predict_proba(rows)
    assert isinstance(lazy, da.Array)
    assert lazy.chunks == ((120, 120, 120, 120, 20), (3,))
    assert lazy.dtype == np.float64
    np.testing.assert_allclose(lazy.compute(), expected, atol=1e-8)
    np.testing.assert_allclose(lazy[130:140].compute(), expected[130:140], atol=1e-8)
    for method in ("predict_log_proba", "decision_function", "margins", "predict"):
        found, known = getattr(fitted, method)(rows), getattr(fitted, method)(NEW)
        assert found.shape == known.shape
        assert found.dtype == known.dtype
        if method == "predict":
            np.testing.assert_array_equal(found.compute(), known)
        else:
            np.testing.assert_allclose(found.compute(), known, atol=1e-8)
    with pytest.raises(ValueError, match="features"):
        fitted.predict(rows[:, :5])


def test_leaves_stay_on_the_cluster_until_they_are_gathered(expected, tmp_path, client):
    fitted = model().fit(*on_dask())
    with pytest.raises(TypeError, match="gather_leaves"):
        pickle.dumps(fitted)
    save = pytest.importorskip("polymargin.persistence").save
    with pytest.raises(ValueError, match="gather_leaves"):
        save(fitted, tmp_path / "model")
    assert fitted.bank_.leaves.C.shape == (fitted.bank_.leaves.tree.n_leaves,)
    C = fitted.bank_.leaves.C
    assert fitted.gather_leaves() is fitted
    assert type(fitted.bank_.leaves) is LeafBank
    np.testing.assert_array_equal(fitted.bank_.leaves.C, C)
    lost = model().fit(*on_dask())
    client.close()
    with pytest.raises(RuntimeError, match="client is closed"):
        lost.predict_proba(NEW)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_allclose(again.predict_proba(NEW), expected, atol=1e-8)
    lazy = again.predict_proba(da.from_array(NEW, chunks=(300, 21)))
    np.testing.assert_allclose(lazy.compute(scheduler="threads"), expected, atol=1e-8)


def test_leaves_in_a_file_are_the_same_and_the_file_goes_with_them():
    kernel, exact = RBF(), X[:80].astype(np.float32).astype(float)
    training = LeafTraining(kernel, one_vs_all(3), 2.0, 0.05, 1.0, {}, 1000)
    block = Block(TrainingRows(kernel, exact, Y[:80], np.ones(80)), np.arange(-40, 40))
    fitted = FittedLeaf.of(training, block, np.linspace(0.1, 1.0, 80))
    lonely = FittedLeaf.of(
        training, Block(block.rows.take(np.flatnonzero(Y[:80] == 1)), np.full(80, -1)), np.ones(80)
    )
    file = LeafFile.of(kernel, [(3, fitted), (5, lonely)], np.float32)
    assert exact.nbytes < file.n_bytes(3) < exact.nbytes + 10_000
    buffers = []
    copies = [
        file,
        pickle.loads(pickle.dumps(file, protocol=4)),
        pickle.loads(pickle.dumps(file, protocol=5, buffer_callback=buffers.append), buffers=buffers),
        pickle.loads(pickle.dumps(file, protocol=5)),
    ]
    assert len(buffers) == 1
    for each in copies:
        assert list(each) == [3, 5]
        found = each.load(3)
        np.testing.assert_array_equal(found.leaf.margins(NEW), fitted.leaf.margins(NEW))
        np.testing.assert_array_equal(found.exact, fitted.exact)
        np.testing.assert_array_equal(found.sampled, np.arange(40))
        np.testing.assert_array_equal(each.load(5).leaf.margins(NEW), lonely.leaf.margins(NEW))
    paths = [each._path for each in copies]
    assert len(set(paths)) == 4
    del file, copies, each, found
    gc.collect()
    assert not any(path.exists() for path in paths)
    assert list(pickle.loads(pickle.dumps(LeafFile.of(kernel, [])))) == []


def leaf_files(client):
    """Return the bytes of the files of leaves of all workers."""
    folders = client.run(lambda dask_worker: dask_worker.local_directory)
    return sum(path.stat().st_size for folder in folders.values() for path in Path(folder).glob("leaves-*"))


def test_leaves_are_on_the_disks_of_workers(client):
    rows, labels = on_dask()
    fitted = model(scale="leaves", C=1.0, gamma=0.05).fit(rows.astype(np.float32), labels)
    leaves = fitted.bank_.leaves
    assert leaves.n_bytes > X.nbytes
    held = client.run(lambda dask_worker: sum(dask_worker.data.fast.weights.values()))
    assert sum(held.values()) < 0.2 * leaves.n_bytes
    size = leaf_files(client)
    same = model(scale="leaves", C=1.0, gamma=0.05).fit(rows.astype(np.float32).astype(float), labels)
    assert leaf_files(client) - size > size + X.nbytes / 2
    np.testing.assert_allclose(same.predict_proba(NEW), fitted.predict_proba(NEW), atol=1e-8)
    del fitted, same, leaves
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline and leaf_files(client):
        time.sleep(0.05)
    assert leaf_files(client) == 0


def received_leaves(client):
    """Return how many partitions of leaves the workers have received from each other."""

    def count(dask_worker):
        keys = [key for transfer in dask_worker.transfer_incoming_log for key in transfer["keys"]]
        return sum(str(key).startswith("_fit_partition") for key in keys)

    return sum(client.run(count).values())


def test_rows_go_to_the_leaves(client):
    fitted = model(scale="leaves", C=1.0, gamma=0.05).fit(*on_dask())
    before = received_leaves(client)
    fitted.predict_proba(NEW)
    fitted.predict_proba(da.from_array(NEW, chunks=(40, 21))).compute()
    assert received_leaves(client) == before


def test_few_partitions_of_a_worker_compute_at_a_time():
    fitted = model(scale="leaves", C=1.0, gamma=0.05).fit(*on_dask())
    _, held = fitted.bank_.leaves.held()
    # As if one worker, which has one thread, held all of them: how many there are on each depends on their speed.
    holder = Holder.of([partition for each in held for partition in each.partitions])
    ends = holder.margins([dask.delayed("rows")])
    assert len(ends) == 2
    graph = {key: task for end in ends for key, task in dict(end.dask).items()}
    names = [key for key in graph if str(key).startswith("_margins")]
    needed = {key: set(map(str, dask.core.get_dependencies(graph, key))) for key in names}
    assert sum(not any(each.startswith("_margins") for each in needed[key]) for key in names) == 2
    assert len(names) == len(fitted.bank_.leaves.partitions) > 2


def test_routed_rows_of_blocks_are_joined_and_their_size_is_known():
    fitted = model(scale="leaves", C=1.0, gamma=0.05).fit(*on_dask())
    router, _ = fitted.bank_.leaves.held()
    blocks = [router(NEW[:120]), router(NEW[120:120]), router(NEW[120:])]
    for number, known in enumerate(router(NEW)):
        joined = RoutedRows.joined([each[number] for each in blocks])
        assert joined.sizes == [120, 0, 380]
        np.testing.assert_array_equal(joined.X, known.X)
        np.testing.assert_array_equal(joined.rows, known.rows)
        assert joined.of_leaf.keys() == known.of_leaf.keys()
        for leaf, (rows, weights) in known.of_leaf.items():
            np.testing.assert_array_equal(joined.of_leaf[leaf][0], rows)
            np.testing.assert_allclose(joined.of_leaf[leaf][1], weights, atol=1e-12)
        # Dask must know the bytes of what it sends, and of what it may write to disk.
        assert known.X.nbytes < dask.sizeof.sizeof(known) < known.X.nbytes + 20_000


def test_leaves_that_do_not_fit_into_memory_are_not_gathered(monkeypatch):
    fitted = model(scale="leaves", C=1.0, gamma=0.05).fit(*on_dask())
    known = fitted.predict_proba(NEW)
    monkeypatch.setattr("polymargin._memory.available", lambda: 1000.0)
    monkeypatch.setattr("polymargin._memory.NEGLIGIBLE", 0)
    with pytest.raises(MemoryError, match="leaves of this model in memory"):
        fitted.gather_leaves()
    monkeypatch.undo()
    np.testing.assert_array_equal(fitted.predict_proba(NEW), known)


def test_without_a_client_threads_compute(expected, client):
    client.close()

    def predictions():
        with dask.config.set(scheduler=None):
            fitted = model().fit(*on_dask())
            lazy = fitted.predict_proba(da.from_array(NEW, chunks=(300, 21)))
            return fitted.predict_proba(NEW), lazy.compute()

    # A context of its own, as that of the fixture, and its configuration, still have the client.
    for found in contextvars.Context().run(predictions):
        np.testing.assert_allclose(found, expected, atol=1e-8)


def test_large_blocks_are_told_of(monkeypatch):
    monkeypatch.setattr("polymargin.cluster.blocks.worker_memory", lambda: 32 * 8.0 * 21 * 500)
    assert Blocks.of(*on_dask(size=700)).n_rows == 4000
    with pytest.warns(UserWarning, match="blocks of 1700 rows.* some 500 rows"):
        Blocks.of(*on_dask(size=1700))


def test_dataframes(expected):
    columns = [f"t{number}" for number in range(21)]
    frame = pd.DataFrame(X, columns=columns).assign(label=NAMES)
    table = dd.from_pandas(frame, npartitions=5)
    fitted = model().fit(table[columns], table["label"])
    assert fitted.feature_names_in_.tolist() == columns
    assert fitted.classes_.tolist() == ["left", "middle", "right"]
    new = dd.from_pandas(pd.DataFrame(NEW, columns=columns), npartitions=3)
    np.testing.assert_allclose(fitted.predict_proba(new).compute(), expected, atol=1e-8)
    np.testing.assert_array_equal(fitted.predict(new[new["t0"] > 99.0]).compute(), fitted.classes_[:0])
    # Empty partitions, and classes that only the last rows have.
    none = table[table["t0"] > 99.0]
    several = dd.concat([none, table, none])
    source = DaskRows.of(several[columns], several["label"])
    np.testing.assert_array_equal(source.class_counts, np.unique(NAMES, return_counts=True)[1])
    late = da.from_array(np.where(np.arange(4000) < 3900, NAMES, "last"), chunks=700)
    np.testing.assert_array_equal(DaskRows.of(on_dask()[0], late).classes, ["last", *fitted.classes_])
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict_proba(new.rename(columns={"t0": "other"}))


def test_columns_that_are_not_numbers_are_named():
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [True, False, True], "c": ["x", "y", "x"]})
    table = dd.from_pandas(
        frame.assign(d=pd.Timestamp("2020-01-01"), e=frame["c"].astype("category")), npartitions=2
    )
    with pytest.raises(ValueError, match=r"numbers: 'c' \(.*\), 'd' \(datetime.*\), 'e' \(category\)"):
        model().fit(table, table["c"])
    assert Blocks.of(table[["a", "b"]], table["c"]).n_rows == 3


def test_unknown_chunks_and_weights(expected):
    more = np.concatenate([X, X + 1.0])
    kept = da.from_array(np.arange(8000) < 4000, chunks=900)
    rows = da.from_array(more, chunks=(900, 10))[kept]
    labels = da.from_array(np.tile(Y, 2), chunks=900)[kept]
    assert np.isnan(rows.shape[0])
    fitted = model().fit(rows, labels)
    assert np.isnan(rows.shape[0])  # what was given is as it was
    np.testing.assert_allclose(fitted.predict_proba(NEW), expected, atol=1e-8)
    # A row of weight zero is not there, and the unit of weights does not matter.
    weights = da.from_array(np.where(np.arange(8000) < 4000, 3.0, 0.0), chunks=8000)
    every = da.from_array(more, chunks=(900, 10)), da.from_array(np.tile(Y, 2), chunks=777)
    fitted = model().fit(*every, sample_weight=weights)
    np.testing.assert_allclose(fitted.predict_proba(NEW), expected, atol=1e-8)


def test_few_rows_are_fitted_exactly():
    few = X[:600], Y[:600]
    known = LSSVMClassifier(class_weight="balanced").fit(*few)
    fitted = LSSVMClassifier(class_weight="balanced").fit(*on_dask(*few, size=250))
    assert fitted.plan_.scale == "exact"
    np.testing.assert_allclose(fitted.predict_proba(NEW), known.predict_proba(NEW), atol=1e-8)
    np.testing.assert_allclose(
        known.predict_proba(da.from_array(NEW, chunks=(200, 21))).compute(), known.predict_proba(NEW)
    )


def when_some_are_done(cluster, tasks, action, known=()):
    """Call a function, in a thread, as soon as some tasks of a name are done and others not; return what was seen."""
    seen = []

    def watch():
        deadline = time.monotonic() + 120.0
        while time.monotonic() < deadline and not seen:
            states = {
                key: task.state
                for key, task in list(cluster.scheduler.tasks.items())
                if str(key).startswith(tasks) and key not in known
            }
            done = [key for key, state in states.items() if state == "memory"]
            if done and len(done) < len(states):
                seen.append((len(done), len(states)))
                action(done)
            time.sleep(0.001)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread, seen


def test_a_worker_that_is_killed_costs_its_leaves_only(expected, cluster_of_four):
    with distributed.Client(cluster_of_four) as client:
        pids = client.run(os.getpid)

        def kill(done):
            holder = next(iter(cluster_of_four.scheduler.tasks[done[0]].who_has))
            os.kill(pids[holder.address], signal.SIGKILL)

        thread, seen = when_some_are_done(cluster_of_four, "_fit_partition", kill)
        fitted = model().fit(*on_dask())
        thread.join()
        assert seen
        np.testing.assert_allclose(fitted.predict_proba(NEW), expected, atol=1e-8)
        # Nor are leaves lost that are killed while they predict.
        pids = client.run(os.getpid)
        lazy = fitted.predict_proba(da.from_array(NEW, chunks=(25, 21)))
        thread, seen = when_some_are_done(cluster_of_four, "_margins", kill)
        found = lazy.compute()
        thread.join()
        assert seen
        np.testing.assert_allclose(found, expected, atol=1e-8)


def test_an_interrupted_fit_leaves_no_estimator_and_no_work(cluster):
    estimator = model().fit(*on_dask())
    assert estimator.predict(NEW[:1]).size == 1
    known = set(cluster.scheduler.tasks)
    # A shell that starts the tests in the background lets them ignore interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread, seen = when_some_are_done(
            cluster, "_fit_partition", lambda done: _thread.interrupt_main(), known
        )
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(*on_dask())
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen
    with pytest.raises(NotFittedError):
        estimator.predict(NEW)
    del estimator
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline and cluster.scheduler.tasks:
        gc.collect()  # the frames of the interrupt may be in a cycle
        time.sleep(0.05)
    assert not cluster.scheduler.tasks


def generated(n, d):
    """Return rows and labels that the workers make."""
    rows = da.random.default_rng(0).normal(size=(n, d), chunks=(2000, d)).persist()
    return rows, (rows[:, 0] + rows[:, 1] > 0.0).astype(int)


def test_what_comes_to_the_client_comes_in_turn(monkeypatch):
    asked = []

    def noted(*tasks):
        asked.append(len(tasks))
        return dask.compute(*tasks, scheduler="synchronous")

    monkeypatch.setattr(blocks, "computed", noted)
    monkeypatch.setattr(blocks, "_TASKS_OF_THREAD", 2)
    monkeypatch.setattr(blocks, "count_workers", lambda: 2)
    monkeypatch.setattr(blocks, "worker_threads", lambda: 1)
    tasks = [dask.delayed(number) for number in range(10)]
    assert list(blocks.computed_in_turn(tasks, 1e12)) == list(range(10))
    assert list(blocks.computed_in_turn(tasks, 1.0)) == list(range(10))
    assert asked == [4, 4, 2, 10]


def test_nothing_large_comes_to_the_client():
    rows, labels = generated(16_000, 200)
    settings = ScaleSettings(leaf_rows=1500, sample_rows=300, decoder_rows=300)
    estimator = LSSVMClassifier(kernel="linear", C=0.1, gamma=1.0, scale="leaves", scaling=settings)
    tracemalloc.start()
    try:
        fitted = estimator.fit(rows, labels)
        fitted.predict_proba(rows).sum().compute()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * rows.nbytes


def test_pools():
    scaled = {"scale": "both", "n_landmarks": 80, "scaling": SETTINGS}
    pool = AutoKernelClassifier(["rbf", "linear"], metric=None, **scaled).fit(*on_dask())
    known = pool.predict_proba(NEW)
    lazy = pool.predict_proba(da.from_array(NEW, chunks=(250, 21)))
    np.testing.assert_allclose(lazy.compute(), known, atol=1e-8)
    labels = pool.predict(da.from_array(NEW, chunks=(250, 21))).compute()
    np.testing.assert_array_equal(labels, known.argmax(axis=1))
    again = pickle.loads(pickle.dumps(pool.gather_leaves()))
    np.testing.assert_allclose(again.predict_proba(NEW), known, atol=1e-8)


def test_joblib_on_the_cluster():
    few = X[:300], Y[:300]
    known = AutoKernelClassifier(["rbf", "linear"], metric=None).fit(*few).predict_proba(NEW)
    with joblib.parallel_config(backend="dask"):
        pool = AutoKernelClassifier(["rbf", "linear"], metric=None, n_jobs=2).fit(*few)
    np.testing.assert_allclose(pool.predict_proba(NEW), known, atol=1e-10)


def test_what_is_refused_says_what_to_do():
    rows, labels = on_dask()
    for fit, error, told in (
        (lambda: model().fit(rows, Y), TypeError, "from_array"),
        (lambda: model().fit(rows, labels, groups=labels), ValueError, "groups"),
        (lambda: model().fit(rows, da.from_array(np.eye(3)[Y])), ValueError, "soft labels"),
        (lambda: model().fit(rows, labels[:-1]), ValueError, "3999"),
        (lambda: model().fit(rows, labels + 0.5), ValueError, "continuous"),
        (lambda: model(classes=["a", "b", "c"]).fit(rows, labels), ValueError, "leave classes out"),
        (lambda: model().fit(rows, labels * 0), ValueError, "only one class"),
        (lambda: model().fit(rows * np.nan, labels), ValueError, "NaN"),
        (lambda: model(kernel="precomputed").fit(rows, labels), ValueError, "precomputed"),
        (lambda: model().fit(rows, labels, sample_weight=-labels), ValueError, "sample_weight"),
        (lambda: SVMClassifier().fit(rows, labels), TypeError, "LSSVMClassifier"),
        (lambda: KernelLogisticClassifier().fit(rows, labels), TypeError, "LSSVMClassifier"),
    ):
        with pytest.raises(error, match=told):
            fit()
