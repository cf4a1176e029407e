"""A fit to more rows than the workers of a Dask cluster have memory for, with all that it takes.

    python benchmarks/cluster.py [--gigabytes 2] [--workers 4] [--memory 600] [--new 100000] [--kill fit|predict]

Rows of the waveform data, sampled at 500 points, are made block by block on the workers, as if they were read from
files: there are 2 GB of them for four workers of 600 MB each. New rows are predicted as a Dask array, and as an array
of the client. Printed are the seconds of all three, the peak memory of every worker and of the client until then, and
the log-loss on new rows. ``--kill`` kills a worker while leaves are trained, or while they predict.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from polymargin import LSSVMClassifier
from polymargin.scale import ScaleSettings

N_COLUMNS, BLOCK_ROWS = 500, 2000
#: Rows to test on come from blocks that no fit has.
TEST_SEED = 10**6


def labels(seed: int) -> np.ndarray:
    return np.random.default_rng([seed, 0]).integers(0, 3, BLOCK_ROWS)


def rows(seed: int) -> np.ndarray:
    """Return a block of mixtures of two of three triangles, with noise."""
    y, random = labels(seed), np.random.default_rng([seed, 1])
    t = np.linspace(0.0, 20.0, N_COLUMNS)
    triangles = np.array([np.maximum(6.0 - abs(t - centre), 0.0) for centre in (6.0, 14.0, 10.0)])
    one, other = triangles[np.array([0, 0, 1])[y]], triangles[np.array([1, 2, 2])[y]]
    u = random.random((BLOCK_ROWS, 1))
    X = u * one + (1.0 - u) * other
    X += 4.0 * random.normal(size=X.shape)
    return X


def collections(n_blocks: int, seed: int) -> tuple[Any, Any]:
    X = [
        da.from_delayed(dask.delayed(rows)(seed + block), (BLOCK_ROWS, N_COLUMNS), float)
        for block in range(n_blocks)
    ]
    y = [da.from_delayed(dask.delayed(labels)(seed + block), (BLOCK_ROWS,), int) for block in range(n_blocks)]
    return da.concatenate(X), da.concatenate(y)


class PeakMemory(threading.Thread):
    """Watches the resident memory of processes, workers that are restarted included."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(daemon=True)
        self.cluster, self.running = cluster, True
        self.peaks: dict[int, float] = {}

    def __str__(self) -> str:
        peaks = dict(self.peaks)
        client = peaks.pop(os.getpid(), 0.0)
        workers = ", ".join(f"{peak:.0f}" for peak in peaks.values())
        return f"peak memory of workers {workers} MB, of the client {client:.0f} MB"

    def run(self) -> None:
        """Watch until told to stop."""
        while self.running:
            pids = [nanny.pid for nanny in self.cluster.workers.values() if nanny.pid]
            for pid in [os.getpid(), *pids]:
                try:
                    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                except OSError:
                    continue
                peak = next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)
                self.peaks[pid] = max(peak, self.peaks.get(pid, 0.0))
            time.sleep(0.1)


def kill_one(cluster: LocalCluster, tasks: str) -> None:
    """Kill a worker once a fifth of the tasks of a name is done."""
    most = 0
    while True:
        states = [
            task.state for key, task in list(cluster.scheduler.tasks.items()) if str(key).startswith(tasks)
        ]
        # What is done and no longer needed is forgotten.
        left = len(states) - states.count("memory") - states.count("released")
        most = max(most, left)
        if left < 0.8 * most:
            os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
            print("one worker killed", flush=True)
            return
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--memory", type=int, default=600, help="megabytes of a worker")
    parser.add_argument("--leaf-rows", type=int, default=400)
    parser.add_argument("--landmarks", type=int, default=500)
    parser.add_argument("--new", type=int, default=100_000, help="rows to predict")
    parser.add_argument("--kill", choices=["fit", "predict"])
    options = parser.parse_args()
    n_blocks = int(np.ceil(options.gigabytes * 1e9 / (8.0 * N_COLUMNS * BLOCK_ROWS)))
    X, y = collections(n_blocks, 0)
    X_new, y_new = collections(-(-options.new // BLOCK_ROWS), TEST_SEED)
    print(
        f"{X.shape[0]} rows, {X.nbytes / 1e9:.2f} GB, {options.workers} workers of {options.memory} MB",
        flush=True,
    )
    model = LSSVMClassifier(
        kernel="rbf",
        scale="both",
        n_landmarks=options.landmarks,
        scaling=ScaleSettings(leaf_rows=options.leaf_rows, sample_rows=2000, decoder_rows=5000),
    )
    # Memory that is freed and not given back counts against the workers, of which 250 MB are imported libraries; and so
    # do the buffers of the shuffle, which are made for larger ones.
    environment = {
        "MALLOC_TRIM_THRESHOLD_": "0",
        "MALLOC_ARENA_MAX": "2",
        "OMP_NUM_THREADS": "1",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }
    small = {
        "distributed.nanny.pre-spawn-environ": environment,
        "distributed.p2p.storage.buffer": "16 MiB",
        "distributed.p2p.comm.buffer": "16 MiB",
    }
    with (
        dask.config.set(small),
        LocalCluster(
            n_workers=options.workers,
            threads_per_worker=1,
            memory_limit=f"{options.memory}MB",
            dashboard_address=None,
            silence_logs=50,
        ) as cluster,
        Client(cluster),
    ):
        watch = PeakMemory(cluster)
        watch.start()
        if options.kill:
            tasks = {"fit": "_fit_partition", "predict": "_margins"}[options.kill]
            threading.Thread(target=kill_one, args=(cluster, tasks), daemon=True).start()
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
        fitted = time.perf_counter()
        print(f"fit {fitted - start:.0f} s, {watch}: {model.plan_}", flush=True)
        leaves = model.bank_.leaves
        print(
            f"{leaves.tree.n_leaves} leaves in {len(leaves.partitions)} partitions, {leaves.n_bytes / 1e9:.2f} GB",
            flush=True,
        )
        start = time.perf_counter()
        log_p, known = dask.compute(model.predict_log_proba(X_new), y_new)
        print(f"{len(known)} rows of a Dask array: {time.perf_counter() - start:.0f} s, {watch}", flush=True)
        print(
            f"log-loss {-log_p[np.arange(known.size), known].mean():.4f}, of the fit {model.loo_log_loss_:.4f}",
            flush=True,
        )
        here = np.concatenate([rows(TEST_SEED + block) for block in range(X_new.numblocks[0])])
        start = time.perf_counter()
        found = model.predict_log_proba(here)
        print(f"{len(here)} rows of the client: {time.perf_counter() - start:.0f} s, {watch}")
        print(f"largest difference {np.abs(np.exp(found) - np.exp(log_p)).max():.1e}")
        watch.running = False
        watch.join()


if __name__ == "__main__":
    main()
