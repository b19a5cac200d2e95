"""What must hold of a split's normalised rows, read back from their files: the asset checks and commands ask it."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.nemotron.coverage import read_inventory
from pipeline_assets.corpus.nemotron.normalise_split import data_files
from pipeline_assets.corpus.nemotron.row_checks import encoding_faults, unparsed_rows
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.audit import Verdict
from pipeline_assets.corpus.tokens.encode import kept_encoder
from pipeline_assets.corpus.tokens.encoded_blocks import is_spot_checked

# What an inventory counts of raw rows, and the column that is not null where normalised rows have it.
COVERED = {
    "licence": "meta_license",
    "correctness": "meta_correctness",
    "difficulty": "meta_difficulty_bin",
    "expected_answer": "meta_expected_answer",
    "reasoning_label": "meta_reasoning",
    "formal_statement": "meta_formal_statement",
    "tools": "source_tools_id",
}


def texts_parse(shards: Artifact) -> Verdict:
    """Every text that says it is Harmony is, and no other."""
    rows, faults = 0, []
    for name, batch in _batches(shards, ["id", "text", "quality_valid_harmony"]):
        ids = batch.column("id")
        faults += [f"{name} {ids[row]}: {why}" for row, why in unparsed_rows(batch)]
        rows += batch.num_rows
    words = f"{len(faults):,} of {rows:,} texts are not what they say: {faults[0]}" if faults else f"{rows:,} texts"
    return Verdict(not faults, words, {"texts": rows, "unparsed": len(faults)})


def tokens_round_trip(shards: Artifact) -> Verdict:
    """On a sample: tokens are tiktoken's and decode to the text; what counts in the loss are the assistant's words.

    Of each file the first row, and one row in a thousand, chosen by its id.
    """
    identity = shards.manifest.identity
    recipe = RowsRecipe.from_content({**identity.recipe["rows"], "tokenizer": identity.tokenizer})
    loss, encoder = recipe.rules(None).rows.loss, kept_encoder(recipe.tokenizer.sha256, "gigatoken")
    rows, looked_at, faults, seen = 0, 0, [], ""
    columns = ["id", "text", "quality_valid_harmony", "stats_tokens", "stats_completion_tokens"]
    for name, batch in _batches(shards, columns):
        ids = batch.column("id").to_pylist()
        sample = [row for row, one in enumerate(ids) if is_spot_checked(one) or (name != seen and row == 0)]
        seen = name
        faults += [f"{name} {ids[row]}: {what}" for row, what in encoding_faults(batch, sample, loss, encoder)]
        rows, looked_at = rows + batch.num_rows, looked_at + len(sample)
    words = f"looked at {looked_at:,} of {rows:,} rows" + (f", {len(faults):,} faults: {faults[0]}" if faults else "")
    return Verdict(not faults, words, {"rows": rows, "looked_at": looked_at, "faults": len(faults)})


def coverage_within(shards: Artifact, inventory: Artifact) -> Verdict:
    """Rows have what the inventory found in their split: never more of them, and fewer by rejects alone.

    It applies where both read all rows.
    """
    found = read_inventory(inventory)
    if found["scan"]["kind"] != "full" or shards.manifest.identity.recipe["rows"]["max_rows"] is not None:
        return Verdict(True, "not compared: not all rows were read", applies=False)
    rows, present = _present(shards)
    lost = found["rows_counted"] - rows
    wrong, numbers = [], {}
    for name, column in COVERED.items():
        there, here = found["coverage"][name]["rows"], present[column]
        numbers[name] = here
        if not there - lost <= here <= there:
            wrong.append(f"{name}: {here:,} rows, {there:,} in the inventory")
    words = "; ".join(wrong) or f"{rows:,} rows, {lost:,} fewer than in the inventory, and the same metadata"
    return Verdict(not wrong, words, numbers)


def _batches(shards: Artifact, columns: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The columns of all rows, a row group at a time, with the name of the file."""
    for name in data_files(shards):
        with open_parquet(shards.path(name)) as file:
            for group in range(file.num_row_groups):
                [batch] = file.read_row_group(group, columns=columns, use_threads=False).combine_chunks().to_batches()
                yield name, batch


def _present(shards: Artifact) -> tuple[int, dict[str, int]]:
    """Rows, and of each column those that are not null: the footers tell."""
    rows, present = 0, dict.fromkeys(COVERED.values(), 0)
    for name in data_files(shards):
        metadata = pq.read_metadata(shards.path(name))
        rows += metadata.num_rows
        places = {metadata.schema.column(place).path: place for place in range(metadata.num_columns)}
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for column in present:
                statistics: Any = group.column(places[column]).statistics
                present[column] += group.num_rows - statistics.null_count
    return rows, present
