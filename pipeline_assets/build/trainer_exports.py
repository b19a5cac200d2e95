"""Exports of rows as sealed folders with cards, in formats that trainers load.

The manifest of an export names the digest of its source. An interrupted export continues, like any build.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from pipeline_assets.build.builders import Job, file_builder
from pipeline_assets.build.checks import FILES_CHECK
from pipeline_assets.build.rows.conversations import ConversationRows, SubsetRows
from pipeline_assets.build.rows.documents import DocumentRows
from pipeline_assets.build.rows.export import card_title, upstream_manifests
from pipeline_assets.build.rows.file_rows import FileRows
from pipeline_assets.build.systems import EXPORT_PREFIX
from pipeline_assets.build.target import Kind
from pipeline_assets.corpus.chat_templates.marked_text import SPAN_RULE_VERSION
from pipeline_assets.corpus.formats.parquet import StoredParquet, read_columns
from pipeline_assets.corpus.packing.recipe import TOKENIZER_FILE_KEY, PackRecipe, TokenizerPath, tokenizer_path
from pipeline_assets.corpus.publishing.dataset_card import (
    ROW_FILE_PATTERN,
    CardContent,
    CardSplit,
    dataset_card,
    file_pattern,
)
from pipeline_assets.corpus.publishing.hub_metadata import DEFAULT_CONFIG
from pipeline_assets.corpus.readers.hub_configs import CARD_FILE
from pipeline_assets.corpus.sealed_shards import document_shards
from pipeline_assets.corpus.trainers import chat_rows, nanochat, packed_chats
from pipeline_assets.spine import durable
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.data_root import find_data_root
from pipeline_assets.spine.engine import run_stage
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.lineage import Lineage, collect_chain
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingDir, total_counts

_CATALOGUE_SUFFIX = "__tools_catalog.json"
_MAX_TOKENS, _OLMO_FILE = (1 << 62) - 1, "tokens.npy"


class TrainerFormat(NamedTuple):
    """Format of an export."""

    write: Callable[[Job], BuildResult]  # writes the files into the staging directory of a job
    row_store_class: type[FileRows]  # class of the row stores that the format exports
    contents: str  # description of the rows, for errors
    options: frozenset[str]  # command-line options that the format uses
    usage: str  # Python code that reads the export


def _write_tokens(job: Job) -> BuildResult:
    from pipeline_assets.corpus import megatron_split
    from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer

    [source], external = job.upstream, job.target.external_inputs
    file = external.path if isinstance(external, TokenizerPath) else job.run.settings.vocabulary
    tokenizer = TokenizerFile(PackRecipe.from_content({"tokenizer": job.target.tokenizer}).tokenizer, file)
    recipe = megatron_split.MegatronRecipe(token_budget=_MAX_TOKENS, valid_fraction="0")
    shards = [shard.sealed_file.content for shard in document_shards(source) if shard.sealed_file is not None]
    result = megatron_split.build_split(
        job.staging, source, shards, recipe, "train", job.run.settings, tokenizer=tokenizer
    )
    library = load_tokenizer(tokenizer)
    decisions = {"end_of_document": library.end_of_document_id, "vocabulary_size": library.vocabulary_size}
    counts = {**result.counts, "ledger": {**result.counts["ledger"], "dropped": {}}}  # of the only split
    files = {file.path: file for file in result.files}
    if job.recipe["to"] == "olmo":  # the same bytes: ids are below 2**31, so int32 equals uint32
        del files[megatron_split.INDEX_FILE]
        durable.rename(job.staging.path(megatron_split.TOKENS_FILE), job.staging.path(_OLMO_FILE))
        files[_OLMO_FILE] = replace(files.pop(megatron_split.TOKENS_FILE), path=_OLMO_FILE)
    used = {TOKENIZER_FILE_KEY: str(file)} if isinstance(external, TokenizerPath) else {}
    return replace(
        result, files=[*files.values()], counts=counts, decisions=decisions, provenance={**result.provenance, **used}
    )


def _write_messages(job: Job) -> BuildResult:
    [source], catalogues, files = job.upstream, dict[str, tuple[Path, ...]](), list[chat_rows.ChatFile]()
    chain, own_root = collect_chain(source.folder, job.run.root), find_data_root(source.folder)
    if chain.missing_inputs and own_root is not None and own_root != job.run.root:
        chain = collect_chain(source.folder, own_root)
    for artifact in chain.artifacts:
        for name in (file.path for file in artifact.manifest.identity.files if file.path.endswith(_CATALOGUE_SUFFIX)):
            split = name.removesuffix(_CATALOGUE_SUFFIX)
            catalogues[split] = (*catalogues.get(split, ()), artifact.path(name))
    for path in (file.path for file in source.manifest.identity.files if ROW_FILE_PATTERN.fullmatch(file.path)):
        tools = catalogues.get(Path(path).name.rsplit("-", 3)[0], ())
        files.append(chat_rows.ChatFile(f"{len(files):05d}", path, source.path(path), tools, not chain.missing_inputs))
    receipts = [*run_stage("messages", chat_rows.write_chat_file, files, job.staging, job.run.settings)]
    return _combine_receipts(receipts, {})


def _write_packed(job: Job) -> BuildResult:
    from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder

    [source], seq_len = job.upstream, job.recipe["seq_len"]
    tables = [file.path for file in source.manifest.identity.files if file.path.endswith("/rows.parquet")]
    if not tables:
        missing, fix = "rows", "widen a rule's percentile or relax its `where`"
        if source.manifest.identity.files:
            missing, fix = "token files", "set `tokens: true` in `subsets` of the recipe, or in the file of --rules"
        raise UsageError(f"the training subsets have no {missing}", source.folder, f"{fix}, and build them again")
    rules = (rule for table in tables for rule in read_columns(source.path(table), ["loss_rule"])["loss_rule"])
    # Padding never counts, and 0 is an id of every chat template's tokenizer.
    is_chat = str(next(rules, "")).startswith(SPAN_RULE_VERSION)
    padding = 0 if is_chat else load_encoder(VOCABULARY_SHA256, job.run.settings.vocabulary).padding_id
    names = {
        source.path(table).parent: f"subset_{Path(table).parent.name}/train-00000-of-00001.parquet" for table in tables
    }
    receipts = [packed_chats.pack_subset(folder, job.staging, name, seq_len, padding) for folder, name in names.items()]
    if not any(receipt.files for receipt in receipts):
        raise UsageError(f"all conversations have more than {seq_len:,} tokens", "--seq-len", "pass a longer row")
    return _combine_receipts(receipts, {"padding": padding})


def _combine_receipts(receipts: Sequence[Receipt], decisions: Mapping[str, int]) -> BuildResult:
    counts = total_counts(receipts)
    sizes = {name: count for name, count in counts.items() if "/" not in name and name != "rows"}
    files = [file for receipt in receipts for file in receipt.files]
    return BuildResult(files, {"ledger": Ledger.from_counts(counts).to_json(), **sizes}, decisions)


_DOCUMENT_CONTENTS = "documents (normalized, filtered, deduplicated, …)"
_CONVERSATION_CONTENTS = "nemotron rows (normalized_shards, deduplicated, candidate_pools, training_subsets)"
PLAIN_CONTENTS: Final = f"{_DOCUMENT_CONTENTS} or {_CONVERSATION_CONTENTS}"
_TOKENIZER_OPTIONS = frozenset({"tokenizer", "end_of_document", "max_unknown_fraction"})
_OLMO_USAGE = """\
ids = TokenizerConfig(vocab_size={vocabulary_size}, eos_token_id={end_of_document}, pad_token_id={end_of_document})
data = NumpyFSLDatasetConfig(paths=["this/folder/tokens.npy"], dtype="uint32", sequence_length=2048, tokenizer=ids)"""
FORMATS: Final = {
    "megatron": TrainerFormat(
        _write_tokens,
        DocumentRows,
        _DOCUMENT_CONTENTS,
        _TOKENIZER_OPTIONS,
        'IndexedDataset("this/folder/tokens")  # or --data-path',
    ),
    "olmo": TrainerFormat(_write_tokens, DocumentRows, _DOCUMENT_CONTENTS, _TOKENIZER_OPTIONS, _OLMO_USAGE),
    "nanochat": TrainerFormat(
        lambda job: nanochat.write_nanochat(job.staging, document_shards(job.upstream[0])),
        DocumentRows,
        _DOCUMENT_CONTENTS,
        frozenset(),
        "# link the folder as $NANOCHAT_BASE_DIR/base_data",
    ),
    "messages": TrainerFormat(
        _write_messages,
        ConversationRows,
        _CONVERSATION_CONTENTS,
        frozenset(),
        'tokenizer.apply_chat_template(rows[0]["messages"], tools=json.loads(rows[0]["tools"] or "[]"))',
    ),
    "sft": TrainerFormat(
        _write_packed,
        SubsetRows,
        "nemotron/training_subsets",
        frozenset({"seq_len"}),
        "batch = DataCollatorForLanguageModeling(pad_token_id={padding}, padding_free=True)([rows[0]])",
    ),
}


def _build(job: Job) -> BuildResult:
    """Write the files of an export, and its card."""
    form, [source] = FORMATS[job.recipe["to"]], job.upstream
    result = form.write(job)
    has_conversations = issubclass(form.row_store_class, ConversationRows)
    columns = ("dataset", "meta_license") if has_conversations else ("source", "license_tag")
    stated = form.row_store_class(source, Lineage(job.run.root)).read(*columns)
    licences = Counter((name or "", licence) for name, licence in stated)
    splits = _card_splits(job.staging, result.files)
    descriptions = chat_rows.COLUMN_DESCRIPTIONS | packed_chats.COLUMN_DESCRIPTIONS
    steps = upstream_manifests(source, Lineage(job.run.root))
    name, manifests = card_title(source.manifest), [source.manifest]
    card = CardContent(
        name, "this/folder", splits, [], manifests, steps, column_descriptions=descriptions, other_row_licences=licences
    )
    usage = ["", f"## Read by {job.recipe['to']}", "", "```python", form.usage.format(**result.decisions), "```", ""]
    if (tokenizer := job.target.tokenizer) is not None:
        end = tokenizer.get("end_of_document", result.decisions["end_of_document"])
        usage += [f"Tokenizer `{json.dumps(tokenizer)}`; `{end}` ends each document.", ""]
    text = dataset_card(card) + "\n".join(usage)
    return replace(result, labels=[job.staging.write(CARD_FILE, text.encode())])  # it names artifacts of this root


def _card_splits(staging: StagingDir, files: Sequence[OutputFile]) -> list[CardSplit]:
    """Return the splits of the dataset card; row files without rows are skipped."""
    splits: dict[str, CardSplit] = {}
    for file in files:
        match = ROW_FILE_PATTERN.fullmatch(file.path)
        if match is not None and file.rows:
            with StoredParquet(staging.path(file.path)) as parquet:
                schema, footer = parquet.schema_arrow.remove_metadata(), parquet.metadata
            pattern = file_pattern(file.path)
            split = splits.setdefault(pattern, CardSplit(match[1] or DEFAULT_CONFIG, match[2], pattern, schema))
            split.add_file(footer, file.bytes)
    return list(splits.values())


KINDS: Final = {
    to: Kind(
        f"{EXPORT_PREFIX}{to}",
        StageVersion(f"export_{to}", 1),
        file_builder(_build),
        "Export for a trainer.",
        (FILES_CHECK,),
        labels=(CARD_FILE,),
        external_inputs=tokenizer_path,
    )
    for to in FORMATS
}
