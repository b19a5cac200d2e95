"""Catalog of all commands: groups, summaries and removed names."""

GROUPS = {
    "stage-a": (
        "Turn sources of every type into Documents of one schema.",
        "normalize --input 'notes/*.jsonl' --out-dir out --domain books --source notes",
    ),
    "dedup": ("Explain deduplication: its bands and its decisions.", "explain --threshold 0.8"),
    "nemotron": (
        "Process the Nemotron datasets and others with the same layout.",
        "inventory --dataset my/folder --out-dir out",
    ),
    "stage2": ("Turn licensed corpora into a tokenizer and token shards.", "process refinedweb_mixture --out-dir out"),
    "stage2 tokenizer": ("Train or check the tokenizer of a mixture.", "train --manifest refinedweb_mixture"),
    "parallel": ("Sample and encode sentence pairs of a translation dataset.", "inspect wmt14_fr_en"),
    "hub": ("Run a local hub.", "serve ./hub"),
    "tokenizer": ("Check pinned tokenizers.", "check FILE"),
    "manifests": ("Manage the manifests that are tracked in git.", "export"),
}
"""Help text and example of each group."""

COMMANDS = {
    "commands.admin": {
        "init": "Inspect files and write a recipe for them.",
        "recipes": "List all recipes with their state.",
        "pin": "Print a dataset's commit, or pin it in a recipe with --recipe.",
        "tokenizer check": "Check a tokenizer file against its pinned hash.",
        "manifests export": "Copy the manifests of built artifacts, to be committed.",
    },
    "commands.plan": {"plan": "Predict what a recipe's build fetches, reads and writes."},
    "commands.build": {"run": "Build a recipe. Each run ends with the warnings of all checks."},
    "demo.demo": {"demo": "Build small corpora of every system, offline."},
    "demo.mixture": {"stage2 smoke": "Build a small version of the shipped mixture, offline."},
    "demo.stage_a": {"smoke": "Run stage A on five small sources, offline."},
    "demo.nemotron": {"nemotron smoke": "Build and publish pools of six small datasets, offline."},
    "demo.hub_command": {"hub serve": "Serve a folder as a hub on loopback."},
    "ui": {"ui": "Open the Dagster UI of a data root; Ctrl-C stops it."},
    "commands.status": {"status": "Show the artifacts in the data root and which ones need work."},
    "commands.doctor": {"doctor": "Examine this machine, data root and settings."},
    "commands.gc": {"gc": "List or remove folders that no recipe and no artifact needs."},
    "commands.forget": {"forget": "Put rows on the data root's removal list, for later builds."},
    "commands.verify": {"verify": "Verify every file of an artifact against its manifest."},
    "commands.rebuild": {
        "rebuild": "Build an artifact again from its manifest and compare.",
        "diff": "Compare two artifacts, down to their documents.",
    },
    "commands.trace": {"trace": "Trace a token or document to its source row, or back."},
    "commands.dropped": {"dropped": "List the rows that an artifact dropped or rejected, by reason."},
    "commands.peek": {"peek": "Show a row as a trainer reads it, or a document."},
    "commands.fates": {
        "stage-a why": "Show why a document was kept or dropped.",
        "dedup show": "Show a document next to its duplicates, word by word.",
    },
    "commands.stage_a": {
        "stage-a hf-configs": "List a dataset's configs by language and script, matched exactly.",
        "stage-a hf-stream": "Read samples of hub datasets, each at one commit.",
        "stage-a ingest-manifest": "Normalize every source of a recipe.",
        "stage-a ingest-wikipedia": "Read the output of wikiextractor: <doc> elements or JSON lines.",
        "stage-a ingest-stackexchange": "Read Posts.xml files or .7z dumps; each site is one source.",
        "stage-a normalize": "Read local files of rows or texts, compressed or not.",
        "stage-a filter": "Filter the normalized sources in --out-dir.",
    },
    "commands.corpora": {
        "stage-a dedup": "Drop duplicates; by default, keep the first in the order of sources.",
        "stage-a signatures": "Store signatures, with which `dedup --seen` compares later corpora.",
        "stage-a decontaminate": "Drop or cut documents that contain items of evaluation sets.",
        "stage-a pack": "Pack weighted sources into token rows of one length.",
        "stage-a report": "Report on sources, their deduplication and decontamination.",
        "dedup explain": "Show how likely duplicates are found; recommend bands or a distance.",
    },
    "commands.nemotron": {
        "nemotron inventory": "Describe the rows of each split: files, columns, types, metadata.",
        "nemotron run-all": "Build pools from the latest commits of the six shipped datasets.",
        "nemotron pools": "Build pools from sealed rows, deduplicating them first if needed.",
        "nemotron normalize": "Write rows as Parquet: Harmony texts with exact token counts.",
    },
    "commands.scores": {
        "nemotron score": "Score completions with a language model: NLL and bits per byte.",
        "nemotron percentiles": "Show the spread of scores by domain, correctness and length.",
        "nemotron subsets": "Select training subsets by score, as rows and as masked tokens.",
    },
    "commands.stage2": {
        "stage2 raw": "Store rows of a hub dataset as a raw corpus with licence notes.",
        "stage2 tokenizer train": "Train the SentencePiece tokenizer that a recipe describes.",
        "stage2 tokenizer check": "Check a tokenizer file against its pinned hash.",
        "stage2 filter": "Filter rows of a hub dataset by repetition, length and language.",
        "stage2 process": "Build a whole recipe, up to verified token shards.",
        "stage2 verify": "Read every token shard of a recipe and write a dated inventory.",
        "stage2 docs": "Write the docs page on the shipped mixtures.",
        "stage2 train-config": "Print a trainer's configuration for the shards, as YAML.",
    },
    "commands.parallel": {
        "parallel sample": "Draw a sample of a translation dataset, and split it.",
        "parallel encode": "Encode a sample's pairs with a trained or an external model.",
        "parallel inspect": "Show a sample, its tokens, and the padding of its batches.",
    },
    "commands.publish": {
        "push": "Copy a sealed artifact to an object store, or resume the copy.",
        "pull": "Copy an artifact from an object store; pull again to resume.",
        "nemotron publish": "Publish a sealed folder as a hub dataset; needs HF_TOKEN.",
    },
    "commands.describe": {"describe": "Describe a dataset as a standard or a law requires."},
    "commands.export": {"export": "Write documents or rows for a trainer, or as Parquet."},
}
"""Names of commands and the first sentence of their help, by module."""

_EVALUATION_OPTIONS = (
    *("evaluation", "text-column", "id-column", "item", "text-unit", "ngram-words", "min-item-words"),
    *("min-item-overlap", "max-items-per-ngram", "action", "margin-words", "min-kept-words"),
)
REMOVED_NAMES = {
    "parallel overfit": "train on batches of PairLoader, see docs/parallel_text.md",
    "plan --mbit": "divide the bytes to fetch by the network's rate",
    "nemotron publish --onto": "omit it: publishing continues from the head; --replace replaces another's card",
    "verify --fresh": "omit it: every verification reads all files",
    "rebuild --put-back": "remove the damaged folder, and run its recipe again: the digest is the same",
    "plan --gpu-price": "set CORPUSMILL_MODAL_GPU_PRICE: `nemotron score --launcher modal` prints the cost",
    "dedup explain --recall": "omit it: the recommended bands find 95 % of pairs at the threshold",
    "verify --report": "write the output of --json to a file",
    **dict.fromkeys(
        (f"stage-a decontaminate --{option}" for option in _EVALUATION_OPTIONS),
        "write it as a key of the section `decontamination` in the file of --manifest, see docs/decontamination.md",
    ),
}
"""Removed commands and options, each with what to do instead."""
