"""Estimated and exact token counts in the report on a large corpus."""

import json
import random
import re
import string
from dataclasses import replace
from pathlib import Path

import pytest
from corpus_reports import PAGES, Rows, read_figures, read_page, words
from stage_a_build import INLINE, NO_COMMIT, build, local_source
from stage_a_sources import recipe_content, with_decontamination, with_dedup, with_pack, write_quiz

from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.commands.lines import artifact_lines
from pipeline_assets.corpus.corpus_report import preview_report
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import StageARecipe
from resources.artifact_metadata import artifact_metadata

ENCODER = load_encoder(VOCABULARY_SHA256)
_draw = random.Random(7)
_WORDS = [f"{first}{last}" for first in ("river", "Fluss", "川", "नदी") for last in string.ascii_lowercase]
LARGE: Rows = [
    {"text": " ".join(_draw.choices(_WORDS, k=100 + number % 900)), "key": f"n-{number}"} for number in range(1500)
]


@pytest.fixture(scope="module")
def large_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a packed corpus of a 7 MB source and a small one, each with a copy."""
    root = tmp_path_factory.mktemp("large")
    sources = {"numbers": [*LARGE, LARGE[0] | {"key": "copy"}], "pages": [*PAGES, PAGES[0] | {"key": "copy of p"}]}
    content = recipe_content(NO_COMMIT) | {"sources": [local_source(root, *source) for source in sources.items()]}
    with_dedup(content)
    write_quiz(root / "quiz", ["Of this nobody speaks here"])
    with_decontamination(content, str(root / "quiz"))
    with_pack(content)
    content["pack"] |= {"num_seqs": None, "weights": None, "seq_len": 2048}
    content["shard_text_bytes"] = 1 << 20
    recipe = StageARecipe.model_validate(content)
    list(run_targets(recipe.targets(), Run(root, INLINE)))
    (root / "recipe.json").write_text(json.dumps(content))
    return root


def report_again(root: Path, engine: RunSettings = INLINE, **changes: object) -> Artifact:
    """Report on the corpus of `large_root` again, in another folder."""
    recipe = StageARecipe.model_validate(json.loads((root / "recipe.json").read_text()) | changes)
    target = replace(recipe.target("stage_a/report"), folder=Path("again", str(len(list(root.glob("again/*"))))))
    return target.kind.build(target, Run(root, engine))


def test_estimated_tokens_of_a_large_source_are_never_called_tokens(large_root: Path) -> None:
    report = report_again(large_root)

    figures = read_figures(report)
    exact = sum(ENCODER.encode([row["text"] for row in LARGE] + [LARGE[0]["text"]]).lengths)
    large, small = figures["sources"]["numbers"], figures["sources"]["pages"]
    [(name, sample)] = figures["estimates"]["sources"].items()
    assert (name, sample["documents"]) == ("numbers", 1501)
    assert 0.5 < float(sample["sampled_share"]) < 0.9
    assert large["estimated_tokens"] == pytest.approx(exact, rel=2 * float(sample["error_fraction"]))
    assert sum(large["estimated_lengths"]) == 1501
    assert (small["tokens"], sum(small["lengths"])) == (2 * len(ENCODER.oracle.encode(PAGES[0]["text"])), 2)
    assert figures["totals"]["estimated_tokens"] == large["estimated_tokens"] + small["tokens"]
    for estimate in (large, figures["totals"], figures["domains"]["books"], report.manifest.identity.counts):
        assert "tokens" not in estimate and "lengths" not in estimate
    assert report.manifest.identity.counts["estimated_tokens"] == figures["totals"]["estimated_tokens"]


def test_estimates_have_a_sign_and_an_explanation(large_root: Path) -> None:
    report = report_again(large_root)

    page = read_page(report)
    estimate = read_figures(report)["totals"]["estimated_tokens"]
    rounded = f"≈ {round(estimate, 3 - len(str(estimate))):,}"
    assert f"<td>in the sources</td><td class='number'>1,503</td><td class='number'>{rounded}</td>" in page
    assert "A number with ≈ is an estimate. The tokens of the sources below are estimated from sampled" in words(page)
    assert "numbers: 1,501 documents (estimated)" in page and "pages: 2 documents<" in page
    assert [preview["tokens"][0] for preview in preview_report(report)] == ["≈", "2"]
    assert f"estimated tokens {estimate:,}" in "\n".join(artifact_lines(report))
    metadata = artifact_metadata(report, SYSTEMS.kinds, was_current=False)
    assert metadata["estimated_tokens"].value == estimate
    assert "tokens" not in metadata


def test_tokens_of_the_packed_corpus_are_exact_without_reading_documents(large_root: Path) -> None:
    report, texts = report_again(large_root), [row["text"] for row in [*LARGE, *PAGES]]

    for step in ("deduplicated", "decontaminated"):
        for shard in (large_root / "stage_a/mixed" / step / "mixed/shards").iterdir():
            size = shard.stat().st_size
            shard.unlink()  # it may be a link to a shard of the source
            shard.write_bytes(bytes(size))
    rebuilt = report_again(large_root)

    assert rebuilt.manifest.digest == report.manifest.digest
    steps = read_figures(report)["steps"]
    assert steps["without items of evaluation sets"] == {
        "documents": 1501,
        "utf8_bytes": sum(len(text.encode()) for text in texts),
        "tokens": int(sum(ENCODER.encode(texts).lengths)),
    }
    assert steps["without duplicates"] == {"documents": 1501}


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_no_estimate(large_root: Path, workers: int) -> None:
    assert report_again(large_root, RunSettings(workers)).manifest.digest == report_again(large_root).manifest.digest


def test_a_report_without_a_tokenizer_has_only_the_tokens_of_the_packed_set(large_root: Path) -> None:
    report = report_again(large_root, tokenizer=None)

    figures, page = read_figures(report), read_page(report)
    measured = ("steps", "totals", "sources", "domains", "licences", "groups", "decontamination")
    assert not re.search("tokens|lengths", json.dumps([figures[name] for name in measured[1:]]))
    assert [name for name, size in figures["steps"].items() if "tokens" in size] == ["packed, 3,503 rows"]
    assert report.manifest.identity.tokenizer is None
    assert report.manifest.identity.counts.keys() == {"documents", "text_bytes"}
    assert "<h2>Lengths</h2>" not in page and "≈" not in page
    assert preview_report(report)[1] == {"source": "pages", "documents": "2", "utf8_bytes": "90"}


def test_sources_that_are_packed_directly_have_an_exact_total(tmp_path: Path) -> None:
    content = recipe_content(NO_COMMIT) | {"sources": [local_source(tmp_path, "numbers", LARGE)]}
    with_pack(content)
    content["pack"] |= {"num_seqs": None, "weights": None, "seq_len": 2048}
    content["shard_text_bytes"] = 1 << 20

    report = build(StageARecipe.model_validate(content), tmp_path)["stage_a/report"]

    exact = int(sum(ENCODER.encode([row["text"] for row in LARGE]).lengths))
    assert report.manifest.identity.counts["tokens"] == exact
    assert read_figures(report)["steps"]["in the sources"]["tokens"] == exact
    assert "estimated_tokens" in read_figures(report)["sources"]["numbers"]
