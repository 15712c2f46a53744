"""The optional packages of the page, asked for by name where they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import MissingPackageError


def load_package(name: str) -> Any:
    """The module `name`; `MissingPackageError` says how to install what it belongs to."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"expected the package {name.partition('.')[0]} for the HTML page, got none: "
            "pip install 'pushframe[report]'"
        ) from error


def need_packages() -> None:
    """MissingPackageError unless all packages of a page are there; to ask before any work."""
    for name in ("jinja2", "markupsafe", "matplotlib", "PIL"):
        load_package(name)
