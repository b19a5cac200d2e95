"""Views of a mixture, for people and trainers: figures of its inventory and segments, and copies of them under names of
its own; the page on mixtures, of their sources, licences and tokenizers; what a trainer asks of token shards, as YAML;
and what lies beside the rows of each source.

    mixtures/<recipe>_shards.json       records, sequences, shards, tokens and those per licence, of each corpus and all
    mixtures/<recipe>_filtered_shards.json  the same with what filters kept and dropped, of corpora that have filters
    mixtures/<recipe>_full_shards.json  the inventory: every shard with its rows and sha256

    README.md        of a source: itself, its commit, what was taken of it and when: a label, since it carries a date
    DATASET_CARD.md  the dataset's card at the commit, as it is; of files of this machine, none
    LICENSES.md      the licences of its documents: how many and how much text under each, and what is known of them
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.licences import UNKNOWN, LicenceTable
from pipeline_assets.corpus.pages import code, markdown_table, plain
from pipeline_assets.corpus.shards.source_notes import ANSWERS
from pipeline_assets.spine.recipe_yaml import read_yaml
from pipeline_assets.spine.section import UNPINNED

_BEGINNING = """# Stage-2 mixtures

Written by `corpusmill stage2 docs` from `manifests/`, not by hand. How it is done is told in [stage 2](stage2.md).
"""
Content = dict[str, Any]


def mixture_page(recipes: Sequence[Content], exported: Path, licences: LicenceTable) -> str:
    """
    Args:
        recipes: as their files say.
        exported: a folder for each version that was exported: its recipe, `tokenizer.json`, …
    """
    lines = [_BEGINNING]
    for recipe in recipes:
        lines += [f"## {plain(recipe['name'])}", "", *_parts(recipe, licences), ""]
    for folder in sorted(path.parent for path in exported.glob("*/inventory.json")):
        lines += [f"## {plain(folder.name)}, as it was built", ""]
        lines += [*_parts(read_yaml(folder / f"{folder.name}.yaml"), licences), *_built(folder), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _parts(recipe: Content, licences: LicenceTable) -> Iterator[str]:
    if recipe.get("sources"):
        yield from _sources(recipe, licences)
    if tokenizer := recipe.get("tokenizer"):
        sha256 = tokenizer.get("expected_sha256") or tokenizer.get("sha256")
        size = f"SentencePiece unigram, {tokenizer['vocab_size']:,} pieces" if "vocab_size" in tokenizer else "given"
        pinned = f"sha256 {code(sha256)}" if sha256 else "its sha256 is what the first build makes"
        yield from ("", f"Tokenizer: {size}; {pinned}.")
    if segments := recipe.get("segments"):
        rows = [
            [plain(one["name"]), one["tokens"], ", ".join(f"{name} {share}" for name, share in one["weights"].items())]
            for one in segments["segments"]
        ]
        of = f" of {code(recipe['mixture'])}" if recipe.get("mixture") else ""
        yield from (f"Segments{of}, in order:", "", *markdown_table(["segment", "tokens", "corpora"], rows))


def _sources(recipe: Content, licences: LicenceTable) -> list[str]:
    head = ["source", "from", "commit", "rows", "licence", "may be passed on", "in the tokenizer", "in training"]
    shares = [(recipe.get(section) or {}).get("sources") or {} for section in ("tokenizer", "shards")]
    rows = list[list[str | int]]()
    for source in recipe["sources"]:
        one = licences[licences.match_tag(source.get("license_tag") or UNKNOWN) or UNKNOWN]
        by_row = (source.get("columns") or {}).get("license")
        revision, amount = source.get("revision"), source.get("amount") or {}
        rows.append(
            [
                plain(source["source"]),
                code(source.get("dataset") or source.get("path")),
                "of this machine" if revision is None else "not pinned" if revision == UNPINNED else code(revision),
                ", ".join(f"{count:,} {unit}" for unit, count in amount.items()) or "all",
                f"each row's {code(by_row)}" if by_row else code(one.tag),
                "as each row says" if by_row else ANSWERS[one.redistributable],
                *(str(share.get(source["source"], "")) for share in shares),
            ]
        )
    return markdown_table(head, rows)


def _built(folder: Path) -> Iterator[str]:
    """What of a version is known once it is built."""
    tokenizer = folder / "tokenizer.json"
    if tokenizer.exists():
        yield from ("", f"The tokenizer's sha256 is {code(json.loads(tokenizer.read_bytes())['sha256'])}.")
    corpora = json.loads((folder / "inventory.json").read_bytes())["corpora"]
    rows = [[plain(name), one["sequences"], one["tokens"], code(one["digest"])] for name, one in corpora.items()]
    yield from ("", *markdown_table(["corpus", "rows", "tokens", "digest"], rows))
