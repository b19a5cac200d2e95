"""The Python API `corpusmill`: its names, imports and errors."""

import json
import shutil
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage_a_build import NO_COMMIT, local_source
from stage_a_sources import write_recipe

import corpusmill
from corpusmill import OpenedArtifact, open_folder, run
from corpusmill.display import html_table, plot_column
from pipeline_assets.build.garbage import Survey
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.systems.registry import SYSTEMS

API = Path(__file__).parents[1] / "pipeline_assets" / "api"
V1 = Path("megatron", "healing_text_v1")


def test_public_names_are_listed_and_completed_before_their_import() -> None:
    names = ["OpenedArtifact", "__version__", "labels", "loader", "open_folder", "run"]
    assert corpusmill.__all__ == names and set(names) <= set(dir(corpusmill))
    assert (API / "corpusmill" / "py.typed").exists()
    with pytest.raises(AttributeError, match="module 'corpusmill' has no attribute 'pack'"):
        _ = corpusmill.pack  # type: ignore[attr-defined]


def test_import_loads_neither_dagster_nor_torch(tmp_path: Path) -> None:
    """Run outside of the checkout, so that the installed package is imported."""
    code = "import corpusmill, sys; print(corpusmill.__version__, {'dagster', 'torch'} & set(sys.modules))"

    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert result.stdout.split() == [version("corpusmill"), "set()"]


def test_loader_without_torch_is_reported_with_its_install_command(tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None\nfrom corpusmill import loader"

    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)

    fix = "install it: python -m pip install -c constraints.txt torch"
    assert result.stderr.splitlines()[-1] == f"ModuleNotFoundError: loader needs torch; {fix}"


def test_loader_and_labels_are_those_of_batching() -> None:
    batching = pytest.importorskip("pipeline_assets.corpus.batching", reason="torch is not installed")

    assert (corpusmill.loader, corpusmill.labels) == (batching.loader, batching.labels)


def test_built_recipe_is_opened_by_kind(demo_root: Path) -> None:
    artifacts = run(demo_root / "recipes" / "healing_text_v1.yaml", demo_root)

    splits = artifacts["healing/megatron_split"]
    assert [split.folder for split in splits] == [demo_root / V1 / "train", demo_root / V1 / "valid"]
    assert all(isinstance(split, OpenedArtifact) for split in splits)


def test_all_mistakes_of_a_recipe_are_shown(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("system: stage_a\nname: bad\nsources: []\npack: {seq_len: -64, foo: 1}\n")

    with pytest.raises(UsageError) as refused:
        run(tmp_path / "bad.yaml", tmp_path)

    shown = "".join(traceback.format_exception(refused.value))
    for mistake in ("`pack.seq_len` must be", "unknown key `pack.foo`", "`sources`"):
        assert shown.count(mistake) == 1


@pytest.mark.parametrize(("system", "kind"), [("stage_a", "stage_a/filtered"), ("nemotron", "nemotron/deduplicated")])
def test_table_has_the_sealed_bytes_or_names_a_file(system: str, kind: str, copy_root: Callable[[str], Path]) -> None:
    sealed = Lineage(copy_root(system)).manifests
    folder = next(folder for folder, manifest in sealed.items() if manifest.kind == kind)
    artifact = open_folder(folder)
    stored = next(file for file in artifact.manifest.storage if file.path.startswith(("data/", "shards/")))
    data = (folder / stored.path).read_bytes()

    assert artifact.table().num_rows == artifact.manifest.identity.counts["ledger"]["out"]
    (folder / stored.path).write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    with pytest.raises(InputError, match=f"{stored.path}: sha256 is [0-9a-f]{{64}}, sealed with {stored.sha256}"):
        artifact.table()


def test_replaced_artifact_is_not_read(copy_root: Callable[[str], Path]) -> None:
    sealed = Lineage(copy_root("stage_a")).manifests
    folder, other = [folder for folder, manifest in sealed.items() if manifest.kind == "stage_a/filtered"][:2]
    artifact, unread = open_folder(folder), open_folder(folder)
    documents = artifact.documents()
    next(documents)

    folder.rename(folder.with_name("earlier"))
    shutil.copytree(other, folder)

    reads: list[Callable[[], object]] = [lambda: [*documents]]
    for opened in (artifact, unread):
        reads += [lambda o=opened: [*o.documents()], opened.table, lambda o=opened: o.rows]
        reads += [lambda o=opened: o.trace(row=0), lambda o=opened: o.plot("text")]
    for read in reads:
        with pytest.raises(RetryableError, match=f"^{folder}: .* replaced while it was read; open the folder again$"):
            read()


def test_wrong_use_is_one_line(demo_root: Path, tmp_path: Path) -> None:
    train = open_folder(demo_root / V1 / "train")
    copy = shutil.copytree(train.folder, tmp_path / "copy", ignore=shutil.ignore_patterns("tokens*", "[dr]*"))
    (copy / "00000.parquet").touch()
    wrong: list[tuple[Callable[[], object], type[InputError], str]] = [
        (
            lambda: train.trace(row=0, token=0),
            UsageError,
            "expected one of row, doc_id and token, got 2; pass one of them$",
        ),
        (
            lambda: next(train.documents()),
            UsageError,
            "train: expected a corpus of documents, got healing/megatron_split",
        ),
        (
            lambda: open_folder(tmp_path / "none"),
            InputError,
            "none: folder not found; pass the folder of a finished artifact$",
        ),
        (train.packed, InputError, r"megatron_split has no such file; .* \(stage_a/packed\), such as data/"),
        (lambda: open_folder(copy), InputError, "copy: these files are an exported copy of healing/megatron_split"),
        (
            lambda: run("healing_text_v1", train.folder),
            UsageError,
            "expected a data root, got an artifact; set data to",
        ),
    ]

    for use, kind, error in wrong:
        with pytest.raises(kind, match=error):
            use()


def test_arguments_are_checked_by_type_before_any_work(demo_root: Path, tmp_path: Path) -> None:
    train = open_folder(str(demo_root / V1 / "train"))
    wrong: list[tuple[Callable[..., object], dict[str, object], str]] = [
        (run, {"replace": "no"}, "replace: must be True or False, got 'no'"),
        (run, {"replace": 1}, "replace: must be True or False, got 1"),
        (run, {"workers": True}, "workers: must be an integer, got True"),
        (run, {"workers": 1.5}, "workers: must be an integer, got 1.5"),
        (run, {"workers": "2"}, "workers: must be an integer, got '2'"),
        (run, {"workers": -1}, "workers: must be an integer >= 0, got -1"),
        (run, {"data": None}, "data: must be a path or text, got None"),
        (run, {"recipe": 5}, "recipe: must be a path or text, got 5"),
        (run, {"data": ""}, "data: must not be empty"),
        (open_folder, {"folder": 5}, "folder: must be a path or text, got 5"),
        (open_folder, {"folder": ""}, "folder: must not be empty"),
        (open_folder, {"folder": "a\0b"}, "folder: must not have a NUL character"),
        (open_folder, {"folder": Path("a\0b")}, "folder: must not have a NUL character"),
        (train.trace, {"row": True}, "row: must be an integer or None, got True"),
        (train.trace, {"token": "9"}, "token: must be an integer or None, got '9'"),
        (train.trace, {"doc_id": 9}, "doc_id: must be text or None, got 9"),
        (train.plot, {"column": 9}, "column: must be text, got 9"),
    ]

    for function, arguments, error in wrong:
        defaults = {"recipe": "healing_text_v1", "data": tmp_path} if function is run else {}
        with pytest.raises(UsageError, match=f"^{error}; correct it$"):
            function(**defaults | arguments)
    assert not [*tmp_path.iterdir()]
    [traced] = train.trace(token=np.int64(9))  # type: ignore[arg-type]
    assert traced.token is not None and traced.token.position == 9


def test_missing_and_unknown_arguments_are_named_with_their_function() -> None:
    with pytest.raises(TypeError, match=r"^run\(\): missing a required argument: 'recipe'$"):
        run()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^run\(\): got an unexpected keyword argument 'root'$"):
        run("notes", root="data")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"drop_last": "no"}, "drop_last: must be True or False, got 'no'; correct it"),
        ({"padding": 1}, "padding: must be True or False, got 1; correct it"),
        ({"batch": True}, "batch: must be an integer, got True; correct it"),
        ({"workers": 1.5}, "workers: must be an integer, got 1.5; correct it"),
    ],
)
def test_loader_arguments_are_checked_by_type(arguments: dict[str, object], error: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")

    with pytest.raises(UsageError) as raised:
        corpusmill.loader("none", **{"batch": 4} | arguments)  # type: ignore[arg-type]

    assert str(raised.value) == error


def test_loader_refuses_an_artifact_or_array_in_a_short_line(demo_root: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    expected = "^folder: must be a path or text or a MixtureReader, got "

    with pytest.raises(UsageError, match=f"{expected}<healing/megatron_split .*; pass its folder$"):
        corpusmill.loader(open_folder(demo_root / V1 / "train"), batch=4)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=rf"{expected}array\(") as array_error:
        corpusmill.loader(np.zeros((50, 50)), batch=4)  # type: ignore[arg-type]

    assert len(str(array_error.value)) < 200


def test_missing_file_of_a_recipe_is_named_before_any_build(tmp_path: Path) -> None:
    source = local_source(tmp_path, "notes", [{"text": "A note.", "key": "note-1"}])
    pack = {"seq_len": 8, "strategy": "sequential", "tokenizer_path": "none.tiktoken"}
    recipe = write_recipe(tmp_path, NO_COMMIT, lambda content: content.update(sources=[source], pack=pack), "notes")

    with pytest.raises(InputError, match=r"none\.tiktoken: "):
        run(str(recipe), tmp_path)

    assert not [*tmp_path.rglob("manifest.json")]


def test_artifacts_of_a_recipe_outside_the_data_root_are_not_garbage(tmp_path: Path) -> None:
    source, root = local_source(tmp_path, "notes", [{"text": "A note.", "key": "note-1"}]), tmp_path / "data"
    recipe = write_recipe(tmp_path, NO_COMMIT, lambda content: content.update(sources=[source]), "notes")

    run(str(recipe), root, workers=0)

    survey = Survey(root, SYSTEMS)
    assert survey.garbage == []
    assert root / "stage_a/notes/normalized/notes" in survey.user_folders


def test_build_logs_the_warnings_that_the_command_prints(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "rows.jsonl").write_text('{"text": "Soil is soil.", "license": "MIT"}\n')
    (tmp_path / "recipes").mkdir()
    source = f"kind: local, source: notes, path: {tmp_path / 'notes'}, domain: web, columns: {{license: licens}}"
    text = f"system: stage_a\nname: notes\nsources: [{{{source}}}]\noutputs: {{up_to: normalized}}\n"
    (tmp_path / "recipes" / "notes.yaml").write_text(text)

    for _ in range(2):  # also if nothing is built
        caplog.clear()
        run("notes", data=tmp_path, workers=0)
        assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
            "check notes/notes: named_columns_have_values: WARNING: no document has a value for `licens`; "
            "check the spelling"
        ]


def test_threads_that_build_with_workers_take_turns(tmp_path: Path) -> None:
    rows = [{"text": f"word{number} " * 100_000, "key": str(number)} for number in range(16)]  # enough for workers
    recipe = {"system": "stage_a", "name": "notes", "sources": [local_source(tmp_path, "notes", rows)]}
    recipe |= {"shard_text_bytes": 1 << 20, "outputs": {"up_to": "normalized"}}
    for name in "abc":
        (tmp_path / name / "recipes").mkdir(parents=True)
        (tmp_path / name / "recipes" / "notes.yaml").write_text(json.dumps(recipe))

    with ThreadPoolExecutor(3) as pool:
        built = list(pool.map(lambda name: run("notes", tmp_path / name)["stage_a/normalized"][0], "abc"))

    assert len({artifact.manifest.digest for artifact in built}) == 1


def test_notebook_shows_an_artifact_and_a_trace_as_tables_without_markup(demo_root: Path) -> None:
    train, hostile = open_folder(demo_root / V1 / "train"), "<script>alert(1)</script>"

    table, traced = train._repr_html_(), train.trace(token=9)
    assert "<th>healing/megatron_split</th>" in table and train.manifest.digest in table
    text = traced[0].text
    assert f"<td>{text.source.rows[0]}</td>" in traced._repr_html_()
    assert repr(traced).startswith(f"{text.source.rows[0]}  {text.source.license_tag}  ") and "\n" not in repr(traced)
    assert "<script>" not in html_table([hostile], [[hostile]])
    assert "<script>" not in plot_column(hostile, [pa.chunked_array([[hostile]])])._repr_html_()


@pytest.mark.parametrize(
    ("values", "title", "bars"),
    [
        (["a", "b", "a", None], "x: 3 values, 2 different", [("a", 2), ("b", 1)]),
        (
            ["a" * 65, "b", ""],
            "x: 3 lengths in characters",
            [("1", 2), *[(str(1 << k), 0) for k in range(1, 6)], ("64", 1)],
        ),
        ([1, 2, 3, 4], "x: 4 numbers", [("1", 1), ("2", 2), ("4", 1)]),
        ([["tools", "long"], [], None, ["tools"]], "x: 3 values, 2 different", [("tools", 2), ("long", 1)]),
        ([False, True, None, False], "x: 3 values, 2 different", [("false", 2), ("true", 1)]),
        (pa.array([None], pa.float64()), "x: 0 numbers", []),
        ([], "x: 0 numbers", []),
    ],
)
def test_column_is_plotted_by_its_type(values: Sequence[object], title: str, bars: list[tuple[str, int]]) -> None:
    plot = plot_column("x", [pa.chunked_array([values])] if len(values) else [])

    assert "</svg>" in plot._repr_html_() and repr(plot).startswith(title)
    assert (plot.title, [(bar.label, bar.amount) for bar in plot.bars]) == (title, bars)


@pytest.mark.slow
def test_more_than_a_million_different_texts_are_counted_by_length() -> None:
    ids = pa.array(np.arange(1_000_000, 2_100_000)).cast(pa.string())

    plot = plot_column("id", (pa.chunked_array([ids.slice(first, 100_000)]) for first in range(0, len(ids), 100_000)))

    assert plot.title == "id: 1,100,000 lengths in characters"
    assert [(bar.label, bar.amount) for bar in plot.bars] == [("4", 1_100_000)]


def test_fractions_have_twenty_bins_that_count_every_value() -> None:
    plot = plot_column("nll", [pa.chunked_array([[0.5, None, 1.5]]), pa.chunked_array([[2.5, 1e9]])])

    assert len(plot.bars) == 20 and sum(bar.amount for bar in plot.bars) == 4


@given(st.lists(st.integers(0, 1 << 40), min_size=1))
def test_bins_of_whole_numbers_are_powers_of_two(numbers: list[int]) -> None:
    counted = Counter(1 << max(number, 1).bit_length() - 1 for number in numbers)

    bars = plot_column("n", [pa.chunked_array([numbers])]).bars

    assert [bar.amount for bar in bars if bar.amount] == [counted[power] for power in sorted(counted)]


def test_missing_column_is_reported_with_the_existing_columns(demo_root: Path) -> None:
    corpus = next(demo_root.glob("corpora/*/*/manifest.json")).parent

    with pytest.raises(UsageError, match=r"no column 'texts'; choose one of: text, source, .*meta\.title"):
        open_folder(corpus).plot("texts")
