"""Rows of a chat template, from a folder to scores and token files."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from chat_models import save_chat_model
from command_results import Corpusmill, only_line
from plain_scorer import reference_model, reference_nll
from seeded_chats import seeded_row
from tiny_models import save_model

from pipeline_assets.build.rows.conversations import ConversationRows
from pipeline_assets.build.run import Run
from pipeline_assets.commands.peek import peek
from pipeline_assets.corpus.scoring.token_rows import encode_row
from pipeline_assets.corpus.tokens.hf_tokenizer import load_model_tokenizer
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError
from pipeline_assets.systems.nemotron import NemotronRecipe

pytestmark = pytest.mark.slow
ROWS = 24


def recipe_content(folder: Path, model: Path, name: str) -> dict[str, Any]:
    return {
        "system": "nemotron",
        "name": name,
        "rows": {"template": {"path": str(folder / "template")}},
        "deduplicate": {},
        "pools": {"rules": {"all": ["stats_tokens > 0"]}, "by_capability": False},
        "scoring": {"model": {"path": str(model)}},
        "subsets": {"rules": {"every": {"percentile": ["0", "100"]}}},
        "datasets": [{"dataset": "mine", "path": str(folder / "rows"), "splits": ["train"], "domain": "chat_if"}],
    }


def build(folder: Path, model: Path, name: str = "chat") -> dict[str, Artifact]:
    run, built = Run(folder / "data", RunSettings(1)), dict[str, Artifact]()
    for target in NemotronRecipe.from_mapping(recipe_content(folder, model, name), "the test").targets():
        built[target.kind.name.removeprefix("nemotron/")] = target.kind.build(target, run)
    return built


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a template, rows with or without tools, and a model with its tokenizer."""
    folder = tmp_path_factory.mktemp("chat")
    save_chat_model(save_model("Llama", folder / "model"), "qwen")
    save_chat_model(folder / "template", "qwen")
    (folder / "rows").mkdir()
    rows = [seeded_row(seed) for seed in range(ROWS)]
    rows.append({"messages": [{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "no"}]})
    (folder / "rows" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def built(folder: Path) -> dict[str, Artifact]:
    return build(folder, folder / "model")


def read_table(artifact: Artifact, pattern: str) -> list[dict[str, Any]]:
    return [row for path in sorted(artifact.folder.glob(pattern)) for row in pq.ParquetFile(path).read().to_pylist()]


def encode(row: Mapping[str, Any], model: Path) -> Any:
    columns = (row["text"], row["loss_mode"], row["loss_rule"])
    return encode_row(*columns, load_model_tokenizer(model, False), 4096, row["template"])


def test_rows_name_their_template_and_the_spans_of_their_messages(built: dict[str, Artifact]) -> None:
    rows = read_table(built["normalized_shards"], "data/*.parquet")

    assert len(rows) == ROWS
    assert {row["loss_mode"] for row in rows} == {"marked_spans"}
    assert all(row["template"].startswith("chat/sha256:") and row["loss_rule"].startswith("spans/1 ") for row in rows)
    assert {row["quality_valid_harmony"] for row in rows} == {None}
    assert built["normalized_shards"].manifest.identity.counts["ledger"]["rejected"] == {"control_tokens_in_content": 1}


def test_scores_of_a_student_without_harmony_equal_the_slow_reference(built: dict[str, Artifact], folder: Path) -> None:
    pool = {row["id"]: row for row in read_table(built["candidate_pools"], "candidates_all/*.parquet")}
    scores = {row["id"]: row for row in read_table(built["nll_scores"], "scores.parquet")}

    tokens = {name: encode(row, folder / "model").tokens for name, row in pool.items()}
    sums = reference_nll(reference_model(folder / "model"), list(tokens.values()))

    assert scores.keys() == pool.keys()
    for (name, row), nll in zip(tokens.items(), sums, strict=True):
        assert scores[name]["nll_mean"] == pytest.approx(nll / row.in_loss.sum(), abs=1e-4)
        assert scores[name]["completion_token_count"] == pool[name]["stats_completion_tokens"] == row.in_loss.sum()


def test_token_files_have_the_ids_of_the_text_and_the_ends_of_answers(built: dict[str, Artifact], folder: Path) -> None:
    subsets, tokenizer = built["training_subsets"], load_model_tokenizer(folder / "model", False)
    rows = {row["id"]: row for row in read_table(subsets, "subset_every/**/*.parquet")}
    ids = np.load(subsets.folder / "tokens" / "every" / "tokens.npy")
    mask = np.load(subsets.folder / "tokens" / "every" / "loss_mask.npy")

    for entry in read_table(subsets, "tokens/every/rows.parquet"):
        token_slice = slice(entry["first_token"], entry["first_token"] + entry["tokens"])
        row = rows[entry["id"]]
        assert tokenizer.decode(ids[token_slice]) == row["text"]
        bodies = encode(row, folder / "model").tokens.in_loss
        assert mask[token_slice][bodies].all()
        end = int(np.flatnonzero(mask[token_slice])[-1])
        assert tokenizer.decode(ids[token_slice][end : end + 1]) == "<|im_end|>"


def test_messages_of_a_row_are_shown(built: dict[str, Artifact]) -> None:
    rows = read_table(built["normalized_shards"], "data/*.parquet")
    store = ConversationRows(built["normalized_shards"], None)  # type: ignore[arg-type]

    for number in range(len(rows)):
        [part] = store.row_at(number).parts
        messages = store.messages(part)
        assert messages
        assert sum(counts for _, counts in messages) == rows[number]["loss_rule"].count("*")


def test_peek_shows_the_markup_of_every_line(built: dict[str, Artifact], capsys: pytest.CaptureFixture[str]) -> None:
    [text, *_] = [row["text"] for row in read_table(built["normalized_shards"], "data/*.parquet")]

    peek(built["normalized_shards"].folder, 0)

    lines = capsys.readouterr().out.split("\n▌ counts in the loss\n\n")[1].splitlines()
    assert {line[:2] for line in lines} == {"  ", "▌ "}
    assert lines[-1] == "  <|im_end|>"
    assert "".join("".join(line[2:] for line in lines).split()) == "".join(text.split())


def test_a_tokenizer_other_than_the_templates_is_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    model = save_chat_model(save_model("Llama", tmp_path / "model"), "chatml")

    with pytest.raises(InputError) as error:
        build(folder, model, "other")

    line = str(error.value)
    assert "rows of this template need the tokenizer.json" in line
    assert load_model_tokenizer(folder / "model", False).sha256 in line
    assert load_model_tokenizer(model, False).sha256 in line
    assert "\n" not in line


def test_a_dry_run_refuses_another_tokenizer_too(
    built: dict[str, Artifact], folder: Path, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    model = save_chat_model(save_model("Llama", tmp_path / "model"), "chatml")
    typed = ("nemotron", "score", "--pool", built["candidate_pools"].folder, "--out-dir", tmp_path / "out", "--dry-run")

    others = [corpusmill(*typed, "--model", model, *rest) for rest in ((), ("--tokenizer", "o200k_harmony"))]
    own = corpusmill(*typed, "--model", folder / "model")

    for refused in others:
        assert refused.returncode == 1, refused.stdout
        assert "rows of this template need the tokenizer.json" in only_line(refused)
        assert load_model_tokenizer(folder / "model", False).sha256 in refused.stderr
    assert load_model_tokenizer(model, False).sha256 in others[0].stderr
    assert own.returncode == 0, own.stderr


def write_hub(folder: Path, hub: Path) -> None:
    """Write a hub with the rows, and a model whose template reads a variable."""
    student, talks = hub / "models" / "maker" / "student", hub / "datasets" / "maker" / "talks" / "data"
    shutil.copytree(folder / "model", student)
    with (student / "chat_template.jinja").open("a") as template:
        template.write("{% if mood is defined %}<|im_start|>{{ mood }}<|im_end|>{% endif %}")
    talks.mkdir(parents=True)
    rows = [seeded_row(seed) | {"license": "cc-by-4.0"} for seed in range(ROWS)]
    (talks / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_recipe(data: Path, name: str, commits: Mapping[str, str], **sections: Any) -> None:
    template = {"model": "maker/student", "revision": commits["models/maker/student"], "variables": {"mood": "calm"}}
    talks = {"dataset": "maker/talks", "revision": commits["maker/talks"], "splits": ["train"], "domain": "chat_if"}
    content = {"system": "nemotron", "name": name, "rows": {"template": template}, "datasets": [talks], **sections}
    (data / "recipes").mkdir(parents=True, exist_ok=True)
    (data / "recipes" / f"{name}.yaml").write_text(yaml.safe_dump(content))


def test_rows_of_a_template_on_a_hub_are_built_scored_selected_and_published(
    folder: Path, tmp_path: Path, corpusmill: Corpusmill
) -> None:
    data, student = tmp_path / "data", tmp_path / "hub" / "models" / "maker" / "student"
    write_hub(folder, tmp_path / "hub")
    with LoopbackHub(tmp_path / "hub", writable=True) as hub:
        env = {**hub.client_environment(), "CORPUSMILL_WORKERS": "0"}
        write_recipe(data, "rows_only", hub.commits())
        model = {"name": "maker/student", "revision": hub.commits()["models/maker/student"]}
        sections = {name: recipe_content(folder, folder, "")[name] for name in ("deduplicate", "pools", "subsets")}
        sections |= {"scan": {}, "scoring": {"model": model}, "publish": {"repo": "loopback/{dataset}-pools"}}
        write_recipe(data, "whole", hub.commits(), **sections)

        planned = corpusmill("plan", "rows_only", "--data", data, "--json", env=env)
        result = corpusmill("run", "whole", "--data", data, env=env)

        assert result.returncode == 0, result.stderr[-2000:]
        published = hub.folder / "datasets" / "loopback" / "talks-pools"
    fetched = [student / name for name in ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json")]
    fetched.append(tmp_path / "hub" / "datasets" / "maker" / "talks" / "data" / "train.jsonl")
    assert json.loads(planned.stdout)["bytes_to_fetch"] == sum(path.stat().st_size for path in fetched)
    rows = [row for path in sorted(published.rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    assert len(rows) == 17  # in the other 7, arguments do not fit the tools
    assert all(row["text"].endswith("<|im_start|>calm<|im_end|>") for row in rows)
    assert {row["template"].rpartition(" ")[0] for row in rows} == {f"chat/maker/student@{model['revision']}"}
    scores = pq.read_table(next((data / "nemotron/whole/nll_scores").rglob("scores.parquet"))).to_pylist()
    assert {row["id"] for row in scores if np.isfinite(row["nll_mean"])} == {row["id"] for row in rows}
    assert len(list((data / "nemotron/whole/training_subsets").rglob("subset_every/**/*.parquet"))) == 1

    split = data / "nemotron/whole/normalized_shards/talks/train"
    traced = corpusmill("trace", split, "--row", "3", env=env)
    question = next(message["content"] for message in seeded_row(3)["messages"] if message["role"] == "user")
    [line] = [line for line in traced.stdout.splitlines() if line.startswith("asked ")]
    assert line.split()[1:] == question.split()
