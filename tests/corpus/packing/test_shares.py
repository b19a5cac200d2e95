"""A source whose share is off its weight by more than a tenth of it is named, with what was asked and reached."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pack_build import Made, documents_of, pack, recipe, write_shards
from word_tokenizer import write_tokenizer

from pipeline_assets.corpus.packing.shares import shares_reached
from pipeline_assets.corpus.spine.audit import Verdict

Judged = Callable[..., Verdict]


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    """What the check says of a set of 100 rows of 10 tokens."""

    def judge(documents: list[Made], weights: dict[str, str], **changes: object) -> Verdict:
        tokenizer = write_tokenizer(tmp_path)
        rules = recipe(tokenizer, weights=weights, seq_len=10, num_seqs=100, **changes)
        return shares_reached(pack(tmp_path, write_shards(tmp_path / "in", documents, 50), rules, tokenizer))

    return judge


def test_sources_of_short_documents_reach_their_shares(judged: Judged) -> None:
    documents = [*documents_of("a", [10] * 100), *documents_of("b", [5] * 100)]

    verdict = judged(documents, {"a": "0.9", "b": "0.1"})

    assert verdict == Verdict(True, "each source is within a tenth of its weight", {"a": "0.900000", "b": "0.100000"})


def test_a_source_whose_next_document_is_longer_than_its_share_is_short_and_says_so(judged: Judged) -> None:
    documents = [*documents_of("a", [5] * 300), *documents_of("b", [600] * 2)]

    verdict = judged(documents, {"a": "0.7", "b": "0.3"})

    assert not verdict.holds
    assert verdict.because == "not yet"
