"""Tensors that many calls share, made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar, cast

import torch

Given = ParamSpec("Given")
Made = TypeVar("Made")
MOST = 16  # results of each function


def made_once(make: Callable[Given, Made]) -> Callable[Given, Made]:
    """`make`, a function of hashable arguments, with its last results kept.

    They are made outside of inference mode, whoever asks first: training may go through them.
    """

    @wraps(make)
    def made(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        with torch.inference_mode(False):
            return make(*args, **kwargs)

    return cast(Callable[Given, Made], lru_cache(maxsize=MOST)(made))
