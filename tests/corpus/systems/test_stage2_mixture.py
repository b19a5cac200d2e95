"""Stage 2 from a hub to verified shards: what is made, what it is made from, and what is refused."""

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from refusals import refusal
from stage2_build import CODE, INLINE, Change, build, recipe_with, write_datasets

from pipeline_assets.build.rows.row_stores import open_rows
from pipeline_assets.build.rows.source_record import read_record
from pipeline_assets.build.rows.source_row import format_place
from pipeline_assets.build.rows.trace import trace_row
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.sealed_shards import shard_rows
from pipeline_assets.corpus.shards.token_shards import open_shards
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage2_mixture import Stage2Recipe
from pipeline_assets.trust.rebuild import rebuild

pytest.importorskip("py3langid", reason="needs the extra `languages`")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    folder = tmp_path_factory.mktemp("hub")
    write_datasets(folder)
    with LoopbackHub(folder) as served:
        yield served


@pytest.fixture(scope="module")
def files(hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory) -> HubFiles:
    return HubFiles(tmp_path_factory.mktemp("cache"), endpoint=hub.endpoint, tries=1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def made(hub: LoopbackHub, files: HubFiles, root: Path) -> dict[str, Artifact]:
    return build(recipe_with(root, hub.commits()), root, files)


def digests(made: Mapping[str, Artifact]) -> dict[str, str]:
    return {role: artifact.manifest.digest for role, artifact in made.items()}


def documents(corpus: Artifact) -> list[dict[str, Any]]:
    blocks = (block for path in shard_rows(corpus) for block in read_line_blocks(corpus.path(path)))
    return [json.loads(line) for block in blocks for line in block.splitlines()]


def counts(artifact: Artifact) -> dict[str, Any]:
    return artifact.manifest.identity.counts


def test_every_row_of_the_hub_is_in_the_ledger_of_each_step(made: dict[str, Artifact]) -> None:
    raw, filtered = made["stage2/raw_corpus/web"], made["stage2/filtered/web"]
    assert counts(raw)["ledger"] == {"in": 42, "out": 42, "dropped": {}, "rejected": {}}
    dropped = counts(filtered)["ledger"]["dropped"]
    assert dropped == {"few_characters": 1, "other_language": 1}

    left = counts(made["stage2/deduplicated"])["by_source"]
    assert [left[source]["in"] for source in ("web", "pages", "code")] == [40, 41, 40]
    assert left["pages"]["exact_duplicate"] == 1

    for source in ("web", "pages", "code"):
        shards = made[f"stage2/token_shards/{source}"].manifest.identity
        assert shards.ledger.rows_in == left[source]["out"] and shards.ledger.adds_up
        assert shards.counts["tokens"] == 64 * shards.counts["sequences"]


def test_decoded_shards_are_the_filtered_texts_in_the_models_normal_form(made: dict[str, Artifact]) -> None:
    model = made["stage2/tokenizer"].path("spm_160_unigram.model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    for source in ("web", "pages", "code"):
        shards = open_shards(made[f"stage2/token_shards/{source}"].folder)
        stream = np.concatenate([shards[row] for row in range(len(shards))]).astype(np.int64).tolist()
        ends = [place for place, token in enumerate(stream) if token == pieces.eos_id()]
        texts = [pieces.decode(stream[start + 1 : end]) for start, end in zip([-1, *ends], ends, strict=False)]
        of_source = [one["text"] for one in documents(made["stage2/deduplicated"]) if one["source"] == source]

        assert len(texts) >= len(of_source) - 2 and len(texts) > 10
        assert texts == [pieces.decode(pieces.encode(text)) for text in of_source[: len(texts)]]
        assert "⁇" not in "".join(texts)


def test_beside_the_rows_lie_their_origin_card_and_licences(made: dict[str, Artifact], hub: LoopbackHub) -> None:
    code = made["stage2/raw_corpus/code"]
    readme, card, licences = (code.path(name).read_text() for name in ("README.md", "DATASET_CARD.md", "LICENSES.md"))

    assert hub.commits()[CODE] in readme and "retrieved" in readme and "file-*.json.gz" in readme
    assert card == (hub.folder / "datasets" / CODE / "README.md").read_text()
    assert "| `mit` | [MIT License](https://opensource.org/license/mit) | 20 |" in licences
    assert counts(code)["licences"]["apache-2.0"]["documents"] == 20
    assert {one["license_tag"] for one in documents(code)} == {"mit", "apache-2.0"}
    assert set(counts(made["stage2/token_shards/code"])["license_tokens"]) == {"mit", "apache-2.0"}


def test_figures_of_a_tokenizer_are_told_for_each_corpus_beside_o200k(made: dict[str, Artifact]) -> None:
    tokenizer = made["stage2/tokenizer"]
    figures = json.loads(tokenizer.path("tokenizer.json").read_bytes())
    copy = tokenizer.folder.parent / "mixtures" / "small_tokenizer.json"

    assert copy.read_bytes() == tokenizer.path("tokenizer.json").read_bytes()
    assert set(figures["corpora"]) == {"web", "pages", "code"}
    assert figures["sample"]["lines_dropped"] == 0
    checksum = json.loads(tokenizer.path("checksum.json").read_bytes())
    assert checksum["sha256"] == figures["sha256"]
    web = figures["corpora"]["web"]
    assert float(web["o200k_bytes_per_token"]) > float(web["bytes_per_token"]) > 1
    vocabulary = tokenizer.path("spm_160_unigram.vocab").read_text().splitlines()
    assert len(vocabulary) == 160 and vocabulary[0].startswith("<unk>\t")


def test_a_tokenizer_comes_out_the_same_whatever_the_order_of_its_sources(
    made: dict[str, Artifact], hub: LoopbackHub, files: HubFiles, tmp_path: Path
) -> None:
    def turned(recipe: dict[str, Any]) -> None:
        recipe["tokenizer"]["sources"] = dict(reversed(recipe["tokenizer"]["sources"].items()))

    assert digests(build(recipe_with(tmp_path, hub.commits(), turned), tmp_path, files)) == digests(made)
    again = rebuild(
        made["stage2/tokenizer"].folder,
        Run(made["stage2/tokenizer"].folder.parents[2], INLINE, files),
        SYSTEMS.kinds,
    )
    assert again.is_identical


def test_code_comes_back_to_the_letter_if_text_is_left(hub: LoopbackHub, files: HubFiles, tmp_path: Path) -> None:
    def identity(recipe: dict[str, Any]) -> None:
        recipe["tokenizer"] |= {"normalization": "identity", "keeps_blanks": True, "byte_fallback": True}
        recipe["tokenizer"]["vocab_size"] = 400

    made = build(recipe_with(tmp_path, hub.commits(), identity), tmp_path, files)

    figures = json.loads(made["stage2/tokenizer"].path("tokenizer.json").read_bytes())
    assert {one["round_trip"] for one in figures["corpora"].values()} == {"1.0000"}
    shards = open_shards(made["stage2/token_shards/code"].folder)
    model = sentencepiece.SentencePieceProcessor(model_file=str(made["stage2/tokenizer"].path("spm_400_unigram.model")))
    ids = shards[0].astype(int).tolist()
    first = next(one for one in documents(made["stage2/deduplicated"]) if one["source"] == "code")["text"]
    assert model.decode(ids[: ids.index(model.eos_id())] if model.eos_id() in ids else ids) in first


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(RunSettings(workers=1), id="1", marks=pytest.mark.slow),
        pytest.param(RunSettings(workers=2), id="2"),
    ],
)
def test_workers_change_no_digest(
    engine: RunSettings, made: dict[str, Artifact], hub: LoopbackHub, files: HubFiles, tmp_path: Path
) -> None:
    assert digests(build(recipe_with(tmp_path, hub.commits()), tmp_path, files, engine)) == digests(made)


def test_a_corpus_is_drawn_by_its_share_whatever_lies_in_other_shards(made: dict[str, Artifact]) -> None:
    figures = json.loads(made["stage2/tokenizer"].path("tokenizer.json").read_bytes())
    for corpus, asked in (("web", 10_000), ("pages", 5_000), ("code", 5_000)):
        assert figures["corpora"][corpus]["sample_bytes"] == pytest.approx(asked, rel=0.3)


# What is refused


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda recipe: recipe["shards"].update(sources={"web": "0.5", "pages": "0.4"}), "sum to 1, got 0.9"),
        (lambda recipe: recipe["tokenizer"].update(sources={"wbe": "1"}), "wbe has a weight but is not a source"),
        (lambda recipe: recipe["sources"][0].update(license_tag="unknown"), "no licence is set for web"),
        (lambda recipe: recipe["sources"][0].update(source=["web"], license_tag="unknown"), "must be text, got"),
        (lambda recipe: recipe.pop("tokenizer"), "`shards` requires `tokenizer`"),
        (lambda recipe: recipe.pop("shards"), "`segments` requires `shards`"),
        (lambda recipe: recipe["sources"][0].update(revision="main"), "a revision must be a commit"),
    ],
)
def test_a_recipe_that_cannot_be_is_told_by_its_key(
    change: Change, said: str, hub: LoopbackHub, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as error:
        recipe_with(tmp_path, hub.commits(), change)

    found = [error.value, *error.value.others]
    assert any(said in one.what for one in found), [one.what for one in found]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda recipe: recipe["tokenizer"].update(vocab_size=5000), "for this sample, got 5,000"),
        (lambda recipe: recipe["sources"][1]["columns"].update(text="body"), "column `body` not found"),
        (lambda recipe: recipe["sources"][0]["filters"].update(length={"min_words": 9999}), "none of the 42 documents"),
        (lambda recipe: recipe["sources"][0].update(revision="0" * 40), "no revision is pinned yet"),
        (lambda recipe: recipe["tokenizer"].update(expected_sha256="ab" * 32), "expected " + "ab" * 32),
    ],
)
def test_what_cannot_be_built_is_told_in_one_line(
    change: Change, said: str, hub: LoopbackHub, files: HubFiles, tmp_path: Path
) -> None:
    told = refusal(lambda: build(recipe_with(tmp_path, hub.commits(), change), tmp_path, files))

    assert said in told and "\n" not in told
    assert not (tmp_path / "stage2/small/inventory").exists()


def test_a_model_of_another_hash_than_expected_makes_no_shard(
    hub: LoopbackHub, files: HubFiles, made: dict[str, Artifact], tmp_path: Path
) -> None:
    sha256 = made["stage2/tokenizer"].manifest.identity.decisions["sha256"]
    right = recipe_with(tmp_path, hub.commits(), lambda recipe: recipe["tokenizer"].update(expected_sha256=sha256))
    assert digests(build(right, tmp_path, files)) == digests(made)

    wrong = recipe_with(tmp_path, hub.commits(), lambda recipe: recipe["tokenizer"].update(expected_sha256="0" * 64))
    assert wrong.target("stage2/tokenizer").state(tmp_path)[0] == "failed"


def test_a_gated_source_fails_alone_with_the_page_to_accept_its_terms_on(tmp_path: Path) -> None:
    write_datasets(tmp_path / "hub")
    (tmp_path / "hub" / "datasets" / CODE / ".gated").touch()
    with LoopbackHub(tmp_path / "hub") as hub:
        recipe = recipe_with(tmp_path, hub.commits())
        run = Run(tmp_path, INLINE, HubFiles(tmp_path / "cache", endpoint=hub.endpoint, tries=1))
        told = refusal(lambda: list(run_targets(recipe.targets(), run, keep_going=True)))

    assert f"accept the terms on {hub.endpoint}/datasets/{CODE}" in told
    for source in ("web", "pages"):  # all else is made from code too
        assert recipe.target("stage2/filtered", source).is_up_to_date(tmp_path)


@pytest.mark.parametrize(
    ("rows", "licence", "cut", "said"),
    [
        (5000, "mit", -500, ["file-0.json.gz", "the gzip stream is truncated"]),
        (9, "homemade", None, ["0 of 9 documents have a known licence"]),
    ],
    ids=["a file that ends in the middle", "no licence that is known"],
)
def test_a_corpus_that_cannot_be_had_whole_or_under_a_licence_is_held_back(
    rows: int, licence: str, cut: int | None, said: list[str], tmp_path: Path
) -> None:
    write_datasets(tmp_path / "hub")
    lines = [json.dumps({"content": f"value = {number}\n" * 50, "license": licence}) for number in range(rows)]
    packed = gzip.compress("\n".join(lines).encode())
    (tmp_path / "hub" / "datasets" / CODE / "file-0.json.gz").write_bytes(packed[:cut])
    with LoopbackHub(tmp_path / "hub") as hub:
        change: Change = lambda recipe: recipe["sources"][2].update(amount={"documents": 100_000})  # noqa: E731
        files = HubFiles(tmp_path / "cache", endpoint=hub.endpoint, tries=1)
        message = refusal(lambda: build(recipe_with(tmp_path, hub.commits(), change), tmp_path, files))

    assert all(word in message for word in said), message


# Code of this machine


def test_code_here_carries_the_licence_of_its_repository_and_is_rebuilt(tmp_path: Path) -> None:
    mit = "MIT License\n\nSPDX-License-Identifier: MIT\n"
    for repository, licence in (("one", mit), ("two", "Ask the author.")):
        folder = tmp_path / "code" / repository
        folder.mkdir(parents=True)
        (folder / "LICENSE").write_text(licence)
        (folder / "module.py").write_text(f"def name():\n    return {repository!r}\n" * 9)
    code = {"kind": "local", "source": "code", "path": str(tmp_path / "code"), "files": ["**/*.py"]}
    code |= {"text_endings": [".py"], "license_files": "LICENSE*", "license_tag": "unknown", "domain": "code"}
    recipe = Stage2Recipe.from_mapping({"system": "stage2", "name": "here", "sources": [code]}, "made")
    made = build(recipe, tmp_path)

    corpus = made["stage2/raw_corpus/code"]
    assert {one["meta"]["source_file"]: one["license_tag"] for one in documents(corpus)} == {
        "one/module.py": "mit",
        "two/module.py": "unknown",
    }
    for artifact in made.values():
        assert rebuild(artifact.folder, Run(tmp_path, INLINE), SYSTEMS.kinds).is_identical


def test_the_record_of_a_drawn_line_is_its_own(made: dict[str, Artifact], root: Path, files: HubFiles) -> None:
    for source, place in (("web", "stage2/token_shards/web"), ("code", "stage2/token_shards/code")):
        [traced, *_] = trace_row(open_rows(made[place].folder, SYSTEMS.kinds), 5)
        row = traced.text.source.rows[0]
        record = json.loads(read_record(row, files))

        assert format_place(row) == f"row {row.row:,}"
        assert record["text" if source == "web" else "content"] == traced.text.part.text
