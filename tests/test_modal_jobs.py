"""The app on Modal without Modal: errors, commits and the `modal run` command."""

import contextlib
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import modal
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from refusals import refusal

from modal_jobs import nll_scoring
from pipeline_assets import cli
from pipeline_assets.corpus.scoring import remote_shard
from pipeline_assets.corpus.scoring.local_functions import LOCAL_FUNCTIONS
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.staging import Receipt

PROJECT = Path(__file__).parents[1]


def failing(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        with nll_scoring._convert_errors():
            raise error

    return fail


def test_errors_arrive_in_one_line_and_bugs_as_runtime_errors() -> None:
    """Modal's client takes a TimeoutError for a call that still runs."""
    assert refusal(failing(UsageError("it is wrong", "here", "mend it")), UsageError) == "here: it is wrong; mend it"
    assert "no space is left on the disk" in refusal(failing(OSError(28, "full", "there")), RetryableError)
    refusal(failing(TimeoutError()), RetryableError)
    with pytest.raises(RuntimeError, match="KeyError: 'stage'") as failure:
        failing(KeyError("stage"))()
    assert not isinstance(failure.value, InputError)


@dataclass(frozen=True)
class RecordedVolume:
    """Volume that records when it is reloaded and committed."""

    name: str
    events: list[str]

    def reload(self) -> None:
        self.events.append(f"reload {self.name}")

    def commit(self) -> None:
        self.events.append(f"commit {self.name}")


LOCALLY = pytest.mark.filterwarnings("ignore:The .* function is executing locally")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the reloads, commits and work of a container, in order."""
    events: list[str] = []
    monkeypatch.setattr(modal, "is_local", lambda: False)
    for name in ("files", "scores"):
        monkeypatch.setattr(nll_scoring, f"{name}_volume", RecordedVolume(name, events))
    monkeypatch.setattr(remote_shard, "fetch_files", lambda *_: events.append("fetch"))
    return events


@LOCALLY
def test_a_container_commits_fetched_files(events: list[str]) -> None:
    assert nll_scoring.fetch.local('{"a": 1}') == '{"a": 1}'

    assert events == ["fetch", "commit files"]


@LOCALLY
@pytest.mark.parametrize("is_fetched", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_a_container_reloads_volumes_and_commits_scores_even_if_interrupted(
    events: list[str], monkeypatch: pytest.MonkeyPatch, is_fetched: bool, fails: bool
) -> None:
    def score(*_: object) -> Receipt:
        events.append("score")
        if fails:
            raise KeyboardInterrupt
        return Receipt([], {"rows": 3})

    monkeypatch.setattr(remote_shard, "is_fetched", lambda *_: is_fetched)
    monkeypatch.setattr(remote_shard, "score_remote", score)

    with pytest.raises(KeyboardInterrupt) if fails else contextlib.nullcontext():
        assert nll_scoring.score.local("{}") == Receipt([], {"rows": 3}).to_bytes().decode()

    seen = ["reload scores"] if is_fetched else ["reload scores", "reload files"]
    assert events == [*seen, "score", "commit scores"]


def read_arguments(monkeypatch: pytest.MonkeyPatch, **variables: str) -> list[str]:
    """Return the arguments that `modal run` passes on under environment variables."""
    for name in nll_scoring._OPTION_BY_VARIABLE:
        monkeypatch.delenv(name, raising=False)
    for name, value in {"CANDIDATE_DATASET_ID": "me/pools", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["modal"])
    monkeypatch.setattr(cli, "main", lambda: None)
    for name in ("fetch", "score"):
        monkeypatch.setitem(LOCAL_FUNCTIONS, name, None)
    nll_scoring.main.info.raw_f(out_dir="out", dry_run=True)
    assert {"fetch": nll_scoring.fetch, "score": nll_scoring.score} == LOCAL_FUNCTIONS
    return sys.argv


DEFAULT = "--model unsloth/gpt-oss-120b"


@pytest.mark.parametrize(
    ("variables", "options"),
    [
        (
            {"CANDIDATE_SUBDIR": "tool_use", "MAX_RECORDS": "5", "BATCH_SIZE": ""},
            f"--pool-subdir tool_use {DEFAULT} --max-records 5",
        ),
        *(({"TOKENIZER_NAME": name}, f"{DEFAULT} --tokenizer model") for name in ("model", "unsloth/gpt-oss-120b")),
        ({"TOKENIZER_NAME": "o200k_harmony"}, f"{DEFAULT} --tokenizer o200k_harmony"),
    ],
)
def test_modal_run_scores_the_pool_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], options: str
) -> None:
    words = " ".join(read_arguments(monkeypatch, **variables))

    assert words == f"corpusmill nemotron score --launcher modal --pool me/pools {options} --out-dir out --dry-run"


@pytest.mark.parametrize(
    ("variables", "tokens", "line"),
    [
        ({"BATCH_SIZE": "8"}, "8192", "BATCH_SIZE=8: 8 rows of 1,024 tokens, so --batch-tokens 8192"),
        ({"BATCH_SIZE": "511", "MAX_LENGTH": "2"}, "1022", "BATCH_SIZE=511: 511 rows of 2 tokens, so "),
        ({"BATCH_SIZE": "1", "MAX_LENGTH": "2"}, "512", "BATCH_SIZE=1: 1 row of 2 tokens, so --batch-tokens 512"),
        ({"BATCH_SIZE": "512"}, "512", ""),
    ],
)
def test_a_small_batch_size_counts_rows(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variables: dict[str, str],
    tokens: str,
    line: str,
) -> None:
    args = read_arguments(monkeypatch, **variables)

    assert args[args.index("--batch-tokens") + 1] == tokens
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith(line) and len(printed) == 1 + bool(line)


@pytest.mark.parametrize("batch_size", ["0", "eight", "-8", pytest.param("9" * 5000, id="5,000 digits")])
def test_invalid_variables_of_modal_run_are_refused(monkeypatch: pytest.MonkeyPatch, batch_size: str) -> None:
    with pytest.raises(SystemExit, match=r"^BATCH_SIZE: must be an integer >= 1, got '"):
        read_arguments(monkeypatch, BATCH_SIZE=batch_size)
    with pytest.raises(SystemExit, match=r"^CANDIDATE_DATASET_ID is not set"):
        read_arguments(monkeypatch, CANDIDATE_DATASET_ID="")


@pytest.mark.slow
def test_scoring_imports_no_dependency_that_the_image_lacks() -> None:
    """Modules are loaded as in containers: with the functions that a call runs."""
    modules = ("remote_shard", "modal_settings", "load_model", "nll")
    models = "import sys, transformers.modeling_utils, transformers.quantizers.auto"
    code = f"{models}; from pipeline_assets.corpus.scoring import {', '.join(modules)}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    distributions = packages_distributions()

    loaded = {
        canonicalize_name(distribution)
        for module in result.stdout.split()
        for distribution in distributions.get(module.partition(".")[0], ())
    }

    dependencies = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    installed = [package for name in nll_scoring.PACKAGES for package in (name, *(requires(name) or ()))]
    assert {"torch", "pyarrow"} <= loaded
    needed, provided = (
        {canonicalize_name(Requirement(spec).name) for spec in specs} for specs in (dependencies, installed)
    )
    assert loaded & needed <= provided
