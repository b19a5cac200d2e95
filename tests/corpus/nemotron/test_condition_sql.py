"""SQL conditions read only rows, have bounded sizes, and mean what polars reads."""

import contextlib
import functools
import itertools
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import yaml

from pipeline_assets.build.recipe_paths import PROJECT_RECIPES_FOLDER
from pipeline_assets.corpus.nemotron.condition_sql import SQL_FUNCTIONS, compile_condition
from pipeline_assets.corpus.nemotron.pools_recipe import PoolsRecipe, parse_condition
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.scoring.subset_recipe import SubsetRule
from pipeline_assets.spine.errors import UsageError


def refusal(condition: str) -> str:
    with pytest.raises(UsageError) as refused:
        PoolsRecipe.from_mapping({"rules": {"mine": [condition]}}, "mine.yaml")
    message = str(refused.value)
    assert "\n" not in message and "`rules.mine.0`" in message
    return message


@pytest.mark.parametrize(
    "source",
    ["read_csv('{path}')", "read_json('{path}')", "read_parquet('{path}')", "read_ipc('{path}')", "'{path}'"],
)
@pytest.mark.parametrize(
    "condition",
    [
        "id IN (SELECT id FROM {source})",
        "EXISTS (SELECT * FROM {source})",
        "stats_tokens > (SELECT COUNT(*) FROM {source})",
        "id = ANY(SELECT id FROM {source})",
        "CASE WHEN id IN (SELECT id FROM {source}) THEN TRUE END",
        "id IN (WITH t AS (SELECT * FROM {source}) SELECT id FROM t)",
    ],
)
def test_a_condition_reads_no_file(tmp_path: Path, source: str, condition: str) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("root:x:0:0:SECRET\n")

    message = refusal(condition.format(source=source.format(path=secret)))

    assert "SECRET" not in message


def test_a_condition_opens_no_address() -> None:
    connections: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(2)

        def accept() -> None:
            with contextlib.suppress(TimeoutError):
                connections.append(server.accept())

        thread = threading.Thread(target=accept)
        thread.start()
        refusal(f"id IN (SELECT id FROM read_csv('http://127.0.0.1:{server.getsockname()[1]}/rows.csv'))")
        thread.join()

    assert not connections


def test_status_lists_other_recipes_next_to_one_whose_condition_names_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    recipe = yaml.safe_load((PROJECT_RECIPES_FOLDER / "nemotron_v1.yaml").read_text())
    (tmp_path / "recipes").mkdir()
    queries = {"tool_use": [f"id IN (SELECT id FROM read_csv('{tmp_path}/pipe'))"]}
    for name, rules in {"good": {"tool_use": ["stats_tool_calls > 0"]}, "bad": queries}.items():
        content = recipe | {"name": name, "pools": recipe["pools"] | {"rules": rules}}
        (tmp_path / "recipes" / f"{name}.yaml").write_text(yaml.safe_dump(content))
    os.mkfifo(tmp_path / "recipes" / "fifo.yaml")

    command = [sys.executable, "-m", "pipeline_assets.cli", "status", "--data", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert f"good  {tmp_path}/recipes/good.yaml\n  missing" in result.stdout
    assert "bad.yaml:" in result.stdout and "IN with query is not supported" in result.stdout
    assert "fifo.yaml: not a valid recipe: the path is a pipe" in result.stdout


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("LPAD(id, 1000000000) = 'a'", "unknown function LPAD; functions: ABS, ARRAY_CONTAINS"),
        (" AND ".join(["stats_tokens > 1"] * 2000), "a condition has at most 1,000 columns, values"),
        (f"id IN ({', '.join(['1'] * 5000)})", "a condition has at most 1,000 columns, values"),
        (" AND ".join(["stats_tokens > 1"] * 5000), "a condition has at most 65,536 characters, got 104,995"),
        (f"{'(' * 5000}stats_tokens > 1{')' * 5000}", "a condition has at most 12 nested levels"),
        (f"{'NOT ' * 5000}quality_is_duplicate", "a condition has at most 12 nested levels"),
        (f"{'+'.join(['stats_tokens'] * 300)} > 1", "a condition has at most 12 nested levels"),
        (f"id = '{'a' * 2000}'", "a quoted text has at most 1,000 characters, got 2,000"),
        (f"stats_tokens > {'9' * 50}", "the condition is invalid"),
        ("text ~ '((a{1000}){1000}){1000}'", "exceeds size limit"),
        ("text ~ '('", "unclosed group"),
        ("text || text = 'a'", "PIPE is not supported"),
        ("stats_tokens::float > 1", "CAST with to is not supported"),
        ("text ~ id", "a pattern of LIKE, ILIKE, ~ or ~* must be a text in quotes"),
        ("text LIKE UPPER('a')", "a pattern of LIKE, ILIKE, ~ or ~* must be a text in quotes"),
        ("CAST(stats_tokens AS text) = '1'", "CAST and AS are not supported"),
        ("NOT stats_tokens", "the condition must be boolean, got a value of type Int64"),
        ("quality_is_duplicate OR stats_tokens", "the condition must be boolean, got a value of type Int64"),
        ("LOWER(text, id) = 'a'", "wrong number of arguments for LOWER"),
        ("LENGHT(text) > 1", "unknown function LENGHT, did you mean LENGTH?"),
        ("shoe = 1", "unknown column shoe; columns: dataset, id, loss_mode"),
        ("rows.id = 'a'", "unknown column rows.id"),
        ("meta_domain = math", "unknown column math; write a text as 'math', in single quotes; columns: dataset, id"),
        ('meta_domain IN ("math")', "unknown column math; write a text as 'math', in single quotes; columns: dataset"),
        ("stats_tokens > 1; stats_tokens > 2", "write one expression"),
        ("stats_tokens BETWEEN SYMMETRIC 2 AND 1", "BETWEEN with symmetric is not supported"),
        ("stats_tokens = meta_pass_k < 3", "put parentheses around each operand"),
        ("text = 'open", "a quote or comment is not closed"),
        ("", "write one expression"),
        ("meta_corectness = 1", "unknown column meta_corectness, did you mean meta_correctness?"),
        ("meta_correctness > 'a'", "the condition is invalid (cannot compare string with numeric type"),
        ("1 = 1", "the condition must use the columns of a single row"),
        ("meta_correctness > AVG(meta_correctness)", "the condition must use the columns of a single row"),
        ("SUM(stats_tokens) > 3", "the condition must use the columns of a single row"),
        ("COUNT(*) > 1", "the condition must use the columns of a single row"),
        ("RANK() OVER (ORDER BY stats_tokens) > 3", "the condition must use the columns of a single row"),
        ("NOW() > '2026-01-01'", "the condition depends on the clock"),
        ("read_csv('x')", "the condition is invalid"),
        ("stats_tokens >", "the condition is invalid"),
        ("meta_tags = 'tools'", "the condition is invalid"),
    ],
)
def test_too_large_or_unsupported_condition_is_refused_with_a_reason(condition: str, reason: str) -> None:
    message = refusal(condition)

    assert reason in message
    assert len(message) < 2_000


@pytest.mark.parametrize(
    "condition",
    [
        "text ~ 'boxed'",
        "text !~ '^a'",
        "text ~* 'BOXED' AND NOT text !~* 'b'",
        "'tools' = ANY(meta_tags) OR stats_tokens / 2 > 1.5 -- half",
        "meta_correctness IN (0, 1) OR meta_pass_k IN (-1, 2)",
        "`stats_tokens` > 1e3 AND \"text\" NOT ILIKE 'it''s%'",
        "quality_is_duplicate IS NOT TRUE",
        "NOT (meta_correctness > 0.5 OR meta_correctness < 0.1)",
        "stats_tokens BETWEEN 1 AND 20 AND NOT quality_is_duplicate",
        "ARRAY_CONTAINS(meta_tags, 'tools')",
        "meta_expected_answer IS NOT NULL OR COALESCE(meta_pass_k, 0) > 4",
        "LENGTH(text) > 3 AND text LIKE '%boxed%'",
        " AND ".join(["stats_tokens > 1"] * 240),
        f"id IN ({', '.join(repr(str(number)) for number in range(900))})",
    ],
)
def test_supported_conditions_are_read(condition: str) -> None:
    assert parse_condition(condition).meta.root_names()
    assert SubsetRule.from_mapping({"where": [condition]}, "mine").where == (condition,)


OPERATORS = ["+", "-", "*", "/", "=", "==", "<>", "!=", "<", "<=", ">", ">=", "AND", "OR"]
OPERANDS = ["stats_tokens", "meta_pass_k", "quality_is_duplicate", "text", "id", "'a'", "2"]
POSTFIXES = ["LIKE 'a%'", "NOT LIKE 'a'", "~ 'a'", "!~ 'a'", "~* 'A'", "IS NULL", "IN (2, 3)"]
POSTFIXES += ["NOT IN ('a', 'b')", "BETWEEN 1 AND 2", "NOT BETWEEN 1 AND 2"]


def applied(left: str, operator: str, right: str, divisor: str = "{}") -> str:
    """Apply an operator; `divisor` is the form of the right side of a division."""
    right = divisor.format(right) if operator == "/" else right
    return f"{left} {operator}" if operator in POSTFIXES else f"{left} {operator} {right}"


def sample_rows() -> pl.DataFrame:
    draw = random.Random(1)
    values: dict[str, list[Any]] = {
        "id": ["a", "ab", "b", ""],
        "text": [None, "a", "ab", "xa"],
        "stats_tokens": [None, 0, 1, 2, 3],
        "meta_pass_k": [None, 0, 1, 2],
        "quality_is_duplicate": [None, True, False],
    }
    rows = [
        dict.fromkeys(SCHEMA.names) | {name: draw.choice(choices) for name, choices in values.items()}
        for _ in range(100)
    ]
    return pl.DataFrame(pl.from_arrow(pa.Table.from_pylist(rows, SCHEMA)))


def test_accepted_condition_has_the_meaning_of_polars_without_division_by_zero() -> None:
    rows, draw, compared = sample_rows(), random.Random(2), 0

    def values(expression: Callable[[], pl.Expr]) -> str | None:
        try:
            return str(rows.select(expression().alias("value"))["value"].to_list())
        except (pl.exceptions.PolarsError, ValueError):
            return None

    for prefix, first, second in itertools.product(("", "NOT ", "- "), OPERATORS + POSTFIXES, OPERATORS + POSTFIXES):
        for _ in range(3):
            a, b, c = draw.choices(OPERANDS, k=3)
            condition = prefix + applied(applied(a, first, b), second, c)
            safe = prefix + applied(applied(a, first, b, "NULLIF({}, 0)"), second, c, "NULLIF({}, 0)")
            generated = values(functools.partial(compile_condition, condition, rows))
            if generated is not None and (expected := values(functools.partial(pl.sql_expr, safe))) is not None:
                assert (condition, generated) == (condition, expected)
                compared += 1

    assert compared > 300


def evaluate(condition: str, **columns: object) -> bool | None:
    """Evaluate a condition on a row whose other columns are null."""
    row = pl.DataFrame(pa.Table.from_pylist([dict.fromkeys(SCHEMA.names) | columns], SCHEMA))
    value: bool | None = row.select(compile_condition(condition, row).alias("holds"))["holds"][0]
    return value


@pytest.mark.parametrize(
    "condition",
    [
        "CHAR_LENGTH(text) - 5 = -2",
        "LENGTH(text) - 5 < 0",
        "OCTET_LENGTH(text) - CHAR_LENGTH(text) * 2 < 0",
        "ARRAY_LENGTH(meta_tags) - 3 < 0",
        "stats_turns * 2000000000 > 0",
    ],
)
def test_no_difference_or_product_of_lengths_and_counts_wraps_around(condition: str) -> None:
    assert evaluate(condition, text="abc", meta_tags=["a"], stats_turns=2) is True


@pytest.mark.parametrize("calls", [0, 3])
@pytest.mark.parametrize("comparison", ["> 0.5", "< 0.5", "= 1", "<> 1", "BETWEEN 0 AND 1", "IN (0, 1)"])
def test_division_by_zero_is_null_also_with_not(calls: int, comparison: str) -> None:
    condition = f"stats_tool_calls / source_tools_count {comparison}"

    for form in (condition, f"NOT ({condition})"):
        assert evaluate(form, stats_tool_calls=calls, source_tools_count=0) is None
    assert evaluate("stats_tool_calls / source_tools_count = 0.75", stats_tool_calls=3, source_tools_count=4) is True


@pytest.mark.parametrize("condition", ["ARRAY_CONTAINS(meta_tags, meta_license)", "meta_license = ANY(meta_tags)"])
def test_a_search_for_a_missing_value_is_null_also_with_not(condition: str) -> None:
    row = dict.fromkeys(SCHEMA.names) | {"meta_tags": ["mit"]}
    rows = pl.DataFrame(pl.from_arrow(pa.Table.from_pylist([row, row | {"meta_license": "mit"}], SCHEMA)))

    for form, expected in ((condition, [None, True]), (f"NOT ({condition})", [None, False])):
        assert rows.select(compile_condition(form, rows).alias("holds"))["holds"].to_list() == expected


def test_trim_removes_all_blanks() -> None:
    assert evaluate("TRIM(text) = 'a'", text="\t a \n") is True


@pytest.mark.parametrize("name", SQL_FUNCTIONS)
def test_every_function_is_documented_and_accepts_its_arguments(name: str) -> None:
    arguments = {"ABS": "stats_tokens", "ARRAY_CONTAINS": "meta_tags, 'a'", "ARRAY_LENGTH": "meta_tags"}
    arguments |= {"ENDS_WITH": "text, 'a'", "STARTS_WITH": "text, 'a'"}

    assert f"`{name}`" in Path(__file__).parents[3].joinpath("docs/nemotron.md").read_text()
    assert parse_condition(f"{name}({arguments.get(name, 'text')}) IS NULL").meta.root_names()
