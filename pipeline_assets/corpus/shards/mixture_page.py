"""The page on the mixtures that the project ships: their sources, licences and tokenizers, written from manifests."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.licences import LicenceTable
from pipeline_assets.corpus.markdown import code, plain, table

_ANSWERS = {True: "yes", False: "no", None: "each document says"}
_HEAD = """# Stage-2 mixtures

Written by `corpusmill stage2 docs` from `manifests/`, and not by hand: how it works is told in [stage 2](stage2.md).
"""


def mixture_page(recipes: Sequence[dict[str, Any]], exported: Path, licences: LicenceTable) -> str:
    """
    Args:
        recipes: as their files say.
        exported: the folder of inventories that were exported, by version.
    """
    lines = [_HEAD]
    for recipe in recipes:
        lines += [f"## {plain(recipe['name'])}", "", *_sources(recipe, licences)]
        lines += ["", *_tokenizer(recipe, exported), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _sources(recipe: dict[str, Any], licences: LicenceTable) -> list[str]:
    head = ["source", "from", "commit", "rows", "licence", "may be passed on", "tokenizer", "shards"]
    shares = [(recipe.get(section) or {}).get("sources") or {} for section in ("tokenizer", "shards")]
    rows = []
    for source in recipe.get("sources", ()):
        tag = source.get("license_tag") or "unknown"
        one = licences[licences.tag_of(tag) or "unknown"]
        by_row = (source.get("columns") or {}).get("license")
        licence = f"{code(one.tag)}, or as column {code(by_row)} says" if by_row else code(one.tag)
        amount = ", ".join(f"{count:,} {unit}" for unit, count in (source.get("amount") or {}).items())
        place = source.get("dataset") or source.get("path")
        commit = code(source["revision"][:12]) if "revision" in source else "local"
        passed_on = _ANSWERS[None if by_row else one.redistributable]
        weights = [str(share.get(source["source"], "")) for share in shares]
        rows.append([plain(source["source"]), code(place), commit, amount or "all", licence, passed_on, *weights])
    return table(head, rows)


def _tokenizer(recipe: dict[str, Any], exported: Path) -> Iterator[str]:
    section = recipe.get("tokenizer") or {}
    expected = section.get("expected_sha256") or section.get("sha256")
    if section:
        kind = (
            f"SentencePiece unigram, {section['vocab_size']:,} pieces" if "vocab_size" in section else section["family"]
        )
        yield f"Tokenizer: {kind}; sha256 {code(expected) if expected else 'not fixed: the first build tells it'}."
    for path in sorted(exported.glob(f"{recipe['name']}*/tokenizer.json")):
        yield f"- {path.parent.name}: sha256 {code(json.loads(path.read_bytes())['sha256'])}"
