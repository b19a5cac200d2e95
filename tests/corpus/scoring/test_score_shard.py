"""A score shard: every row has its score or its reason; and models that can't score are refused in one line."""

import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("torch", reason="torch is not installed")

from refusals import refusal
from tiny_models import save_model
from tiny_scoring import Row, copy_of, rows_of, save_whole_model, scorer_of, spoiled, text_of, write_pool
from tiny_tokenizer import save_tokenizer

from pipeline_assets.corpus.harmony.message import CONTROL_TOKENS
from pipeline_assets.corpus.scoring.launcher import ScoreJob
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.corpus.scoring.score_shard import Scorer, claim_gpu, load_scorer_model, score_shard
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.stage import WHOLE_SHARD
from pipeline_assets.spine.staging import Receipt, StagingView

LONG = "sure " * 60


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_whole_model(tmp_path_factory.mktemp("models") / "Llama")


def scored(folder: Path, rows: list[Row], scorer: Scorer, *numbers: int) -> tuple[Receipt, list[Row]]:
    """The receipt of a shard of some rows, all by default, and what it wrote."""
    pool = write_pool(folder, rows, "pool.parquet", row_group_size=4) / "pool.parquet"
    job = ScoreJob("0", "pool.parquet", pool, numbers or tuple(range(len(rows))))
    receipt = score_shard(job, WHOLE_SHARD, StagingView(folder), scorer)
    return receipt, pq.ParquetFile(folder / receipt.files[0].path).read().to_pylist()


def row(text: str | None, loss_mode: str | None = "assistant_all", **columns: Any) -> Row:
    return {"id": "one", "text": text, "loss_mode": loss_mode, **columns}


def test_a_row_keeps_its_place_in_its_pool(tmp_path: Path, model: Path) -> None:
    receipt, found = scored(tmp_path, rows_of(10), scorer_of(model), 1, 3, 4, 9)

    assert [(one["id"], one["pool_row"]) for one in found] == [("row-1", 1), ("row-3", 3), ("row-4", 4), ("row-9", 9)]
    assert all(one["reason"] is None and one["nll_mean"] > 0 for one in found)
    assert (receipt.counts["documents"], receipt.counts["completion_tokens"]) == (4, 3 * 19 + 20)


def test_the_nll_of_each_token_is_stored_on_request(tmp_path: Path, model: Path) -> None:
    rows = [*rows_of(3), row(None)]
    plain = scored(tmp_path, rows, scorer_of(model))[1]

    found = scored(tmp_path, rows, scorer_of(model, token_nll=True))[1]

    assert [{name: one[name] for name in plain[0]} for one in found] == plain
    assert "token_nll" not in plain[0]
    for one in found[:3]:
        assert len(one["token_nll"]) == one["completion_token_count"]
        assert sum(one["token_nll"]) == pytest.approx(one["nll_sum"], rel=1e-6)
    assert found[3]["token_nll"] is None


def test_a_recipe_without_token_nll_has_the_content_that_it_had() -> None:
    assert "token_nll" not in ScoringRecipe().content()
    assert ScoringRecipe(token_nll=True).content()["token_nll"] is True


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (row(text_of(1), None), "unknown_loss_mode"),
        (row(text_of(1), loss_rule="assistant_all/no_such_rule"), "unknown_loss_mode"),
        (row(None), "no_text"),
        (row(text_of(1, question=LONG)), "no_completion_left"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_row_that_has_no_score_is_kept_with_its_reason(tmp_path: Path, model: Path, given: Row, reason: str) -> None:
    receipt, found = scored(tmp_path, [*rows_of(2), given], scorer_of(model, max_length=200))

    assert [one["reason"] for one in found] == [None, None, reason]
    assert (found[2]["id"], found[2]["nll_mean"], found[2]["completion_token_count"]) == ("one", None, 0)
    assert receipt.counts[f"unscored/{reason}"] == 1
    assert receipt.counts["documents"] == 3


def test_a_row_that_is_too_long_is_scored_as_far_as_it_fits_and_says_what_it_lost(tmp_path: Path, model: Path) -> None:
    given = row(text_of(1, answer=LONG))
    [whole] = scored(tmp_path, [given], scorer_of(model))[1]
    receipt, [cut] = scored(tmp_path, [given], scorer_of(model, max_length=100))

    assert (whole["truncated"], whole["tokens_lost"], whole["completion_token_count"]) == (False, 0, len(LONG))
    assert (cut["truncated"], cut["tokens"], cut["tokens_lost"]) == (True, 100, whole["tokens"] - 100)
    assert cut["completion_token_count"] == cut["completion_bytes"] == len(LONG) - cut["tokens_lost"] + 1
    assert (receipt.counts["truncated"], receipt.counts["tokens_lost"]) == (1, cut["tokens_lost"])
    assert cut["nll_mean"] > 0
    [found] = scored(tmp_path, [row(text_of(1, answer="a" * 5000))], scorer_of(model))[1]
    assert (found["tokens"], found["truncated"]) == (4096, True)  # what the model takes where nothing is said


def test_a_model_that_is_no_number_anywhere_is_told_by_its_rows(tmp_path: Path, model: Path) -> None:
    """And not as a model whose logits are made otherwise than this program knows."""
    nowhere = spoiled(model, tmp_path / "model", "model.norm.weight", slice(None))

    found = scored(tmp_path, rows_of(3), scorer_of(nowhere))[1]

    assert [one["reason"] for one in found] == ["not_finite"] * 3


def test_a_damaged_page_of_a_pool_is_told_of_its_file(tmp_path: Path, model: Path) -> None:
    scored(tmp_path, rows_of(300), scorer_of(model))
    pool = tmp_path / "pool.parquet"
    write_pool(tmp_path, rows_of(300), pool.name)
    chunk = pq.ParquetFile(pool).metadata.row_group(0).column(1)
    data = bytearray(pool.read_bytes())
    data[chunk.dictionary_page_offset + 100 : chunk.dictionary_page_offset + 200] = bytes(100)
    pool.write_bytes(data)

    line = refusal(
        lambda: score_shard(ScoreJob("0", "p", pool, (0,)), WHOLE_SHARD, StagingView(tmp_path), scorer_of(model))
    )

    assert line.startswith(f"{pool}: rows cannot be read (")
    assert line.endswith("the file is damaged; write it again")


# Models that can't score


def test_a_model_that_can_not_read_rows_is_refused_before_it_is_loaded(tmp_path: Path, model: Path) -> None:
    folder = save_tokenizer(copy_of(model, tmp_path / "model"), CONTROL_TOKENS[:-1])

    line = refusal(scorer_of(folder).warm_up)

    said = "the model's tokenizer lacks the special tokens <|return|> of Harmony; use a model"
    assert line.startswith(f"{folder}: {said}")


@pytest.mark.parametrize(
    ("recipe", "kind", "said"),
    [
        (
            {"max_length": 4097},
            UsageError,
            "max_length: must be at most the model's 4,096 tokens, got 4,097; set 4096 or less",
        ),
        ({"attention": "flashy"}, UsageError, "attention: model cannot be loaded with flashy (Specified"),
        (
            {"tokenizer": "o200k_harmony"},
            InputError,
            "the tokenizer has 201,088 tokens, but the model has only 500 embeddings; use",
        ),
    ],
)
def test_a_recipe_that_a_model_can_not_do_is_refused(
    model: Path, recipe: dict[str, Any], kind: type[InputError], said: str
) -> None:
    assert said in refusal(lambda: load_scorer_model(scorer_of(model, **recipe)), kind)


def test_the_most_that_a_model_takes_is_no_too_much(model: Path) -> None:
    assert load_scorer_model(scorer_of(model, max_length=4096)).max_tokens == 4096


def test_a_tokenizer_may_know_fewer_words_than_its_model_and_not_more(tmp_path: Path) -> None:
    """263: the bytes, and the control tokens."""
    for words in (263, 262):
        (tmp_path / f"{words}").mkdir()
        save_tokenizer(save_model("Llama", tmp_path / f"{words}", vocab_size=words))

    load_scorer_model(scorer_of(tmp_path / "263"))
    line = refusal(lambda: load_scorer_model(scorer_of(tmp_path / "262")))

    assert "the tokenizer has 263 tokens, but the model has only 262 embeddings" in line


@pytest.mark.parametrize(("device", "dtype"), [("cpu", "bfloat16"), ("cpu", "float16"), ("cuda", "float32")])
def test_a_cpu_takes_float32_and_a_gpu_the_others(device: str, dtype: str) -> None:
    line = refusal(lambda: ScoringRecipe.from_mapping({"device": device, "dtype": dtype}, "mine.yaml"), UsageError)

    assert line == (
        f"mine.yaml: `dtype` is {dtype} and `device` {device}: a CPU needs float32, a GPU bfloat16 or float16; "
        "correct it"
    )


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_a_missing_library_is_told_what_installs_it(model: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    gone = [
        name
        for name in sys.modules
        if name == missing or name.endswith(("scoring.language_model", "scoring.load_model"))
    ]
    for name in gone:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)

    line = refusal(lambda: load_scorer_model(scorer_of(model, threads=7)), UsageError)

    assert line.startswith(f"scoring: {missing} is not installed; in the project's folder run ")
    assert line.endswith("-e '.[scoring]'")


def test_each_process_claims_its_own_gpu_while_there_are_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    claims = [claim_gpu.__wrapped__(tmp_path) for _ in range(3)]  # a lock is of an open file, so of each claim

    assert claims == [0, 1, 0]
