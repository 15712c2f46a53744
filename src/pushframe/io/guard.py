"""How a damaged file is told: one line with the file, the frame and the cause in a few words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import FileError, PushframeError


def cause_of(error: BaseException) -> str:
    """The innermost cause of an error, on one line of at most 160 characters."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return " ".join(text.split())[:160].rstrip(".") or type(error).__name__


@contextmanager
def decoding(where: str | Path, what: str) -> Iterator[None]:
    """Whatever a decoder raises in the body becomes a FileError: `where`, `what` was expected."""
    try:
        yield
    except PushframeError:
        raise
    except Exception as error:  # decoders raise nearly anything on damaged bytes
        raise FileError(
            f"{where}: expected {what}, got a file that cannot be read ({cause_of(error)}): "
            "check its format, or copy or export it again"
        ) from error


@contextmanager
def encoding(target: str | Path) -> Iterator[None]:
    """Whatever an encoder raises in the body becomes a FileError on `target`."""
    try:
        yield
    except PushframeError:
        raise
    except Exception as error:  # GDAL's errors share no base class
        raise unwritable(target, error) from error


def unwritable(target: str | Path, error: BaseException) -> FileError:
    """The FileError for an output that cannot be written."""
    return FileError(
        f"{target}: expected a place that can be written, got '{cause_of(error)}': "
        "check the folder, its permissions and the free space"
    )


@contextmanager
def naming(path: Path | str, within: Path | None = None) -> Iterator[None]:
    """Errors of the body begin with `path`, unless they name it or a file in it already.

    within: the folder whose files are named well enough, `path` itself unless given.
    """
    try:
        yield
    except PushframeError as error:
        if re.search(rf"(^|[\s(]){re.escape(str(within or path))}([/:\s)]|$)", str(error)):
            raise
        raise type(error)(f"{path}: {error}") from error.__cause__


def need_file(path: Path, where: str = "") -> None:
    """FileError unless `path` is a file; `where` names the frame it stands for."""
    if not path.is_file():
        got = "a folder" if path.is_dir() else "nothing there"
        raise FileError(
            f"{where or path}: expected a file, got {got}: correct the path or restore the file"
        )
