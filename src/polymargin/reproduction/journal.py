"""The journal: every finished job on disk before the next one is counted.

One JSON object per line, appended with a single write and an fsync. A process killed at any moment can leave
at most one torn line, at the end; opening the journal again cuts it off, and that job is computed anew.

    {"kind": "header", "experiment": ..., "protocol_hash": ..., "protocol": {...}}
    {"kind": "session", "date": ..., "cores": ..., "versions": {...}}      once per start of the program
    {"kind": "job", "job": {...}, "seconds": ..., "rows": [{...}, ...]}
    {"kind": "failure", "job": {...}, "error": ..., "traceback": ...}      tried again at the next start
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from polymargin.reproduction.errors import FolderBusy, JournalDamaged, ProtocolChanged, ReproductionError
from polymargin.reproduction.experiment import Row, protocol_hash
from polymargin.reproduction.keys import Key

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no fcntl; two runs in one folder are then not detected
    fcntl = None  # type: ignore[assignment]

__all__ = ["Journal", "JournalContent", "check_protocol", "read_journal"]


@dataclass
class JournalContent:
    """What a journal says.

    Attributes
    ----------
    header : dict or None
        None for an empty journal.
    sessions : list of dict
    jobs : dict of Key to (seconds, rows)
        The finished jobs; of a job that is there twice, the first.
    damaged : int
        Complete lines that could not be read, and were left out (their jobs will be computed again).
    readable_bytes : int
        Up to the end of the last complete line.
    """

    header: dict[str, Any] | None = None
    sessions: list[dict[str, Any]] = field(default_factory=list)
    jobs: dict[Key, tuple[float, list[Row]]] = field(default_factory=dict)
    damaged: int = 0
    readable_bytes: int = 0


def read_journal(raw: bytes) -> JournalContent:
    """Read a journal's bytes, leaving out a torn last line."""
    content = JournalContent(readable_bytes=raw.rfind(b"\n") + 1)
    for number, line in enumerate(raw[: content.readable_bytes].split(b"\n")[:-1]):
        try:
            entry = json.loads(line)
            kind = entry["kind"]
            if kind == "header" and number == 0:
                content.header = entry
            elif kind == "session":
                content.sessions.append(entry)
            elif kind == "job":
                key = Key.from_mapping(entry["job"])
                content.jobs.setdefault(key, (float(entry["seconds"]), list(entry["rows"])))
        except (ValueError, KeyError, TypeError):
            content.damaged += 1
    return content


class Journal:
    """An open journal, locked against other processes while it is open.

    Parameters
    ----------
    path : Path
        Created where it does not exist.
    experiment : str
        The experiment's name.
    protocol : mapping
        The protocol that the results are computed under.
    session : mapping
        What `describe_session` returns; written when the first entry is appended.
    restart : bool
        Begin anew. The old journal is kept beside it, with the date in its name.

    Raises
    ------
    ProtocolChanged
        If the journal was begun under another protocol.
    FolderBusy
        If another process has the journal open.
    """

    def __init__(
        self,
        path: Path,
        experiment: str,
        protocol: Mapping[str, Any],
        session: Mapping[str, Any],
        *,
        restart: bool = False,
    ) -> None:
        self.path = path
        self._session: Mapping[str, Any] | None = session
        self._fd = _open_locked(path)
        try:
            raw = path.read_bytes()
            if restart and raw:
                _set_aside(path)
                os.ftruncate(self._fd, 0)
                raw = b""
            self.content = read_journal(raw)
            os.ftruncate(self._fd, self.content.readable_bytes)
            if self.content.header is None:
                self._begin(experiment, protocol)
            else:
                check_protocol(path, self.content.header, protocol)
        except BaseException:
            self.close()
            raise

    def _begin(self, experiment: str, protocol: Mapping[str, Any]) -> None:
        if self.content.readable_bytes:
            raise JournalDamaged(
                f"{self.path}: the first line does not say what the journal is of; "
                "use --restart, which keeps the old journal beside the new one"
            )
        header = {
            "kind": "header",
            "experiment": experiment,
            "protocol_hash": protocol_hash(protocol),
            "protocol": dict(protocol),
        }
        self._write(header)
        self.content.header = header

    def append_job(self, job: Key, seconds: float, rows: list[Row]) -> None:
        """Record a finished job; when this returns, it is on disk."""
        self._append({"kind": "job", "job": job.asdict(), "seconds": round(seconds, 4), "rows": rows})
        self.content.jobs[job] = (round(seconds, 4), rows)

    def append_failure(self, job: Key, error: str, traceback: str) -> None:
        """Record that a job failed."""
        self._append({"kind": "failure", "job": job.asdict(), "error": error, "traceback": traceback})

    def _append(self, entry: Mapping[str, Any]) -> None:
        if self._session is not None:
            session = {"kind": "session", **self._session}
            self._write(session)
            self.content.sessions.append(session)
            self._session = None
        self._write(entry)

    def _write(self, entry: Mapping[str, Any]) -> None:
        """Append one line durably, or not at all."""
        line = json.dumps(entry, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        start = os.lseek(self._fd, 0, os.SEEK_END)
        try:
            view = memoryview(line)
            while view:
                view = view[os.write(self._fd, view) :]
            os.fsync(self._fd)
        except OSError as error:
            os.ftruncate(self._fd, start)
            raise ReproductionError(f"cannot write {self.path}: {error.strerror or error}") from error

    def close(self) -> None:
        """Release the journal and its lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open_locked(path: Path) -> int:
    """Open a file for appending and take its lock, which the system drops whenever the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o644)
    if fcntl is not None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(fd)
            raise FolderBusy(
                f"another run is writing {path}; wait for it, or use another --results"
            ) from error
        except OSError:  # a file system without locks: go on without
            pass
    return fd


def _set_aside(path: Path) -> Path:
    """Copy a journal to a name with the date in it, durably."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    copy = path.with_name(f"{path.stem}.{stamp}.old{path.suffix}")
    shutil.copyfile(path, copy)
    with copy.open("rb+") as stream:
        os.fsync(stream.fileno())
    return copy


def check_protocol(path: Path, header: Mapping[str, Any], protocol: Mapping[str, Any]) -> None:
    """Raise `ProtocolChanged`, naming what differs, unless the journal is of this protocol."""
    if header.get("protocol_hash") == protocol_hash(protocol):
        return
    old = _flatten(header.get("protocol", {}))
    new = _flatten(json.loads(json.dumps(protocol)))
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    what = ", ".join(changed[:5]) + (", ..." if len(changed) > 5 else "")
    raise ProtocolChanged(
        f"{path} was begun under another protocol (changed: {what or 'unknown'}); results are not mixed: "
        "use --restart (the old journal is kept) or another --results"
    )


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return a nested mapping's leaves by dotted name."""
    if not isinstance(value, Mapping):
        return {prefix: value}
    leaves: dict[str, Any] = {}
    for name, item in value.items():
        leaves |= _flatten(item, f"{prefix}.{name}" if prefix else name)
    return leaves
