"""Wrong use of commands, reported in one line about an option or file."""

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_results import Corpusmill, RecipeIn, only_line, refused
from demo_variants import find_snapshot

from pipeline_assets.commands.catalog import REMOVED_NAMES
from pipeline_assets.commands.terminal import resume_hint
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_PATH, VOCABULARY_SHA256
from pipeline_assets.demo.corpora import EDU_DATASET
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.builder import BuilderBusyError
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError

OFFLINE = {"HF_ENDPOINT": "http://127.0.0.1:9", "CORPUSMILL_HUB_TRIES": "1"}
NOT_SEALED = "nothing is sealed here"
WIKIPEDIA = "stage-a ingest-wikipedia --input cut.jsonl"
PACK = "stage-a pack --out-dir out --manifest"
NORMALIZE = "stage-a normalize --out-dir a --domain d --source s --input"
DEMOS = "'healing', 'stage-a', 'nemotron', 'stage2', 'parallel-text'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("here")
    (folder / "empty").mkdir()
    pq.write_table(pa.table({"body": ["a text"]}), folder / "table.parquet")
    (folder / "bare.json").write_text("{}")
    (folder / "cut.jsonl").write_text('{"text": "a text"}\n{"text": "a te')
    manifests = {
        "cut": "seq_len: 64",
        "input": "pack: {}\ninput: [a]",
        "beside": "seq_len: 8\npack: {}\nseed: 1\nnum_seqs: 4",
    }
    for name, text in {**manifests, "bare": "pack: {}"}.items():
        (folder / f"{name}.yaml").write_text(f"{text}\n")
    (folder / "named/recipes").mkdir(parents=True)
    (folder / "named/recipes/odd.yaml").write_text(
        "system: stage_a\nname: ../odd\nsources: [{kind: normalized, source: a}]\n"
    )
    (folder / "named/recipes/old.yaml").write_text("system: stage_a\nname: new\n")
    return folder


# Exit status 2: the command is wrong. 1: the work failed, or a check found an error.
@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        ("verify table.parquet", 2, "expected a folder, got a file"),
        ("diff none empty", 2, "folder not found"),
        ("rebuild none", 2, "folder not found"),
        ("rebuild empty", 2, NOT_SEALED),
        ("trace none --token 1", 2, "folder not found"),
        ("trace empty --token 1 --data empty", 2, NOT_SEALED),
        ("trace --source table.parquet#0 --data none", 2, "folder not found"),
        ("trace --source table.parquet#0 --data empty", 2, "no source below empty lists this file"),
        ("trace --source none#0 --data empty", 2, "none: no source below empty lists this file"),
        ("forget --source none#0 --data empty", 2, "none: no source below empty lists this file"),
        ("peek none --row 0", 2, "folder not found"),
        ("push none file:///proc/none --data empty", 2, "folder not found"),
        ("run healing_text_v2", 2, "recipe not found; did you mean healing_text_v1?"),
        ("run healing_text_v1.yaml", 2, "recipe not found; did you mean healing_text_v1, which is "),
        ("plan none", 2, "recipe not found"),
        ("plan old --data named", 2, "the file name is old, but `name` is new; rename the file to new.yaml"),
        ("plan odd --data named", 2, "`name` must contain only lower-case letters"),  # no file can have this name
        ("run mine --data table.parquet", 2, "table.parquet: expected a folder, got a file"),
        ("run mine --data /proc/none", 2, "for a recipe of a data root other than /proc/none, pass --data"),
        ("status none --data empty", 2, "recipe not found"),
        ("status --data none", 2, "folder not found"),
        ("manifests export --data empty --to out", 2, "no manifests found"),
        ("tokenizer check none", 2, "file not found"),
        ("tokenizer check bare.json", 2, "bare.json: expected a .tiktoken or .model file, got a .json file; pass"),
        ("tokenizer check empty", 2, "empty: expected a .tiktoken or .model file, got a folder; pass"),
        ("pin any/thing", 1, "cannot be reached"),
        ("stage-a hf-stream --source any/thing --out-dir d", 1, "cannot be reached"),
        (f"{WIKIPEDIA} --dump-date 2026-11-01 --license mit --out-dir d", 2, "--dump-date excludes --license"),
        ("stage-a filter --filters none.yaml --out-dir empty", 2, "normalize a source first"),
        ("stage-a report --input none --out out/report", 2, "no sealed source matches"),
        ("stage-a why id --data none", 2, "folder not found"),
        (f"{PACK} none.yaml --input empty", 2, "manifest not found"),
        (f"{PACK} cut.yaml --input empty", 2, "section `pack` not found"),
        (f"{PACK} input.yaml", 2, "expected only the section `pack`, got `input` too; pass it as --input"),
        (f"{PACK} beside.yaml", 2, "only the section `pack`, got `num_seqs` too; move it into `pack`, or re"),
        (f"{PACK} bare.yaml", 2, "no corpus to pack; pass --input, or a recipe"),
        (f"{NORMALIZE} none", 2, "no file matches"),
        (f"{NORMALIZE} table.parquet", 2, "column `text` not found"),
        (f"{NORMALIZE} cut.jsonl", 1, "the last line, line 2"),
    ],
)
def test_a_wrong_command(corpusmill: Corpusmill, folder: Path, command: str, status: int, message: str) -> None:
    result = corpusmill(*shlex.split(command), cwd=folder, env=OFFLINE)

    assert (result.returncode, message in only_line(result)) == (status, True), result.stderr


@pytest.mark.parametrize(
    ("typed", "error", "command"),
    [
        ("destroy", "command line: no such command 'destroy'", "corpusmill"),
        ("--data", "command line: option '--data' requires an argument", "corpusmill"),
        ("--log-every often run x", "--log-every: must be an integer, got 'often'", "corpusmill"),
        ("verify", "verify: missing argument 'folder'", "corpusmill verify"),
        ("ui --port", "ui: option '--port' requires an argument", "corpusmill ui"),
        ("ui --port 70000", "--port: must be at most 65535, got '70000'", "corpusmill ui"),
        ("stage-a pack --out-dir", "stage-a pack: option '--out-dir' requires an argument", "corpusmill stage-a pack"),
        ("run x --wrokers 2", "run: no such option: --wrokers (Possible options: --workers)", "corpusmill run"),
        ("run x --workers -1", "--workers: must be at least 0, got '-1'", "corpusmill run"),
        ("run mine --cost-limit", "run: option '--cost-limit' requires an argument", "corpusmill run"),
        ("run --cost-limit --launcher modal", "--cost-limit: must be a number, got '--launcher'", "corpusmill run"),
        ("demo --only heeling", f"--only: 'heeling' is not one of {DEMOS}", "corpusmill demo"),
    ],
)
def test_a_usage_error_names_the_help_of_its_command(
    corpusmill: Corpusmill, typed: str, error: str, command: str
) -> None:
    assert refused(corpusmill(*typed.split())) == f"{error}; see {command} --help"


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("verify x --sample 5", "--sample: must be a share above 0 and up to 100 %, got '5'; write 5% or 0.05"),
        ("verify x --seed spring", "--seed: needs --sample; pass --sample too"),
        (
            "stage-a why ''",
            "DOC_ID: must not be empty; pass the id of a document, the name of its file, or a piece of its text",
        ),
        ("status --data README.md", "README.md: expected a folder, got a file; pass the data root with --data"),
        (
            "stage-a ingest-manifest --manifest manifests/recipes/healing_text_v1.yaml --out-dir {here}/none",
            "manifests/recipes/healing_text_v1.yaml: `system` must be stage_a, got 'healing'; "
            "choose a recipe of stage_a",
        ),
        (
            "recipes --schema x",
            "--schema: must be one of healing, stage_a, nemotron, stage2, parallel_text, got 'x'; choose one of these",
        ),
        ("pin fineweb-edu", "fineweb-edu: not a dataset name; write owner/name, such as HuggingFaceFW/fineweb-edu"),
        ("pin a/b/c --model", "a/b/c: not a model name; write owner/name, such as unsloth/gpt-oss-120b"),
        (
            "pin gpt2 --model --recipe healing_text_v1",
            "--recipe: cannot be combined with --model; omit it, and write the commit to the recipe",
        ),
        (
            "run healing_text_v1 --partition test --data {here}/none",
            "healing_text_v1: no partition 'test'; choose one of train, valid",
        ),
        ("verify {here}/none", "{here}/none: folder not found; pass the folder of a finished artifact"),
        *(
            (command, "{here}/empty: nothing is sealed here (no manifest.json); pass the folder of a finished artifact")
            for command in (
                "verify {here}/empty",
                "describe {here}/empty --as answers --data {here}",
                "export {here}/empty --to hf --seq-len 9 --out {here}/none --data {here}",
            )
        ),
        ("ui --data {here}/none", "{here}/none: folder not found; pass the data root of a build with --data"),
        (
            "hub serve {here}/none",
            "{here}/none: folder not found; choose a folder that contains datasets/<owner>/<name>/…",
        ),
        *(
            (
                f"{command} --data {{here}}/table.parquet",
                "{here}/table.parquet: expected a folder, got a file; choose another folder, or move the file away",
            )
            for command in ("run healing_text_v1", "demo", "ui")
        ),
        *(
            (
                f"tokenizer check {{vocabulary}} --expected-sha256 {word}",
                f"{word}: not a sha256; pass 64 lower-case hex digits, or omit it for the shipped file",
            )
            for word in ("446a9538", "ab" * 33, "AB" * 32, f"sha256:{VOCABULARY_SHA256}")
        ),
    ],
)
def test_wrong_arguments_are_one_line_and_create_nothing(
    corpusmill: Corpusmill, folder: Path, command: str, line: str
) -> None:
    result = corpusmill(*shlex.split(command.format(here=folder, vocabulary=VOCABULARY_PATH)))

    assert refused(result) == line.format(here=folder)
    assert not (folder / "none").exists()


@pytest.mark.parametrize(
    "command",
    [
        *("forget --text {text} --reason r --apply", "init mine --input {text}", "status", "rebuild {here}", "ui"),
        *("recipes", "pin a/b", "plan healing_text_v1", "doctor", "manifests export", "demo --only parallel_text"),
    ],
)
def test_an_artifact_as_data_root_is_refused(
    corpusmill: Corpusmill, copy_root: Callable[[str], Path], command: str
) -> None:
    sealed = next(copy_root("parallel_text").rglob("manifest.json")).parent
    before, words = sorted(sealed.rglob("*")), command.format(text=__file__, here=sealed).split()

    for root in (sealed, sealed / "folder"):
        root.mkdir(exist_ok=True)
        assert refused(corpusmill(*words, "--data", root)).startswith(
            f"{sealed}: expected a data root, got an artifact"
        )

    assert [path for path in sorted(sealed.rglob("*")) if path != sealed / "folder"] == before


@pytest.mark.parametrize("command", ["smoke", "stage2 smoke", "nemotron smoke"])
def test_a_smoke_run_writes_nothing_into_an_artifact(
    corpusmill: Corpusmill, copy_root: Callable[[str], Path], command: str
) -> None:
    sealed = next(copy_root("parallel_text").rglob("manifest.json")).parent

    for root in (sealed, sealed / "folder"):
        result = corpusmill(*command.split(), "--out-dir", root)
        assert refused(result).startswith(f"{sealed}: expected a data root, got an artifact; ")

    assert not [path.name for path in sealed.iterdir() if path.name in ("folder", "hub", "README.md", "recipes")]


@pytest.mark.parametrize(
    ("args", "where"),
    [
        (["verify", ""], "FOLDER"),
        (["run", "x", "--data", ""], "--data"),
        (["run", "x", "--data="], "--data"),
        (["--data", "", "run", "x"], "--data"),
        (["export", "x", "--to", "parquet", "--out", ""], "--out"),
        (["diff", "x", ""], "B"),
    ],
)
def test_an_empty_path_is_not_the_current_folder(corpusmill: Corpusmill, args: list[str], where: str) -> None:
    assert refused(corpusmill(*args)) == f"{where}: must not be empty; pass a path; . is the current folder"


@pytest.mark.parametrize("removed", REMOVED_NAMES)
def test_removed_names_are_refused_with_their_replacement(corpusmill: Corpusmill, removed: str) -> None:
    name = "option" if "--" in removed else "command"

    assert refused(corpusmill(*removed.split(), "x")) == f"{removed}: this {name} was removed; {REMOVED_NAMES[removed]}"


def test_a_gated_dataset_is_refused_with_the_command_to_continue(
    corpusmill: Corpusmill, recipe_in: RecipeIn, demo_root: Path, tmp_path: Path
) -> None:
    shutil.copytree(demo_root / "hub", tmp_path / "hub")
    (tmp_path / "hub" / "datasets" / EDU_DATASET / ".gated").touch()

    with LoopbackHub(tmp_path / "hub") as hub:
        result = corpusmill("run", recipe_in({}), "--data", tmp_path / "data", env={"HF_ENDPOINT": hub.endpoint})

    assert result.returncode == 1
    assert only_line(result).startswith(f"{EDU_DATASET} on {hub.endpoint}: the dataset is gated; accept the terms on ")
    assert result.stderr.splitlines()[-1].startswith("to continue: corpusmill run ")


def test_a_changed_recipe_needs_a_new_name_or_replace(corpusmill: Corpusmill, recipe_in: RecipeIn, root: Path) -> None:
    manifests = {path: path.read_bytes() for path in root.rglob("manifest.json")}

    result = corpusmill("run", recipe_in({"snapshot.seed": "other"}), "--data", root)

    assert refused(result) == (
        f"{find_snapshot(root)}: another version is sealed here: the recipe changed (`seed`: healing_text_v1 → other); "
        "set another `snapshot.name` in the recipe, or run with --replace"
    )
    assert {path: path.read_bytes() for path in root.rglob("manifest.json")} == manifests


def test_a_used_port_is_refused(corpusmill: Corpusmill, demo_hub: LoopbackHub, demo_root: Path) -> None:
    port = demo_hub.endpoint.rpartition(":")[2]

    for args in (["hub", "serve", demo_root / "hub"], ["ui", "--data", demo_root]):
        assert refused(corpusmill(*args, "--port", port), 1) == (
            f"127.0.0.1:{port}: the port is in use; choose another port with --port"
        )


@pytest.mark.parametrize(
    ("error", "is_printed"),
    [
        (RetryableError("rate limited", "hub", "run the same command later"), True),
        (BuilderBusyError("process 1 is building this", "folder", "wait for it"), True),
        (OSError(28, "No space left on device"), True),
        (InputError("its last line is cut off", Path("notes.jsonl"), "write the file again"), False),
        (UsageError("unknown key `fils`", Path("notes.yaml"), "did you mean `files`?"), False),
    ],
)
def test_the_command_to_continue_is_printed_only_if_a_retry_can_succeed(error: Exception, is_printed: bool) -> None:
    with pytest.raises(type(error)) as raised, resume_hint("corpusmill run notes"):
        raise error

    assert getattr(raised.value, "__notes__", []) == ["to continue: corpusmill run notes"] * is_printed


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("run x", "must be an integer >= 0, got 'few'; correct it"),
        ("smoke", "must be an integer, got 'few'; see corpusmill smoke --help"),
    ],
)
def test_a_wrong_variable_is_named(corpusmill: Corpusmill, args: str, message: str) -> None:
    result = corpusmill(*args.split(), env={"CORPUSMILL_WORKERS": "few"})

    assert (result.returncode, result.stderr) == (2, f"corpusmill: CORPUSMILL_WORKERS: {message}\n")


def test_a_group_without_a_command_shows_its_help(corpusmill: Corpusmill) -> None:
    result = corpusmill("dedup")

    assert result.returncode == 2
    assert result.stderr.startswith("Usage: corpusmill dedup [OPTIONS] COMMAND [ARGS]...\n")
    assert result.stderr.rstrip().endswith("Example: corpusmill dedup explain --threshold 0.8")
