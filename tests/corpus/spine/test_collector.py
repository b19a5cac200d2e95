"""Python looks for cycles as it did before, whatever happened between."""

import gc

import pytest

from pipeline_assets.corpus.spine.usage import no_cycles


def test_it_looks_again_afterwards() -> None:
    with no_cycles():
        assert not gc.isenabled()

    assert gc.isenabled()


def test_after_an_error_too() -> None:
    with pytest.raises(KeyError), no_cycles():
        raise KeyError

    assert gc.isenabled()


def test_whoever_switched_it_off_keeps_it_off() -> None:
    with no_cycles():
        with no_cycles():
            pass
        assert not gc.isenabled()
