"""Which language model builds use: its files pinned by hash, and a folder that holds these and no others.

Its files are its configs, those of its tokenizer, its weights in safetensors. Weights in other formats, folders and
pages beside them are left out, and named. A model that runs code of its own, or whose weights are a pickle, which can,
is refused.
"""

import contextlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic

from pipeline_assets.build.pins import raw_pin
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.readers.hub_files import is_name
from pipeline_assets.corpus.readers.listing import Listing
from pipeline_assets.corpus.readers.source_folder import (
    InputFolder,
    SourceFolder,
    files_while_read,
    folder_path,
    has_files,
    list_files,
    open_source,
)
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.corpus.scoring.token_rows import TOKENIZER_FILE, load_model_tokenizer
from pipeline_assets.corpus.tokens.losses import MAX_UNKNOWN_FRACTION, MaxUnknownFraction
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.errors import InputError, UsageError, bare
from pipeline_assets.spine.manifest import Manifest, StageVersion
from pipeline_assets.spine.recipe_yaml import section_at
from pipeline_assets.spine.section import COMMIT_PATTERN, UNPINNED, Option, RecipeSection
from pipeline_assets.spine.staging import WORK, StagingDir

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_EXTRA_FILES = (
    *(CONFIG, "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"),
    *("vocab.json", "vocab.txt", "merges.txt", "chat_template.*"),
)
_MOST_JSON_BYTES = 1 << 28  # an index of 100,000 tensors has 10 MB
_WHOLE = "give the whole model"
_ANOTHER = "give a model that transformers reads: config.json, and weights in safetensors"
MODEL_STAGE = StageVersion("scoring_model", 1)
DEFAULT_MODEL = "unsloth/gpt-oss-120b"


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model that loading it takes, sorted, and what a manifest says of it."""

    names: tuple[str, ...]
    decisions: Mapping[str, Any]


def choose_files(sizes: Mapping[str, int], read: Callable[[str], bytes], where: str) -> ModelFiles:
    """The files that loading a model takes.

    Args:
        sizes: bytes of all files that are there, by path.
        read: gives the content of one; that of the config is asked for, and of the index of the weights.
        where: the model, for errors.
    Raises:
        InputError: a file is missing, or can't be read; no weights are in safetensors; it runs code of its own.
    """

    def mapping(name: str) -> dict[str, Any]:
        """What a JSON file says, by Python's parser: configs of state space models have `Infinity`."""
        if sizes[name] > _MOST_JSON_BYTES:
            raise InputError(f"{name} has more than {_MOST_JSON_BYTES:,} bytes", where, _WHOLE)
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(value := json.loads(read(name)), dict):
                return value
        raise InputError(f"{name} is no JSON, or no mapping", where, _WHOLE)

    if CONFIG not in sizes:
        raise InputError(f"it has no {CONFIG}", where, _ANOTHER)
    config, top = mapping(CONFIG), {name for name in sizes if "/" not in name}
    code = sorted(name for name in top if name.endswith(".py")) or [f"`auto_map` in {CONFIG}"] * ("auto_map" in config)
    if code:
        fix = "give a model whose architecture transformers has itself"
        raise InputError(f"it runs code of its own ({code[0]}), and no code of a model is run here", where, fix)
    beside = {name for name in top if any(fnmatchcase(name, pattern) for pattern in _EXTRA_FILES)}
    chosen = beside | _weights(sizes.keys(), mapping, where)
    left_out = sorted(name for name in sizes.keys() - chosen if "/." not in f"/{name}")
    return ModelFiles(tuple(sorted(chosen)), {**_declared_values(config), "left_out": left_out})


def _weights(names: Set[str], mapping: Callable[[str], dict[str, Any]], where: str) -> set[str]:
    """The one file of the weights, which transformers prefers; else their index, and all that it names."""
    if WEIGHTS in names:
        return {WEIGHTS}
    if INDEX not in names:
        pickles = sorted(name for name in names if fnmatchcase(name, "pytorch_model*.bin"))
        if pickles:
            what = f"its weights are a pickle ({pickles[0]}), which can run code when it is read"
            raise InputError(what, where, "convert them to safetensors, or give a revision that has these")
        raise InputError(f"it has neither {WEIGHTS} nor {INDEX}", where, _ANOTHER)
    shards = {str(name) for name in section_at(mapping(INDEX), "weight_map").values()}
    unfit = sorted(name for name in shards if name not in names or not name.endswith(".safetensors"))
    if unfit or not shards:
        what = f"{unfit[0]}, and there is no such file in safetensors" if unfit else "no file"
        raise InputError(f"{INDEX} names {what}", where, _WHOLE)
    return {INDEX, *shards}


def _declared_values(config: Mapping[str, Any]) -> dict[str, Any]:
    said = {**section_at(config, "text_config"), **config}  # the first is of a model that sees or hears too
    architectures = config.get("architectures")
    return {
        "architecture": _text(architectures[0]) if isinstance(architectures, list) and architectures else None,
        "model_type": _text(config.get("model_type")),
        "dtype": _text(said.get("dtype", said.get("torch_dtype"))),
        "quantization": _text(section_at(config, "quantization_config").get("quant_method")),
        "vocabulary_size": _count(said.get("vocab_size")),
        "max_positions": _count(said.get("max_position_embeddings", said.get("n_positions"))),
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.isprintable() else None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 < value < 1 << 63 else None


class ModelSection(RecipeSection):
    """Which model: one of a hub, at a commit, or a folder here that holds the same files.

    Attributes:
        name: owner/name on a hub, or the name of a model that has no owner; None of a folder.
        revision: 40 hex digits; None of a folder. Forty zeros are a commit that nobody has looked up yet: such a model
            can be named and not built from.
        path: of a folder, absolute or below the data root; None of a hub. Where it lies changes no byte.
    """

    name: Annotated[str | None, Option(f"The model on the hub. Default: {DEFAULT_MODEL}.", default=None)] = None
    revision: Annotated[str | None, Option("Its commit, 40 hex digits.", default=None)] = None
    path: Annotated[str | None, Option("A folder that holds the model, instead of the hub.", default=None)] = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _is_the_default_of_a_hub(cls, values: Any) -> Any:
        is_of_hub = isinstance(values, Mapping) and values.get("path") is None
        return {"name": DEFAULT_MODEL, **values} if is_of_hub else values

    @pydantic.model_validator(mode="after")
    def _is_of_a_hub_or_a_folder(self) -> Self:
        if {self.name is None, self.revision is None} != {self.path is not None}:
            raise ValueError("give `name` and `revision` for a model of a hub, or `path` alone for a folder here")
        if self.name is not None and not is_name(self.name, "model"):
            raise ValueError(f"{self.name!r} is no model: write owner/name, such as {DEFAULT_MODEL}")
        if self.revision is not None and not re.fullmatch(COMMIT_PATTERN, self.revision):
            raise ValueError(
                f"the revision of {self.name} is {self.revision!r}, and a revision is a commit of 40 hex digits, "
                f"since a branch moves; `corpusmill pin {self.name} --model` gives the commit"
            )
        return self

    def pinned_content(self) -> dict[str, Any]:
        """The recipe part of the model's pin: nothing, of a folder, whose files tell it."""
        return {} if self.path is not None else {"name": self.name, "revision": self.revision}

    def folder(self) -> "ModelFolder | None":
        """Where the model lies on this machine; None of one of a hub."""
        return None if self.path is None else ModelFolder(Path(self.path))


class ModelFolder(InputFolder):
    """A model in a folder of this machine."""

    def names(self) -> Sequence[str]:
        return self.chosen().names

    def chosen(self) -> ModelFiles:
        """Its files, as they are now; the path is absolute.

        Raises:
            UsageError, InputError: there is no such folder, or nothing in it; from `choose_files`.
        """
        if not self.path.is_dir():
            raise UsageError("there is no such folder", self.path, "correct the model's `path`")
        if not has_files(self.path):
            raise UsageError("no file is in it", self.path, "give a folder that holds a model")
        found = {file.name: file for file in list_files(self.path, ["**/*"])}

        def read(name: str) -> bytes:
            with open_source(found[name]) as opened:
                return opened.read()

        return choose_files({name: file.bytes for name, file in found.items()}, read, str(self.path))


def pin_model(target: Target, run: Run) -> BuildResult:
    """The files of a model, each by its hash: of a folder, which are read, or of a hub at a commit, by its listing.

    Raises:
        UsageError: no revision is pinned yet, or there is no such model or folder.
        InputError: from the hub, or `choose_files`; a file can't be read, or changes meanwhile.
    """
    if target.external_inputs is None:
        return _pin_of_hub(target, run)
    assert isinstance(target.external_inputs, ModelFolder)
    here = target.external_inputs.below(run.root)
    chosen = here.chosen()
    return raw_pin.pin_of_folder(SourceFolder(here.path, chosen.names), run.root, run.settings, chosen.decisions)


def _pin_of_hub(target: Target, run: Run) -> BuildResult:
    """Nothing but the config and the index of the weights is fetched."""
    hub, name, revision = run.require_hub("this model").for_models(), target.recipe["name"], target.recipe["revision"]
    if revision == UNPINNED:
        fix = f"write as `revision` the commit that `corpusmill pin {name} --model` prints"
        raise UsageError("no revision is pinned yet", name, fix)
    listed = {file.path: file for file in hub.list_files(name, revision)}

    def read(path: str) -> bytes:
        return hub.fetch(name, revision, listed[path]).local.read_bytes()

    chosen = choose_files({path: file.size for path, file in listed.items()}, read, f"{name}@{revision}")
    files = [listed[path] for path in chosen.names]
    return raw_pin.pin_of_hub(raw_pin.as_model(name), revision, files, chosen.decisions)


def list_model(target: Target, run: Run) -> Listing:
    """The files of a model, known before they are pinned. Errors as `pin_model`."""
    if target.external_inputs is None:
        return Listing(tuple(_pin_of_hub(target, run).external_inputs))
    assert isinstance(target.external_inputs, ModelFolder)
    return Listing.from_files(target.external_inputs.below(run.root).files())


def list_weights(target: Target, run: Run) -> Listing:
    """What the first of those builds fetches that load the model; the target is made from its pin, among others."""
    [pin] = [one for one in target.upstream if one.stage.name == MODEL_STAGE.name]
    if pin.external_inputs is not None:
        return Listing()
    files = raw_pin.listed_files(list_model(pin, run).inputs)
    return Listing.from_fetched(run.require_hub("this model").for_models(), pin.recipe["name"], files)


@contextlib.contextmanager
def model_folder(pin_target: Target, run: Run, building: StagingDir) -> Iterator[Path]:
    """A folder that has the files of a pinned model under their own names, and no others, while it is loaded and used.

    They are links below the work of the building, into the cache of the hub, or to the folder that was pinned.

    Raises:
        InputError: from the hub; files of a folder are not as they are listed, before or after.
    """
    pin = open_artifact(run.root / pin_target.folder).manifest
    with contextlib.ExitStack() as stack:
        if pin_target.external_inputs is None:
            hub = run.require_hub("this model").for_models()
            files = raw_pin.fetch_pinned(hub, pin, run.settings.fetch_threads, run.settings.log_every_s)
            name = f"{pin.identity.recipe['name']}@{pin.identity.recipe['revision']}"
        else:
            assert isinstance(pin_target.external_inputs, ModelFolder)
            here = pin_target.external_inputs.below(run.root).path
            files, name = stack.enter_context(files_while_read(here, pin)), str(here)
        folder = building.path(f"{WORK}/model").absolute()
        durable.remove(folder)  # what a build that was cut off left of it
        for file in files:
            link = folder / file.name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file.path.absolute())
        yield stack.enter_context(_named(folder, name))


def raise_if_unsupported(pin_target: Target, run: Run, recipe: ScoringRecipe) -> None:
    """Refuse a pinned model whose config, or whose tokenizer on a hub, does not fit the recipe; fetch no weights.

    Raises:
        InputError: as `load_model_tokenizer`.
        UsageError: rows are to be longer than the model takes; or a library is not installed.
    """
    pin = open_artifact(run.root / pin_target.folder).manifest
    most = pin.identity.decisions["max_positions"]
    if recipe.max_length is not None and most is not None and recipe.max_length > most:
        what = f"it is {recipe.max_length:,}, and the model takes {most:,} tokens"
        raise UsageError(what, bare("scoring.max_length"), f"set {most} or less")
    if recipe.tokenizer == "model" and pin_target.external_inputs is None:
        name, revision, files = raw_pin.pinned_files(pin)
        hub = run.require_hub("this model").for_models()
        with tempfile.TemporaryDirectory() as folder, _named(Path(folder), f"{name}@{revision}"):
            for file in files:
                if file.path == TOKENIZER_FILE:
                    Path(folder, TOKENIZER_FILE).symlink_to(hub.fetch(name, revision, file).local.absolute())
            load_model_tokenizer(Path(folder))


@contextlib.contextmanager
def _named(linked: Path, model: str) -> Iterator[Path]:
    """The folder of links; errors of the block that name it name the model, which is what the user knows."""
    try:
        yield linked
    except InputError as error:
        error.relocate(str(linked), model)
        raise


def read_model_folder(manifest: Manifest, root: Path) -> ModelFolder | None:
    """The folder that a pin was made of, its path absolute; None for one of a hub."""
    path = folder_path(manifest, root)
    return None if path is None else ModelFolder(path)


class ScoringSection(ScoringRecipe):
    """The same, and which model scores: an artifact of its own.

    Attributes:
        max_unknown_fraction: largest share of a split that its tokenizer may lose; changes no byte.
    """

    model: ModelSection
    max_unknown_fraction: MaxUnknownFraction = MAX_UNKNOWN_FRACTION

    def recipe_content(self, split: str) -> dict[str, Any]:
        """What the scores of a split depend on, beside the model and the rows."""
        mine = ScoringRecipe.model_fields
        return {"split": split, "scoring": {name: value for name, value in self.content().items() if name in mine}}
