"""Checks of normalized rows and candidate pools, with a preview of inventories."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.chat_templates.marked_text import parse_text, uses_chat_template
from pipeline_assets.corpus.formats.arrow_columns import to_arrow
from pipeline_assets.corpus.formats.parquet import StoredParquet, read_footer
from pipeline_assets.corpus.harmony import encode
from pipeline_assets.corpus.harmony.message import CALL, END, MESSAGE, RETURN, START, Refusal
from pipeline_assets.corpus.harmony.parse import ParsedText, parse_harmony
from pipeline_assets.corpus.nemotron.inventory import read_inventory
from pipeline_assets.corpus.nemotron.pools_recipe import CAPABILITY_PREFIX
from pipeline_assets.corpus.nemotron.rows_recipe import rows_recipe
from pipeline_assets.corpus.nemotron.schema import data_files
from pipeline_assets.corpus.tokens.encode import is_spot_checked
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyEncoder, load_encoder
from pipeline_assets.corpus.tokens.o200k_vocabulary import SPECIAL_TOKENS
from pipeline_assets.spine.artifact import Artifact, Verdict
from pipeline_assets.spine.plural import pluralize

_PARSED_COLUMNS = ("text", "template", "loss_rule", "quality_valid_harmony")
_ASSISTANT_HEADER = re.compile(r"assistant(?=[ :<]|\Z)")
_END_TOKENS = [SPECIAL_TOKENS[end] for end in (END, CALL, RETURN)]


def wrongly_flagged_rows(batch: pa.RecordBatch) -> Iterator[tuple[int, str]]:
    """Yield a (row in the batch, problem) pair for each wrong `quality_valid_harmony`.

    A text rendered by a chat template must parse, and its flag must be null.
    """
    for row, values in enumerate(batch.to_pylist()):
        text, template, rule, is_claimed = (values[name] for name in _PARSED_COLUMNS)
        why = _parse_error(text, template, rule)
        if uses_chat_template(template):
            if why or is_claimed is not None:
                yield row, why or "the text of a chat template has a flag"
        elif is_claimed is not (why is None):
            yield row, why or "the text is valid Harmony, but its flag is false"


def encoding_faults(
    batch: pa.RecordBatch, row_indexes: Sequence[int], loss_mode: encode.LossMode, encoder: HarmonyEncoder
) -> Iterator[tuple[int, str]]:
    """Yield a (row in the batch, problem) pair for each fault of a row's tokens.

    Ids must equal tiktoken's ids of the text, decode to the text, and agree with the row's counts. `span_faults` checks
    the bodies that count in the loss. If the row has an `AssistantTurns` rule, that rule replaces `loss_mode`. Only the
    rows at `row_indexes` are checked; rows that are not valid Harmony are skipped.
    """
    sample = batch.take(to_arrow(np.array(row_indexes, np.int64))).to_pylist()
    for row, values in zip(row_indexes, sample, strict=True):
        if not values["quality_valid_harmony"]:
            continue
        text = values["text"]
        parsed = parse_harmony(text)
        [encoded] = encode.encode_harmony([parsed], encoder)
        try:
            mode = encode.row_loss_mode(None, values["loss_rule"])
            mode = mode if isinstance(mode, encode.AssistantTurns) else loss_mode
            counting = encode.loss_message_indexes(parsed, mode)
        except ValueError as error:
            yield row, str(error)
            continue
        if encoded.ids.tolist() != encoder.oracle.encode(text, allowed_special="all"):
            yield row, "ids differ from tiktoken's"
        if encoder.decode(encoded.ids) != text:
            yield row, "ids do not decode to the text"
        completion = sum(stop - start for start, stop in encoded.bodies[counting].tolist())
        if (values["stats_tokens"], values["stats_completion_tokens"]) != (len(encoded.ids), completion):
            sizes = f"{pluralize(len(encoded.ids), 'token')}, {completion} of them completion"
            yield row, f"the text has {sizes}, unlike the row's counts"
        yield from ((row, what) for what in span_faults(parsed, encoded, mode, encoder))


def span_faults(
    parsed: ParsedText, encoded: encode.HarmonyTokens, loss_mode: encode.LossMode, encoder: HarmonyEncoder
) -> Iterator[str]:
    """Yield a line for each mismatch between the tokens of a text and its messages."""
    starts = np.flatnonzero(encoded.ids == SPECIAL_TOKENS[START]).tolist()
    opened = np.flatnonzero(encoded.ids == SPECIAL_TOKENS[MESSAGE]).tolist()
    closed = np.flatnonzero(np.isin(encoded.ids, _END_TOKENS)).tolist()
    if not len(starts) == len(opened) == len(closed) == len(parsed.messages):
        yield f"{len(parsed.messages)} messages have {len(starts)} starts, {len(opened)} bodies, {len(closed)} ends"
        return
    headers = [encoder.decode(encoded.ids[start + 1 : stop]) for start, stop in zip(starts, opened, strict=True)]
    expected = _loss_message_indexes(headers, loss_mode)
    counting = encode.loss_message_indexes(parsed, loss_mode)
    if counting != expected:
        yield f"messages {counting} count in the loss, expected {expected} by their headers"
    for number, span in zip(counting, encode.loss_spans(parsed, loss_mode), strict=True):
        first, stop = encoded.bodies[number].tolist()
        if (first, stop) != (opened[number] + 1, closed[number]):
            yield f"the body of message {number} is not between its control tokens"
        if encoder.decode(encoded.ids[first:stop]) != parsed.text[span.start : span.stop]:
            yield f"the body of message {number} is not the text of its span"


def _loss_message_indexes(headers: Sequence[str], loss_mode: encode.LossMode) -> list[int]:
    assistant = [number for number, header in enumerate(headers) if _ASSISTANT_HEADER.match(header)]
    if isinstance(loss_mode, encode.AssistantTurns):
        return [number for number in assistant if number in loss_mode.message_indexes]
    if isinstance(loss_mode, encode.AssistantLast):
        return [number for number in assistant[-1:] if " to=" not in headers[number]]
    return [
        number
        for number in assistant
        if (loss_mode.has_calls or " to=" not in headers[number])
        and (loss_mode.has_analysis or "<|channel|>analysis" not in headers[number])
    ]


def _parse_error(text: str, template: str | None, loss_rule: str | None) -> str | None:
    try:
        return None if parse_text(text, template, loss_rule).messages else "the text has no messages"
    except (Refusal, ValueError) as refusal:
        return str(refusal)


# For each item of the inventory's coverage, the column that is not null in normalized rows with this item.
COVERAGE_COLUMNS = {
    "licence": "meta_license",
    "correctness": "meta_correctness",
    "solved": "meta_solved_bin",
    "expected_answer": "meta_expected_answer",
    "reasoning_label": "meta_reasoning",
    "formal_statement": "meta_formal_statement",
    "tools": "source_tools_id",
}


def texts_parse(normalised_rows: Artifact) -> Verdict:
    """Check that `quality_valid_harmony` is true exactly for texts that are Harmony.

    A text of a chat template must parse, and its flag must be null. Invalid texts of the source are counted by reason.
    """
    rows, faults = 0, []
    for name, batch in _read_batches(normalised_rows, ["id", *_PARSED_COLUMNS]):
        ids = batch.column("id")
        faults += [f"{name} {ids[row]}: {why}" for row, why in wrongly_flagged_rows(batch)]
        rows += batch.num_rows
    summary = f"{len(faults):,} of {rows:,} texts have a wrong flag: {faults[0]}" if faults else f"{rows:,} texts"
    invalid: dict[str, int] = normalised_rows.manifest.identity.counts.get("invalid_harmony", {})
    summary += "".join(f"; {count:,} source rows are not Harmony: {reason}" for reason, count in invalid.items())
    by_reason = {f"invalid_{reason}": count for reason, count in invalid.items()}
    return Verdict(not faults, summary, {"texts": rows, "unparsed": len(faults), **by_reason})


def tokens_round_trip(normalised_rows: Artifact) -> Verdict:
    """Check that tokens equal tiktoken's, decode to the text and fit the loss spans.

    The sample is the first row of each file, and one row in a thousand, chosen by id.
    """
    identity = normalised_rows.manifest.identity
    recipe = rows_recipe(identity.recipe, identity.tokenizer)
    loss, encoder = recipe.loss_mode, load_encoder(recipe.tokenizer.sha256)
    rows, checked, faults, seen = 0, 0, [], ""
    columns = ["id", "text", "loss_rule", "quality_valid_harmony", "stats_tokens", "stats_completion_tokens"]
    for name, batch in _read_batches(normalised_rows, columns):
        ids = batch.column("id").to_pylist()
        sample = [row for row, row_id in enumerate(ids) if is_spot_checked(row_id) or (name != seen and row == 0)]
        seen = name
        faults += [f"{name} {ids[row]}: {what}" for row, what in encoding_faults(batch, sample, loss, encoder)]
        rows, checked = rows + batch.num_rows, checked + len(sample)
    found = f", {pluralize(len(faults), 'fault')}: {faults[0]}" if faults else ""
    summary = f"checked {checked:,} of {rows:,} rows{found}"
    return Verdict(not faults, summary, {"rows": rows, "looked_at": checked, "faults": len(faults)})


def compare_coverage(normalised_rows: Artifact, inventories: Sequence[Artifact | None]) -> Verdict:
    """Check that normalized rows have the metadata that the inventory counted.

    The number of values that a column lacks must not exceed the number of rows that normalization dropped or rejected.
    Samples are not compared. `inventories` is empty if the recipe builds no inventory. Otherwise, its only item is the
    inventory of the split, or None if the inventory is not built.
    """
    built = [inventory for inventory in inventories if inventory is not None]
    if not built:
        return Verdict(True, "nothing to compare", applies=False, is_final=not inventories)
    inventory = read_inventory(*built)
    if inventory["scan"]["kind"] != "full" or normalised_rows.manifest.identity.recipe["rows"]["max_rows"] is not None:
        return Verdict(True, "not compared: not all rows were read", applies=False)
    rows, present = _count_non_null(normalised_rows)
    lost = inventory["rows_counted"] - rows
    wrong, numbers = [], {}
    for name, column in COVERAGE_COLUMNS.items():
        expected, actual = inventory["coverage"][name]["rows"], present[column]
        numbers[name] = actual
        if not expected - lost <= actual <= expected:
            wrong.append(f"{name}: {pluralize(actual, 'row')}, {expected:,} in the inventory")
    as_expected = f"{pluralize(rows, 'row')}, {lost:,} fewer than in the inventory, and the same metadata"
    summary = "; ".join(wrong) or as_expected
    return Verdict(not wrong, summary, numbers)


def pools_have_rows(pools: Artifact) -> Verdict:
    """Check that each pool has rows, unless its rules use only columns without values.

    The check also fails if no pool at all has rows.
    """
    identity = pools.manifest.identity
    decisions, rows_by_pool = identity.decisions, identity.counts["pools"]
    empty = [
        f"{name}: no row meets all of {', '.join(f'`{rule}` (rows: {rows:,})' for rule, rows in conditions.items())}"
        for name, conditions in decisions["empty"].items()
    ]
    omitted: dict[str, list[str]] = {}
    for name, why in decisions["left_out"].items():
        omitted.setdefault(why, []).append(name)
    left_out = [f"omitted, because {why}: {', '.join(names)}" for why, names in omitted.items()]
    counts = [f"{name} {rows:,}" for name, rows in rows_by_pool.items()]
    parts = [*empty, ", ".join(counts) or "no pool has rows"]
    parts += [
        f"{name} has {quota['rows']:,} of {quota['candidates']:,} rows by its quota"
        for name, quota in decisions.get("quotas", {}).items()
        if quota["rows"] < quota["candidates"]
    ]
    limited = identity.recipe["pools"].get("quotas") or {}
    unused = [name for name in limited if name.startswith(f"{CAPABILITY_PREFIX}_") and name not in rows_by_pool]
    parts += [f"no row is in {name}, which `quotas` limits" for name in unused]
    if gap := decisions.get("correctness_gap"):
        named = ", ".join(gap["examples"]) + (", …" if gap["rows"] > len(gap["examples"]) else "")
        bounds = " to ".join(dict.fromkeys((gap["lowest"], gap["highest"])))
        parts.append(f"rows of known correctness ({bounds}) in no pool: {gap['rows']:,} ({named})")
    return Verdict(not empty and bool(rows_by_pool), "; ".join([*parts, *left_out]))


def _read_batches(normalised_rows: Artifact, columns: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield (file name, batch) pairs, one per row group; a batch has only `columns`."""
    for name in data_files(normalised_rows):
        with StoredParquet(normalised_rows.path(name)) as file:
            for table in file.iter_row_groups(columns):
                [batch] = table.combine_chunks().to_batches()
                yield name, batch


def _count_non_null(normalised_rows: Artifact) -> tuple[int, dict[str, int]]:
    """Count rows, and non-null values of `COVERAGE_COLUMNS`, from the Parquet footers."""
    rows, present = 0, dict.fromkeys(COVERAGE_COLUMNS.values(), 0)
    for name in data_files(normalised_rows):
        metadata = read_footer(normalised_rows.path(name))
        rows += metadata.num_rows
        indexes = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for column in present:
                statistics: Any = group.column(indexes[column]).statistics
                present[column] += group.num_rows - statistics.null_count
    return rows, present


_MAX_SHOWN_COLUMNS = 20


def preview_columns(inventory: Artifact) -> list[dict[str, str]]:
    """Return a split's first columns, with types and the share of non-null rows."""
    columns = list(read_inventory(inventory)["columns"].items())
    return [
        {"column": name, "types": ", ".join(column["types"]), "share of rows": column["share"]}
        for name, column in columns[:_MAX_SHOWN_COLUMNS]
    ]
