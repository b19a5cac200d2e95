"""Markdown page with sources, licences, tokenizer and segments of each mixture."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.licences import UNKNOWN, LicenceTable
from pipeline_assets.corpus.markdown import code, escape, markdown_table
from pipeline_assets.corpus.shards.source_notes import YES_NO
from pipeline_assets.spine.key_types import UNPINNED
from pipeline_assets.spine.metadata_file import REBUILD, MetadataFormat
from pipeline_assets.spine.recipe_yaml import read_yaml

_PAGE_HEAD = """# Stage-2 mixtures

Written by `corpusmill stage2 docs` from `manifests/`, not by hand. [Stage 2](stage2.md) describes the method.
"""
JsonObject = dict[str, Any]
JSON_FORMAT: MetadataFormat[JsonObject] = MetadataFormat("JSON file of a mixture", 256 << 20, REBUILD, JsonObject)


def mixture_page(recipes: Sequence[JsonObject], exports_folder: Path, licences: LicenceTable) -> str:
    """Return the page on all mixtures, as Markdown.

    `exports_folder` has a subfolder for each built mixture, with recipe, `tokenizer.json` and `inventory.json`.
    """
    lines = [_PAGE_HEAD]
    for recipe in recipes:
        lines += [f"## {escape(recipe['name'])}", "", *_recipe_lines(recipe, licences), ""]
    for folder in sorted(path.parent for path in exports_folder.glob("*/inventory.json")):
        lines += [f"## {escape(folder.name)}, as built", ""]
        recipe = read_yaml(folder / f"{folder.name}.yaml")
        lines += [*_recipe_lines(recipe, licences), *_built_mixture_lines(folder), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _recipe_lines(recipe: JsonObject, licences: LicenceTable) -> Iterator[str]:
    if recipe.get("sources"):
        yield from _source_table(recipe, licences)
    if tokenizer := recipe.get("tokenizer"):
        sha256 = tokenizer.get("expected_sha256") or tokenizer.get("sha256")
        size = f"SentencePiece unigram, {tokenizer['vocab_size']:,} pieces" if "vocab_size" in tokenizer else "given"
        pinned = f"sha256 {code(sha256)}" if sha256 else "the first build sets its sha256"
        yield from ("", f"Tokenizer: {size}; {pinned}.")
    if segments := recipe.get("segments"):
        rows = [
            [
                escape(segment["name"]),
                segment["tokens"],
                ", ".join(f"{name} {w}" for name, w in segment["weights"].items()),
            ]
            for segment in segments["segments"]
        ]
        mixture = f" of {code(recipe['mixture'])}" if recipe.get("mixture") else ""
        yield from (f"Segments{mixture}, in order:", "", *markdown_table(["segment", "tokens", "corpora"], rows))


def _source_table(recipe: JsonObject, licences: LicenceTable) -> list[str]:
    head = ["source", "from", "commit", "rows", "licence", "may be passed on", "in the tokenizer", "in training"]
    shares = [(recipe.get(section) or {}).get("sources") or {} for section in ("tokenizer", "shards")]
    rows = list[list[str | int]]()
    for source in recipe["sources"]:
        licence = licences[licences.match_tag(source.get("license_tag") or UNKNOWN) or UNKNOWN]
        by_row = (source.get("columns") or {}).get("license")
        revision, amount = source.get("revision"), source.get("amount") or {}
        rows.append(
            [
                escape(source["source"]),
                code(source.get("dataset") or source.get("path")),
                "of this machine" if revision is None else "not pinned" if revision == UNPINNED else code(revision),
                ", ".join(f"{count:,} {unit}" for unit, count in amount.items()) or "all",
                f"each row's {code(by_row)}" if by_row else code(licence.tag),
                "depends on the row" if by_row else YES_NO[licence.redistributable],
                *(str(share.get(source["source"], "")) for share in shares),
            ]
        )
    return markdown_table(head, rows)


def _built_mixture_lines(folder: Path) -> Iterator[str]:
    """Yield lines on a built mixture: its tokenizer's hash and its corpora."""
    tokenizer = folder / "tokenizer.json"
    if tokenizer.exists():
        yield from ("", f"The tokenizer's sha256 is {code(JSON_FORMAT.read(tokenizer)['sha256'])}.")
    corpora = JSON_FORMAT.read(folder / "inventory.json")["corpora"].items()
    rows = [[escape(name), corpus["sequences"], corpus["tokens"], code(corpus["digest"])] for name, corpus in corpora]
    yield from ("", *markdown_table(["corpus", "rows", "tokens", "digest"], rows))
