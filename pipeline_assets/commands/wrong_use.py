"""What was typed wrong, told in the words of what was typed: options, not recipe keys; a line, not a usage block."""

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer
from typer.exceptions import TyperException

from pipeline_assets.corpus.spine.errors import InputError, UsageError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_OPTION_OF = {
    "source": "--source",
    "config": "--config-name",
    "rules": "--rule",
    "domain": "--domain",
    "language": "--language",
    "dump_date": "--dump-date",
    "license_tag": "--license",
    "refuse_licences": "--refuse-license",
    "columns.text": "--text-column",
    "columns.id": "--id-column",
    "columns.created_at": "--created-at-column",
    "columns.license": "--license-column",
    "columns.item": "--item",
    "text_unit": "--text-unit",
    "max_reject_fraction": "--max-reject-fraction",
    "min_question_score": "--min-question-score",
    "min_answer_score": "--min-answer-score",
    "min_answers": "--min-answers",
    "amount.documents": "--max-documents",
    "splits": "--split",
    "revision": "--revision",
    "max_rows": "--max-records",
    "template": "--template",
    "analysis": "--analysis",
    "loss.mode": "--loss",
    "seed": "--seed",
    "mode": "--mode",
    "scope": "--scope",
    "selection": "--near-selection",
    "quality_column": "--quality-column",
    "threshold": "--threshold",
    "max_compared": "--max-compared",
    "shingle_words": "--shingle-words",
    "permutations": "--permutations",
    "bands": "--bands",
    "bits": "--bits",
    "max_distance": "--max-distance",
    "near.faiss": "--proposer",
    "every_source": "--max-removed",
    "ngram_words": "--ngram-words",
    "min_item_words": "--min-item-words",
    "min_item_overlap": "--min-item-overlap",
    "max_items_per_ngram": "--max-items-per-ngram",
    "action": "--action",
    "margin_words": "--margin-words",
    "min_kept_words": "--min-kept-words",
    "evaluation": "--evaluation",
}
_KEY_IN_RECIPE = re.compile(r"`([\w.]+)` in the recipe")
_CHANGED_KEY = re.compile(r"(?<=[( ])[\w.]+(?=: )")  # as `changed_keys` writes them
IN_A_ROOT = (
    "give the data root that has it with --data",
    "move what is given below stage_a/ of the data root that has it",
)
_PACK_KEYS = ("weights", "num_seqs", "tokenizer")
_BARE_KEY = re.compile(rf"(?<![`\w.-])({'|'.join(key for key in _OPTION_OF if '_' in key)})(?![`\w.])")


@contextlib.contextmanager
def naming_options(folder: str = "--out-dir") -> Iterator[None]:
    """Errors of the block call recipe keys by the options that set them: the recipe was written by the command.

    Args:
        folder: the option that gives what is made another folder.
    """
    try:
        yield
    except InputError as error:
        error.fix = error.fix.replace("correct the recipe", "correct the options").replace(*IN_A_ROOT)
        if error.key == "name":
            error.what = _CHANGED_KEY.sub(lambda key: _option_of(key[0]) or key[0], error.what)
            error.fix = error.fix.replace("`name` in the recipe", folder)
        else:
            if (option := _option_of(error.key or error.where)) is not None:
                _name(option, error)
            error.fix = _KEY_IN_RECIPE.sub(lambda key: _option_of(key[1]) or key[0], error.fix)
            error.what, error.fix = (
                _BARE_KEY.sub(lambda key: _OPTION_OF[key[0]], text) for text in (error.what, error.fix)
            )
        raise


@contextlib.contextmanager
def naming_recipe(recipe: object) -> Iterator[None]:
    """Errors of the block that speak of keys of packing say that they are this recipe's."""
    try:
        yield
    except InputError as error:
        name_pack_key(error, recipe, "pack.")
        raise


def name_pack_key(error: InputError, file: object, section: str = "") -> None:
    """Says in which file a key of packing is, and in which of its sections."""
    if error.where.partition(".")[0] in _PACK_KEYS:
        error.where = f"{file}: {section}{error.where}"
    error.fix = error.fix.replace("`num_seqs`", f"`{section}num_seqs` in {file}")


def _option_of(key: str) -> str | None:
    return next((option for known, option in _OPTION_OF.items() if f".{known}." in f".{key}."), None)


def _name(option: str, error: InputError) -> None:
    key = f"`{error.key}`"
    if error.key is None or error.what.startswith(f"{key} is "):
        error.where, error.what = option, error.what.replace(key, "it", 1)
    error.what = error.what.removeprefix(f"{key}: ")
    error.fix = error.fix.replace(f"{key} in the recipe", option).replace(key, option)
    error.fix = error.fix.replace("or to null", "or leave it out")


def refused(error: TyperException) -> UsageError:
    """What the parser of the command line says, in the form of all other errors."""
    import pydantic

    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "corpusmill"
    cause = error.__cause__
    if (
        isinstance(error, typer.BadParameter)
        and error.param is not None
        and isinstance(cause, pydantic.ValidationError)
    ):
        complaint = cause.errors(include_url=False)[0]
        source = context.get_parameter_source(error.param.name) if context is not None else None
        where = error.param.envvar if getattr(source, "name", "") == "ENVIRONMENT" else error.param.opts[-1]
        return UsageError(f"it is {complaint['input']!r}", where, _wanted(complaint))
    what = error.format_message().rstrip(".")
    where = command.partition(" ")[2] or "command line"
    return UsageError(what[:1].lower() + what[1:], where, f"see {command} --help")


def _wanted(complaint: "ErrorDetails") -> str:
    match complaint["type"]:
        case "greater_than_equal":
            return f"give {complaint['ctx']['ge']:g} or more"
        case "less_than_equal":
            return f"give {complaint['ctx']['le']:g} at most"
        case "int_parsing":
            return "give a whole number"
        case "float_parsing":
            return "give a number"
    return complaint["msg"]
