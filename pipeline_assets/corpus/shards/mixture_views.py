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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from pipeline_assets.corpus.document import LicensedText
from pipeline_assets.corpus.document_shards import SHARDS
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.licences import UNKNOWN, LicenceTable
from pipeline_assets.corpus.normalize.sources import FileSource, HubSource
from pipeline_assets.corpus.packing.recipe import TOKENIZER_FILE
from pipeline_assets.corpus.pages import code, markdown_table, plain
from pipeline_assets.corpus.readers.hub_configs import read_card
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.tokens.losses import LOST_TEXT, Losses
from pipeline_assets.spine.artifact import Artifact, open_artifact, read_manifest
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.durable import make_folder, write_durably
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.recipe_yaml import read_yaml
from pipeline_assets.spine.section import UNPINNED
from pipeline_assets.spine.staging import StagingDir

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
        {"corpus": name}
        | {key: f"{value:,}" for key, value in figures.items() if isinstance(value, int)}
        | {"text lost": f"{float(Losses(**figures[LOST_TEXT]).fraction):.3%}"}
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
    written["shards"] = _figures(corpora)
    filtered = {name: {**one, **kept} for name, one in corpora.items() if (kept := _filter_counts(of_recipe, name))}
    if filtered:
        written["filtered_shards"] = _figures(filtered)
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
            LOST_TEXT: {  # without the fraction: these add up
                key: count
                for key, count in (figures.get(LOST_TEXT) or {}).get(name, {}).items()
                if isinstance(count, int)
            },
        }
        for name, figures in corpora.items()
    }


def _figures(corpora: dict[str, dict[str, Any]]) -> bytes:
    return json.dumps({"corpora": corpora, "all": _sum(corpora)}, indent=1).encode() + b"\n"


def _sum(corpora: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Add up numbers, and numbers by name, of all corpora."""
    sums: dict[str, Any] = {}
    for figures in corpora.values():
        for name, value in figures.items():
            is_by_name = isinstance(value, dict)
            sums[name] = Counter(value) + Counter(sums.get(name)) if is_by_name else value + sums.get(name, 0)
    return sums


def _filter_counts(of_recipe: Path, corpus: str) -> dict[str, Any]:
    """Count what the filters of a corpus read, kept and dropped; empty if its shards derive from no filtered text."""
    manifest = read_manifest(of_recipe / "filtered" / corpus)
    downstream = map(read_manifest, (of_recipe / "shards" / corpus, of_recipe / "deduplicated"))
    used = {entry["digest"] for derived in downstream if derived for entry in derived.identity.upstream}
    if manifest is None or manifest.digest not in used:
        return {}
    ledger = manifest.identity.ledger
    return {"records_in": ledger.rows_in, "records_kept": ledger.out, "dropped": dict(ledger.dropped)}


def mixture_statistics(of_recipe: Path) -> Content:
    """Return the figures of a recipe's mixture in one mapping: sums, figures by corpus, its filters, its tokenizer.

    Args:
        of_recipe: The folder of the recipe's artifacts.
    """
    statistics: Content = {"recipe": of_recipe.name}
    for name in ("shards", "filtered_shards", "tokenizer"):
        path = of_recipe / MIXTURES / f"{of_recipe.name}_{name}.json"
        figures = json.loads(path.read_bytes()) if path.exists() else {}
        if name == "shards":
            statistics |= {**figures.get("all", {}), "corpora": figures.get("corpora", {})}
        elif figures:
            statistics[name] = figures
    return statistics


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


README, CARD_COPY, LICENSES = "README.md", "DATASET_CARD.md", "LICENSES.md"
_SOURCE_KEYS = ("config", "split", "files", "rules", "language", "amount", "seed", "columns")
_NO_CARD = "The dataset has no card at this commit.\n"


def with_source_notes(
    building: StagingDir,
    content: BuildResult,
    source: HubSource | FileSource,
    raw: Manifest,
    licences: LicenceTable,
    hub: HubFiles | None,
) -> BuildResult:
    """The rows of a source, with the files that the module names; `licences`, by tag, is one more of their counts.

    Args:
        content: what was made of the source, in the building folder.
        raw: lists the source's files.
        hub: None of files of this machine.
    Raises:
        InputError: from the hub.
    """
    documents, text_bytes = Counter[str](), Counter[str]()
    for file in content.files:
        if file.path.startswith(f"{SHARDS}/"):
            for one in read_structs(building.path(file.path), LicensedText):
                documents[one.license_tag] += 1
                text_bytes[one.license_tag] += len(one.text.encode())
    counted = {tag: {"documents": documents[tag], "text_bytes": text_bytes[tag]} for tag in sorted(documents)}
    files = [building.write(LICENSES, _licences(source.source, counted, licences).encode())]
    if isinstance(source, HubSource) and hub is not None:
        card = read_card(hub, source.dataset, source.revision) or _NO_CARD
        files.append(building.write(CARD_COPY, card.encode()))
    readme = building.write(README, _readme(source, raw, content, counted, licences).encode())
    return replace(
        content,
        files=[*content.files, *files],
        counts={**content.counts, "licences": counted},
        labels=[*content.labels, readme],
    )


def _readme(
    source: HubSource | FileSource,
    raw: Manifest,
    content: BuildResult,
    counted: Mapping[str, Mapping[str, int]],
    licences: LicenceTable,
) -> str:
    ledger, facts = content.counts["ledger"], [("retrieved", str(raw.provenance["started_at_utc"])[:10])]
    if isinstance(source, HubSource):
        facts = [("dataset", source.dataset), ("revision", source.revision), ("URL", _address(source)), *facts]
    facts += [(name, said) for name in _SOURCE_KEYS if (said := _format_value(source.content().get(name)))]
    files = sum(1 for entry in raw.identity.inputs if not isinstance(source, HubSource) or "row_groups" in entry)
    lines = [
        f"# {plain(source.source)}",
        "",
        f"Rows of {files:,} file{'s' * (files != 1)} as Documents, a line each, in `shards/`: "
        f"{content.counts['documents']:,} of {ledger['in']:,} rows, {content.counts['text_bytes']:,} bytes of text. "
        f"{redistribution(counted, licences)}",
        "",
        *markdown_table(["", ""], [(name, code(value)) for name, value in facts]),
        "",
        "Written from the manifest beside it, which lists every file by its hash.",
    ]
    return "\n".join(lines) + "\n"


def _format_value(value: Any) -> str:
    """A value of a recipe in words, without what it leaves unsaid; empty where it says nothing."""
    match value:
        case dict():
            return ", ".join(f"{name}: {said}" for name, one in value.items() if (said := _format_value(one)))
        case list():
            return ", ".join(map(_format_value, value))
        case int():
            return f"{value:,}"
    return str(value or "")


def _address(source: HubSource) -> str:
    from huggingface_hub import constants  # the hub's client is loaded where a hub is read alone

    return f"{constants.ENDPOINT}/datasets/{source.dataset}/tree/{source.revision}"


def _licences(source: str, counted: Mapping[str, Mapping[str, int]], licences: LicenceTable) -> str:
    head = ["licence", "name", "documents", "bytes of text", "may be passed on", "asks for names", "share alike"]
    rows = list[list[str | int]]()
    for tag, counts in counted.items():
        one = licences[tag] if tag in licences else licences["unknown"]
        name = plain(one.name) if one.url is None else f"[{plain(one.name)}]({one.url})"
        answers = [_ANSWERS[answer] for answer in (one.redistributable, one.attribution, one.share_alike)]
        rows.append([code(tag), name, counts["documents"], counts["text_bytes"], *answers])
    lines = [
        f"# Licences of {plain(source)}",
        "",
        "Each document carries its own in `license_tag`, and in `meta.license_evidence` what that rests on.",
        "",
        *markdown_table(head, rows),
    ]
    return "\n".join(lines) + "\n"


def redistribution(counted: Mapping[str, object], licences: LicenceTable) -> str:
    """Whether all text of these licences may be passed on, in a sentence."""
    answers = {licences[tag].redistributable if tag in licences else None for tag in counted}
    if answers == {True}:
        return "All of it may be passed on."
    return "Some of it may not be passed on." if False in answers else "Of some it is not known if it may be passed on."
