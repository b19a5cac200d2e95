"""Modal app for NLL scoring, whose containers run the kernel of `corpus.scoring`.

    modal deploy modal_jobs/nll_scoring.py        # for `corpusmill nemotron score --launcher modal`, and Dagster
    modal run modal_jobs/nll_scoring.py --dry-run # estimate work and cost
    CANDIDATE_DATASET_ID=me/pools modal run modal_jobs/nll_scoring.py

`fetch` copies pools and model from the hub to one Modal volume; `score` reads that volume and writes to another one.
The variables CORPUSMILL_MODAL_* configure the containers, see `modal_settings`. Modal passes the input of an
interrupted container to another container even without `retries`; the shard is then scored again.
"""

import contextlib
import json
import os
import runpy
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import modal

from pipeline_assets.corpus.scoring.local_functions import LOCAL_FUNCTIONS
from pipeline_assets.corpus.scoring.modal_settings import NO_GPU, ModalSettings
from pipeline_assets.spine.disk_errors import explain_os_error
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.shipped import shipped_path

try:
    SETTINGS = ModalSettings.from_mapping(os.environ)
except InputError as error:
    sys.exit(str(error))
_MOUNT = Path(os.environ.get("CORPUSMILL_MODAL_MOUNT", "/corpusmill"))
FILES_FOLDER, SCORES_FOLDER = _MOUNT / "files", _MOUNT / "scores"
_CONSTRAINTS_FILE = "/constraints.txt"
PACKAGES = (
    *("accelerate", "gigatoken", "httpx2", "huggingface_hub", "msgspec", "numpy", "pyarrow", "pydantic", "pyyaml"),
    *("safetensors", "tiktoken", "tokenizers", "torch", "transformers", "zstandard"),
)
_DEFAULT_ROW_TOKENS = 1024  # tokens per row to convert a batch of rows to tokens if MAX_LENGTH is not set
# Environment variables of `modal run`, and the options of `corpusmill nemotron score` that they set.
_OPTION_BY_VARIABLE = {
    "CANDIDATE_DATASET_ID": "--pool",
    "CANDIDATE_REVISION": "--pool-revision",
    "CANDIDATE_SUBDIR": "--pool-subdir",
    "MODEL_NAME": "--model",
    "MODEL_REVISION": "--revision",
    "TOKENIZER_NAME": "--tokenizer",
    "MAX_LENGTH": "--max-length",
    "BATCH_SIZE": "--batch-tokens",
    "MAX_RECORDS": "--max-records",
}


def build_image(extra_packages: Sequence[str]) -> modal.Image:
    """Return an image with pinned packages, `extra_packages` and this project's code."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        modal.Image.debian_slim(python_version=python)
        .apt_install("gcc", "libc6-dev")  # Triton compiles the launchers of its kernels
        .add_local_file(shipped_path("constraints.txt"), _CONSTRAINTS_FILE, copy=True)
        .uv_pip_install(*PACKAGES, *extra_packages, extra_options=f"--constraint {_CONSTRAINTS_FILE}")
        .add_local_python_source("pipeline_assets", ignore=["**/*.pyc"])  # with data files, such as the vocabulary
    )


app = modal.App(SETTINGS.app)
files_volume, scores_volume = (
    modal.Volume.from_name(name, create_if_missing=True, version=2, environment_name=SETTINGS.environment)
    for name in SETTINGS.volumes
)
if modal.is_local():
    image = build_image(os.environ.get("CORPUSMILL_MODAL_PACKAGES", "").split())
else:
    image = modal.Image.debian_slim()
container_variables: dict[str, str | None] = {
    name: value for name, value in os.environ.items() if name.startswith(("CORPUSMILL_MODAL_", "HF_ENDPOINT"))
}


@contextlib.contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert errors of the `with` block to InputError or RuntimeError.

    Otherwise the caller would take an OSError in the container, such as a TimeoutError, as a sign that Modal is silent.
    """
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        raise explain_os_error(error, Path(error.filename or _MOUNT)) from None
    except Exception as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


@app.function(
    image=image,
    env=container_variables,
    volumes={str(FILES_FOLDER): files_volume},
    secrets=[modal.Secret.from_name(SETTINGS.secret, required_keys=["HF_TOKEN"])] if SETTINGS.secret else [],
    timeout=86_400,
    startup_timeout=SETTINGS.startup_s,
    scaledown_window=SETTINGS.scaledown_s,
    max_containers=1,
    retries=0,
    region=SETTINGS.region,
)
def fetch(request: str) -> str:
    """Fetch the files that a request names and the volume lacks; return the request."""
    from pipeline_assets.corpus.readers.hub_files import HubFiles
    from pipeline_assets.corpus.scoring.remote_shard import fetch_files

    with _convert_errors():
        fetch_files(json.loads(request), HubFiles(FILES_FOLDER))
        _commit(files_volume)
    return request


@app.function(
    image=image,
    env={**container_variables, "HF_HUB_OFFLINE": "1"},
    gpu=None if SETTINGS.gpu == NO_GPU else f"{SETTINGS.gpu}:{SETTINGS.gpus}",
    cpu=SETTINGS.cpu,
    memory=round(SETTINGS.memory_gib * 1024),
    volumes={str(FILES_FOLDER): files_volume, str(SCORES_FOLDER): scores_volume},
    timeout=SETTINGS.timeout_s,
    startup_timeout=SETTINGS.startup_s,
    scaledown_window=SETTINGS.scaledown_s,
    max_containers=SETTINGS.places,
    retries=0,
    region=SETTINGS.region,
)
def score(request: str) -> str:
    """Score a shard, write the scores to a volume, and return the encoded receipt."""
    from pipeline_assets.corpus.scoring.remote_shard import is_fetched, score_remote

    content = json.loads(request)
    with _convert_errors():
        if not modal.is_local():  # make visible what other containers wrote since this one started
            scores_volume.reload()
            if not is_fetched(content, FILES_FOLDER):
                files_volume.reload()  # not always: Modal refuses it while a file is open, and weights may be open
        try:
            receipt = score_remote(content, FILES_FOLDER, SCORES_FOLDER)
        finally:  # also after an interrupt by preemption
            _commit(scores_volume)
    return receipt.to_bytes().decode()


def _commit(volume: modal.Volume) -> None:
    """Make a volume's new files durable and visible to other containers."""
    if not modal.is_local():
        volume.commit()


def parse_batch_size(variables: Mapping[str, str]) -> str:
    """Return BATCH_SIZE in tokens (values below 512 are rows); UsageError if invalid."""
    from pipeline_assets.corpus.scoring.recipe import MIN_BATCH_TOKENS

    numbers = {"MAX_LENGTH": _DEFAULT_ROW_TOKENS}
    for name in ("BATCH_SIZE", "MAX_LENGTH"):
        text = variables.get(name) or str(numbers[name])
        if not text.isdecimal() or len(text) > 18 or int(text) < 1:
            raise UsageError(f"must be an integer >= 1, got {text!r}", name, "set tokens, or fewer than 512 rows")
        numbers[name] = int(text)
    rows = numbers["BATCH_SIZE"]
    if rows >= MIN_BATCH_TOKENS:
        return str(rows)
    tokens = max(rows * numbers["MAX_LENGTH"], MIN_BATCH_TOKENS)
    batch = f"{pluralize(rows, 'row')} of {numbers['MAX_LENGTH']:,} tokens"
    print(f"BATCH_SIZE={rows}: {batch}, so --batch-tokens {tokens}", flush=True)
    return str(tokens)


@app.local_entrypoint()
def main(out_dir: str = "data", dry_run: bool = False) -> None:
    """Score pools of a hub; environment variables set the options of `nemotron score`.

    The variables: CANDIDATE_DATASET_ID (required), CANDIDATE_REVISION (default: the dataset's head), CANDIDATE_SUBDIR,
    MODEL_NAME (default: unsloth/gpt-oss-120b), MODEL_REVISION (default: the model's head), TOKENIZER_NAME (`model` or
    `o200k_harmony`), MAX_LENGTH, BATCH_SIZE (see `parse_batch_size`), MAX_RECORDS.
    """
    LOCAL_FUNCTIONS.update(fetch=fetch, score=score)
    variables = {"MODEL_NAME": "unsloth/gpt-oss-120b", **{name: value for name, value in os.environ.items() if value}}
    if "CANDIDATE_DATASET_ID" not in variables:
        sys.exit("CANDIDATE_DATASET_ID is not set; set it to owner/name of pools on the hub")
    if variables.get("TOKENIZER_NAME") == variables["MODEL_NAME"]:
        variables["TOKENIZER_NAME"] = "model"
    if "BATCH_SIZE" in variables:
        try:
            variables["BATCH_SIZE"] = parse_batch_size(variables)
        except UsageError as error:
            sys.exit(str(error))
    options = [
        part for name, option in _OPTION_BY_VARIABLE.items() if name in variables for part in (option, variables[name])
    ]
    output = ["--out-dir", out_dir, *(["--dry-run"] if dry_run else [])]
    sys.argv = ["corpusmill", "nemotron", "score", "--launcher", "modal", *options, *output]
    print(*sys.argv, flush=True)
    runpy.run_module("pipeline_assets", run_name="__main__")
