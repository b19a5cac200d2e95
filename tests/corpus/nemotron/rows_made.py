"""Small rows, and settings and origin to normalise them by; every test changes what it is about."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from pipeline_assets.corpus.harmony.encode import AssistantAll
from pipeline_assets.corpus.harmony.message import Analysis, Template
from pipeline_assets.corpus.nemotron.normalise_rows import NormalisedRows, normalise_rows
from pipeline_assets.corpus.nemotron.normalise_split import normalise_split
from pipeline_assets.corpus.nemotron.sections import NORMALISE_STAGE, NormaliseRules, RowOrigin, RowSettings
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, Encoder, load_encoder

INLINE = RunSettings()
SETTINGS = RowSettings(
    template=Template.HARMONY_1,
    analysis=Analysis.KEEP,
    loss=AssistantAll(analysis=True, calls=True),
    system=None,
    drop_invalid_harmony=False,
    drop_empty_completion=False,
    keep_user_names=False,
    keep_urls=False,
)
ORIGIN = RowOrigin("maker/chat", "default", "train", "chat_if", "data/train.jsonl", "0" * 40)
PROOFS = replace(ORIGIN, domain="proof")

RULES = NormaliseRules(SETTINGS, None, 400, "0.9", VOCABULARY_SHA256)

QUESTION = {"role": "user", "content": "2 + 2?"}
ANSWER = {"role": "assistant", "content": "4"}
LOOKUP = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Looks a word up.",
        "parameters": {"properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}


@cache
def encoder() -> Encoder:
    return load_encoder(VOCABULARY_SHA256)


def called(*arguments: object, name: str = "lookup") -> dict[str, object]:
    """An assistant message that calls a tool with each of the arguments; ids are `call_0`, `call_1`, …"""
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": one}}
            for number, one in enumerate(arguments)
        ],
    }


def normalised(*rows: object, settings: RowSettings = SETTINGS, origin: RowOrigin = ORIGIN) -> NormalisedRows:
    return normalise_rows(list(enumerate(rows)), settings, origin, encoder())


def split_of(
    root: Path, files: Sequence[SourceFile], rules: NormaliseRules = RULES, engine: RunSettings = INLINE
) -> Artifact:
    """The normalised rows of a split, sealed below a data root."""
    target = Target("nemotron/normalized_shards", "rows", Path("rows"), NORMALISE_STAGE, {})
    return target.build(root, lambda building: normalise_split(building, files, ORIGIN, rules, engine), False, {})


def row_of(row: object, settings: RowSettings = SETTINGS, origin: RowOrigin = ORIGIN) -> dict[str, object]:
    """The columns of the one row."""
    [values] = normalised(row, settings=settings, origin=origin).batch.to_pylist()
    return values


def text_of(*messages: object, **columns: object) -> str:
    return row_of({"messages": list(messages), **columns})["text"]


def reason_of(row: object, settings: RowSettings = SETTINGS, origin: RowOrigin = ORIGIN) -> str:
    """Why the one row is a reject."""
    [reject] = normalised(row, settings=settings, origin=origin).rejects
    return reject.reason


def dropped_by(row: object, settings: RowSettings) -> tuple[str, str]:
    """Why the one row is left out, and what was seen: it is no reject."""
    found = normalised(row, settings=settings)
    [dropped] = found.dropped
    assert not found.rejects and not found.batch.num_rows
    return dropped.reason, dropped.detail
