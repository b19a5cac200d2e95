"""What a row says of itself: the columns `meta_…`."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from pipeline_assets.corpus.harmony.json_text import JsonValue
from pipeline_assets.corpus.harmony.message import Message, Role
from pipeline_assets.corpus.nemotron.correctness import UNKNOWN, Correctness, correctness_of
from pipeline_assets.corpus.nemotron.presence import Row, canonical_text, is_there, text_of
from pipeline_assets.corpus.nemotron.proofs import proof_task
from pipeline_assets.corpus.nemotron.row_ids import is_its_id
from pipeline_assets.corpus.nemotron.row_settings import Domain, RowSettings
from pipeline_assets.corpus.readers.columns import is_nested_within

_NAMES, _URLS = ("user_name",), ("url", "user_url")
# What has a column of its own, or is in the text; `source_tools_id` stands for the tools.
_READ = frozenset(
    {"uuid", "messages", "text", "tools", "metadata", "expected_answer", "capability_target", "reasoning", "license"}
    | {"used_in", "lean_header", "formal_statement", "tags"}
)


class RowMetadata(NamedTuple):
    """The columns `meta_…`, in their order; null where the row says nothing (`tags` is then empty).

    Attributes:
        correctness … difficulty_bin: see `Correctness`.
        tags: sorted: `source:NAME`; `changed_answer_to_majority`; `tools`, where the row declares some; `tool_calls`,
            `reasoning`, `multi_turn` (more than one user message), where the conversation has them; and the row's own.
        eval_json: the column `metadata`, canonical JSON, whatever it holds.
        task: `formalisation` or `proof`, of proofs alone, and not of those that came as Harmony text.
        source_json: canonical JSON of every column that has no other place.
    """

    correctness: float | None
    correctness_high: float | None
    pass_k: int | None
    correct_count: int | None
    correctness_condition: str | None
    difficulty_bin: str | None
    domain: str
    tags: list[str]
    eval_json: str | None
    expected_answer: str | None
    capability_target: str | None
    reasoning: str | None
    license: str | None
    used_in: list[str] | None
    task: str | None
    lean_header: str | None
    formal_statement: str | None
    source_json: str | None


def row_metadata(row: Row, conversation: list[Message], domain: Domain, settings: RowSettings) -> RowMetadata:
    """The columns of a row; a column of an unexpected type is kept as canonical JSON.

    Args:
        conversation: the row's messages before any is dropped.
    """
    return RowMetadata(
        *row_correctness(row),
        domain=domain,
        tags=_tags(row, conversation),
        eval_json=None if not is_there(row.get("metadata")) else canonical_text(row.get("metadata")),
        expected_answer=text_of(row.get("expected_answer")),
        capability_target=text_of(row.get("capability_target")),
        reasoning=text_of(row.get("reasoning")),
        license=text_of(row.get("license")),
        used_in=_texts(row.get("used_in")) or None,
        task=proof_task(row) if domain == "proof" else None,
        lean_header=text_of(row.get("lean_header")),
        formal_statement=text_of(row.get("formal_statement")),
        source_json=_source_json(row, settings),
    )


def row_correctness(row: Row) -> Correctness:
    """What the evaluations of a row tell."""
    evaluations = _evaluations(row.get("metadata"))
    return UNKNOWN if evaluations is None else correctness_of(evaluations)


def _evaluations(metadata: JsonValue) -> Mapping[str, JsonValue] | None:
    """The conditions, also where the column is the JSON text of them; None where it is anything else."""
    if isinstance(metadata, str) and metadata.startswith("{"):
        try:
            metadata = msgspec.json.decode(metadata)
        except (msgspec.DecodeError, RecursionError):
            return None
    return metadata if isinstance(metadata, dict) and is_nested_within(metadata) else None


def _tags(row: Row, conversation: list[Message]) -> list[str]:
    tags = set(_texts(row.get("tags")))
    for column in ("data_source", "source"):
        source = row.get(column)
        if isinstance(source, str) and source:
            tags.add(f"source:{source}")
    if row.get("changed_answer_to_majority") is True:
        tags.add("changed_answer_to_majority")
    if is_there(row.get("tools")):
        tags.add("tools")
    if any(message.is_call for message in conversation):
        tags.add("tool_calls")
    if any(message.channel == "analysis" for message in conversation):
        tags.add("reasoning")
    if sum(message.role is Role.USER for message in conversation) > 1:
        tags.add("multi_turn")
    return sorted(tags)


def _source_json(row: Row, settings: RowSettings) -> str | None:
    hidden = (() if settings.keep_user_names else _NAMES) + (() if settings.keep_urls else _URLS)
    read = _READ - {"messages"} if is_there(row.get("text")) else _READ
    uuid = text_of(row.get("uuid"))
    if uuid is not None and not is_its_id(uuid):
        read -= {"uuid"}
    others = {
        column: value
        for column, value in row.items()
        if column not in read and column not in hidden and is_there(value)
    }
    return canonical_text(others) if others else None


def _texts(value: JsonValue) -> list[str]:
    """A column that should be a list of texts; one that is no list is a list of one."""
    values = value if isinstance(value, list) else [value]
    return [text for text in map(text_of, values) if text is not None]
