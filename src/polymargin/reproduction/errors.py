"""What can go wrong in a reproduction, said in one line each."""

from __future__ import annotations

__all__ = [
    "DataMissing",
    "FolderBusy",
    "JournalDamaged",
    "ProtocolChanged",
    "ReproductionError",
    "RunInterrupted",
    "WorkerDied",
]


class ReproductionError(Exception):
    """An expected error whose message is one clear line for the user."""


class ProtocolChanged(ReproductionError):
    """The results folder was begun under another protocol."""


class FolderBusy(ReproductionError):
    """Another process is writing to the same results."""


class JournalDamaged(ReproductionError):
    """The journal cannot be read, so nothing may be appended to it."""


class DataMissing(ReproductionError):
    """A dataset is not here, and the other jobs of the same dataset would fail like this one.

    Parameters
    ----------
    job : str
        The job.
    advice : str
        What is missing and what to set.
    """

    def __init__(self, job: str, advice: str) -> None:
        super().__init__(
            f"{job} needs data that are not here, so the run stops. {advice} What is finished is saved; the same "
            "command resumes. --dataset NAME runs the jobs of the datasets that are here"
        )


class WorkerDied(ReproductionError):
    """A worker process was killed or crashed; everything finished is on disk.

    Parameters
    ----------
    done : int
        Jobs finished so far, in this and earlier sessions.
    total : int
        Jobs requested.
    """

    def __init__(self, done: int, total: int) -> None:
        super().__init__(
            "a worker process died: it crashed, or was killed, as systems do when memory runs out; "
            f"{done} of {total} jobs are done and saved; run the same again to resume, with fewer jobs at once"
        )
        self.done = done
        self.total = total


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C stopped the run; everything finished is on disk.

    Parameters
    ----------
    done : int
        Jobs finished so far, in this and earlier sessions.
    total : int
        Jobs requested.
    """

    def __init__(self, done: int, total: int) -> None:
        super().__init__(f"interrupted: {done} of {total} jobs are done and saved; the same command resumes")
        self.done = done
        self.total = total
