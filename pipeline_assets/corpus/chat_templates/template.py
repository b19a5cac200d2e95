"""Chat template and tokenizer of a model, read in the same way as by transformers."""

import datetime
import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2

from pipeline_assets.corpus.chat_templates.marked_text import TEMPLATE_PREFIX
from pipeline_assets.corpus.chat_templates.sandbox import TemplateSandbox
from pipeline_assets.corpus.harmony.chats import ChatMessage
from pipeline_assets.corpus.harmony.message import JsonValue
from pipeline_assets.corpus.tokens.hf_tokenizer import TOKENIZER_FILE, HfTokenizer, load_model_tokenizer
from pipeline_assets.spine.errors import InputError, one_line

CONFIG_FILE, SPECIAL_TOKENS_FILE = "tokenizer_config.json", "special_tokens_map.json"
TEMPLATE_FILE, OLD_TEMPLATE_FILE = "chat_template.jinja", "chat_template.json"
MORE_TEMPLATES_FOLDER = "additional_chat_templates/"
_WHOLE_MODEL_FIX = "use a folder with all files of the model"
_SPECIAL_KEYS = [f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
_CONTROL_TOKEN_PATTERN = re.compile(r"<\|[^|<>\s]{1,64}\|>")


def is_template_file(name: str) -> bool:
    """Check whether a model's file belongs to its chat template or tokenizer."""
    is_more = name.startswith(MORE_TEMPLATES_FOLDER) and name.endswith(".jinja")
    return is_more or name in (TOKENIZER_FILE, CONFIG_FILE, SPECIAL_TOKENS_FILE, TEMPLATE_FILE, OLD_TEMPLATE_FILE)


@dataclass(frozen=True)
class ChatTemplateFiles:
    """Files of a chat template, with the recipe's settings for the template."""

    folder: Path = field(compare=False)  # the name stands for the files
    name: str  # in the column `template`
    date: str | None  # YYYY-MM-DD, for `strftime_now`
    variables_json: str = "{}"  # as JSON


@dataclass(frozen=True)
class ChatTemplate:
    """Chat templates of a model, and its tokenizer."""

    column_value: str  # of the column `template`: `chat/NAME SHA256`; SHA256 is the hash of the tokenizer's file
    sources: Mapping[str, str]  # by name: `default`, and possibly `tool_use` for rows with tools
    constants: Mapping[str, Any]  # texts of special tokens, such as `bos_token`, and the recipe's `variables`
    date: datetime.date | None  # day that `strftime_now` formats; None only if no source calls it
    tokenizer: HfTokenizer

    def render(self, chat_messages: Sequence[ChatMessage], tools: JsonValue) -> str:
        name = "tool_use" if tools is not None and "tool_use" in self.sources else "default"
        sandbox, compiled = self.compiled_sources[name]
        values = {"messages": chat_messages, "tools": tools, "documents": None, "add_generation_prompt": False}
        return sandbox.render(compiled, {**self.constants, **values})

    @cached_property
    def control_pattern(self) -> re.Pattern[str]:
        """Pattern of texts that no message may contain.

        These are all special tokens, and, if a template contains them, added tokens and texts of the form `<|user|>`.
        """
        source = "".join(self.sources.values())
        written = {token for token in self.tokenizer.added_tokens if token in source and not token.isspace()}
        texts = {*self.tokenizer.special_ids, *written, *_CONTROL_TOKEN_PATTERN.findall(source)}
        return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))))

    @cached_property
    def compiled_sources(self) -> dict[str, tuple[TemplateSandbox, jinja2.Template]]:
        """Sandbox and compiled template of each source."""
        sandboxes = {name: TemplateSandbox(self.date) for name in self.sources}
        return {name: (box, box.compile_source(self.sources[name])) for name, box in sandboxes.items()}


@functools.lru_cache(maxsize=1)
def load_template(files: ChatTemplateFiles) -> ChatTemplate:
    """Load the templates and tokenizer of a model, and compile the templates.

    Raises:
        InputError: A file is missing or invalid, the recipe lacks a date that a template needs, or a template is
            invalid or unsafe.
    """
    folder, name = files.folder, files.name
    place = name if "@" in name else folder  # a digest names no place
    date = None if files.date is None else datetime.date.fromisoformat(files.date)
    tokenizer, config = load_model_tokenizer(folder, is_harmony=False), _read_json(folder / CONFIG_FILE)
    own = {} if "added_tokens_decoder" in config else _read_json(folder / SPECIAL_TOKENS_FILE)  # as in transformers
    tokens = {key: token for key in _SPECIAL_KEYS if (token := own.get(key, config.get(key)))}
    special = {key: token.get("content") if isinstance(token, dict) else token for key, token in tokens.items()}
    for key, text in special.items():
        if not isinstance(text, str):
            problem = "has no `content`" if text is None else "must be text"
            raise InputError(f"`{key}` {problem}, got {json.dumps(tokens[key]):.80}", folder, _WHOLE_MODEL_FIX)
    sources = _read_sources(folder, config)
    if "default" not in sources:
        what = f"no default chat template found, only {', '.join(sources)}" if sources else "no chat template found"
        raise InputError(what, place, f"use a model with {TEMPLATE_FILE}, or with `chat_template` in {CONFIG_FILE}")
    if date is None and any("strftime_now" in source for source in sources.values()):
        fix = "set `rows.template.date` to the day that texts shall name, such as 2026-01-31"
        raise InputError("the chat template writes the current date", place, fix)
    constants = special | json.loads(files.variables_json)
    template = ChatTemplate(f"{TEMPLATE_PREFIX}{name} {tokenizer.sha256}", sources, constants, date, tokenizer)
    try:
        template.render([{"role": "user", "content": "question"}], None)
    except (jinja2.TemplateSyntaxError, jinja2.exceptions.SecurityError) as error:
        what = f"the chat template is invalid: {one_line(error).rstrip('.')}"
        raise InputError(what, place, "use another model") from None
    except jinja2.TemplateError:  # some refuse conversations without an answer
        pass
    return template


def _read_sources(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Return template sources by name, from Jinja files or else from JSON files."""
    files = {path.stem: path for path in sorted((folder / MORE_TEMPLATES_FOLDER).glob("*.jinja"))}
    files |= {"default": folder / TEMPLATE_FILE} if (folder / TEMPLATE_FILE).is_file() else {}
    if files:
        return {name: _read_text(path) for name, path in files.items()}
    found = config.get("chat_template") or _read_json(folder / OLD_TEMPLATE_FILE).get("chat_template") or {}
    if isinstance(found, list) and all(isinstance(entry, dict) for entry in found):
        found = {entry.get("name"): entry.get("template") for entry in found}
    sources = {"default": found} if isinstance(found, str) else found
    if isinstance(sources, dict) and all(isinstance(part, str) for item in sources.items() for part in item):
        return sources
    what = f"`chat_template` must be a text, or texts with names, got {json.dumps(found):.80}"
    raise InputError(what, folder, _WHOLE_MODEL_FIX)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 (byte {error.start})", path, _WHOLE_MODEL_FIX) from None


def _read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; empty if missing. Raise InputError if invalid."""
    try:
        values = json.loads(path.read_bytes()) if path.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON ({one_line(error)})", path, _WHOLE_MODEL_FIX) from None
    if not isinstance(values, dict):
        raise InputError(f"expected a JSON object, got {json.dumps(values):.80}", path, _WHOLE_MODEL_FIX)
    return values
