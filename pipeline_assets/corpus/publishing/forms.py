"""Forms that describe datasets: JSON for standards, Markdown for laws.

The shipped folder `manifests/forms` has a template for each standard. Its `disclosures.yaml` lists the facts that laws
require, and the questions that no manifest can answer.
"""

import datetime
import difflib
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.markdown import code, escape
from pipeline_assets.corpus.publishing.description import NOT_ANSWERED, Description, Fact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.recipe_yaml import read_yaml
from pipeline_assets.spine.shipped import shipped_path

_MAX_CELL_CHARACTERS = 2000  # of a text in a table
_LICENCE_TERM_PATTERN = r"(DocumentRef-[A-Za-z0-9.-]+:)?(?!(AND|OR|WITH)\b)[A-Za-z0-9.-]+\+?( +WITH +[A-Za-z0-9.-]+)?"
_LICENCE_PATTERN = _LICENCE_TERM_PATTERN
for _ in range(4):  # levels of parentheses
    _operand = rf"({_LICENCE_TERM_PATTERN}|\( *{_LICENCE_PATTERN} *\))"
    _LICENCE_PATTERN = rf"{_operand}( +(AND|OR) +{_operand})*"
_ANSWER_RULES = {
    "licence": (_LICENCE_PATTERN, "an SPDX expression, such as `MIT`, `CC-BY-4.0 AND MIT` or `LicenseRef-NAME`"),
    "date_published": (r"\d{4}-\d\d-\d\d", "a date YYYY-MM-DD"),
    "url": (r"https?://[^\s<>]+", "a URL such as https://example.org/data"),
    "version": (r"\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?", "MAJOR.MINOR.PATCH, such as 1.0.0"),
    "small_provider": ("yes|no", "yes or no"),
}
_YES_OR_NO = {"true": "yes", "on": "yes", "yes": "yes", "false": "no", "off": "no", "no": "no"}  # booleans of YAML


@functools.cache
def load_disclosures() -> Any:
    """Return the shipped `disclosures.yaml`: `questions` by key and `forms` by name."""
    return read_yaml(shipped_path("manifests/forms/disclosures.yaml"), "file of forms")


def read_answers(path: Path) -> dict[str, str]:
    """Return a file's non-empty answers by key; UsageError for a wrong key or value."""
    questions, answers = load_disclosures()["questions"], dict[str, str]()
    written = read_yaml(path, "questionnaire file", "`--as answers` prints all questions", as_text=True)
    for key, value in written.items():
        if key not in questions:
            near = difflib.get_close_matches(str(key), questions, n=1)
            fix = f"did you mean `{near[0]}`?" if near else "`--as answers` prints all questions"
            raise UsageError(f"no question has the key `{key}`", path, fix)
        text = "" if value is None else str(value).strip()
        text = _YES_OR_NO.get(text.lower(), text) if key == "small_provider" else text
        pattern, rule = _ANSWER_RULES.get(key, (r"[\s\S]*", "text"))
        is_valid = re.fullmatch(f"({pattern})?", text) and (key != "date_published" or not text or _is_day(text))
        if isinstance(value, dict | list) or not is_valid:
            raise UsageError(f"`{key}` must be {rule}, got {text[:80]!r}", path, "correct that line")
        answers |= {key: text} if text else {}
    return answers


def _is_day(iso_date: str) -> bool:
    """Check whether a date is in the calendar, unlike 2026-02-30."""
    try:
        return bool(datetime.date.fromisoformat(iso_date))
    except ValueError:
        return False


def render_standard(standard: str, description: Description) -> str:
    """Return a standard's form as JSON; raise UsageError if an SPDX date is missing."""
    import jinja2

    if standard == "spdx" and description.get("date_published")[0].value == NOT_ANSWERED:
        raise UsageError("SPDX requires a date, which the manifest lacks", "--answers", "answer `date_published`")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["json"] = functools.partial(json.dumps, ensure_ascii=False)
    template = environment.from_string(shipped_path(f"manifests/forms/{standard}.jinja").read_text("utf-8"))
    values = {"manifest": description.manifest, "files": description.files, "get": description.get}
    return json.dumps(json.loads(template.render(values, unknown=NOT_ANSWERED)), indent=1, ensure_ascii=False)


def form_lines(form: str, description: Description) -> Iterator[str]:
    """Yield the lines of a law's form in Markdown, with the origin of each value."""
    questions, content = load_disclosures()["questions"], load_disclosures()["forms"][form]
    yield f"# {content['title']}"
    for item in content["items"]:
        yield from ("", f"## {item['title']}", "", "| value | details | from |", "| --- | --- | --- |")
        stated = set[str]()
        for name in item.get("facts", ()):
            for fact in description.facts.get(name, ()):
                stated.add(name)
                yield _table_row(fact)
        for key in item.get("ask", ()):
            if key in description.answers or key not in stated:  # a fact of the same name answers the question
                answer = description.answers.get(key, NOT_ANSWERED)
                yield _table_row(Fact(answer, f"answers: {key}", questions[key]))


def _table_row(fact: Fact) -> str:
    texts = (text[:_MAX_CELL_CHARACTERS] for text in (fact.value, fact.detail, fact.origin))
    value, detail, origin = (code(text) if "{" in text else escape(text) if text else "" for text in texts)
    return f"| {value}{f' <{fact.link}>' if fact.link else ''} | {detail} | {origin} |"
