"""Outputs that appear whole or not at all: written beside their place, then renamed."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path

from ..errors import FileError, PushframeError
from .guard import unwritable


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A path to write in place of `path`, which it replaces when the body ends without error.

    The draft has the name of the target, in a hidden folder beside it. Missing parents are
    created. OSError of the body becomes FileError: the body should only write. On error
    nothing is left, and a file that was there stays as it was.
    """
    check_files([path])
    target = Path(os.path.realpath(path))
    with _workspace(target, path) as room:
        yield room / target.name
        os.replace(room / target.name, target)


@contextmanager
def atomic_files(folder: str | Path) -> Iterator[Path]:
    """An empty folder to fill; what is in it moves into `folder` when the body ends well.

    What `folder` holds besides stays. On error nothing is left, and files that were there stay as
    they were. The drafts lie inside `folder`, which may be a mount or somebody's working folder.
    """
    target = Path(os.path.realpath(folder))
    with _workspace(target / "drafts", folder) as room:
        with _speaking_of(room, folder):
            yield room
        for draft in sorted(room.iterdir()):
            os.replace(draft, os.path.realpath(target / draft.name))


def check_files(paths: Sequence[str | Path]) -> None:
    """FileError unless each path can be written as a file; to ask before any work is done."""
    for path in paths:
        target = Path(os.path.realpath(path))
        if os.path.exists(target) and not os.path.isfile(target):
            got = "a folder" if os.path.isdir(target) else "a device"
            raise FileError(f"{path}: expected a file to write, got {got}: choose another name")
        parent = next(parent for parent in target.parents if os.path.exists(parent))
        if not os.path.isdir(parent) or not os.access(parent, os.W_OK | os.X_OK):
            code = errno.EACCES if os.path.isdir(parent) else errno.ENOTDIR
            raise unwritable(path, OSError(code, os.strerror(code)))


@contextmanager
def atomic_folder(path: str | Path, owns: Sequence[str] = ()) -> Iterator[Path]:
    """An empty folder to fill in place of `path`, which it replaces when the body ends well.

    owns: name patterns of the files that an earlier run may have left in `path`. A folder that
    holds anything else is not replaced: FileError. The exchange is two renames, so for an
    instant the folder is absent, never partial.
    """
    target = Path(os.path.realpath(path))
    _check_replaceable(target, path, owns)
    with _workspace(target, path) as room:
        draft, old = room / "new", room / "old"
        draft.mkdir()
        yield draft
        if target.exists():
            os.replace(target, old)
        try:
            os.replace(draft, target)
        except OSError:
            if old.exists():
                os.replace(old, target)
            raise


def _check_replaceable(target: Path, path: str | Path, owns: Sequence[str]) -> None:
    """FileError unless `target` is absent, empty, or holds only files that match `owns`."""
    if not os.path.exists(target):
        return
    if not os.path.isdir(target):
        raise FileError(f"{path}: expected a folder to write, got a file: choose another name")
    for entry in sorted(target.iterdir()):
        if not (entry.is_file() and any(fnmatch(entry.name, pattern) for pattern in owns)):
            raise FileError(
                f"{path}: expected a new or empty folder, got one that holds {entry.name}: "
                "choose another name, or move what is in it"
            )


@contextmanager
def _speaking_of(draft: Path, path: str | Path) -> Iterator[None]:
    """Errors of the body name the place that the user chose, not the draft."""
    try:
        yield
    except PushframeError as error:
        raise type(error)(str(error).replace(str(draft), str(path))) from error.__cause__


def sweep(folder: str | Path) -> None:
    """Remove the drafts in `folder` of processes of this machine that are no more.

    A process that is killed outright cannot do so itself.
    """
    ours = re.compile(re.escape(_own_prefix()) + r"(\d+)-[0-9a-f]{12}")
    for room in Path(folder).glob(".pushframe-*"):
        match = ours.fullmatch(room.name)
        if match and not _is_alive(int(match[1])):
            shutil.rmtree(room, ignore_errors=True)


def _own_prefix() -> str:
    """How the names of this machine's drafts begin; the process that writes comes next."""
    return f".pushframe-{socket.gethostname()}-"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


@contextmanager
def _workspace(target: Path, path: str | Path) -> Iterator[Path]:
    """A hidden folder beside `target`, removed at the end with all that is still in it."""
    room = target.parent / f"{_own_prefix()}{os.getpid()}-{secrets.token_hex(6)}"
    missing = [parent for parent in target.parents if not os.path.exists(parent)]
    try:
        room.mkdir(parents=True)
        yield room
    except BaseException as error:
        shutil.rmtree(room, ignore_errors=True)
        for parent in missing:
            with suppress(OSError):  # not made, or someone else's file is in it by now
                parent.rmdir()
        if isinstance(error, OSError):
            raise unwritable(path, error) from error
        raise
    shutil.rmtree(room, ignore_errors=True)
