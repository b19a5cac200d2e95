"""Unchanged shards of a step: verified links with the digests of rewritten ones."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import decontamination_build
import dedup_build
import pytest
import zstandard
from document_corpus import numbered
from forgery import flip
from plain_dedup import PlainDocument
from refusals import refusal
from stage_a_build import INLINE, local_source, parse_recipe

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter
from pipeline_assets.spine.artifact import Artifact, read_manifest
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError
from pipeline_assets.systems.stage_a import StageARecipe

TEXTS = [
    "An address: a@b.org",
    *(3 * ["A note of six words in all.", "Ein Wort, naïve ones.", "日本語の文です。", "\U0001f98a"]),
]
WITHOUT_RULES: dict[str, Any] = {}
WITHOUT_LIMITS = {"length": {"min_words": 0}}  # a rule that drops nothing, so every document is read


def write_notes(folder: Path, filters: Mapping[str, Any]) -> StageARecipe:
    """Write notes in three shards: the first has an address, the last no long text."""
    rows = [{"text": text, "key": f"note-{number}"} for number, text in enumerate(TEXTS)]
    source = local_source(folder, "notes", [*rows, {"text": None}], filters=filters, max_reject_fraction="0.5")
    return parse_recipe(source, shard_text_bytes=330, refuse_licences=[])


def build_step(recipe: StageARecipe, root: Path, step: str, settings: RunSettings = INLINE) -> Artifact:
    target = recipe.target(f"stage_a/{step}", "notes")
    return target.kind.build(target, Run(root, settings))


def build_both(folder: Path, root: Path, filters: Mapping[str, Any], settings: RunSettings = INLINE) -> list[Artifact]:
    """Build the normalized and the filtered notes."""
    recipe = write_notes(folder, filters)
    return [build_step(recipe, root, step, settings) for step in ("raw", "normalized", "filtered")][1:]


def shards(corpus: Artifact) -> list[Path]:
    return [corpus.folder / file.path for file in corpus.manifest.storage if file.path.startswith("shards/")]


def links(output: Artifact, *inputs: Artifact) -> list[bool]:
    """Check for each shard whether it is a link to the input shard in its place."""
    originals = [path for corpus in inputs for path in shards(corpus)]
    return [path.samefile(original) for path, original in zip(shards(output), originals, strict=True)]


def refuse_links(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number), str(source), None, str(target))

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.parametrize(
    "settings", [INLINE, RunSettings(2), RunSettings(zstd_level=9)], ids=["inline", "workers", "level"]
)
def test_without_rules_files_and_counts_are_those_of_documents_read(settings: RunSettings, tmp_path: Path) -> None:
    [normalized, unread], [also_normalized, read] = (
        build_both(tmp_path, tmp_path / name, filters, settings)
        for name, filters in (("unread", WITHOUT_RULES), ("read", WITHOUT_LIMITS))
    )

    assert links(unread, normalized) == links(read, also_normalized) == [True] * 3
    assert unread.manifest.identity.files == read.manifest.identity.files
    assert unread.manifest.identity.counts == read.manifest.identity.counts
    assert unread.manifest.identity.counts["text_bytes"] == sum(len(text.encode()) for text in TEXTS)


def test_a_filter_links_only_shards_that_it_does_not_change(tmp_path: Path) -> None:
    dropping = build_both(tmp_path, tmp_path / "drops", {"length": {"max_characters": 26}})
    changing = build_both(tmp_path, tmp_path / "changes", {"masking": {"emails": True, "public_ips": False}})

    assert links(dropping[1], dropping[0]) == [False, False, True]
    assert links(changing[1], changing[0]) == [False, True, True]


def test_deduplication_links_the_shards_without_duplicates(tmp_path: Path) -> None:
    texts = [numbered(100 * number, 40) for number in range(12)]
    copies = [*texts[:11], "A text of its own."]  # one group of copies more than the report shows
    plain = [PlainDocument(f"d{number}", text) for number, text in enumerate([*texts, *copies])]
    sources = dedup_build.write_corpus(tmp_path / "corpus", plain, 2)

    kept = dedup_build.deduplicate(tmp_path, sources, dedup_build.recipe())

    assert links(kept, *sources.values()) == [True] * 6 + [False] * 6
    assert [file.rows for file in kept.manifest.identity.files[:12]] == [2] * 6 + [0] * 5 + [1]
    shown = (kept.folder / "groups.json").read_bytes()
    assert b'"d0"' in shown and b'"d10"' not in shown


def test_decontamination_links_the_shards_without_contamination(tmp_path: Path) -> None:
    texts = {f"d{number}": numbered(100 * number, 40) for number in range(6)}
    corpus = decontamination_build.write_corpus(tmp_path, texts, 2)
    quiz = decontamination_build.items_set(tmp_path / "quiz", "quiz", {"q": texts["d2"]})

    kept = decontamination_build.decontaminate(tmp_path, corpus, [quiz], decontamination_build.recipe())

    assert links(kept, corpus) == [True, False, True]


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EMLINK, errno.EPERM], ids=errno.errorcode.get)
def test_a_copy_in_place_of_a_refused_link_has_the_same_digest(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [_, linked] = build_both(tmp_path, tmp_path / "linked", WITHOUT_RULES)

    refuse_links(monkeypatch, number)
    normalized, copied = build_both(tmp_path, tmp_path / "copied", WITHOUT_RULES)

    assert links(copied, normalized) == [False] * 3
    assert [path.read_bytes() for path in shards(copied)] == [path.read_bytes() for path in shards(normalized)]
    assert (copied.manifest.digest, copied.manifest.storage) == (linked.manifest.digest, linked.manifest.storage)


@pytest.mark.parametrize("settings", [INLINE, RunSettings(2)], ids=["inline", "workers"])
def test_a_shard_with_other_valid_text_is_read_and_not_sealed(settings: RunSettings, tmp_path: Path) -> None:
    recipe, root = write_notes(tmp_path, WITHOUT_LIMITS), tmp_path / "data"
    _, normalized = (build_step(recipe, root, step) for step in ("raw", "normalized"))
    changed = shards(normalized)[1]
    with open(changed, "rb") as sealed, JsonlZstWriter(changed.with_name("other"), zstd_level=3) as other:
        text = zstandard.ZstdDecompressor().stream_reader(sealed).read()
        other.write_lines(text.replace(b"six", b"vix"), 1)
    assert other.path.stat().st_size == changed.stat().st_size  # so only the hash can differ
    other.path.rename(changed)

    message = refusal(lambda: build_step(recipe, root, "filtered", settings), InputError)

    assert message.startswith(f"{changed}: sha256 is ") and ", sealed with " in message
    assert read_manifest(root / "stage_a/mixed/filtered/notes") is None


@pytest.mark.parametrize("settings", [INLINE, RunSettings(2)], ids=["inline", "workers"])
@pytest.mark.parametrize("has_links", [True, False], ids=["link", "copy"])
def test_a_flipped_bit_of_a_linked_shard_is_not_sealed(
    has_links: bool, settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, root = write_notes(tmp_path, WITHOUT_RULES), tmp_path / "data"
    _, normalized = (build_step(recipe, root, step) for step in ("raw", "normalized"))
    if not has_links:
        refuse_links(monkeypatch, errno.EXDEV)
    flip(shards(normalized)[1])

    message = refusal(lambda: build_step(recipe, root, "filtered", settings), InputError)

    assert message.startswith(f"{shards(normalized)[1]}: sha256 is ") and ", sealed with " in message
    assert message.endswith(f"; remove {normalized.folder}, and run its recipe again")
    assert read_manifest(root / recipe.target("stage_a/filtered", "notes").folder) is None


def test_a_flip_between_read_and_link_of_a_shard_is_not_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [numbered(100 * number, 40) for number in range(4)]
    plain = [PlainDocument(f"d{number}", text) for number, text in enumerate(texts)]
    sources, link = dedup_build.write_corpus(tmp_path / "corpus", plain, 2), os.link
    [corpus] = sources.values()

    def flip_and_link(source: Path, target: Path) -> None:
        flip(source)
        link(source, target)

    monkeypatch.setattr(os, "link", flip_and_link)
    message = refusal(lambda: dedup_build.deduplicate(tmp_path, sources, dedup_build.recipe()), InputError)

    assert message.startswith(f"{shards(corpus)[0]}: sha256 is ")
    assert read_manifest(tmp_path / "result") is None
