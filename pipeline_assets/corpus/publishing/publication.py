"""A sealed folder of the Nemotron system as a dataset repo: its files, its manifest, and a card that says what it is.

The repo has the folder's own layout, and its manifest without provenance, which names machines and folders. A card that
is there already gives way. Candidate pools and training subsets are a config each, other rows the config `default`;
what holds no rows has none. The card carries over what readers of the source agree to.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.licences import UNKNOWN, licence_table, stated_tag
from pipeline_assets.corpus.nemotron.schema import COLUMNS, SCHEMA
from pipeline_assets.corpus.pages import code, markdown_table, plain
from pipeline_assets.corpus.publishing import export
from pipeline_assets.corpus.publishing.hub_repo import HubRepo, Item
from pipeline_assets.corpus.readers.hub_configs import CARD, metadata_of_card, read_card
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.scoring import subsets
from pipeline_assets.corpus.scoring.token_rows import TOKENS
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError, UsageError, one_line
from pipeline_assets.corpus.spine.manifest import FILE_NAME

_ROWS = re.compile(r"(?:(?:candidates|subset)_(\w+)|data)/(.+)-\d{5}-of-(\d{5})\.parquet")
_SUBSETS = "nemotron/training_subsets"
_NUMBER = "[0-9]" * 5
_READ = ["dataset", "source_revision", "meta_license", "stats_tokens", "stats_completion_tokens"]
_NOT_PUBLISHED = ("nemotron/raw", "nemotron/published_pools")  # which hold none
_GATE = "extra_gated_"  # how the keys of a card begin that say what readers agree to
_SHOWN_CHARACTERS = 2000
_VERIFY = """import hashlib, json, pathlib, sys

folder = pathlib.Path(sys.argv[1])  # hf download REPOSITORY --repo-type dataset --local-dir FOLDER
wrong = []
try:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    identity = json.dumps(manifest["identity"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if "sha256:" + hashlib.sha256(identity.encode()).hexdigest() != DIGEST:
        wrong.append("manifest.json")
    for file in manifest["storage"]:
        path = folder / file["path"]
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != file["sha256"]:
            wrong.append(file["path"])
except (OSError, ValueError, KeyError) as error:
    wrong.append(f"manifest.json ({error})")
sys.exit(f"not as published: {', '.join(wrong)}" if wrong else 0)
"""


@dataclass
class PublishedSplit:
    """A split of a config: its files' pattern, and what is in them. In a subset it is called `dataset/split`."""

    config: str
    split: str
    pattern: str
    files: int = 0
    rows: int = 0
    tokens: int = 0
    completion_tokens: int = 0
    bytes: int = 0
    uncompressed_bytes: int = 0
    licences: Counter[str | None] = field(default_factory=Counter)


@dataclass(frozen=True)
class Source:
    """A dataset that rows are of.

    Attributes:
        revision: its commit; None of a folder.
        metadata: the YAML of its card there.
        gate: `auto` or `manual` where whoever wants to read asks first; None where anybody may.
    """

    dataset: str
    revision: str | None
    metadata: Mapping[str, Any]
    gate: str | None

    @property
    def agreement(self) -> dict[str, Any]:
        """What its readers agree to, as its card says it."""
        return {key: value for key, value in self.metadata.items() if str(key).startswith(_GATE)}


@dataclass(frozen=True)
class Publication:
    """What a repo is to hold.

    Attributes:
        items: all files, the card and the manifest too.
        configs: splits by config; none where there are no rows.
        gate: as of a source.
        agreement: keys of the card.
    """

    artifact: Artifact
    items: Mapping[str, Item]
    configs: Mapping[str, Sequence[PublishedSplit]]
    licences: Mapping[str | None, int]
    gate: str | None
    agreement: Mapping[str, Any]

    @property
    def split_names(self) -> dict[str, str]:
        """The hub's name of each split."""
        return export.hub_split_names(sorted({split.split for splits in self.configs.values() for split in splits}))

    def terms(self) -> Iterator[str]:
        """What a person should know before anything is sent: licences, and what readers agree to."""
        for licence, rows in sorted(self.licences.items(), key=lambda item: -item[1]):
            yield f"licence {licence or 'not stated'}: {rows:,} rows of all configs"
        if self.gate is not None:
            yield f"readers ask first ({self.gate}), as they do of the source; they agree to:"
            for key, value in self.agreement.items():
                said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                yield from (f"  {line}" for line in f"{key}: {said}"[:_SHOWN_CHARACTERS].splitlines())


def publication_of(artifact: Artifact, repo: HubRepo, *, allow_unknown: bool = False) -> Publication:
    """
    Args:
        repo: which the card names.
        allow_unknown: whether rows may go whose licence nobody knows.
    Raises:
        UsageError: there is such a row, and it may not; or it is nothing that can be published.
        InputError: the card of a source can't be had.
    """
    if not artifact.manifest.kind.startswith("nemotron/") or artifact.manifest.kind in _NOT_PUBLISHED:
        what = f"this is {artifact.manifest.kind}, and what is published is made of Nemotron rows"
        raise UsageError(what, artifact.folder, "give a folder of inventories, rows, pools or subsets")
    splits, of = splits_of(artifact)
    licences: Counter[str | None] = Counter()
    for split in splits:
        licences.update(split.licences)
    _check_licences(licences, allow_unknown, artifact)
    sources = [_source(dataset, revision, repo.hub) for dataset, revision in sorted(of, key=str)]
    gates = {source.gate for source in sources} - {None}
    configs: dict[str, list[PublishedSplit]] = {}
    for split in splits:
        configs.setdefault(split.config, []).append(split)
    stored = [one for one in artifact.manifest.storage if one.path != CARD]
    files = [Item(one.path, artifact.folder / one.path, one.bytes, one.sha256) for one in stored]
    made = Publication(
        artifact=artifact,
        items={item.path: item for item in files},
        configs=configs,
        licences=licences,
        gate=None if not gates else "manual" if "manual" in gates else "auto",
        agreement={key: value for source in sources for key, value in source.agreement.items()},
    )
    beside = {
        FILE_NAME: Item.of(FILE_NAME, replace(artifact.manifest, provenance={}, storage=stored).to_bytes()),
        CARD: Item.of(CARD, _card(made, sources, repo).encode()),
    }
    return replace(made, items={**made.items, **beside})


def pattern_of(path: str) -> str:
    """The pattern by which a card names a file: that of all files of its split in its config."""
    return re.sub(r"-\d{5}-of-(?=\d{5}\.parquet)", f"-{_NUMBER}-of-", path)


def splits_of(artifact: Artifact) -> tuple[list[PublishedSplit], set[tuple[str, str | None]]]:
    """Splits that have rows, and (dataset, commit) of all rows. Memory is that of some columns of a file."""
    splits: dict[str, PublishedSplit] = {}
    sources: set[tuple[str, str | None]] = set()
    for stored in artifact.manifest.storage:
        if (found := _ROWS.fullmatch(stored.path)) is None:
            continue
        pattern = pattern_of(stored.path)
        split = splits.setdefault(pattern, PublishedSplit(found[1] or export.DEFAULT, found[2], pattern))
        try:
            with open_parquet(artifact.path(stored.path)) as file:
                footer, rows = file.metadata, file.read(_READ)
        except (pa.ArrowException, OSError) as error:
            what = f"it is not as it was sealed ({one_line(error, 200)})"
            raise InputError(what, artifact.folder / stored.path, "see `corpusmill verify`") from None
        if rows["dataset"].null_count:
            what = "rows don't say which dataset they are of, so that nobody knows what its readers agree to"
            raise UsageError(what, artifact.folder / stored.path, "publish what is made of normalised rows")
        split.files += 1
        split.rows += rows.num_rows
        split.bytes += stored.bytes
        split.uncompressed_bytes += sum(footer.row_group(one).total_byte_size for one in range(footer.num_row_groups))
        split.tokens += sum(filter(None, rows["stats_tokens"].to_pylist()))
        split.completion_tokens += sum(filter(None, rows["stats_completion_tokens"].to_pylist()))
        split.licences.update(rows["meta_license"].to_pylist())
        sources.update(zip(rows["dataset"].to_pylist(), rows["source_revision"].to_pylist(), strict=True))
    return list(splits.values()), sources


def _check_licences(licences: Mapping[str | None, int], allow_unknown: bool, artifact: Artifact) -> None:
    unknown = sum(rows for licence, rows in licences.items() if stated_tag(licence) == UNKNOWN)
    if unknown and not allow_unknown:
        named = sorted({repr((one or "not stated")[:60]) for one in licences if stated_tag(one) == UNKNOWN})
        what = f"nobody knows the licence of {unknown:,} rows of all configs: {', '.join(named[:3])}"
        ways = "`allow_unknown_licences: true` in `publish` of a recipe, --allow-unknown-licences of the command"
        fix = f"say it in a column `license` of rows, leave them out by `refuse_licences`, or allow it: {ways}"
        raise UsageError(what, artifact.folder, fix)


def _source(dataset: str, revision: str | None, hub: HubFiles) -> Source:
    if revision is None:
        return Source(dataset, None, {}, None)
    metadata = metadata_of_card(read_card(hub, dataset, revision), f"{dataset}@{revision}:{CARD}")
    settings = HubRepo(dataset, hub).settings()
    if settings is None:
        fix = "give HF_TOKEN access to it, or HF_ENDPOINT the hub that has it: its agreement goes with its rows"
        raise InputError("the hub doesn't show it any more", dataset, fix)
    return Source(dataset, revision, metadata, settings["gated"] or None)


def _card(made: Publication, sources: Sequence[Source], repo: HubRepo) -> str:
    manifest = made.artifact.manifest
    title = repo.name.rpartition("/")[2]
    names = made.split_names
    sections = [
        [f"# {plain(title)}", "", *_opening(made)],
        *([["## Configs", "", *_configs(made, names, repo)]] if made.configs else []),
        ["## Sources and licences", "", *_terms(made, sources)],
        ["## How it was made", "", *_making(made)],
        *([["## Columns", "", *_columns(made)]] if made.configs else []),
        ["## Is it as it was published?", "", *_verifying(repo, manifest.digest)],
    ]
    head = export.card_metadata(
        title,
        made.licences,
        tags=["corpusmill"],
        configs=[
            export.CardConfig.of(
                config,
                [
                    export.ConfigSplit(names[of.split], of.pattern, of.rows, of.bytes, of.uncompressed_bytes)
                    for of in splits
                ],
            )
            for config, splits in made.configs.items()
        ],
        rows=sum(split.rows for splits in made.configs.values() for split in splits),
        sources=[source.dataset for source in sources if source.revision is not None],
        gate=made.agreement,
    )
    return head + "\n\n".join("\n".join(section) for section in sections) + "\n"


def _opening(made: Publication) -> list[str]:
    manifest = made.artifact.manifest
    lines = [
        f"{code(manifest.kind)} {code(manifest.name)}, {code(manifest.digest)}.",
        f"{code(FILE_NAME)} says what it was made from, by which rule, and what became of every row.",
    ]
    rows = "Every row names the one that it was made from: `source_file`, `source_row`, `source_revision`."
    return lines + ([rows] if made.configs else [])


def _configs(made: Publication, names: Mapping[str, str], repo: HubRepo) -> list[str]:
    rows: list[list[str | int]] = [
        [code(config), code(names[one.split]), one.rows, one.tokens, one.completion_tokens, one.files, one.bytes]
        for config, splits in made.configs.items()
        for one in splits
    ]
    first = next(iter(made.configs))
    split = names[made.configs[first][0].split]
    return [
        *markdown_table(["config", "split", "rows", "tokens", "completion tokens", "files", "bytes"], rows),
        "",
        *_about_configs(made),
        "```python",
        "from datasets import load_dataset",
        "",
        f"rows = load_dataset({json.dumps(repo.name)}, {json.dumps(first)}, split={json.dumps(split)})",
        "```",
    ]


def _about_configs(made: Publication) -> list[str]:
    if made.artifact.manifest.kind != _SUBSETS:
        return ["A row may be in several pools.", ""] if len(made.configs) > 1 else []
    lines = ["Splits are named after the dataset and the split that their rows are of."]
    if any(path.startswith(f"{TOKENS}/") for path in made.items):
        files = ", ".join(code(f"{TOKENS}/CONFIG/{name}") for name in ("tokens.npy", "loss_mask.npy", "rows.parquet"))
        lines.append(f'The rows of a config as tokens, for `numpy.load(path, mmap_mode="r")`, are in {files}:')
        lines.append("int32 ids, which of them count in the loss, and where each row begins.")
    return [*lines, ""]


def _terms(made: Publication, sources: Sequence[Source]) -> list[str]:
    rows: list[list[str | int]] = [
        [
            "not stated" if licence is None else code(licence[:80]),
            code(export.hub_licence(licence)),
            _address(licence),
            count,
        ]
        for licence, count in sorted(made.licences.items(), key=lambda item: (-item[1], item[0] or ""))
    ]
    of: list[list[str | int]] = [
        [
            code(source.dataset),
            "a folder" if source.revision is None else code(source.revision),
            code(str(source.metadata.get("license_name") or source.metadata.get("license") or "not stated")),
            _readers(source),
        ]
        for source in sources
    ]
    lines = markdown_table(["source", "commit", "licence of its card", "who may read it"], of)
    if rows:
        lines += [
            "",
            "Each row has its own licence, in `meta_license`, as the source says it; rows of all configs:",
            "",
        ]
        lines += markdown_table(["licence", "the hub's identifier", "its text", "rows"], rows)
    return lines


def _readers(source: Source) -> str:
    if source.revision is None:
        return "not stated"
    return "anybody" if source.gate is None else f"whoever agrees ({code(source.gate)})"


def _address(licence: str | None) -> str:
    tag = stated_tag(licence)
    return plain(licence_table()[tag].url or "") if tag != UNKNOWN else ""


def _making(made: Publication) -> list[str]:
    identity = made.artifact.manifest.identity
    recipe = json.dumps(identity.recipe, ensure_ascii=False, indent=1).replace("`", "\\u0060")  # no fence ends in it
    of: list[list[str | int]] = [[code(str(one["name"])), code(str(one["digest"]))] for one in identity.upstream]
    lines = [f"By {code(str(identity.stage))}, as its recipe said:", "", "```json", *recipe.splitlines(), "```"]
    lines += ["", *markdown_table(["made from", "digest"], of)]
    if "ledger" in identity.counts:
        fates: list[list[str | int]] = [
            [fate, code(reason or ""), count] for fate, reason, count in identity.ledger.fates() if count
        ]
        lines += ["", f"Of {identity.ledger.rows_in:,} rows that came in, these went:", ""]
        lines += markdown_table(["they were", "for", "rows"], fates)
    return lines


def _columns(made: Publication) -> list[str]:
    of_subsets = subsets.COLUMNS if made.artifact.manifest.kind == _SUBSETS else {}
    rows = [[code(name), COLUMNS[name]] for name in SCHEMA.names]
    rows += [[code(name), said] for name, said in of_subsets.items()]
    return [
        "All configs have all columns; where a row says nothing, there is null.",
        "",
        *markdown_table(["column", "holds"], rows),
    ]


def _verifying(repo: HubRepo, digest: str) -> list[str]:
    script = _VERIFY.replace("REPOSITORY", repo.name).replace("DIGEST", json.dumps(digest))
    said = "This script ends with 0 if every file is, byte for byte, what its manifest says:"
    return [said, "", "```python", *script.splitlines(), "```"]
