"""Error messages of refused calls."""

from collections.abc import Callable

import pytest

from pipeline_assets.spine.errors import InputError


def refusal(act: Callable[[], object], kind: type[InputError] = InputError) -> str:
    with pytest.raises(kind) as refused:
        act()
    return str(refused.value)
