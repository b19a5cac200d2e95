"""The id of a row: its uuid, else a hash of what was asked and said; repeats are numbered.

Over a whole split: `doc_ids.IdsWriter` for the ids of each shard and `doc_ids.write_repeats` over those files tell
which rows repeat an id, from 24 bytes a row on disk and a bounded part of them in memory; `numbered` then names them.
So the ids don't depend on the shards.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence

import msgspec

from pipeline_assets.corpus.harmony.json_text import JsonValue
from pipeline_assets.corpus.nemotron.presence import Row, is_there, text_of

# Not the evaluations, licences or links: a later revision that changes those has the same rows.
_IDENTITY = ("problem", "expected_answer", "formal_statement", "lean_header", "messages", "text")
_IS_NUMBERED = re.compile(r".*#\d+", re.DOTALL)


def row_id(row: Row, dataset: str, split: str) -> str:
    """The uuid of a row; without one, hex sha256 of the canonical JSON of dataset, split and source columns.

    A uuid that ends in `#` and digits counts as none, though it is hashed too: it could be that of a numbered repeat.
    What a row has not takes no part, however the row was read (see `presence`).
    """
    uuid = text_of(row.get("uuid"))
    if uuid is not None and is_its_id(uuid):
        return uuid
    columns = _identity({column: row.get(column) for column in _IDENTITY})
    identity = {"dataset": dataset, "split": split, "uuid": uuid, "columns": columns}
    return hashlib.sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()


def is_its_id(uuid: str) -> bool:
    """Whether a row with this uuid has it for its id; if not, it is kept in `meta_source_json`."""
    return _IS_NUMBERED.fullmatch(uuid) is None


def _identity(value: JsonValue) -> JsonValue:
    """The value with nothing in its objects that is not there, and floats as text: a float has many ways to be JSON."""
    if isinstance(value, str):  # nearly all are
        return value
    if isinstance(value, dict):
        return {key: _identity(one) for key, one in value.items() if is_there(one)}
    if isinstance(value, list):
        return [_identity(one) for one in value]
    return repr(value) if isinstance(value, float) else value


def numbered(row_ids: Sequence[str], repeats: Mapping[int, int]) -> list[str]:
    """The ids of a shard's rows, those that were there before followed by `#2`, `#3`, ….

    Args:
        repeats: row in the shard → which repetition it is, as `doc_ids.read_repeats` says it of this shard.
    """
    ids = list(row_ids)
    for row, repetition in repeats.items():
        ids[row] = f"{ids[row]}#{repetition}"
    return ids
