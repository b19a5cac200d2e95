"""Views of a mixture, for people and trainers: figures of its inventory and segments, and copies of them under names of
its own; the page on mixtures, of their sources, licences and tokenizers; what a trainer asks of token shards, as YAML.

mixtures/<recipe>_shards.json       records, sequences, shards, tokens and tokens per licence of each corpus, and of all
mixtures/<recipe>_full_shards.json  the inventory: every shard with its rows and sha256
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipeline_assets.corpus.licences import UNKNOWN, LicenceTable
from pipeline_assets.corpus.packing.recipe import TOKENIZER_FILE
from pipeline_assets.corpus.pages import code, markdown_table, plain
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.durable import make_folder, write_durably
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.recipe import UNPINNED, read_yaml

INVENTORY_JSON, INVENTORY_MD, SEGMENTS_JSON = "inventory.json", "inventory.md", "segments.json"
MIXTURES = "mixtures"  # the folder of figures, among the artifacts of a recipe
_ANSWERS = {True: "yes", False: "no", None: "not known"}
_BEGINNING = """# Stage-2 mixtures

Written by `corpusmill stage2 docs` from `manifests/`, not by hand. How it is done is told in [stage 2](stage2.md).
"""
Content = dict[str, Any]
_SHOWN_LICENCES = 5
_SAME = ("dtype", "seq_len", "vocabulary_size")


def preview_token_shards(shards: Artifact) -> list[dict[str, str]]:
    """What licences its tokens have, the most frequent first."""
    counts = shards.manifest.identity.counts
    by_licence = sorted(counts["license_tokens"].items(), key=lambda item: (-item[1], item[0]))
    return [
        {"licence": tag, "of the tokens": f"{tokens / counts['tokens']:.2%}", "tokens": f"{tokens:,}"}
        for tag, tokens in by_licence[:_SHOWN_LICENCES]
    ]


def preview_inventory(inventory: Artifact) -> list[dict[str, str]]:
    """A row a corpus."""
    return [
        {"corpus": name} | {key: f"{value:,}" for key, value in figures.items() if isinstance(value, int)}
        for name, figures in _corpora(inventory).items()
    ]


def preview_segments(segments: Artifact) -> list[dict[str, str]]:
    """A row a segment."""
    rows = []
    for one in json.loads(segments.path(SEGMENTS_JSON).read_bytes())["segments"]:
        ranges = {name: "{:,} to {:,}".format(*of["rows"]) for name, of in one["corpora"].items()}
        rows.append({"segment": one["name"], "tokens": f"{one['stop'] - one['start']:,}", **ranges})
    return rows


def write_mixture_figures(inventory: Artifact) -> Path:
    """Writes both files beside the artifacts of the recipe; the folder that they lie in."""
    of_recipe = inventory.folder.parent
    folder, corpora = of_recipe / MIXTURES, _corpora(inventory)
    make_folder(folder)
    written = {"full_shards": inventory.path(INVENTORY_JSON).read_bytes()}
    written["shards"] = json.dumps({"corpora": corpora, "all": _sum(corpora)}, indent=1).encode() + b"\n"
    for name, data in written.items():
        write_durably(folder / f"{of_recipe.name}_{name}.json", data)
    return folder


def _corpora(inventory: Artifact) -> dict[str, dict[str, Any]]:
    """Figures by corpus."""
    corpora = json.loads(inventory.path(INVENTORY_JSON).read_bytes())["corpora"]
    return {
        name: {
            "records": figures["documents"],
            "sequences": figures["sequences"],
            "shards": len(figures["shards"]),
            "tokens": figures["tokens"],
            "license_tokens": figures["license_tokens"],
        }
        for name, figures in corpora.items()
    }


def _sum(corpora: dict[str, dict[str, Any]]) -> dict[str, Any]:
    licences, numbers = Counter[str](), Counter[str]()
    for figures in corpora.values():
        licences.update(figures["license_tokens"])
        numbers.update({name: count for name, count in figures.items() if isinstance(count, int)})
    return {**numbers, "license_tokens": dict(licences)}


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
        one = licences[licences.tag_of(source.get("license_tag") or UNKNOWN) or UNKNOWN]
        by_row = (source.get("columns") or {}).get("license")
        revision, amount = source.get("revision"), source.get("amount") or {}
        rows.append(
            [
                plain(source["source"]),
                code(source.get("dataset") or source.get("path")),
                "of this machine" if revision is None else "not pinned" if revision == UNPINNED else code(revision),
                ", ".join(f"{count:,} {unit}" for unit, count in amount.items()) or "all",
                f"each row's {code(by_row)}" if by_row else code(one.tag),
                "as each row says" if by_row else _ANSWERS[one.redistributable],
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


def train_config(folders: Mapping[str, Path], weights: Mapping[str, str], root: Path) -> str:
    """
    Args:
        folders: of sealed shards, by corpus.
        weights: by corpus.
        root: the data root.
    Raises:
        InputError: shards are not sealed, or of different tokenizers or lengths.
    """
    corpora, said = dict[str, Any](), list[dict[str, Any]]()
    for corpus, folder in folders.items():
        manifest = open_artifact(folder).manifest
        counts, decisions = manifest.identity.counts, manifest.identity.decisions
        file = root / str(manifest.provenance[TOKENIZER_FILE])
        tokenizer = decisions["tokenizer"] | {"path": str(file.absolute())}
        end = {"eos_id": decisions["end_of_document"]}
        said.append({name: decisions[name] for name in _SAME} | end | {"tokenizer": tokenizer})
        if said[-1] != said[0]:
            what = f"{corpus} was encoded otherwise than {next(iter(folders))}"
            raise InputError(what, folder, "build both by one recipe")
        corpora[corpus] = {
            "glob": str(folder.absolute() / "shard_*.npy"),
            "weight": float(weights[corpus]),
            "sequences": counts["sequences"],
            "tokens": counts["tokens"],
            "digest": manifest.digest,
        }
    return yaml.safe_dump({**said[0], "corpora": corpora}, sort_keys=False, allow_unicode=True, width=120)
