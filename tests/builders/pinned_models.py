"""Language model with all its files, written to a folder or a hub and pinned."""

import json
from pathlib import Path
from typing import Any

from faulty_hub import FaultyHub

from pipeline_assets.build.pins.model_pin import ModelSection
from pipeline_assets.build.target import Target
from pipeline_assets.systems.scoring import MODEL

NAME = "maker/tiny"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
CONFIG: dict[str, Any] = {
    "architectures": ["TinyForCausalLM"],
    "model_type": "tiny",
    "dtype": "bfloat16",
    "quantization_config": {"quant_method": "mxfp4"},
    "vocab_size": 201_088,
    "max_position_embeddings": 131_072,
    "time_step_limit": [0.0, float("inf")],
}
HEAD = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
TENSOR = len(HEAD).to_bytes(8, "little") + HEAD + bytes(8)
PINNED = {
    "chat_template.jinja": b"{{ messages }}",
    "config.json": json.dumps(CONFIG).encode(),
    "generation_config.json": b"{}",
    SHARDS[0]: TENSOR,
    SHARDS[1]: TENSOR + b" ",
    "model.safetensors.index.json": json.dumps({"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}).encode(),
    "special_tokens_map.json": b"{}",
    "tokenizer.json": b'{"version": "1.0"}',
    "tokenizer_config.json": b"{}",
}
OTHER_FILES = {
    ".gitattributes": b"*.safetensors filter=lfs\n",
    "README.md": b"# Tiny\n",
    "consolidated.safetensors": TENSOR,
    "metal/model.bin": b"metal",
    "original/config.json": b"{}",
    "original/model.py": b"print()",
    "pytorch_model.bin": b"pickle",
    "tiny-Q4.gguf": b"GGUF",
}
LEFT_OUT_FILES = sorted(OTHER_FILES.keys() - {".gitattributes"})


def write_model(folder: Path, **changes: bytes | None) -> Path:
    """Write the model to a folder with some files changed or left out."""
    for name, content in (PINNED | OTHER_FILES | changes).items():
        if content is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    return folder


def publish(hub: FaultyHub, **changes: bytes | None) -> str:
    """Write the model to the hub and return its commit."""
    write_model(hub.folder / "models" / NAME, **changes)
    return hub.commits()[f"models/{NAME}"]


def pin_for(**section: str) -> Target:
    section_read = ModelSection.from_mapping(section, "the recipe")
    return MODEL.target("mine", section_read.pinned_content(), external_inputs=section_read.folder())
