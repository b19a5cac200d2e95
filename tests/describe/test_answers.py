"""Answers to the questionnaire of `describe`, with errors in one line."""

import shutil
from pathlib import Path

import pytest
import yaml
from command_results import Corpusmill, refused

from pipeline_assets.corpus.publishing.forms import load_disclosures, read_answers
from pipeline_assets.spine.errors import UsageError


def test_answers_are_read_from_the_printed_questionnaire(corpusmill: Corpusmill, folder: Path, tmp_path: Path) -> None:
    printed = corpusmill("describe", folder, "--as", "answers").stdout
    answers = tmp_path / "answers.yaml"
    answers.write_text(printed.replace("\npurchased:", "\npurchased: no").replace("\nmodel:", "\nmodel: M | 1 <b>"))

    summary = corpusmill("describe", folder, "--as", "eu-summary", "--answers", answers)
    california = corpusmill("describe", folder, "--as", "ab2013", "--answers", answers)

    assert yaml.safe_load(printed) == dict.fromkeys(load_disclosures()["questions"])
    assert (
        "\n| M \\| 1 \\<b\\> | Names and versions of the models that are covered | answers: model |\n" in summary.stdout
    )
    assert "\n| no | Whether the datasets were purchased or licensed | answers: purchased |\n" in california.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("provder: A", "no question has the key `provder`; did you mean `provider`?"),
        ("zzz: A", "no question has the key `zzz`; `--as answers` prints all questions"),
        ("model: [a, b]", "`model` must be text, got \"['a', 'b']\"; correct that line"),
        (
            'date_published: "2026-02-30"',
            "`date_published` must be a date YYYY-MM-DD, got '2026-02-30'; correct that line",
        ),
        ("url: my page", "`url` must be a URL such as https://example.org/data, got 'my page'; correct that line"),
        ("version: 1.0", "`version` must be MAJOR.MINOR.PATCH, such as 1.0.0, got '1.0'; correct that line"),
        ("small_provider: perhaps", "`small_provider` must be yes or no, got 'perhaps'; correct that line"),
        ("- a", "a questionnaire file must be a mapping, got list; write `key: value` lines"),
    ],
)
def test_wrong_answer_is_named(corpusmill: Corpusmill, folder: Path, tmp_path: Path, text: str, message: str) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text(f"{text}\n")

    result = corpusmill("describe", folder, "--as", "ab2013", "--answers", answers)

    assert refused(result) == f"{answers}: {message}"


def test_wrong_use_is_one_line(corpusmill: Corpusmill, folder: Path, tmp_path: Path) -> None:
    copied_folder = shutil.copytree(folder, tmp_path / "apart")

    assert "nothing is sealed here" in refused(corpusmill("describe", tmp_path, "--as", "croissant"))
    assert "not inside a data root" in refused(corpusmill("describe", copied_folder, "--as", "croissant"))
    assert "questionnaire file not found" in refused(
        corpusmill("describe", folder, "--as", "spdx", "--answers", tmp_path / "none.yaml")
    )


@pytest.mark.parametrize("text", ["1.10", "1_000_000", "0x1F", "1e3", "0123", "NO", "On", "2025-06-01 9:00:00"])
def test_number_or_boolean_is_answered_as_it_is_written(tmp_path: Path, text: str) -> None:
    """A model 1.10 is not a model 1.1, and NO may be Norwegian."""
    (tmp_path / "answers.yaml").write_text(f"model: {text}\n")
    assert read_answers(tmp_path / "answers.yaml") == {"model": text}


@pytest.mark.parametrize(("text", "answer"), [("true", "yes"), ("Yes", "yes"), ("NO", "no"), ("off", "no")])
def test_boolean_of_yaml_is_yes_or_no_where_that_is_the_rule(tmp_path: Path, text: str, answer: str) -> None:
    (tmp_path / "answers.yaml").write_text(f"small_provider: {text}\n")
    assert read_answers(tmp_path / "answers.yaml") == {"small_provider": answer}


@pytest.mark.parametrize(
    "text", ["MIT", "MIT AND (Apache-2.0+ OR CC0-1.0)", "((A OR B) AND C) OR LicenseRef-x", "A WITH B"]
)
def test_spdx_expression_is_read_as_a_licence(tmp_path: Path, text: str) -> None:
    (tmp_path / "answers.yaml").write_text(f"licence: {text}\n")
    assert read_answers(tmp_path / "answers.yaml") == {"licence": text}


@pytest.mark.parametrize(
    "text", ["MIT License", "AND MIT", "MIT OR", "(MIT", "MIT)", "MIT, CC0-1.0", "A AND " * 900 + "!"]
)
def test_licence_that_is_not_an_spdx_expression_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "answers.yaml").write_text(f"licence: '{text}'\n")
    with pytest.raises(UsageError, match="`licence` must be an SPDX expression, such as `MIT`, "):
        read_answers(tmp_path / "answers.yaml")


def test_missing_form_and_empty_answers_are_one_line(folder: Path, tmp_path: Path, corpusmill: Corpusmill) -> None:
    (tmp_path / "answers.yaml").write_text("# nothing\n")
    missing = "missing option '--as'. Choose from: croissant, spdx, in-toto, eu-summary, ab2013, answers"
    assert (
        f"corpusmill: describe: {missing}; see corpusmill describe --help\n"
        == corpusmill("describe", folder, check=False).stderr
    )
    with pytest.raises(UsageError, match="the file is empty; `--as answers` prints all questions"):
        read_answers(tmp_path / "answers.yaml")
