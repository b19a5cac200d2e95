"""Pins of language models by the hashes of their files."""

import contextlib
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic

from pipeline_assets.build.pins import raw_pin
from pipeline_assets.build.pins.model_files import choose_model_files, choose_template_files
from pipeline_assets.build.pins.raw_pin import ChosenFiles, ChosenFolder, HubPin
from pipeline_assets.build.pins.split_pin import SPLIT_STAGE, find_hub_split
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.chat_templates.marked_text import require_tokenizer, uses_chat_template
from pipeline_assets.corpus.chat_templates.template import ChatTemplateFiles
from pipeline_assets.corpus.nemotron.rows_recipe import ChatTemplateSection
from pipeline_assets.corpus.readers import source_folder
from pipeline_assets.corpus.readers.hub_files import is_repo_name
from pipeline_assets.corpus.readers.listing import Listing
from pipeline_assets.corpus.readers.source_folder import has_files, input_folder_path, open_pinned_files, open_source
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.corpus.tokens.hf_tokenizer import TOKENIZER_FILE, load_model_tokenizer
from pipeline_assets.corpus.tokens.loss_limit import MAX_UNKNOWN_FRACTION, MaxUnknownFraction
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError
from pipeline_assets.spine.files import require_folder
from pipeline_assets.spine.key_types import COMMIT_PATTERN, UNPINNED
from pipeline_assets.spine.manifest import Manifest, StageVersion
from pipeline_assets.spine.section import RecipeSection
from pipeline_assets.spine.staging import WORK_FOLDER, StagingDir

MODEL_STAGE = StageVersion("scoring_model", 1)
TEMPLATE_STAGE = StageVersion("chat_template", 4)
DEFAULT_MODEL = "unsloth/gpt-oss-120b"


class ModelSection(RecipeSection):
    """A model: on a hub at a commit, or in a local folder.

    Attributes:
        name: Model on a hub, `owner/name` or only `name`; None for a folder.
        revision: Commit of 40 hex digits; None for a folder. Forty zeros stand for a commit that is not pinned yet:
            a recipe with them is valid but cannot be built.
        path: Local folder, absolute or relative to the data root; None for a hub. The path changes no byte.
    """

    name: Annotated[str | None, Option(f"Model on the hub. Default: {DEFAULT_MODEL}.", default=None)] = None
    revision: Annotated[str | None, Option("Commit of the model, 40 hex digits.", default=None)] = None
    path: Annotated[str | None, Option("Local folder with the model, instead of the hub.", default=None)] = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _set_default_name(cls, values: Any) -> Any:
        is_of_hub = isinstance(values, Mapping) and values.get("path") is None
        return {"name": DEFAULT_MODEL, **values} if is_of_hub else values

    @pydantic.model_validator(mode="after")
    def _check_location(self) -> Self:
        if {self.name is None, self.revision is None} != {self.path is not None}:
            raise ValueError("the model must have one location; set `name` and `revision`, or only `path`")
        if self.name is not None and not is_repo_name(self.name, "model"):
            raise ValueError(f"{self.name!r} is not a model name; write owner/name, such as {DEFAULT_MODEL}")
        if self.revision is not None and not re.fullmatch(COMMIT_PATTERN, self.revision):
            what = f"the revision of {self.name} must be a commit of 40 hex digits, got {self.revision!r}"
            raise ValueError(f"{what}; get it with `corpusmill pin {self.name} --model`")
        return self

    def pinned_content(self) -> dict[str, Any]:
        """Return the recipe values that the pin depends on; empty for a local folder."""
        return {} if self.path is not None else {"name": self.name, "revision": self.revision}

    def folder(self) -> "ModelFolder | None":
        return None if self.path is None else ModelFolder(Path(self.path))


@dataclass(frozen=True)
class ModelFolder(ChosenFolder):
    """A model in a local folder, or only its chat template."""

    is_template_only: bool = False

    def choose_files(self) -> ChosenFiles:
        require_folder(self.path, "correct the model's `path`")
        if not has_files(self.path):
            raise UsageError("the folder is empty", self.path, "use a folder that contains a model")
        files = {file.name: file for file in source_folder.list_files(self.path, ["**/*"])}

        def read(name: str) -> bytes:
            with open_source(files[name]) as opened:
                return opened.read()

        if self.is_template_only:
            return choose_template_files(files, str(self.path))
        return choose_model_files({name: file.bytes for name, file in files.items()}, read, str(self.path))


def find_hub_model(target: Target, run: Run) -> HubPin:
    """Find the files of a hub model, fetching at most its config and weight index."""
    hub, name, revision = run.require_hub("this model").for_models(), target.recipe["name"], target.recipe["revision"]
    if revision == UNPINNED:
        fix = f"set `revision` to the commit that `corpusmill pin {name} --model` prints"
        raise UsageError("no revision is pinned yet", name, fix)
    listed = {file.path: file for file in hub.list_files(name, revision)}

    def read(path: str) -> bytes:
        return hub.fetch(name, revision, listed[path]).path.read_bytes()

    if target.stage == TEMPLATE_STAGE:
        chosen = choose_template_files(listed, f"{name}@{revision}")
    else:
        chosen = choose_model_files({path: file.size for path, file in listed.items()}, read, f"{name}@{revision}")
    return HubPin(hub, name, revision, [listed[path] for path in chosen.names], chosen.decisions)


def list_hub_inputs(target: Target, run: Run) -> Listing:
    """List the hub files of a target's models and splits, with their uncached bytes."""
    searches = {SPLIT_STAGE: find_hub_split, MODEL_STAGE: find_hub_model, TEMPLATE_STAGE: find_hub_model}
    return raw_pin.list_hub_inputs(target, run, searches)


@contextlib.contextmanager
def model_folder(pin_target: Target, run: Run, staging: StagingDir) -> Iterator[Path]:
    """Yield a folder with exactly the files of a pinned model, as links.

    The folder is in the staging directory; the links lead to the hub cache or to the pinned folder. Raise InputError if
    files of the pinned folder differ from the pin before or after the block.
    """
    pin = open_artifact(run.root / pin_target.folder).manifest
    with contextlib.ExitStack() as stack:
        if isinstance(pin_target.external_inputs, ModelFolder):
            model_path = pin_target.external_inputs.resolve_path(run.root).path
            files, name = stack.enter_context(open_pinned_files(model_path, pin)), str(model_path)
        else:
            hub_pin = HubPin.from_manifest(run.require_hub("this model").for_models(), pin)
            files, name = hub_pin.fetch_all(f"fetch {pin.name}", run.settings), f"{hub_pin.repo}@{hub_pin.commit}"
        folder = staging.path(f"{WORK_FOLDER}/model").absolute()
        durable.remove(folder)  # links of an interrupted build
        for file in files:
            link = folder / file.name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file.path.absolute())
        yield stack.enter_context(_name_model_in_errors(folder, name))


@contextlib.contextmanager
def template_files(
    pins: Sequence[Target], section: ChatTemplateSection | None, run: Run, staging: StagingDir
) -> Iterator[ChatTemplateFiles | None]:
    """Yield the files of the chat template in `pins[0]`, or None without `section`.

    The template's name in rows is `MODEL@COMMIT` or, for a template from a folder, the beginning of the pin's digest.
    """
    if section is None:
        yield None
        return
    manifest = open_artifact(run.root / pins[0].folder).manifest
    recipe = manifest.identity.recipe
    name = f"{recipe['name']}@{recipe['revision']}" if recipe else manifest.digest[: len("sha256:") + 16]
    with model_folder(pins[0], run, staging) as folder:
        yield ChatTemplateFiles(folder, name, section.date, json.dumps(section.variables, sort_keys=True))


def raise_if_unsupported(pin_target: Target, run: Run, recipe: ScoringRecipe, template: str | None) -> None:
    """Raise InputError if a pinned model cannot score rows whose format is `template`.

    Raise UsageError if `max_length` exceeds the model's maximum length. If the recipe uses the model's tokenizer, fetch
    and load the tokenizer; for Harmony rows, it must have Harmony's control tokens.
    """
    pin = open_artifact(run.root / pin_target.folder).manifest
    raise_if_too_long(recipe.max_length, pin.identity.decisions["max_positions"])
    is_chat, tokenizer = uses_chat_template(template), None
    if recipe.tokenizer == "model":
        with tokenizer_folder(pin_target, run) as folder:
            tokenizer = load_model_tokenizer(folder, not is_chat)
    if is_chat:
        require_tokenizer(template, tokenizer)


def raise_if_too_long(max_length: int | None, max_positions: int | None) -> None:
    """Raise UsageError if `max_length` exceeds the maximum length of a model."""
    if max_length is not None and max_positions is not None and max_length > max_positions:
        what = f"must be at most the model's {max_positions:,} tokens, got {max_length:,}"
        raise UsageError(what, RecipeKey("scoring.max_length"), f"set {max_positions} or less")


@contextlib.contextmanager
def tokenizer_folder(pin_target: Target, run: Run) -> Iterator[Path]:
    """Yield a folder with the tokenizer.json of a pinned model, for use in the block."""
    if isinstance(pin_target.external_inputs, ModelFolder):
        yield pin_target.external_inputs.resolve_path(run.root).path
        return
    manifest = open_artifact(run.root / pin_target.folder).manifest
    pin = HubPin.from_manifest(run.require_hub("this model").for_models(), manifest)
    with tempfile.TemporaryDirectory() as folder, _name_model_in_errors(Path(folder), f"{pin.repo}@{pin.commit}"):
        for file in pin.files:
            if file.path == TOKENIZER_FILE:
                Path(folder, TOKENIZER_FILE).symlink_to(pin.fetch(file).path.absolute())
        yield Path(folder)


@contextlib.contextmanager
def _name_model_in_errors(link_folder: Path, model: str) -> Iterator[Path]:
    """Yield `link_folder`; in InputErrors of the block, `model` replaces the path."""
    try:
        yield link_folder
    except InputError as error:
        error.replace_text(str(link_folder), model)
        raise


def restore_model_folder(manifest: Manifest, root: Path) -> ModelFolder | None:
    """Return the absolute folder of a sealed model pin; None for a model on a hub."""
    path = input_folder_path(manifest, root)
    return None if path is None else ModelFolder(path, manifest.identity.stage == TEMPLATE_STAGE)


class ScoringSection(ScoringRecipe):
    """Scoring of pool rows with a model, which is pinned as a separate artifact.

    Attributes:
        max_unknown_fraction: Maximum share of a split's text that may be lost in encoding; changes no byte.
    """

    model: ModelSection
    max_unknown_fraction: MaxUnknownFraction = MAX_UNKNOWN_FRACTION

    def recipe_content(self, split: str) -> dict[str, Any]:
        """Return the recipe values that a split's scores depend on, except the model."""
        names = ScoringRecipe.model_fields
        return {"split": split, "scoring": {name: value for name, value in self.content().items() if name in names}}
