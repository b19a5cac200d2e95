"""The end of `corpusmill run`: the report's path and three pasteable commands."""

import json
import shlex
from pathlib import Path

from command_results import Corpusmill


def test_a_run_ends_with_its_report_and_three_commands_that_work(corpusmill: Corpusmill, notes_root: Path) -> None:
    run = ("run", "mixed", "--data", notes_root)

    lines, steps = corpusmill(*run).stderr.splitlines()[-5:], notes_root / "stage_a" / "mixed"
    as_json, logged = corpusmill(*run, "--json"), corpusmill(*run, env={"CORPUSMILL_LOG": "json"})

    assert lines == [
        f"report  {steps}/report/mixed/report.html",
        "next steps:",
        f"  corpusmill dropped {steps}/filtered/notes",
        f"  corpusmill peek {steps}/filtered/notes",
        f"  corpusmill trace {steps}/filtered/notes --row 0",
    ]
    assert Path(lines[0].removeprefix("report  ")).is_file()
    for line in lines[2:]:
        step_result = corpusmill(*shlex.split(line)[1:])
        assert step_result.returncode == 0 and step_result.stdout, step_result.stderr
    assert json.loads(as_json.stdout) and "next steps" not in as_json.stderr + logged.stderr


def test_a_run_without_dropped_rows_proposes_to_verify_the_chain(corpusmill: Corpusmill, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.jsonl").write_text('{"text": "A text that stays."}\n{"text": "Another one."}\n')
    init = corpusmill("init", "mine", "--input", tmp_path / "in", "--data", tmp_path / "my data")
    assert init.returncode == 0, init.stderr
    recipe = tmp_path / "my data" / "recipes" / "mine.yaml"
    recipe.write_text(recipe.read_text().replace("seq_len: 2048", "seq_len: 8"))

    result = corpusmill("run", "mine", "--data", tmp_path / "my data", "--workers", 0)

    assert result.returncode == 0, result.stderr
    packed = tmp_path / "my data" / "stage_a" / "mine" / "packed" / "mine"
    assert f'batches from corpusmill import loader; loader("{packed}", batch=8)  # needs torch: ' in result.stderr
    steps = [shlex.split(line) for line in result.stderr.splitlines()[-3:]]
    assert [args[1] for args in steps] == ["verify", "peek", "trace"]
    assert all(corpusmill(*args[1:]).returncode == 0 for args in steps)
