"""Raw Nemotron rows (JSON lines) → normalised rows as Parquet, in one process.

    python benchmarks/nemotron_rows.py --rows 20000 --runs 3

The ceiling decodes, encodes the words of each row and writes five columns; it renders nothing, checks nothing, and
knows no metadata. The library's flow is a plain loop of openai-harmony over some hundred rows: render, decode, parse;
it counts tokens and nothing else. Its texts and counts are proven equal to ours. Input: the real rows beside the
checkout, each repeated with other words and numbers, by split, 256 rows a block.
"""

import argparse
import hashlib
import io
import json
import os
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import msgspec
import openai_harmony
import pyarrow as pa
import pyarrow.parquet as pq
from measure import machine_line

from pipeline_assets.corpus.harmony.loss_spans import AssistantAll
from pipeline_assets.corpus.harmony.parse import parse_harmony
from pipeline_assets.corpus.harmony.prompt import GPT_OSS_SYSTEM
from pipeline_assets.corpus.harmony.template import Analysis, Template
from pipeline_assets.corpus.nemotron.normalise_rows import NormalisedRows, normalise_rows
from pipeline_assets.corpus.nemotron.row_settings import DOMAINS, RowOrigin, RowSettings
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY, VOCABULARY_SHA256, Encoder, load_encoder

ROWS = Path(__file__).parents[2] / "shared" / "data" / "nemotron" / "rows"
SETTINGS = RowSettings(
    Template.HARMONY_1, Analysis.KEEP, AssistantAll(True, True), GPT_OSS_SYSTEM, False, False, False, False
)
_BLOCK = 256
_LIBRARY_ROWS = 12  # of each block
_WORDS = re.compile(r"\d+|[a-z]{6,}")
_decode = msgspec.json.Decoder().decode

Block = tuple[RowOrigin, list[bytes]]


def varied_blocks(rows: int) -> list[Block]:
    """The real rows over and over, every seventh long word another one and every number too."""
    seeded = random.Random(0)
    files = sorted(ROWS.glob("*/*.jsonl"))
    words = sorted({word for path in files for word in re.findall(r"[a-z]{6,}", path.read_text(encoding="utf-8"))})

    def other(found: re.Match[str]) -> str:
        word = found.group()
        if word.isdigit():
            return str(seeded.randrange(10 ** len(word)))
        return seeded.choice(words) if seeded.random() < 1 / 7 else word

    blocks = []
    for path in files:
        dataset = f"nvidia/{path.parent.name}"
        origin = RowOrigin(dataset, None, path.stem, DOMAINS[dataset], path.name, "0" * 40)
        real = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        lines = []
        for number in range(rows // len(files)):
            row = dict(real[number % len(real)])
            row["messages"] = [
                {
                    key: _WORDS.sub(other, value) if "content" in key and isinstance(value, str) else value
                    for key, value in message.items()
                }
                for message in row["messages"]
            ]
            lines.append(json.dumps(row, ensure_ascii=False).encode())
        blocks += [(origin, lines[start : start + _BLOCK]) for start in range(0, len(lines), _BLOCK)]
    return blocks


def bare(blocks: list[Block], encoder: Encoder) -> int:
    """The ceiling; tokens."""
    tokens = 0
    for _, lines in blocks:
        rows = [_decode(line) for line in lines]
        texts = ["\n".join(_words(row)) for row in rows]
        runs = encoder.encode(texts)
        table = pa.table(
            {
                "id": [str(row.get("uuid")) for row in rows],
                "text": texts,
                "license": [row.get("license") for row in rows],
                "metadata": [msgspec.json.encode(row.get("metadata")) for row in rows],
                "tokens": runs.lengths,
            }
        )
        pq.write_table(table, io.BytesIO(), compression="zstd")
        tokens += len(runs.ids)
    return tokens


def _words(row: dict[str, object]) -> Iterator[str]:
    if row.get("tools"):
        yield json.dumps(row["tools"], ensure_ascii=False)
    for message in row["messages"] or [{"role": key, "content": row[key]} for key in ("problem", "formal_statement")]:
        yield message["role"]
        yield message.get("reasoning_content") or ""
        for value in (message["content"], *(call["function"]["arguments"] for call in message.get("tool_calls") or [])):
            yield value if isinstance(value, str) else json.dumps(value)


def normalised(block: Block, encoder: Encoder) -> NormalisedRows:
    """Ours, of one block."""
    origin, lines = block
    return normalise_rows([(number, _decode(line)) for number, line in enumerate(lines)], SETTINGS, origin, encoder)


def ours(blocks: list[Block], encoder: Encoder) -> int:
    """Ours, written as the ceiling is; tokens."""
    tokens = 0
    for block in blocks:
        result = normalised(block, encoder)
        if result.rejects:
            sys.exit(f"a row was rejected: {result.rejects[0]}")
        pq.write_table(pa.Table.from_batches([result.batch]), io.BytesIO(), compression="zstd")
        tokens += sum(result.batch.column("stats_tokens").to_pylist())
    return tokens


def library_rows_per_s(blocks: list[Block], encoder: Encoder) -> float:
    """Rows per CPU second of openai-harmony, its tokens proven equal to ours."""
    with mock.patch.dict(os.environ, {"TIKTOKEN_ENCODINGS_BASE": str(VOCABULARY.parent)}):
        library = openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
    config = openai_harmony.RenderConversationConfig(auto_drop_analysis=False)
    rows, spent = 0, 0.0
    for origin, lines in blocks:
        some = lines[:_LIBRARY_ROWS]
        batch = normalised((origin, some), encoder).batch
        for text, tokens in zip(
            batch.column("text").to_pylist(), batch.column("stats_tokens").to_pylist(), strict=True
        ):
            messages = parse_harmony(text).conversation
            started = time.process_time()
            conversation = []
            for message in messages:
                author = openai_harmony.Author(role=openai_harmony.Role(message.role.value), name=message.name)
                made = openai_harmony.Message.from_author_and_content(author, message.content)
                made.recipient, made.channel, made.content_type = message[3:]
                conversation.append(made)
            ids = library.render_conversation_for_training(
                openai_harmony.Conversation.from_messages(conversation), config
            )
            library.parse_messages_from_completion_tokens(ids)
            decoded = library.decode_utf8(ids)
            spent += time.process_time() - started
            if (decoded, len(ids)) != (text, tokens):
                sys.exit(f"{origin.split}: the library renders otherwise")
        rows += len(some)
    return rows / spent


def cpu_s(flow: Callable[[list[Block], Encoder], int], blocks: list[Block], encoder: Encoder, runs: int) -> float:
    """Median CPU seconds of a flow; every run counts the same tokens."""
    spent, tokens = [], set()
    for _ in range(runs):
        started = time.process_time()
        tokens.add(flow(blocks, encoder))
        spent.append(time.process_time() - started)
    if len(tokens) != 1:
        sys.exit(f"two runs of {flow.__name__}, two results")
    return statistics.median(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description="Raw Nemotron rows → normalised rows in one process")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    if not ROWS.is_dir():
        sys.exit(f"needs the real rows in {ROWS}")
    pa.set_cpu_count(1)
    blocks = varied_blocks(options.rows)
    rows = sum(len(lines) for _, lines in blocks)
    content = hashlib.sha256(b"\n".join(line for _, lines in blocks for line in lines)).hexdigest()
    mb = sum(len(line) for _, lines in blocks for line in lines) / 1e6
    encoder = load_encoder(VOCABULARY_SHA256)
    bare(blocks[:4], encoder)
    seconds = {
        "bare flow": cpu_s(bare, blocks, encoder, options.runs),
        "corpusmill": cpu_s(ours, blocks, encoder, options.runs),
    }
    per_s = {name: rows / spent for name, spent in seconds.items()} | {
        "openai-harmony": library_rows_per_s(blocks, encoder)
    }
    print(f"{machine_line()}; one process, median of {options.runs}, {rows:,} rows, {mb:.0f} MB, {content[:12]}\n")
    print("| flow | rows per CPU s | CPU to the ceiling |\n|---|---|---|")
    for name, speed in per_s.items():
        print(f"| {name} | {speed:,.0f} | {per_s['bare flow'] / speed:.2f} |")
    ratio = {name: round(per_s["bare flow"] / speed, 2) for name, speed in per_s.items()}
    print(json.dumps({"benchmark": "nemotron_rows", "rows": rows, "input": content, "cpu_to_ceiling": ratio}))


if __name__ == "__main__":
    main()
