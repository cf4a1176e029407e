"""Run scikit-learn's own tests of ``SVC`` with `SVMClassifier` in its place.

    python tools/svc_tests.py [arguments of pytest]

The modules are those that scikit-learn installs, ``sklearn.svm.tests``. Tests that make no ``SVC`` do not count. Fails
if a test fails that ``svc_differences.toml`` does not list with its reason, or passes although it is listed.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import sklearn
import sklearn.svm

from polymargin import SVMClassifier

MODULES = ("sklearn.svm.tests.test_svm", "sklearn.svm.tests.test_sparse")
LIST = Path(__file__).with_name("svc_differences.toml")


class Watch:
    """A pytest plugin: which tests make an ``SVC``, and how these end."""

    def __init__(self) -> None:
        self.running = ""
        self.touched: set[str] = set()
        self.failed: set[str] = set()

    def substitute(self) -> type[SVMClassifier]:
        """Return a subclass of `SVMClassifier` that is called SVC, as errors name it, and reports who makes one."""
        watch = self

        class SVC(SVMClassifier):
            def __new__(cls, *args: Any, **kwargs: Any) -> Any:
                watch.touched.add(watch.running)
                return super().__new__(cls)

        return SVC

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        """Note which test is running."""
        self.running = item.nodeid.rpartition("/")[2]
        try:
            return (yield)
        finally:
            self.running = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note which tests fail."""
        if report.failed:
            self.failed.add(report.nodeid.rpartition("/")[2])


def differences() -> dict[str, str]:
    """Return the reason of every test that is listed as failing."""
    groups = tomllib.loads(LIST.read_text(encoding="utf-8"))["difference"]
    return {test: group["reason"] for group in groups for test in group["tests"]}


def main(arguments: list[str]) -> int:
    """Run the tests and compare what fails with what is listed; return the exit status."""
    watch = Watch()
    sklearn.svm.SVC = watch.substitute()
    root = Path(sklearn.__file__).parents[1]
    options = ["-q", "-c", "/dev/null", f"--rootdir={root}", "-p", "no:cacheprovider", "--disable-warnings"]
    ended = pytest.main([*options, "--pyargs", *MODULES, *arguments], plugins=[watch])
    if ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return int(ended)
    failed, listed = watch.failed & watch.touched, set(differences())
    print(f"{len(watch.touched) - len(failed)} of the {len(watch.touched)} tests that make an SVC pass "
          f"(scikit-learn {sklearn.__version__})")  # fmt: skip
    wrong = {
        "fails, but is not listed": failed - listed,
        "passes, but is listed": (watch.touched - failed) & listed,
        "is listed, but makes no SVC": set() if arguments else listed - watch.touched,
    }
    for what, tests in wrong.items():
        for test in sorted(tests):
            print(f"{test} {what}")
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
