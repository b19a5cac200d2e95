"""Flows that scoring.py measures: rows of a pool in, completion NLLs out.

    python scoring_flows.py FLOW FOLDER WORKERS

`corpusmill` scores a split as a build does, including shards, receipts and the file of scores. `plain` is the obvious
program with transformers: padded batches of rows in their order, all logits, cross-entropy of the shifted labels.
`lm_eval` is lm-evaluation-harness on the same ids, which sorts rows by length and also compares each token with the
most likely one.
"""

import json
import random
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pages import write_pages

from pipeline_assets.corpus.scoring.pool_selection import select_rows
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.corpus.scoring.score_shard import Scorer
from pipeline_assets.corpus.scoring.score_split import local_runner, score_split
from pipeline_assets.corpus.scoring.scores import SCORES_FILE
from pipeline_assets.corpus.scoring.token_rows import encode_row
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.opening import open_staging_dir

# (prompt, completion) tokens of 36 rows of Nemotron, three per split.
REAL_LENGTHS = [
    (98, 1655),
    (82, 7392),
    (104, 28955),
    (819, 6720),
    (346, 6048),
    (1271, 16946),
    (189, 9737),
    (159, 16572),
]
REAL_LENGTHS += [(97, 2980), (163, 3782), (98, 4914), (115, 4229), (114, 882), (145, 1893), (75, 3921), (77, 119)]
REAL_LENGTHS += [(50, 179), (97, 448), (283, 1337), (283, 5778), (278, 671), (483, 1384), (1044, 4300), (1050, 8557)]
REAL_LENGTHS += [(1855, 128), (2410, 1351), (1874, 54), (3265, 1951), (240, 372), (1623, 3608), (1173, 6498)]
REAL_LENGTHS += [(270, 3778), (174, 759), (2132, 3869), (1699, 4376), (1494, 5634)]
BATCH_ROWS = 4  # of the plain loop: with 8 rows, logits and cross-entropy exceed 16 GB
_CHARACTERS = 4.2  # per token


def write_rows(path: Path, rows: int, shrink: int) -> None:
    """Write rows of the demo corpus with the lengths of real rows divided by `shrink`."""
    write_pages(path.parent / "source")
    corpus = "\n".join(pq.ParquetDataset(path.parent / "source" / "data").read(["text"])["text"].to_pylist())
    seeded = random.Random(7)

    def passage(tokens: int) -> str:
        size = max(round(tokens / shrink * _CHARACTERS), 4)
        start = seeded.randrange(len(corpus) - size)
        return corpus[start : start + size].replace("<|", "< |")

    texts = []
    for _ in range(rows):
        prompt, completion = seeded.choice(REAL_LENGTHS)
        question = f"<|start|>user<|message|>{passage(prompt)}<|end|>"
        texts.append(f"{question}<|start|>assistant<|channel|>final<|message|>{passage(completion)}<|return|>")
    ids = [f"{number:07d}" for number in range(rows)]
    pq.write_table(pa.table({"id": ids, "text": texts, "loss_mode": ["assistant_all"] * rows}), path)


def save_model(folder: Path, width: int, layers: int) -> None:
    """Save a Llama of seeded weights over o200k Harmony."""
    import torch
    import transformers

    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=201_088, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers,
        num_attention_heads=width // 16, num_key_value_heads=width // 16, max_position_embeddings=131_072,
    )).save_pretrained(folder)  # fmt: skip


def plain(pool: Path, model: Path, threads: int) -> list[float]:
    """Return the NLL sum of each row by a plain loop over padded batches."""
    import torch
    import transformers

    torch.set_num_threads(max(threads, 1))
    network = transformers.AutoModelForCausalLM.from_pretrained(model).eval()
    encoder, scores = load_encoder(VOCABULARY_SHA256), list[float]()
    table = pq.read_table(pool).to_pylist()
    for first in range(0, len(table), BATCH_ROWS):
        rows = []
        for row in table[first : first + BATCH_ROWS]:
            rows.append(encode_row(row["text"], row["loss_mode"], None, encoder, 1 << 31).tokens)
        longest = max(len(row.ids) for row in rows)
        ids = torch.zeros(len(rows), longest, dtype=torch.int64)
        attention, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
        for number, row in enumerate(rows):
            length = len(row.ids)
            ids[number, :length] = torch.from_numpy(row.ids.astype(np.int64))
            attention[number, :length] = 1
            labels[number, :length] = torch.from_numpy(np.where(row.in_loss, row.ids, -100).astype(np.int64))
        with torch.inference_mode():
            logits = network(input_ids=ids, attention_mask=attention, use_cache=False).logits[:, :-1].flatten(0, 1)
            nll = torch.nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), reduction="none")
        scores += nll.reshape(len(rows), -1).double().sum(1).tolist()
    return scores


def lm_eval(pool: Path, model: Path, threads: int) -> list[float]:
    """Return the NLL sum of each row by lm-evaluation-harness, without its tokenizer."""
    import torch
    import transformers
    from lm_eval.models.huggingface import HFLM
    from tokenizers import Tokenizer, models

    torch.set_num_threads(max(threads, 1))
    network = transformers.AutoModelForCausalLM.from_pretrained(model).eval()
    unused = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"?": 0}, unk_token="?")), unk_token="?", eos_token="?"
    )
    harness = HFLM(network, tokenizer=unused, batch_size=BATCH_ROWS, max_length=131_072)
    encoder, requests = load_encoder(VOCABULARY_SHA256), []
    for row in pq.read_table(pool).to_pylist():
        tokens = encode_row(row["text"], row["loss_mode"], None, encoder, 1 << 31).tokens
        first, stop = np.flatnonzero(tokens.in_loss)[[0, -1]] + (0, 1)  # a terminator follows, which is not scored
        assert tokens.in_loss[first:stop].all()  # the harness scores one run of tokens
        requests.append((("", ""), tokens.ids[:first].tolist(), tokens.ids[first:stop].tolist()))
    return [-log_likelihood for log_likelihood, _ in harness._loglikelihood_tokens(requests, disable_tqdm=True)]


def corpusmill(pool: Path, model: Path, workers: int, shard_rows: int) -> list[float]:
    """Return the NLL sum of each row by a real build, without its seal."""
    recipe = ScoringRecipe(tokenizer="o200k_harmony", shard_rows=shard_rows, rescored=0)
    out = pool.parent / "scores"
    shutil.rmtree(out, ignore_errors=True)
    with open_staging_dir(out, {}) as building:
        files, settings = {"pool": pool}, RunSettings(workers)
        run_stage = local_runner(Scorer("made", recipe, model), settings)
        score_split(building, files, select_rows(files, None), "made", model, recipe, run_stage)
        scores: list[float] = pq.read_table(building.path(SCORES_FILE))["nll_sum"].to_pylist()
        building.discard()
    return scores


def main() -> None:
    flow, folder, workers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    pool, model = folder / "pool.parquet", folder / "model"
    shard_rows = max(pq.read_metadata(pool).num_rows // 16, 1)
    flows = {"plain": plain, "lm_eval": lm_eval}
    by_peer = flows[flow](pool, model, workers) if flow in flows else None
    scores = by_peer or corpusmill(pool, model, workers, shard_rows)
    print(json.dumps(scores))


if __name__ == "__main__":
    main()
