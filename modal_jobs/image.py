"""The image that score shards run in: pinned packages, and of corpusmill the files that scoring imports, no others."""

import sys
from collections.abc import Callable, Sequence
from modulefinder import ModuleFinder
from pathlib import Path

import modal

_PROJECT = Path(__file__).parents[1]
_OURS = "pipeline_assets"
_CONSTRAINTS = "/constraints.txt"
# What these files import that Python doesn't bring, by the names that packages are installed by.
PACKAGES = (
    *("accelerate", "gigatoken", "httpx2", "huggingface_hub", "msgspec", "numpy", "pyarrow", "pydantic", "pyyaml"),
    *("safetensors", "tiktoken", "tokenizers", "torch", "transformers", "zstandard"),
)


def image_of(modules: Sequence[str], more: Sequence[str] = ()) -> modal.Image:
    """An image in which some modules of this project can be imported.

    Args:
        more: packages beside `PACKAGES`, such as kernels that a model's attention or experts take.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        modal.Image.debian_slim(python_version=python)
        .add_local_file(_PROJECT / "constraints.txt", _CONSTRAINTS, copy=True)
        .uv_pip_install(*PACKAGES, *more, extra_options=f"--constraint {_CONSTRAINTS}")
        .add_local_python_source(_OURS, ignore=left_out(modules))
    )


def left_out(modules: Sequence[str]) -> Callable[[Path], bool]:
    """Whether a file of the package, by its path below that, is none of `sources_of`."""
    wanted = sources_of(modules)
    return lambda path: _PROJECT / _OURS / path not in wanted


def sources_of(modules: Sequence[str]) -> set[Path]:
    """The files of this project that importing some of its modules takes, at once or later, and data beside them."""
    finder = ModuleFinder([str(_PROJECT)])  # packages that are installed it doesn't find, nor looks into
    for name in modules:
        finder.import_hook(name)
    ours = [module for name, module in finder.modules.items() if name.partition(".")[0] == _OURS]
    found = {Path(str(vars(module)["__file__"])) for module in ours}
    return {*found, *(data for folder in {path.parent for path in found} for data in folder.glob("*.tiktoken"))}
