"""The tokenizer as a resource."""

from pathlib import Path

import dagster as dg
import pytest

import resources.store
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.tokens.encode import cached_encoder
from pipeline_assets.definitions import definitions_of
from resources.store import Tokenizer


def test_it_is_the_encoder_that_builds_take_loaded_once() -> None:
    encoder = Tokenizer().encoder()

    assert encoder is Tokenizer().encoder() is cached_encoder(Tokenizer().sha256, "gigatoken")
    assert encoder.encode(["hello world"]).ids.tolist() == [24912, 2375]


def test_a_run_begins_with_its_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "o200k_base.tiktoken"
    other.write_bytes(b"IQ== 0\n")
    monkeypatch.setattr(resources.store, "VOCABULARY", other)

    with pytest.raises(InputError, match="sha256"):
        Tokenizer().setup_for_execution(dg.build_init_resource_context())


def test_the_ui_shows_it_with_its_digest(tmp_path: Path) -> None:
    tokenizer = (definitions_of(tmp_path).resources or {})["tokenizer"]

    assert isinstance(tokenizer, Tokenizer)
    assert (tokenizer.family, len(tokenizer.sha256)) == ("o200k_harmony", 64)
