"""A sealed folder of the Nemotron system as a dataset repo: its files, its manifest, and a card that says what it is.

The repo has the folder's own layout, and its manifest without provenance, which names machines and folders. A card that
is there already gives way. Candidate pools and training subsets are a config each, other rows the config `default`;
what holds no rows has none. The card carries over what readers of the source agree to.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline_assets.corpus.licences import UNKNOWN, stated_tag
from pipeline_assets.corpus.nemotron.schema import COLUMNS
from pipeline_assets.corpus.pages import code
from pipeline_assets.corpus.publishing.dataset_card import (
    CardContent,
    CardSplit,
    Source,
    by_config,
    card_splits,
    dataset_card,
    row_licences,
    split_names,
)
from pipeline_assets.corpus.publishing.hub_repo import HubRepo, Item
from pipeline_assets.corpus.readers.hub_configs import CARD, parse_card_metadata, read_card
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.scoring import subsets
from pipeline_assets.corpus.scoring.subset_tokens import TOKENS
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.manifest import FILE_NAME

_SUBSETS = "nemotron/training_subsets"
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


def sign_card(text: str) -> str:
    """Return a card with its sha256 in a last line that pages don't show, so that an edit of it is noticed."""
    return f"{text}<!-- sha256 of this card above: {hashlib.sha256(text.encode()).hexdigest()} -->\n"


def is_edited(card: str) -> bool:
    """Return whether a card that `sign_card` signed was changed since; a card without a signature was not."""
    text, mark, _ = card.rpartition("<!-- sha256 of this card above: ")
    return bool(mark) and sign_card(text) != card


@dataclass(frozen=True)
class Publication:
    """What a repo is to hold.

    Attributes:
        items: all files, the card and the manifest too.
        splits: none where there are no rows.
        gate: as of a source.
        agreement: keys of the card.
    """

    artifact: Artifact
    items: Mapping[str, Item]
    splits: Sequence[CardSplit]
    gate: str | None
    agreement: Mapping[str, Any]

    @property
    def configs(self) -> dict[str, list[str]]:
        """The hub's names of splits, by config."""
        names = split_names(self.splits)
        return {config: [names[one.split] for one in splits] for config, splits in by_config(self.splits).items()}

    def terms(self) -> Iterator[str]:
        """What a person should know before anything is sent: licences, and what readers agree to."""
        for licence, rows in sorted(row_licences(self.splits).items(), key=lambda item: -item[1]):
            yield f"licence {licence or 'not stated'}: {rows:,} rows of all configs"
        if self.gate is not None:
            yield f"readers ask first ({self.gate}), as they do of the source; they agree to:"
            for key, value in self.agreement.items():
                said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                yield from (f"  {line}" for line in f"{key}: {said}"[:_SHOWN_CHARACTERS].splitlines())


def prepare_publication(artifact: Artifact, repo: HubRepo, *, allow_unknown: bool = False) -> Publication:
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
    splits, named = card_splits([artifact])
    _check_licences(row_licences(splits), allow_unknown, artifact)
    sources = [_looked_up(source, repo.hub) for source in named]
    gates = {source.gate for source in sources} - {None}
    stored = [one for one in artifact.manifest.storage if one.path != CARD]
    items = {one.path: Item(one.path, artifact.folder / one.path, one.bytes, one.sha256) for one in stored}
    of_cards = [(key, said) for source in sources for key, said in (source.metadata or {}).items()]
    agreement = {key: said for key, said in of_cards if str(key).startswith(_GATE)}
    manifest, digest = replace(artifact.manifest, provenance={}, storage=stored), artifact.manifest.digest
    card = CardContent(
        title=repo.name.rpartition("/")[2],
        repository=repo.name,
        splits=splits,
        manifests=[manifest],
        sources=sources,
        agreement=agreement,
        columns={**COLUMNS, **subsets.COLUMNS},
        notes=_notes(manifest.kind, splits, items),
        script=_VERIFY.replace("REPOSITORY", repo.name).replace("DIGEST", json.dumps(digest)),
    )
    beside = (
        Item.from_bytes(FILE_NAME, manifest.to_bytes()),
        Item.from_bytes(CARD, sign_card(dataset_card(card)).encode()),
    )
    gate = None if not gates else "manual" if "manual" in gates else "auto"
    return Publication(artifact, items | {item.path: item for item in beside}, splits, gate, agreement)


def _check_licences(licences: Mapping[str | None, int], allow_unknown: bool, artifact: Artifact) -> None:
    unknown = sum(rows for licence, rows in licences.items() if stated_tag(licence) == UNKNOWN)
    if unknown and not allow_unknown:
        named = sorted({repr((one or "not stated")[:60]) for one in licences if stated_tag(one) == UNKNOWN})
        what = f"nobody knows the licence of {unknown:,} rows of all configs: {', '.join(named[:3])}"
        ways = "`allow_unknown_licences: true` in `publish` of a recipe, --allow-unknown-licences of the command"
        fix = f"say it in a column `license` of rows, leave them out by `refuse_licences`, or allow it: {ways}"
        raise UsageError(what, artifact.folder, fix)


def _looked_up(source: Source, hub: HubFiles) -> Source:
    if source.revision is None:
        return source
    card = read_card(hub, source.dataset, source.revision)
    metadata = parse_card_metadata(card, f"{source.dataset}@{source.revision}:{CARD}")
    settings = HubRepo(source.dataset, hub).settings()
    if settings is None:
        fix = "give HF_TOKEN access to it, or HF_ENDPOINT the hub that has it: its agreement goes with its rows"
        raise InputError("the hub doesn't show it any more", source.dataset, fix)
    return replace(source, metadata=metadata, gate=settings["gated"] or None)


def _notes(kind: str, splits: Sequence[CardSplit], items: Mapping[str, Item]) -> list[str]:
    if kind != _SUBSETS:
        return ["A row may be in several pools.", ""] if len(by_config(splits)) > 1 else []
    lines = ["Splits are named after the dataset and the split that their rows are of."]
    if any(path.startswith(f"{TOKENS}/") for path in items):
        files = ", ".join(code(f"{TOKENS}/CONFIG/{name}") for name in ("tokens.npy", "loss_mask.npy", "rows.parquet"))
        lines.append(f'The rows of a config as tokens, for `numpy.load(path, mmap_mode="r")`, are in {files}:')
        lines.append("int32 ids, which of them count in the loss, and where each row begins.")
    return [*lines, ""]
