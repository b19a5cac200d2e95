"""Recipes with a user's own step, built without commands."""

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml
from stage_a_build import INLINE, NO_COMMIT, build, local_source
from stage_a_sources import recipe_content

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.sealed_shards import document_shards
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.systems.stage_a import StageARecipe

SHARD = "shards/00000.jsonl.zst"
Stepped = Callable[..., Artifact]
KEEP = "def keep(document):\n    return document\n"
DECIDES = """
    from msgspec.structs import replace

    def keep(document):
        match document.text.split()[0]:
            case "cut":
                return replace(document, text=document.text[4:])
            case "title":
                return replace(document, meta=replace(document.meta, title="A title"))
            case "none":
                return None
            case "bad":
                return "too_bad"
            case "error":
                return 1 / 0
        return document
"""


def write_step(folder: Path, code: str, texts: Sequence[str], **python: object) -> Path:
    """Write a recipe of one source with a step next to it; return the recipe's path."""
    rows = [{"text": text, "key": f"note-{number}"} for number, text in enumerate(texts)]
    filters = python.pop("filters", {})
    step = {"file": "my_filter.py", "function": "keep"} | python
    source = local_source(folder, "notes", rows, filters={**filters, "python": step})  # type: ignore[dict-item]
    source["columns"]["license"] = None
    content = recipe_content(NO_COMMIT) | {"sources": [source], "outputs": {"up_to": "filtered"}}
    changes = {"shard_text_bytes": 1 << 30, "tokenizer": None}
    keys = content.keys() - {"dedup", "decontamination", "pack", "refuse_licences"}
    path = folder / "recipes" / "mixed.yaml"
    path.parent.mkdir(exist_ok=True)
    (path.parent / "my_filter.py").write_text(textwrap.dedent(code), encoding="utf-8")
    path.write_text(yaml.safe_dump({key: content[key] for key in keys} | changes), encoding="utf-8")
    return path


def build_step(path: Path, root: Path, engine: RunSettings = INLINE) -> Artifact:
    return build(StageARecipe.read(path), root, None, engine)["stage_a/filtered/notes"]


def kept_texts(corpus: Artifact) -> list[str]:
    return [document.text for shard in document_shards(corpus) for document in read_structs(shard.file, Document)]


def kept_rejects(corpus: Artifact) -> list[Reject]:
    return [*read_structs(corpus.path("rejects.jsonl.zst"), Reject)]
