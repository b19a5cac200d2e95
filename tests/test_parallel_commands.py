"""The commands of `corpusmill parallel`."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
import yaml
from command_results import Corpusmill, only_line
from parallel_build import write_set

from pipeline_assets.build.recipe_paths import PROJECT_RECIPES_FOLDER
from pipeline_assets.demo.corpora import PAIRS_DATASET, write_inputs
from pipeline_assets.demo.loopback_hub import LoopbackHub

pytest.importorskip("sentencepiece", reason="needs the extra `tokenizers`")
SIDES = ("--src", "fr", "--tgt", "en", "--k", 40)
FILES = ("--split", "train", "validation", "--files", "{split}-0.jsonl")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory, corpusmill: Corpusmill) -> Path:
    root = tmp_path_factory.mktemp("out")
    write_set(root / "set", parquet=False)
    drawn = corpusmill("parallel", "sample", "--dataset", root / "set", *SIDES, *FILES, "--out-dir", root)
    assert drawn.returncode == 0, drawn.stderr
    encoded = corpusmill("parallel", "encode", "set-fr-en", "--seq-len", 64, "--out-dir", root)
    assert encoded.returncode == 0, encoded.stderr
    return root


def test_both_commands_write_their_recipe_and_a_second_draw_keeps_the_tokens(out: Path, corpusmill: Corpusmill) -> None:
    ran = corpusmill("run", "set-fr-en", "--data", out)
    drawn = corpusmill("parallel", "sample", "--dataset", out / "set", *SIDES, *FILES, "--out-dir", out)

    for result in (ran, drawn):
        assert result.returncode == 0 and "built" not in result.stdout, result.stderr
        assert "token_cache" in result.stdout
        assert "/sample  other rows: " in result.stdout


def test_the_default_sample_is_wmt14(tmp_path: Path, corpusmill: Corpusmill) -> None:
    write_inputs(tmp_path, "parallel_text")
    with LoopbackHub(tmp_path / "hub") as hub:
        result = corpusmill("parallel", "sample", "--data", tmp_path, env=hub.client_environment())

        assert result.returncode == 0, result.stderr
        recipe = yaml.safe_load((tmp_path / "recipes" / "wmt14-fr-en.yaml").read_text())
        shipped = yaml.safe_load((PROJECT_RECIPES_FOLDER / "wmt14_fr_en.yaml").read_text())
        assert recipe["source"] == shipped["source"] | {"revision": hub.commits()[PAIRS_DATASET]}
    manifest = (tmp_path / "parallel_text" / "wmt14-fr-en" / "sample" / "manifest.jsonl").read_text()
    assert Counter(json.loads(line)["split"] for line in manifest.splitlines()) == {"train": 96, "val": 12, "test": 12}


def test_inspect_shows_pairs_tokens_and_padding(out: Path, corpusmill: Corpusmill) -> None:
    shown = corpusmill("parallel", "inspect", "set-fr-en", "--data", out)
    figures = json.loads(corpusmill("parallel", "inspect", "set-fr-en", "--data", out, "--json").stdout)

    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("40 pairs of 120 rows: train 32, val 4, test 4\n") and "in buckets" in shown.stdout
    assert "\npairs cut: train 15, val 2, test 1\n" in shown.stdout
    assert figures["sample"]["split_sizes"] == {"train": 32, "val": 4, "test": 4}
    assert figures["cache"]["seq_len"] == 64


def test_diff_tells_other_tokens_of_the_same_texts_from_other_texts(
    out: Path, tmp_path: Path, corpusmill: Corpusmill
) -> None:
    other = shutil.copytree(out, tmp_path / "other")
    words = ("--vocab-size", 290, "--seq-len", 400, "--replace", "--out-dir", other)
    encoded = corpusmill("parallel", "encode", "set-fr-en", *words)
    caches = [root / "parallel_text" / "set-fr-en" / "token_cache" for root in (out, other)]

    different = corpusmill("diff", *caches)

    assert encoded.returncode == 0, encoded.stderr
    assert "\n  18 documents in both, with different texts: " in different.stdout  # 64 tokens cut these in `out`
    assert "\n  22 documents in both, with the same text, but other tokens: " in different.stdout


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--src", "de", "de"),
        ("--k", "0", "--k"),
        ("--k", "1000", "1,000"),
        ("--files", "{split}.parquet", "no file matches"),
        ("--src", "en", "src and tgt must be two languages, got en for both"),
    ],
)
def test_a_wrong_option_is_refused_without_leftovers(
    option: str, value: str, message: str, out: Path, tmp_path: Path, corpusmill: Corpusmill
) -> None:
    options = {"--src": "fr", "--tgt": "en", "--k": "40", "--files": "{split}-0.jsonl", "--split": "train"}
    arguments = [word for pair in (options | {option: value}).items() for word in pair]

    result = corpusmill("parallel", "sample", "--dataset", out / "set", *arguments, "--out-dir", tmp_path)

    assert result.returncode in (1, 2) and message in only_line(result)
    assert not [*tmp_path.glob("parallel_text/set-fr-en/*sample.building*")]


def test_another_folder_of_the_same_name_is_refused_without_replace(tmp_path: Path, corpusmill: Corpusmill) -> None:
    first, second, root = tmp_path / "one" / "set", tmp_path / "other" / "set", tmp_path / "out"
    for folder in (first, second):
        write_set(folder, parquet=False)
    arguments = ("parallel", "sample", *SIDES, *FILES, "--out-dir", root, "--dataset")
    assert corpusmill(*arguments, first).returncode == 0
    before = (root / "recipes" / "set-fr-en.yaml").read_bytes()

    refused = corpusmill(*arguments, second)

    assert refused.returncode == 2
    line = f"the files were read from {first}, the recipe has {second}; set another --out-dir, or run with --replace"
    assert refused.stderr.splitlines()[-1].endswith(line)
    assert (root / "recipes" / "set-fr-en.yaml").read_bytes() == before
    replaced = corpusmill(*arguments, second, "--replace")
    assert replaced.returncode == 0, replaced.stderr


def test_the_current_folder_names_the_recipe_and_a_name_without_letters_is_refused(
    out: Path, tmp_path: Path, corpusmill: Corpusmill
) -> None:
    arguments = ("parallel", "sample", *SIDES, *FILES, "--out-dir", tmp_path, "--dataset")

    drawn = corpusmill(*arguments, ".", cwd=out / "set")
    refused = corpusmill(*arguments, shutil.copytree(out / "set", tmp_path / "Пары"))

    assert (drawn.returncode, refused.returncode) == (0, 2)
    assert [path.name for path in (tmp_path / "recipes").iterdir()] == ["set-fr-en.yaml"]
    assert "so its name must contain an ASCII letter or digit; rename it" in refused.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--spm-model {out}/set/train-0.jsonl", "train-0.jsonl"),
        ("--spm-model {out}/spm.model --vocab-size 500", "--vocab-size: cannot be combined with"),
        ("--spm-model {out}/spm.model --vocab-size 8000", "--vocab-size: cannot be combined with"),
        ("--spm-model {out}/spm.model", "another version is sealed here"),
    ],
)
def test_refused_options_of_encode_keep_the_recipe(
    options: str, message: str, out: Path, tmp_path: Path, corpusmill: Corpusmill
) -> None:
    root = shutil.copytree(out, tmp_path / "out")
    shutil.copy(root / "parallel_text/set-fr-en/token_cache/spm.model", root / "spm.model")
    before = (root / "recipes" / "set-fr-en.yaml").read_bytes()

    refused = corpusmill("parallel", "encode", "set-fr-en", *options.format(out=root).split(), "--out-dir", root)

    assert refused.returncode in (1, 2) and message in only_line(refused)
    assert (root / "recipes" / "set-fr-en.yaml").read_bytes() == before


def test_too_few_pieces_are_refused_by_the_key_of_the_recipe(out: Path, tmp_path: Path, corpusmill: Corpusmill) -> None:
    root = shutil.copytree(out, tmp_path / "out")
    before = (root / "recipes" / "set-fr-en.yaml").read_bytes()

    refused = corpusmill("parallel", "encode", "set-fr-en", "--vocab-size", "8", "--replace", "--out-dir", root)

    assert refused.returncode in (1, 2) and "set-fr-en.yaml: encode.vocab_size: must be >= " in only_line(refused)
    assert (root / "recipes" / "set-fr-en.yaml").read_bytes() == before


def test_encode_names_all_mistakes_of_a_recipe_without_keys(tmp_path: Path, corpusmill: Corpusmill) -> None:
    (tmp_path / "x.yaml").write_text("system: parallel_text\n")

    refused = corpusmill("parallel", "encode", tmp_path / "x.yaml", "--out-dir", tmp_path / "data")

    assert (refused.returncode, refused.stderr.splitlines()) == (
        2,
        [f"corpusmill: {tmp_path}/x.yaml: the key `{key}` is missing; add it" for key in ("name", "source", "sample")],
    )
    assert not (tmp_path / "data").exists()


def test_encode_keeps_a_handwritten_recipe(out: Path, tmp_path: Path, corpusmill: Corpusmill) -> None:
    path = tmp_path / "recipes" / "set-fr-en.yaml"
    path.parent.mkdir()
    by_hand = f"# mine\n{(out / 'recipes' / path.name).read_text()}"
    path.write_text(by_hand)
    refused = corpusmill("parallel", "encode", "set-fr-en", "--seq-len", 32, "--out-dir", tmp_path)

    assert refused.returncode == 2 and "another recipe exists" in refused.stderr, refused.stderr
    assert path.read_text() == by_hand
