"""Scoring that can't be done, as it is typed: one line each, what, where and what to do, and nothing half done."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from answers import Corpusmill, Wrong, only_line

sys.path.insert(0, str(Path(__file__).parents[1] / "corpus" / "scoring"))  # of tiny_scoring

from tiny_scoring import copy_of, half_written, rows_of, save_whole_model, write_pool

NOWHERE = "there is no such folder, and it is no owner/name; give a folder, or owner/name"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_whole_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    return write_pool(tmp_path / "pool", rows_of(3))


Refused = Callable[..., tuple[int, str]]


@pytest.fixture
def refused(wrong: Wrong, tmp_path: Path, pool: Path, model: Path) -> Refused:
    """Exit status and line of scoring a pool by a model that is refused; nothing half-written is left."""

    def answer(*options: object, pool: object = pool, model: object = model) -> tuple[int, str]:
        found = wrong("score", "--pool", pool, "--model", model, "--device", "cpu", *options)
        assert half_written(tmp_path) == []
        assert not [*tmp_path.glob("out/nemotron/*/nll_scores/*/*/manifest.json")]
        return found

    return answer


def test_a_pool_that_is_none_is_told_with_its_file(refused: Refused, pool: Path) -> None:
    write_pool(pool, [*rows_of(3), {"id": None, "text": "x", "loss_mode": "assistant_all"}])

    said = "row 3 has no id; give every row an id: scores are told by it"
    assert refused() == (1, f"{pool / 'data' / 'train.parquet'}: {said}")


def test_json_lines_are_no_pool(refused: Refused, tmp_path: Path) -> None:
    folder = tmp_path / "lines"
    folder.mkdir()
    asked = f"{folder}: it has no Parquet; give pools: Parquet with the columns id, text and loss_mode"

    assert refused(pool=folder) == (2, asked)
    (folder / "train.jsonl").write_text('{"id": "a"}\n')
    assert refused(pool=folder) == (2, asked)


@pytest.mark.parametrize(
    ("given", "options", "line"),
    [
        ({"pool": "nowhere"}, (), f"nowhere: {NOWHERE}"),
        ({"model": "no/such/folder"}, (), f"no/such/folder: {NOWHERE}"),
        ({"pool": ""}, (), "--pool: it is empty; give a folder, or owner/name"),
        ({"model": ""}, (), "--model: it is empty; give a folder, or owner/name"),
        ({}, ("--against", ""), "--against: it is empty; give a folder, or owner/name"),
    ],
)
def test_a_pool_or_a_model_that_is_nowhere(
    refused: Refused, given: dict[str, str], options: tuple[str, ...], line: str
) -> None:
    assert refused(*options, **given) == (2, line)


def test_a_model_without_a_tokenizer(refused: Refused, model: Path, tmp_path: Path) -> None:
    folder = copy_of(model, tmp_path / "model")
    (folder / "tokenizer.json").unlink()

    assert refused(model=folder) == (
        1,
        f"{folder}: the model has no tokenizer.json; give a model that has one, or say --tokenizer o200k_harmony "
        "if that is what it was trained with",
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--dtype", "bfloat16"),
            "--dtype is bfloat16 and --device cpu: a CPU takes float32, a GPU bfloat16 or float16",
        ),
        (("--dtype", "int8"), "--dtype: it is 'int8': Input should be 'float32', 'bfloat16' or 'float16'"),
        (("--device", "tpu"), "--device: it is 'tpu': Input should be 'cpu' or 'cuda'"),
        (("--tokenizer", "mine"), "--tokenizer: it is 'mine': Input should be 'model' or 'o200k_harmony'"),
        (("--max-length", "1"), "--max-length"),
        (("--max-records", "0"), "--max-records"),
        (("--launcher", "moon"), "--launcher"),
        (("--revision", "main"), "--revision is given; leave it out: a folder has no commits"),
        (("--pool-revision", "main"), "--pool-revision is given; leave it out: a folder has no commits"),
    ],
)
def test_an_option_that_can_not_be_is_named_as_it_was_typed(
    refused: Refused, options: tuple[str, str], said: str
) -> None:
    status, line = refused(*options)

    assert (status, said in line) == (2, True), line


BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Blocker())
"""


@pytest.mark.parametrize("device", [(), pytest.param(("--device", "cuda"), marks=pytest.mark.slow)], ids=str)
def test_without_torch_what_installs_it_is_named(
    corpusmill: Corpusmill, pool: Path, model: Path, tmp_path: Path, device: tuple[str, ...]
) -> None:
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "sitecustomize.py").write_text(BLOCKER)
    path = os.pathsep.join([str(tmp_path / "blocked"), str(Path(__file__).parents[2])])

    result = corpusmill(
        *("nemotron", "score", "--pool", pool, "--model", model, "--out-dir", tmp_path / "out", *device),
        env={"PYTHONPATH": path},
    )

    assert result.returncode == 2
    line = only_line(result)
    assert line.startswith("scoring: torch is not installed; in the project's folder run ")
    assert line.endswith("-e '.[scoring]'")
    assert half_written(tmp_path) == []


# Of scores


@pytest.mark.parametrize(
    ("command", "what", "maker"),
    [("percentiles", "scores", "score"), ("subsets", "scores", "score"), ("pools", "rows", "normalize")],
)
def test_a_folder_without_scores_or_rows(wrong: Wrong, tmp_path: Path, command: str, what: str, maker: str) -> None:
    line = f"{tmp_path}: no {what} are sealed there; give a folder that `nemotron {maker}` or `run` made"

    assert wrong(command, "--in-dir", tmp_path) == (2, line)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("rules: {hard: {where: [meta_corectness = 1]}}", "no column meta_corectness, did you mean meta_correctness?"),
        ("rule: {hard: {}}", "unknown key `rule`; did you mean `rules`?"),
        ("- hard", "a recipe is a mapping, this is a list"),
        ("{", "this is not YAML"),
        (None, "there is no such"),
    ],
)
def test_rules_that_can_not_be_are_told_with_their_file(
    wrong: Wrong, tmp_path: Path, rules: str | None, said: str
) -> None:
    path = tmp_path / "rules.yaml"
    if rules is not None:
        path.write_text(rules)

    status, line = wrong("subsets", "--in-dir", tmp_path, "--rules", path)

    assert (status, line.startswith(f"{path}: "), said in line) == (2, True, True), line
    assert not (tmp_path / "out" / "nemotron").exists()


# Of recipes

SCORING = "scoring:\n  model: {path: model}\n"
POOLS = "datasets:\n- {dataset: mine, path: pool, splits: [train]}\n"
ROWS = "rows: {}\ndatasets:\n- {dataset: mine, path: pool, splits: [train], domain: math}\n"


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (SCORING + ROWS, "`scoring` is of pools; add `pools`, `{}` is enough; or leave out `rows`"),
        ("subsets: {}\nscan: {}\n" + POOLS, "`subsets` are chosen by scores; add `scoring`"),
        (POOLS, "it asks for nothing; add `scan` for inventories, `rows` for normalised rows, `scoring` for scores"),
        (SCORING + "  treads: 2\n" + POOLS, "unknown key `scoring.treads`; did you mean `threads`?"),
        (SCORING + "  shard_rows: 0\n" + POOLS, "`scoring.shard_rows` is 0: Input should be greater than or equal"),
        ("scoring: {}\n" + POOLS, "`scoring.model` is missing; add it"),
        (SCORING + "subsets: {rules: {a: {}}, order: [b]}\n" + POOLS, "`order` has b: write each of a in it once"),
    ],
)  # fmt: skip
def test_a_recipe_that_can_not_be_is_told_with_its_file(
    corpusmill: Corpusmill, tmp_path: Path, recipe: str, said: str
) -> None:
    path = tmp_path / "recipes" / "mine.yaml"
    path.parent.mkdir()
    path.write_text(f"system: nemotron\nname: mine\n{recipe}")

    result = corpusmill("run", path, "--data", tmp_path)

    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert [line for line in lines if said in line and line.startswith(f"corpusmill: {path}")] != [], result.stderr
    assert not (tmp_path / "nemotron").exists()
