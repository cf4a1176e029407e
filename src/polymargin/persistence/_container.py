"""The container: a zip archive with a manifest, and digests of everything.

The members are those of a skops file (``schema.json`` and the arrays) and ``manifest.json``, which lists them with
sizes and digests. The archive's comment, which zip puts last, ends in the digest of all bytes before it, so that no
byte of the file, not even one that zip ignores, can change without notice.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping
from typing import Any

from polymargin import _memory
from polymargin.persistence._errors import PARSER_ERRORS, ModelFileError

MANIFEST = "manifest.json"
SCHEMA = "schema.json"

_SEAL = b"polymargin model, sha256 "
_DIGEST_LENGTH = 64
_NAMES = re.compile(r"manifest\.json|schema\.json|[0-9]+\.(npy|npz|bin)")
#: A file may unpack to this many times its size, plus a little: more is no model but a bomb.
_LARGEST_RATIO, _LARGEST_ANYWAY = 100, 16 * 2**20
#: JSON takes some twenty times its size in memory, so there is a limit to that too.
_LARGEST_JSON = 32 * 2**20


def pack(facts: Mapping[str, Any], members: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a model file.

    Parameters
    ----------
    facts : mapping
        What the manifest says besides the list of members; plain JSON.
    members : mapping of str to bytes
        The members of the archive.

    Examples
    --------
    >>> data = pack({"format": 1}, {"schema.json": b"{}"})
    >>> archive = open_archive(data)
    >>> manifest = read_manifest(archive)
    >>> manifest["format"], read_members(archive, manifest, len(data))
    (1, {'schema.json': b'{}'})
    """
    listed = {name: {"bytes": len(content), "sha256": _digest(content)} for name, content in members.items()}
    manifest = json.dumps({**facts, "members": listed}, ensure_ascii=False).encode()
    every = {MANIFEST: manifest, **members}
    for name in (MANIFEST, SCHEMA):
        _check_json(name, len(every.get(name, b"")))
    data = _zipped(every, zipfile.ZIP_DEFLATED)
    if sum(map(len, every.values())) > largest_unpacked(len(data)):
        data = _zipped(every, zipfile.ZIP_STORED)
    return data + _digest(data).encode()


def open_archive(data: bytes) -> zipfile.ZipFile:
    """Return the archive of a file that is whole and unaltered."""
    body, digest = data[:-_DIGEST_LENGTH], data[-_DIGEST_LENGTH:]
    if not body.endswith(_SEAL):
        raise ModelFileError("it is no polymargin model file, or its end is missing")
    if digest != _digest(body).encode():
        raise ModelFileError(
            "it is damaged: the digest of its bytes is not the one it was written with; get another copy, or save "
            "the model again"
        )
    try:
        return zipfile.ZipFile(io.BytesIO(data))
    except PARSER_ERRORS as error:
        raise ModelFileError(f"it is no zip archive: {error}") from error


def read_manifest(archive: zipfile.ZipFile) -> dict[str, Any]:
    """Return the manifest, whatever the format of the rest."""
    try:
        _check_json(MANIFEST, archive.getinfo(MANIFEST).file_size)
        manifest = json.loads(archive.read(MANIFEST))
    except PARSER_ERRORS as error:
        raise ModelFileError(f"its manifest cannot be read: {error}") from error
    if not isinstance(manifest, dict):
        raise ModelFileError("its manifest is no dictionary")
    return manifest


def read_members(archive: zipfile.ZipFile, manifest: Mapping[str, Any], file_size: int) -> dict[str, bytes]:
    """Return the members by name, each of the size and with the digest that the manifest lists."""
    infos = archive.infolist()
    check_sizes(infos, file_size)
    listed = manifest.get("members")
    names = [info.filename for info in infos]
    if not isinstance(listed, dict) or sorted(names) != sorted([MANIFEST, *listed]):
        raise ModelFileError("its members are not those that its manifest lists")
    members = {}
    for info in infos:
        name = info.filename
        if not _NAMES.fullmatch(name):
            raise ModelFileError(f"it has a member of a strange name, {name!r}")
        if name == MANIFEST:
            continue
        if name == SCHEMA:
            _check_json(name, info.file_size)
        expected = listed[name]
        if not isinstance(expected, dict) or expected.get("bytes") != info.file_size:
            raise ModelFileError(f"its member {name} is not of the size that the manifest lists")
        content = _unpacked(archive, info)
        if _digest(content) != expected.get("sha256"):
            raise ModelFileError(f"its member {name} is damaged: it does not have the digest that is listed")
        members[name] = content
    return members


def check_sizes(infos: list[zipfile.ZipInfo], packed_size: int) -> None:
    """Refuse an archive that unpacks to absurdly many bytes, before it does; and one with two members of a name."""
    if len({info.filename for info in infos}) < len(infos):
        raise ModelFileError("it holds two members of the same name")
    total = sum(info.file_size for info in infos)
    if total > largest_unpacked(packed_size):
        raise ModelFileError(f"it would unpack {packed_size} bytes to {total}, which no model does")
    _memory.require(3.0 * total, "the model", "load it on a machine with more memory")


def _check_json(name: str, size: int) -> None:
    """Refuse a tree of objects that would fill the memory."""
    if size > _LARGEST_JSON:
        raise ModelFileError(
            f"{name} has {size} bytes, more than the {_LARGEST_JSON} that are read: a model file is for numbers, and "
            "can hold some hundred thousand texts (labels, categories, names of features) at most"
        )


def largest_unpacked(packed_size: int) -> int:
    """Return the most bytes that an archive of this size may unpack to."""
    return _LARGEST_ANYWAY + _LARGEST_RATIO * packed_size


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return one member, no more bytes than it declares."""
    try:
        with archive.open(info) as stream:
            content = stream.read(info.file_size + 1)
    except PARSER_ERRORS as error:
        raise ModelFileError(f"its member {info.filename} cannot be unpacked: {error}") from error
    if len(content) != info.file_size:
        raise ModelFileError(f"its member {info.filename} is not of the size that it declares")
    return content


def _zipped(members: Mapping[str, bytes], compression: int) -> bytes:
    """Return a zip archive without its last bytes, the digest at the end of its comment."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            # A ZipInfo made by hand has no date: the same model gives the same file.
            info = zipfile.ZipInfo(name)
            info.compress_type = compression
            archive.writestr(info, content)
        archive.comment = _SEAL + b"0" * _DIGEST_LENGTH
    return buffer.getvalue()[:-_DIGEST_LENGTH]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
