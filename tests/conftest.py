"""Fixtures of all tests: the demo's data root and the command line."""

import fcntl
import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
import yaml
from command_results import Corpusmill, Result
from command_server import READ_AT_IMPORT, CommandServer, load_tokenizer_tables
from faulty_hub import FaultyHub
from huge_pages import use_huge_pages
from refused_imports import refusing_environment, take_notes

from pipeline_assets.demo.loopback_hub import HUB_FOLDER
from pipeline_assets.spine.provenance import ProvenanceRecorder

if TYPE_CHECKING:
    import dagster as dg

# A kill loses nothing of the kernel, and power losses are simulated: tests may run in memory.
MEMORY = Path("/dev/shm")
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers inherit the folders
    is_large = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 8 << 30
    parent = str(MEMORY) if is_large else tempfile.gettempdir()
    os.environ["PYTEST_DEBUG_TEMPROOT"] = parent  # of `tmp_path`, which pytest keeps after a failure
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(dir=parent)
    os.chmod(os.environ["TMPDIR"], 0o755)  # PostgreSQL runs as a user of its own

# A shell starts background processes with Ctrl-C ignored, which commands would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("untimed", deadline=None)  # compiling takes seconds, once
hypothesis.settings.load_profile("untimed")

PROJECT = Path(__file__).parents[1]
# Commands have a cache folder of their own, but share compiled code.
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path("~/.cache/corpusmill/compiled").expanduser()))
TIMEOUT_S = 600
pytest_plugins = ["corpus_fixtures"]
# With `transformers` comes the hub's client, which reads its address on import: such commands read no hub.
SCORING_MODULES = (
    "huggingface_hub.hf_api",
    "pipeline_assets.corpus.scoring.load_model",
    "transformers.models.llama.modeling_llama",
)
MANY_TESTS = 500  # the quick or the slow tests, in which hundreds of forks encode


gc.disable()  # while modules are imported and tests are collected, nothing becomes garbage


def pytest_collection_finish(session: pytest.Session) -> None:
    """Freeze all loaded objects, so that the collector and forks do not touch them."""
    if len(session.items) > MANY_TESTS:
        load_tokenizer_tables()
        use_huge_pages()
    gc.freeze()
    gc.set_threshold(50_000)  # as commands do
    gc.enable()


def pytest_unconfigure() -> None:
    """Remove what killed commands left in the temporary folder."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup() -> None:
    """Hide the test's name from builds: a new environment restarts fork servers."""
    os.environ["PYTEST_CURRENT_TEST"] = "a test"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call() -> None:
    """Hide it again: pytest sets it before the call, too."""
    os.environ["PYTEST_CURRENT_TEST"] = "a test"


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from pipeline_assets.cli import main; main()", *map(str, arguments)]


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("CORPUSMILL_", "HF_", "DAGSTER_"))
    }
    return {**kept, **refusing_environment(), "HF_HUB_DISABLE_XET": "1", **extra}


@pytest.fixture(scope="session", params=[False, pytest.param(True, marks=pytest.mark.real)], ids=["made", "real"])
def real(request: pytest.FixtureRequest) -> bool:
    """Check whether a test reads real samples, under the mark `real`."""
    return bool(request.param)


def serve_commands(cache: Path, preload: Sequence[str] = ()) -> Iterator[Corpusmill]:
    """Yield a function that runs commands in forks of a server that loads `preload`."""
    cache_variables = {"XDG_CACHE_HOME": str(cache)}
    server = CommandServer(environment(cache_variables), PROJECT, preload)

    def typed(
        *arguments: object, env: Mapping[str, str] | None = None, cwd: Path = PROJECT, **options: object
    ) -> Result:
        variables = environment(cache_variables | dict(env or {}))
        if options or any(name.startswith(READ_AT_IMPORT) for name in env or {}):
            words = command(*arguments)
            return subprocess.run(
                words, env=variables, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S, **options
            )
        return server.run([*map(str, arguments)], variables, cwd, TIMEOUT_S)

    yield typed
    server.stop()


@pytest.fixture(scope="session")
def corpusmill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpusmill]:
    """Return a function that runs a command: `corpusmill("verify", folder)`."""
    yield from serve_commands(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def scoring_corpusmill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpusmill]:
    """Return `corpusmill` for commands that score local pools.

    Its server has loaded torch and transformers, which takes each command ten seconds.
    """
    pytest.importorskip("torch")
    yield from serve_commands(tmp_path_factory.mktemp("cache"), SCORING_MODULES)


@pytest.fixture(scope="session")
def intact_roots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Extract the archived roots whose digests tests expect. Tests only read them."""
    from sealed_roots import unpack_latest

    return unpack_latest(tmp_path_factory.mktemp("intact"), "2026-11-26")


@pytest.fixture
def copy_root(intact_roots: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies the root of a system for changes."""
    from root_changes import copy_writable

    def copy(system: str) -> Path:
        return copy_writable(intact_roots / system, tmp_path / system)

    return copy


@pytest.fixture(autouse=True)
def _no_command_and_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reset the command and the log that a test's own commands set."""
    monkeypatch.setattr(ProvenanceRecorder, "command", None)
    logger = logging.getLogger("corpusmill")
    logger.handlers, logger.propagate = [], True
    if logger.level:  # setting a level resets a cache of every logger
        logger.setLevel(logging.NOTSET)


@pytest.fixture
def _default_hangup() -> Iterator[None]:
    """Let programs that the test starts get SIGHUP, which `nohup make test` ignores."""
    ignored = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, ignored)


@pytest.fixture(autouse=True)
def _no_refused_import() -> Iterator[None]:
    """Check that no typed command imported pandas; see `refused_imports`."""
    yield
    if notes := take_notes():
        pytest.fail(notes)


@pytest.fixture
def started() -> Callable[..., subprocess.Popen[str]]:
    """Return a function that starts a command as leader of its process group."""

    def typed(*arguments: object, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        words, variables = command(*arguments), environment(env or {})
        return subprocess.Popen(words, env=variables, stderr=subprocess.PIPE, text=True, start_new_session=True)

    return typed


@pytest.fixture(scope="session")
def build_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """Return a function that builds a folder once for all processes of the tests.

    They only read it.
    """
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared

    def build_shared(name: str, build: Callable[[Path], None]) -> Path:
        with open(shared / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (built := shared / f"{name}.built").exists():
                build(shared / name)
                built.touch()
        return shared / name

    return build_shared


@pytest.fixture(scope="session")
def demo_root(build_once: Callable[[str, Callable[[Path], None]], Path], corpusmill: Corpusmill) -> Path:
    """Build the demo's data root; tests only read it."""

    def build(root: Path) -> None:
        result = corpusmill("demo", "--data", root, "--only", "healing")
        assert result.returncode == 0, result.stderr

    return build_once("demo", build)


@pytest.fixture
def root(demo_root: Path, tmp_path: Path) -> Path:
    """Copy the demo's data root for changes."""
    from demo_variants import copy_demo

    return copy_demo(demo_root, tmp_path / "data")


@pytest.fixture(scope="session")
def stage_a_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build stage A of all synthetic sources; tests only read it."""
    from stage_a_build import build, recipe_with
    from stage_a_sources import DATASET, write_hub, write_sources

    from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER, HubFiles

    root, folder = tmp_path_factory.mktemp("stage_a") / "data", tmp_path_factory.mktemp("hub")
    write_hub(folder)
    write_sources(root)
    with FaultyHub(folder) as running:
        recipe = recipe_with(root, commit=running.commits()[DATASET])
        build(recipe, root, HubFiles(root / CACHE_FOLDER, running.endpoint))
    return root


@pytest.fixture(scope="session")
def built_notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build stage A of the local notes; tests only read it."""
    from stage_a_build import build, notes_recipe
    from stage_a_sources import write_notes

    root = tmp_path_factory.mktemp("notes")
    write_notes(root / "sources" / "notes")
    build(notes_recipe(root), root)
    return root


@pytest.fixture
def notes_root(built_notes: Path, tmp_path: Path) -> Path:
    """Copy the data root with the notes for changes."""
    return shutil.copytree(built_notes, tmp_path / "notes_root")


@pytest.fixture
def instance() -> "Iterator[dg.DagsterInstance]":
    import dagster as dg

    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def demo_hub(demo_root: Path) -> Iterator[FaultyHub]:
    with FaultyHub(demo_root / HUB_FOLDER) as running:
        yield running


@pytest.fixture
def recipe_in(tmp_path: Path, demo_root: Path) -> Callable[..., Path]:
    """Write changed demo recipes: `recipe_in({"megatron.token_budget": 5})`."""

    def written(changes: Mapping[str, object] | None = None, name: str = "healing_text_v1") -> Path:
        recipe = yaml.safe_load((demo_root / "recipes" / "healing_text_v1.yaml").read_text())
        for key, value in (changes or {}).items():
            section = recipe
            *path, last = key.split(".")
            for part in path:
                section = section[part]
            section[last] = value
        recipe["name"] = name
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(recipe, sort_keys=False))
        return path

    return written
