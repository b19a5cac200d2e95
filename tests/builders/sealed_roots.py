"""Small sealed data roots of all kinds, archived for later versions to read.

`tests/golden/roots/DATE/SYSTEM.tar.xz` is a root that the program of that date sealed (`DATE.2`: later that day).
`tests/test_earlier_roots.py` reads all archives, and fails if the program writes a manifest schema, a kind or a stage
version that no archive has. To add the roots of the systems concerned, run the command below, and add their lines to
that test. An archive is never replaced or removed, since no later program can seal it again.

    PYTHONPATH=.:tests/builders:tests/harness .venv/bin/python tests/builders/sealed_roots.py DATE [SYSTEM …]
"""

import io
import json
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from chat_models import save_chat_model
from crash_cases import Sources, open_sources, without_git
from forked_workers import forked_here
from nemotron_build import row

from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.scoring.toy_model import write_toy_model
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.manifest import MANIFEST_FILE
from pipeline_assets.systems.nemotron import NemotronRecipe

ROOTS = Path(__file__).parents[1] / "golden" / "roots"
SYSTEM_NAMES = ("healing", "stage_a", "nemotron", "stage2", "parallel_text")
NAMES = (*SYSTEM_NAMES, "chat_template")


@contextmanager
def open_recipes() -> Iterator[tuple[Sources, dict[str, Recipe]]]:
    """Write the sources of small recipes; yield them and the recipes of `NAMES`."""
    with without_git(), open_sources() as sources, forked_here():
        write_toy_model(sources.model)
        recipes = {name: getattr(sources, name) for name in SYSTEM_NAMES}
        yield sources, recipes | {"chat_template": _chat_recipe(sources.cache.parent / "chat_template")}


def _chat_recipe(folder: Path) -> Recipe:
    """Write rows and a chat template; return the recipe that renders the rows by it."""
    save_chat_model(folder / "model", "chatml")
    (folder / "rows").mkdir()
    lines = [json.dumps(row(f"row-{number}", f"{number} + 1?", f"{number + 1}")) for number in range(3)]
    (folder / "rows" / "train.jsonl").write_text("".join(f"{line}\n" for line in lines))
    section = {"dataset": "sums", "path": str(folder / "rows"), "splits": ["train"], "domain": "math"}
    rows = {"template": {"path": str(folder / "model")}}
    content = {"system": "nemotron", "name": "chat_rows", "rows": rows, "datasets": [section]}
    return NemotronRecipe.from_mapping(content, "the chat recipe")


def build_all(recipe: Recipe, run: Run) -> list[Target]:
    """Build all artifacts of a recipe, without checks; return the targets."""
    targets = recipe.targets()
    for target in targets:
        target.kind.build(target, run)
    return targets


def _with_small_model(recipe: Recipe) -> Recipe:
    """Omit the 240 kB of normalization tables from a trained SentencePiece model."""
    sections = {name: section for name, section in recipe if getattr(section, "normalization", None) is not None}
    small = {name: section.model_copy(update={"normalization": "identity"}) for name, section in sections.items()}
    return recipe.model_copy(update=small)


def pack(root: Path, archive: Path) -> None:
    """Archive the names and bytes of a root's files, and nothing else."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz", preset=9, format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock"):
            entry = tarfile.TarInfo(f"{root.name}/{path.relative_to(root)}")
            entry.size, entry.mode = path.stat().st_size, 0o444
            tar.addfile(entry, io.BytesIO(path.read_bytes()))


def unpack(archive: Path, folder: Path) -> Path:
    """Extract the root of an archive into a folder; return the root."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.xz")


def unpack_latest(folder: Path, until: str = "9999") -> Path:
    """Extract the latest root of each system up to a date; return the folder."""
    archives = {path.name: path for path in sorted(ROOTS.glob("*/*.tar.xz")) if path.parent.name <= until}
    for archive in archives.values():
        unpack(archive, folder)
    return folder


def artifact_folders(root: Path) -> list[Path]:
    """Return the folders of all artifacts in a root, sorted."""
    return sorted(manifest.parent for manifest in root.rglob(MANIFEST_FILE))


def write_archives(folder: Path, names: Sequence[str]) -> None:
    """Write the archive of each system; the manifests do not name this machine."""
    platform, host = mock.patch("platform.platform", lambda: "made"), mock.patch("socket.gethostname", lambda: "made")
    with platform, host, open_recipes() as (sources, recipes), tempfile.TemporaryDirectory() as temporary:
        for name in names:
            root = Path(temporary) / name
            build_all(_with_small_model(recipes[name]), Run(root, RunSettings(), sources.offline, publishes=False))
            pack(root, folder / f"{name}.tar.xz")


if __name__ == "__main__":
    write_archives(ROOTS / sys.argv[1], sys.argv[2:] or NAMES)
