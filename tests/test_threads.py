"""The limit on BLAS threads, in a process of its own: the tests themselves run with one thread."""

import subprocess
import sys

CODE = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "2"
import threading
import numpy as np
from threadpoolctl import threadpool_info
from polymargin._threads import blas_threads_for

def threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

before = threads()
if set(before) != {2}:
    print("one thread here", before)
    raise SystemExit
with blas_threads_for(10_000):
    assert threads() == before
with blas_threads_for(10):
    assert set(threads()) == {1}
    with blas_threads_for(0):
        assert set(threads()) == {1}
    assert set(threads()) == {1}
assert threads() == before

# Two threads whose limits overlap: the first to come is the first to go.
first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

def first():
    with blas_threads_for(10):
        first_in.set()
        second_in.wait(10)
    first_out.set()

def second():
    first_in.wait(10)
    with blas_threads_for(10):
        second_in.set()
        first_out.wait(10)
        assert set(threads()) == {1}

pair = [threading.Thread(target=first), threading.Thread(target=second)]
[thread.start() for thread in pair]
[thread.join() for thread in pair]
assert threads() == before, threads()
print("fine")
"""


def test_the_limit_holds_while_anybody_wants_it_and_is_lifted_after():
    result = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "fine" in result.stdout or "one thread here" in result.stdout
