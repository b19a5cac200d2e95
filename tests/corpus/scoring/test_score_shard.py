"""Score shards: each row has a score or a reason; unusable models are refused."""

import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("torch", reason="torch is not installed")

from refusals import refusal
from tiny_models import save_model
from tiny_scoring import Row, build_rows, build_scorer, copy_model, render_text, save_whole_model, spoiled, write_pool
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


def score_shard_rows(folder: Path, rows: list[Row], scorer: Scorer, *numbers: int) -> tuple[Receipt, list[Row]]:
    """Score a shard of some rows, by default all; return its receipt and results."""
    pool = write_pool(folder, rows, "pool.parquet", row_group_size=4) / "pool.parquet"
    job = ScoreJob("0", "pool.parquet", pool, numbers or tuple(range(len(rows))))
    receipt = score_shard(job, WHOLE_SHARD, StagingView(folder), scorer)
    return receipt, pq.ParquetFile(folder / receipt.files[0].path).read().to_pylist()


def build_row(text: str | None, loss_mode: str | None = "assistant_all", **columns: Any) -> Row:
    return {"id": "one", "text": text, "loss_mode": loss_mode, **columns}


def test_results_keep_the_positions_of_rows_in_the_pool(tmp_path: Path, model: Path) -> None:
    receipt, results = score_shard_rows(tmp_path, build_rows(10), build_scorer(model), 1, 3, 4, 9)

    assert [(row["id"], row["pool_row"]) for row in results] == [("row-1", 1), ("row-3", 3), ("row-4", 4), ("row-9", 9)]
    assert all(row["reason"] is None and row["nll_mean"] > 0 for row in results)
    assert (receipt.counts["documents"], receipt.counts["completion_tokens"]) == (4, 3 * 19 + 20)


def test_the_nll_of_each_token_is_stored_on_request(tmp_path: Path, model: Path) -> None:
    rows = [*build_rows(3), build_row(None)]
    plain = score_shard_rows(tmp_path, rows, build_scorer(model))[1]

    results = score_shard_rows(tmp_path, rows, build_scorer(model, token_nll=True))[1]

    assert [{name: row[name] for name in plain[0]} for row in results] == plain
    assert "token_nll" not in plain[0]
    for row in results[:3]:
        assert len(row["token_nll"]) == row["completion_token_count"]
        assert sum(row["token_nll"]) == pytest.approx(row["nll_sum"], rel=1e-6)
    assert results[3]["token_nll"] is None


def test_recipe_content_omits_token_nll_unless_requested() -> None:
    assert "token_nll" not in ScoringRecipe().content()
    assert ScoringRecipe(token_nll=True).content()["token_nll"] is True


@pytest.mark.parametrize(
    ("input_row", "reason"),
    [
        (build_row(render_text(1), None), "unknown_loss_mode"),
        (build_row(render_text(1), loss_rule="assistant_all/no_such_rule"), "unknown_loss_mode"),
        (build_row(None), "no_text"),
        (build_row(render_text(1, question=LONG)), "no_completion_left"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_row_without_score_is_kept_with_its_reason(tmp_path: Path, model: Path, input_row: Row, reason: str) -> None:
    receipt, results = score_shard_rows(tmp_path, [*build_rows(2), input_row], build_scorer(model, max_length=200))

    assert [row["reason"] for row in results] == [None, None, reason]
    assert (results[2]["id"], results[2]["nll_mean"], results[2]["completion_token_count"]) == ("one", None, 0)
    assert receipt.counts[f"unscored/{reason}"] == 1
    assert receipt.counts["documents"] == 3


def test_a_long_row_is_scored_up_to_the_limit_and_records_its_loss(tmp_path: Path, model: Path) -> None:
    long_row = build_row(render_text(1, answer=LONG))
    [whole] = score_shard_rows(tmp_path, [long_row], build_scorer(model))[1]
    receipt, [cut] = score_shard_rows(tmp_path, [long_row], build_scorer(model, max_length=100))

    assert (whole["truncated"], whole["tokens_lost"], whole["completion_token_count"]) == (False, 0, len(LONG))
    assert (cut["truncated"], cut["tokens"], cut["tokens_lost"]) == (True, 100, whole["tokens"] - 100)
    assert cut["completion_token_count"] == cut["completion_bytes"] == len(LONG) - cut["tokens_lost"] + 1
    assert (receipt.counts["truncated"], receipt.counts["tokens_lost"]) == (1, cut["tokens_lost"])
    assert cut["nll_mean"] > 0
    [very_long] = score_shard_rows(tmp_path, [build_row(render_text(1, answer="a" * 5000))], build_scorer(model))[1]
    assert (very_long["tokens"], very_long["truncated"]) == (4096, True)  # the model's limit by default


def test_rows_of_a_model_with_nan_weights_have_reason_not_finite(tmp_path: Path, model: Path) -> None:
    """The model is not refused for unknown logits."""
    nan_model = spoiled(model, tmp_path / "model", "model.norm.weight", slice(None))

    results = score_shard_rows(tmp_path, build_rows(3), build_scorer(nan_model))[1]

    assert [row["reason"] for row in results] == ["not_finite"] * 3


def test_a_damaged_page_of_a_pool_is_reported_with_its_file(tmp_path: Path, model: Path) -> None:
    score_shard_rows(tmp_path, build_rows(300), build_scorer(model))
    pool = tmp_path / "pool.parquet"
    write_pool(tmp_path, build_rows(300), pool.name)
    chunk = pq.ParquetFile(pool).metadata.row_group(0).column(1)
    data = bytearray(pool.read_bytes())
    data[chunk.dictionary_page_offset + 100 : chunk.dictionary_page_offset + 200] = bytes(100)
    pool.write_bytes(data)

    line = refusal(
        lambda: score_shard(ScoreJob("0", "p", pool, (0,)), WHOLE_SHARD, StagingView(tmp_path), build_scorer(model))
    )

    assert line.startswith(f"{pool}: rows cannot be read (")
    assert line.endswith("the file is damaged; write it again")


# Models that can't score


def test_a_model_without_harmony_tokens_is_refused_before_loading(tmp_path: Path, model: Path) -> None:
    folder = save_tokenizer(copy_model(model, tmp_path / "model"), CONTROL_TOKENS[:-1])

    line = refusal(build_scorer(folder).warm_up)

    message = "the model's tokenizer lacks the special tokens <|return|> of Harmony; use a model"
    assert line.startswith(f"{folder}: {message}")


@pytest.mark.parametrize(
    ("recipe", "kind", "message"),
    [
        ({"max_length": 4097}, UsageError, "must be at most the model's 4,096 tokens, got 4,097; set 4096 or less"),
        ({"attention": "flashy"}, UsageError, "attention: model cannot be loaded with flashy (Specified"),
        (
            {"tokenizer": "o200k_harmony"},
            InputError,
            "the tokenizer has 201,088 tokens, but the model has only 500 emb",
        ),
    ],
)
def test_a_recipe_that_a_model_cannot_meet_is_refused(
    model: Path, recipe: dict[str, Any], kind: type[InputError], message: str
) -> None:
    assert message in refusal(lambda: load_scorer_model(build_scorer(model, **recipe)), kind)


def test_max_length_may_equal_the_limit_of_the_model(model: Path) -> None:
    assert load_scorer_model(build_scorer(model, max_length=4096)).max_tokens == 4096


def test_a_tokenizer_must_not_have_more_tokens_than_the_model(tmp_path: Path) -> None:
    """The tokenizer has 263 tokens: 256 bytes and 7 control tokens."""
    for tokens in (263, 262):
        (tmp_path / f"{tokens}").mkdir()
        save_tokenizer(save_model("Llama", tmp_path / f"{tokens}", vocab_size=tokens))

    load_scorer_model(build_scorer(tmp_path / "263"))
    line = refusal(lambda: load_scorer_model(build_scorer(tmp_path / "262")))

    assert "the tokenizer has 263 tokens, but the model has only 262 embeddings" in line


@pytest.mark.parametrize(("device", "dtype"), [("cpu", "bfloat16"), ("cpu", "float16"), ("cuda", "float32")])
def test_a_cpu_needs_float32_and_a_gpu_a_half_precision_type(device: str, dtype: str) -> None:
    line = refusal(lambda: ScoringRecipe.from_mapping({"device": device, "dtype": dtype}, "mine.yaml"), UsageError)

    assert line == (
        f"mine.yaml: `dtype` is {dtype} and `device` {device}: a CPU needs float32, a GPU bfloat16 or float16; "
        "correct it"
    )


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_a_missing_library_is_named_with_its_fix(model: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    modules = [
        name
        for name in sys.modules
        if name == missing or name.endswith(("scoring.language_model", "scoring.load_model"))
    ]
    for name in modules:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)

    line = refusal(lambda: load_scorer_model(build_scorer(model, threads=7)), UsageError)

    assert line.startswith(f"scoring: {missing} is not installed; in the project's folder run ")
    assert line.endswith("-e '.[scoring]'")


def test_each_process_claims_its_own_gpu_while_any_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    claims = [claim_gpu.__wrapped__(tmp_path) for _ in range(3)]  # a lock is of an open file, so of each claim

    assert claims == [0, 1, 0]
