"""The records of a CSV file, in blocks that end where a record ends and in which every quote is closed."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from polymargin.tables._dialect import Dialect, find_delimiter, looks_like_data

_LONGEST_HEADER = 16 * 2**20
#: So much of a file is looked at for how it is written, and so much for its encoding.
_SAMPLE_LINES, _SAMPLE_CHARACTERS, _LOOKED_AT = 100, 2**20, 2**24
_BLOCK = 2**20
_NAMED_SEPARATOR = re.compile(r"sep=(.)\r?\n?", re.IGNORECASE)
_NOT_IN_CP1252 = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
_BLANKS = re.compile(rb" *")
#: From an opening quote to its closing quote, or to the end; two quotes are one that belongs to the text.
_QUOTED = re.compile(rb'"[^"]*+(?:""[^"]*+)*+')
_ADVICE = 'close it, or write it twice ("") if it belongs to the text'


@dataclass(frozen=True)
class Header:
    """The first record of a CSV file.

    Attributes
    ----------
    separator : str
        What separates the fields of all records.
    names : tuple of str
        The fields of the header.
    n_bytes, n_lines : int
        How much there is before the first row, in UTF-8.
    encoding : str
        How characters are written.
    has_names : bool
        Whether the file names its columns, or they are only numbered.
    """

    separator: str
    names: tuple[str, ...]
    n_bytes: int
    n_lines: int
    encoding: str
    has_names: bool = True


def read_header(path: Path, dialect: Dialect, *, compressed: bool) -> Header:
    """Return what stands before the first row of a CSV file, and how the file is written.

    Raises
    ------
    ValueError
        If it cannot be read, or the first row seems to be no header; the message names the file, and what to do.
    """
    encoding = dialect.encoding or _encoding_of(path, compressed)
    with _opened(path, compressed, encoding) as (stream, _):
        beginning = stream.peek(3)[:3]
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        try:
            lines = _HeaderLines(text, path)
            first = next(lines, "")
            separator, skipped = dialect.delimiter, 0
            if found := _NAMED_SEPARATOR.fullmatch(first):  # as Excel has it
                separator, skipped = separator or found[1], 1
                first = next(lines, "")
            sample = [first, *_sample_lines(text)] if separator is None else []
            text.seek(0)
            separator = separator or find_delimiter(sample)
            lines = _HeaderLines(text, path, skipped)
            names = next(csv.reader(lines, delimiter=separator, strict=True), [])
            header_lines = lines.read
            rows = list(_complete_rows(csv.reader(_sample_lines(text), delimiter=separator)))
        except csv.Error as error:
            raise ValueError(
                f"{path.name}, line {skipped + 1}: the header cannot be read: {error}; {_ADVICE}"
            ) from None
        except (UnicodeDecodeError, UnicodeError) as error:
            raise ValueError(f"{path.name} is not a CSV file in {encoding.upper()}: {error}") from None
        finally:
            text.detach()
    names = [name.strip() for name in names]
    if not any(names):
        raise ValueError(f"{path.name} needs a header row and data")
    has_header = dialect.header
    if has_header is None and (reason := looks_like_data(names, rows)):
        raise ValueError(
            f"{path.name} seems to have no header row, as its first row has {reason}. If so, pass --no-header, which "
            "calls the columns x1, x2, ...; if these are names, pass --header"
        )
    if has_header is False:
        names, header_lines = [f"x{place}" for place in range(1, len(names) + 1)], header_lines[:skipped]
    mark = 3 if beginning == codecs.BOM_UTF8 else 0
    n_bytes = mark + sum(len(line.encode()) for line in header_lines)
    return Header(separator, tuple(names), n_bytes, len(header_lines), encoding, has_header is not False)


class _HeaderLines:
    """The lines of a header, which are kept; too many are an error."""

    def __init__(self, text: io.TextIOWrapper, path: Path, skip: int = 0) -> None:
        self._text, self._path, self._left = text, path, _LONGEST_HEADER
        self.read: list[str] = []
        for _ in range(skip):
            next(self)

    def __iter__(self) -> _HeaderLines:
        return self

    def __next__(self) -> str:
        line = self._text.readline(self._left)
        self._left -= len(line)
        if self._left == 0:
            raise ValueError(
                f"{self._path.name} has a header of more than {_size(_LONGEST_HEADER)}; is it a CSV file, and is a "
                "quote left open?"
            )
        if not line:
            raise StopIteration
        self.read.append(line)
        return line


def _sample_lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Yield the next lines, as far as they are whole and not too many."""
    left = _SAMPLE_CHARACTERS
    for _ in range(_SAMPLE_LINES):
        line = text.readline(left)
        left -= len(line)
        if not line or left == 0:
            return
        yield line


def _complete_rows(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield rows until one cannot be read: what is wrong with it is said when its turn comes."""
    try:
        yield from rows
    except (csv.Error, UnicodeError):
        return


def read_records(
    path: Path, header: Header, block_bytes: int, *, compressed: bool
) -> Iterator[tuple[bytes, float]]:
    """Yield the records after the header, some at a time, and the share of the file that has been read.

    Parameters
    ----------
    path : Path
        The file.
    header : Header
        What `read_header` returned.
    block_bytes : int
        How much is read at a time. No record may be longer.
    compressed : bool
        Whether the file is compressed by gzip.

    Raises
    ------
    ValueError
        If a quote is left open, text follows a closing quote, a record is longer than `block_bytes`, or the compressed
        file is damaged; the message names the file, and the line.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = file.write_text('a,b\\n1,"x\\n\\ny"\\n2,z\\n')
    >>> header = read_header(file, Dialect(), compressed=False)
    >>> header.names, [block for block, _ in read_records(file, header, 12, compressed=False)]
    (('a', 'b'), [b'1,"x\\n\\ny"\\n', b'2,z\\n'])
    """
    size = max(1, path.stat().st_size)
    scan = _QuoteScan(header.separator)
    lines = header.n_lines
    rest = b""
    with _opened(path, compressed, header.encoding) as (stream, file):
        stream.read(header.n_bytes)
        following = stream.read(block_bytes)
        while block := following:
            following = stream.read(block_bytes)
            is_last = not following
            # What is left of the block before begins where a record does, and so after the end of a line.
            data = b"\n" + rest + block
            try:
                end = scan.end_of_records(data, is_last=is_last)
            except _BadQuote as bad:
                _refuse(path, lines + _lines(data[1 : bad.place]), bad.reason)
            if end == 1 and not is_last:
                line = lines + _lines(data[1 : scan.first_open_quote(data) or 1])
                _refuse(path, line, f"a row of more than {_size(block_bytes)}; is a quote left open?")
            if end > 1:
                yield data[1:end], min(1.0, file.tell() / size)
            lines += _lines(data[1:end])
            rest = data[end:]


class _BadQuote(Exception):
    """A quote that is not closed as it should be; `place` is where it is opened."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place, self.reason = place, reason


class _QuoteScan:
    """Finds where records end, and quotes that are not closed.

    A quote opens a text at the beginning of a field only, as Arrow has it too.
    """

    def __init__(self, separator: str) -> None:
        after = f"[{separator}\r\n]".encode()
        # A match is a quoted text with its closing quote, or an opening quote alone (group 1) that has to be looked at.
        self._field = re.compile(rb'"(?<=' + after + rb'")(?:[^"]*+(?:""[^"]*+)*+"(?= *' + after + rb")|())")
        self._beside_quote = np.zeros(256, dtype=bool)
        self._beside_quote[[ord(separator), *b'\r\n"']] = True
        #: Of the last data, where a quote is that may not be closed there.
        self.open_quote: int | None = None

    def end_of_records(self, data: bytes, *, is_last: bool) -> int:
        """Return the end of the last complete record; `data` begins with the end of a line."""
        self.open_quote = None
        starts, ends = self._plain_quotes(data, is_last) or self._any_quotes(data, is_last)
        if is_last:
            return len(data)
        stop = len(data) if self.open_quote is None else self.open_quote
        for start, end in zip(reversed(starts), reversed(ends), strict=True):
            if (place := _end_of_line(data, end, stop)) > 0:
                return place
            stop = start
        return _end_of_line(data, 0, stop)

    def _plain_quotes(self, data: bytes, is_last: bool) -> tuple[Any, Any] | None:
        """Return where quoted texts begin and end, quickly; None if the quotes have to be looked at one by one.

        If every other quote, from the first, follows a separator or a quote, and the others precede one, then they open
        and close in turn (two in succession close and open again, which makes no difference here).
        """
        if b'"' not in data:
            return (), ()
        codes = np.frombuffer(data, dtype=np.uint8)
        quotes = np.flatnonzero(codes == ord('"'))
        if quotes[-1] == len(data) - 1 and quotes.size % 2 == 0:
            quotes = quotes[:-1]  # the next block tells whether it closes or is the first of two
        opening, closing = quotes[::2], quotes[1::2]
        if not (
            self._beside_quote[codes[opening - 1]].all() and self._beside_quote[codes[closing + 1]].all()
        ):
            return None
        if opening.size > closing.size:
            if is_last:
                return None
            self.open_quote = int(opening[-1])
            opening = opening[:-1]
        return opening, closing + 1

    def _any_quotes(self, data: bytes, is_last: bool) -> tuple[Sequence[int], Sequence[int]]:
        """Return where quoted texts begin and end; raise if one is not closed as it should be."""
        starts, ends = [], []
        self.open_quote = None
        for found in self._field.finditer(data):
            if found.group(1) is not None:
                self.open_quote = self._closed_later(data, found.start(), is_last)
                break
            starts.append(found.start())
            ends.append(found.end())
        return starts, ends

    def first_open_quote(self, data: bytes) -> int | None:
        """Return where the text begins that is not closed in `data`."""
        self._any_quotes(data, is_last=False)
        return self.open_quote

    def _closed_later(self, data: bytes, place: int, is_last: bool) -> int:
        """Return the place of a quote that the next block may close; raise if it cannot."""
        end = _QUOTED.match(data, place).end()  # type: ignore[union-attr]
        if end == len(data):
            if is_last:
                raise _BadQuote(place, f"a quote is opened and never closed; {_ADVICE}")
        elif _BLANKS.match(data, end + 1).end() < len(data):  # type: ignore[union-attr]
            text = data[end + 1 : end + 11].decode(errors="replace")
            raise _BadQuote(
                place,
                f"a quote is opened here, and the next one, which closes it, is followed by {text!r}; {_ADVICE}",
            )
        return place


def _end_of_line(data: bytes, start: int, stop: int) -> int:
    """Return the place after the last end of a line, which may be a carriage return; 0 if there is none."""
    # A carriage return at the very end may be half of the end of a line.
    return 1 + max(data.rfind(b"\n", start, stop), data.rfind(b"\r", start, min(stop, len(data) - 1)))


def _lines(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def _refuse(path: Path, lines_before: int, reason: str) -> NoReturn:
    raise ValueError(f"{path.name}, line {lines_before + 1}: {reason}") from None


@contextmanager
def _opened(path: Path, compressed: bool, encoding: str = "utf-8") -> Iterator[tuple[Any, BinaryIO]]:
    """Open a file; give the stream of its contents in UTF-8, and the file as it is stored."""
    with path.open("rb") as file:
        try:
            contents: Any = gzip.GzipFile(fileobj=file) if compressed else file
            if encoding.lower().replace("_", "-") not in ("utf-8", "utf8", "utf-8-sig"):
                contents = io.BufferedReader(_Recoded(contents, encoding), _BLOCK)
            yield contents, file
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(
                f"{path.name} is a damaged gzip file ({error}); compress or download it again"
            ) from None
        except UnicodeError as error:
            raise ValueError(
                f"{path.name} is not written in {encoding.upper()}: {error}; --encoding names another"
            ) from None


class _Recoded(io.RawIOBase):
    """A stream of characters in any encoding, as UTF-8."""

    def __init__(self, stream: Any, encoding: str) -> None:
        self._stream, self._decoder = stream, codecs.getincrementaldecoder(encoding)()
        self._rest = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go back to the beginning."""
        if (offset, whence) != (0, io.SEEK_SET):
            raise io.UnsupportedOperation("only to the beginning")
        self._stream.seek(0)
        self._decoder.reset()
        self._rest = b""
        return 0

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            block = self._stream.read(_BLOCK)
            self._rest = self._decoder.decode(block, final=not block).encode()
            if not block:
                break
        part = self._rest[: len(buffer)]
        buffer[: len(part)] = part
        self._rest = self._rest[len(part) :]
        return len(part)


def _encoding_of(path: Path, compressed: bool) -> str:
    """Return UTF-8 if the file, or its beginning, is written in it, else the encoding of Western European Windows."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with _opened(path, compressed) as (stream, _):
        for number in range(_LOOKED_AT // _BLOCK):
            block = stream.read(_BLOCK)
            if number == 0 and block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                return "utf-16"
            if number == 0 and b"\0" in block:
                raise ValueError(
                    f"{path.name} is not a CSV file in UTF-8; if it is text, name its --encoding, such as utf-16-le"
                )
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError:
                return "latin-1" if _NOT_IN_CP1252.search(block) else "cp1252"
            if not block:
                break
    return "utf-8"


def _size(n_bytes: int) -> str:
    return f"{n_bytes >> 20} MiB" if n_bytes >= 2**20 else f"{n_bytes} bytes"
