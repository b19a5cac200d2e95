"""Stage 2 from a hub to verified shards: contents, figures and refusals."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from document_corpus import lines_in
from refusals import refusal
from stage2_build import CODE, INLINE, Change, build, recipe_with, write_datasets
from stage_a_build import digests

from pipeline_assets.build.rows.row_stores import open_rows
from pipeline_assets.build.rows.source_record import read_record
from pipeline_assets.build.rows.source_row import format_place
from pipeline_assets.build.rows.trace import trace_row
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.corpus.readers.hub_files import HubFiles
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
def built(hub: LoopbackHub, files: HubFiles, root: Path) -> dict[str, Artifact]:
    return build(recipe_with(root, hub.commits()), root, files)


def read_documents(corpus: Artifact) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines_in(corpus)]


def identity_counts(artifact: Artifact) -> dict[str, Any]:
    return artifact.manifest.identity.counts


def test_every_hub_row_is_in_the_ledger_of_each_stage(built: dict[str, Artifact]) -> None:
    raw, filtered = built["stage2/raw_corpus/web"], built["stage2/filtered/web"]
    assert identity_counts(raw)["ledger"] == {"in": 42, "out": 42, "dropped": {}, "rejected": {}}
    dropped = identity_counts(filtered)["ledger"]["dropped"]
    assert dropped == {"few_characters": 1, "other_language": 1}

    by_source = identity_counts(built["stage2/deduplicated"])["by_source"]
    assert [by_source[source]["in"] for source in ("web", "pages", "code")] == [40, 41, 40]
    assert by_source["pages"]["exact_duplicate"] == 1

    for source in ("web", "pages", "code"):
        shards = built[f"stage2/token_shards/{source}"].manifest.identity
        assert shards.ledger.rows_in == by_source[source]["out"] and shards.ledger.adds_up
        assert shards.counts["tokens"] == 64 * shards.counts["sequences"]


def test_decoded_shards_are_the_filtered_texts_in_the_models_normal_form(built: dict[str, Artifact]) -> None:
    model = built["stage2/tokenizer"].path("spm_160_unigram.model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    for source in ("web", "pages", "code"):
        shards = open_shards(built[f"stage2/token_shards/{source}"].folder)
        stream = np.concatenate([shards[row] for row in range(len(shards))]).astype(np.int64).tolist()
        ends = [place for place, token in enumerate(stream) if token == pieces.eos_id()]
        texts = [pieces.decode(stream[start + 1 : end]) for start, end in zip([-1, *ends], ends, strict=False)]
        kept_texts = [doc["text"] for doc in read_documents(built["stage2/deduplicated"]) if doc["source"] == source]

        assert len(texts) >= len(kept_texts) - 2 and len(texts) > 10
        assert texts == [pieces.decode(pieces.encode(text)) for text in kept_texts[: len(texts)]]
        assert "⁇" not in "".join(texts)


def test_raw_corpora_record_their_origin_card_and_licences(built: dict[str, Artifact], hub: LoopbackHub) -> None:
    code = built["stage2/raw_corpus/code"]
    readme, card, licences = (code.path(name).read_text() for name in ("README.md", "DATASET_CARD.md", "LICENSES.md"))

    assert hub.commits()[CODE] in readme and "retrieved" in readme and "file-*.json.gz" in readme
    assert card == (hub.folder / "datasets" / CODE / "README.md").read_text()
    assert "| `mit` | [MIT License](https://opensource.org/license/mit) | 20 |" in licences
    assert identity_counts(code)["licences"]["apache-2.0"]["documents"] == 20
    assert {doc["license_tag"] for doc in read_documents(code)} == {"mit", "apache-2.0"}
    assert set(identity_counts(built["stage2/token_shards/code"])["license_tokens"]) == {"mit", "apache-2.0"}


def test_tokenizer_figures_compare_each_corpus_with_o200k(built: dict[str, Artifact]) -> None:
    tokenizer = built["stage2/tokenizer"]
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
    for corpus, target_bytes in (("web", 10_000), ("pages", 5_000), ("code", 5_000)):
        assert figures["corpora"][corpus]["sample_bytes"] == pytest.approx(target_bytes, rel=0.3)


def test_a_tokenizer_does_not_depend_on_the_order_of_its_sources(
    built: dict[str, Artifact], hub: LoopbackHub, files: HubFiles, root: Path, tmp_path: Path
) -> None:
    def reverse_sources(recipe: dict[str, Any]) -> None:
        recipe["tokenizer"]["sources"] = dict(reversed(recipe["tokenizer"]["sources"].items()))

    assert digests(build(recipe_with(tmp_path, hub.commits(), reverse_sources), tmp_path, files)) == digests(built)
    assert rebuild(built["stage2/tokenizer"].folder, Run(root, INLINE, files), SYSTEMS.kinds).is_identical


def test_code_survives_a_round_trip_without_normalization(hub: LoopbackHub, files: HubFiles, tmp_path: Path) -> None:
    def use_identity(recipe: dict[str, Any]) -> None:
        recipe["tokenizer"] |= {"normalization": "identity", "keeps_blanks": True, "byte_fallback": True}
        recipe["tokenizer"]["vocab_size"] = 400

    built = build(recipe_with(tmp_path, hub.commits(), use_identity), tmp_path, files)

    figures = json.loads(built["stage2/tokenizer"].path("tokenizer.json").read_bytes())
    assert {item["round_trip"] for item in figures["corpora"].values()} == {"1.0000"}
    shards = open_shards(built["stage2/token_shards/code"].folder)
    model = sentencepiece.SentencePieceProcessor(
        model_file=str(built["stage2/tokenizer"].path("spm_400_unigram.model"))
    )
    ids = shards[0].astype(int).tolist()
    first = next(item for item in read_documents(built["stage2/deduplicated"]) if item["source"] == "code")["text"]
    assert model.decode(ids[: ids.index(model.eos_id())] if model.eos_id() in ids else ids) in first


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(RunSettings(workers=1), id="1", marks=pytest.mark.slow),
        pytest.param(RunSettings(workers=2), id="2"),
    ],
)
def test_workers_change_no_digest(
    engine: RunSettings, built: dict[str, Artifact], hub: LoopbackHub, files: HubFiles, tmp_path: Path
) -> None:
    assert digests(build(recipe_with(tmp_path, hub.commits()), tmp_path, files, engine)) == digests(built)


# Refusals


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda recipe: recipe["shards"].update(sources={"web": "0.5", "pages": "0.4"}), "sum to 1, got 0.9"),
        (lambda recipe: recipe["tokenizer"].update(sources={"wbe": "1"}), "wbe has a weight but is not a source"),
        (lambda recipe: recipe["sources"][0].update(license_tag="unknown"), "no licence is set for web"),
        (lambda recipe: recipe["sources"][0].update(source=["web"], license_tag="unknown"), "must be text, got"),
        (lambda recipe: recipe.pop("tokenizer"), "`shards` requires `tokenizer`"),
        (lambda recipe: recipe.pop("shards"), "`segments` requires `shards`"),
        (lambda recipe: recipe.update(mixture="x"), "both `mixture` and `shards` have shards for `segments`"),
        (
            lambda recipe: recipe.update(mixture="x", segments=None, shards=None),
            "`mixture` has no effect without `segm",
        ),
        (lambda recipe: recipe["sources"][0].update(revision="main"), "a revision must be a commit"),
        (
            lambda recipe: recipe["segments"]["segments"][1].update(tokens=63),
            "segment second has 63 tokens, fewer than a row of 64",
        ),
    ],
)
def test_an_invalid_recipe_is_refused_by_key(change: Change, expected: str, hub: LoopbackHub, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        recipe_with(tmp_path, hub.commits(), change)

    reported = [error.value, *error.value.others]
    assert any(expected in error.what for error in reported), [error.what for error in reported]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda recipe: recipe["tokenizer"].update(vocab_size=5000), "for this sample, got 5,000"),
        (lambda recipe: recipe["sources"][1]["columns"].update(text="body"), "column `body` not found"),
        (lambda recipe: recipe["sources"][0]["filters"].update(length={"min_words": 9999}), "none of the 42 documents"),
        (lambda recipe: recipe["sources"][0].update(revision="0" * 40), "no revision is pinned yet"),
    ],
)
def test_an_impossible_build_is_refused_in_one_line(
    change: Change, expected: str, hub: LoopbackHub, files: HubFiles, tmp_path: Path
) -> None:
    message = refusal(lambda: build(recipe_with(tmp_path, hub.commits(), change), tmp_path, files))

    assert expected in message and "\n" not in message
    assert not (tmp_path / "stage2/small/inventory").exists()


def test_a_model_with_an_unexpected_hash_fails_before_any_shard(
    hub: LoopbackHub, files: HubFiles, built: dict[str, Artifact], tmp_path: Path
) -> None:
    sha256 = built["stage2/tokenizer"].manifest.identity.decisions["sha256"]
    right = recipe_with(tmp_path, hub.commits(), lambda recipe: recipe["tokenizer"].update(expected_sha256=sha256))
    assert digests(build(right, tmp_path, files)) == digests(built)

    wrong = recipe_with(tmp_path, hub.commits(), lambda recipe: recipe["tokenizer"].update(expected_sha256="0" * 64))
    assert wrong.target("stage2/tokenizer").state(tmp_path)[0] == "failed"


def test_only_a_gated_source_fails_and_its_terms_page_is_named(tmp_path: Path) -> None:
    write_datasets(tmp_path / "hub")
    (tmp_path / "hub" / "datasets" / CODE / ".gated").touch()
    with LoopbackHub(tmp_path / "hub") as hub:
        recipe = recipe_with(tmp_path, hub.commits())
        run = Run(tmp_path, INLINE, HubFiles(tmp_path / "cache", endpoint=hub.endpoint, tries=1))
        message = refusal(lambda: list(run_targets(recipe.targets(), run, keep_going=True)))

    assert f"accept the terms on {hub.endpoint}/datasets/{CODE}" in message
    for source in ("web", "pages"):  # everything else depends on code
        assert recipe.target("stage2/filtered", source).is_up_to_date(tmp_path)


def test_a_corpus_without_a_known_licence_is_refused(tmp_path: Path) -> None:
    write_datasets(tmp_path / "hub")
    lines = [json.dumps({"content": f"value = {number}\n" * 50, "license": "homemade"}) for number in range(9)]
    packed = gzip.compress("\n".join(lines).encode())
    (tmp_path / "hub" / "datasets" / CODE / "file-0.json.gz").write_bytes(packed)
    with LoopbackHub(tmp_path / "hub") as hub:
        files = HubFiles(tmp_path / "cache", endpoint=hub.endpoint, tries=1)
        message = refusal(lambda: build(recipe_with(tmp_path, hub.commits()), tmp_path, files))

    assert "0 of 9 documents have a known licence" in message


# Local code


def test_local_code_has_the_licence_of_its_repository_and_is_rebuilt(tmp_path: Path) -> None:
    licences = {"one": "MIT License\n\nSPDX-License-Identifier: MIT\n", "two": "Ask the author."}
    for repository, licence in licences.items():
        folder = tmp_path / "code" / repository
        folder.mkdir(parents=True)
        (folder / "LICENSE").write_text(licence)
        (folder / "module.py").write_text(f"def name():\n    return {repository!r}\n" * 9)
    code = {"kind": "local", "source": "code", "path": str(tmp_path / "code"), "files": ["**/*.py"]}
    code |= {"text_endings": [".py"], "license_files": "LICENSE*", "license_tag": "unknown", "domain": "code"}
    recipe = Stage2Recipe.from_mapping({"system": "stage2", "name": "here", "sources": [code]}, "made")

    built = build(recipe, tmp_path)

    documents = read_documents(built["stage2/raw_corpus/code"])
    tags = {doc["meta"]["source_file"]: doc["license_tag"] for doc in documents}
    assert tags == {"one/module.py": "mit", "two/module.py": "unknown"}
    for artifact in built.values():
        assert rebuild(artifact.folder, Run(tmp_path, INLINE), SYSTEMS.kinds).is_identical


def test_a_traced_row_is_read_from_its_own_record(built: dict[str, Artifact], root: Path, files: HubFiles) -> None:
    for source, role in (("web", "stage2/token_shards/web"), ("code", "stage2/token_shards/code")):
        [traced, *_] = trace_row(open_rows(built[role].folder, SYSTEMS.kinds), 5)
        row = traced.text.source.rows[0]
        record = json.loads(read_record(row, files))

        assert format_place(row) == f"row {row.row:,}"
        assert record["text" if source == "web" else "content"] == traced.text.part.text
