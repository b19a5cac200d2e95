"""Recipe section of a custom step: a Python function in a file next to the recipe.

The section stores the text of the file and the versions of the required packages, so that a rebuild does not need the
file. The main process parses the file, but never imports it.
"""

import ast
import functools
import hashlib
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import pydantic

from pipeline_assets.spine.changed_keys import changed_keys
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.key_types import Share, pattern_rule, text_rule
from pipeline_assets.spine.metadata_file import MetadataFormat
from pipeline_assets.spine.recipe_validation import FOLDER_KEY
from pipeline_assets.spine.section import RecipeSection

_STEP_FILE: MetadataFormat[object] = MetadataFormat("step", 1 << 16, "write the step into a plain file", object)
_FILE_RULE = "must be the name of a file in the recipe's folder, such as my_filter.py"
_PACKAGE_FOLDERS = {"site-packages", "dist-packages"}  # folders of packages that have a version
_PACKAGE_NAME = re.compile(r"[\w.-]+")
_packages_by_module = functools.cache(metadata.packages_distributions)


class PythonStep(RecipeSection):
    """Custom step: a user's function that keeps, changes or drops each document.

    The function gets a Document. To keep the document, it returns a Document; to drop it, None or a reason code.

    Attributes:
        seconds: Maximum CPU seconds of one call of the function.
        memory_mib: Maximum address space of the process that runs the function, in MiB.
        max_reject_fraction: Share of rejected documents above which the build stops.
        code: Text of the file, which is read together with the recipe.
        pins: Sha256 of the file, and versions of Python and of all packages that the file needs, by name.
    """

    file: Annotated[str, pattern_rule(r"[A-Za-z_]\w*\.py", _FILE_RULE)]
    function: Annotated[str, text_rule(str.isidentifier, "must be the name of a function")]
    seconds: int = pydantic.Field(10, ge=1, le=3600)
    memory_mib: int = pydantic.Field(4096, ge=512, le=1 << 40)  # bytes above 2**63 are no limit of a process
    max_reject_fraction: Share = "0.001"
    code: str = ""
    pins: Mapping[str, str] = pydantic.Field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.code)  # the mapping `pins` cannot be hashed

    @pydantic.model_validator(mode="before")
    @classmethod
    def _read_file(cls, content: Any, info: pydantic.ValidationInfo) -> Any:
        folder = (info.context or {}).get(FOLDER_KEY)
        if not isinstance(content, Mapping) or (folder is None and "code" in content):  # in a manifest
            return content
        if folder is None:
            raise ValueError("the file of a step is next to its recipe; write this section into a recipe file")
        if written := content.keys() & {"code", "pins"}:
            raise ValueError(f"`{min(written)}` is read from the file; remove it")
        file, function = content.get("file"), content.get("function")
        if not isinstance(file, str) or not isinstance(function, str) or Path(file).name != file:
            return content  # the rules of these keys report it
        function = unicodedata.normalize("NFKC", function)  # as Python reads names
        try:
            code = _read_code(folder / file, function)
            return {**content, "function": function, "code": code, "pins": _find_pins(code, folder / file)}
        except RetryableError:
            raise
        except InputError as error:
            raise ValueError(str(error)) from None  # reported with the other errors of the recipe

    def check_pins(self) -> None:
        """Raise UsageError if Python or an installed package is not the pinned version."""
        changes = changed_keys(self.pins, _find_pins(self.code, Path(self.file)))
        if changes:
            what = f"packages changed ({', '.join(f'{name}: {change}' for name, change in changes.items())})"
            raise UsageError(what, self.file, "install the pinned versions, or run its recipe again with --replace")


def step_file_names(recipe: object) -> Iterator[str]:
    """Yield the file name of each custom step in a recipe, at any depth."""
    if isinstance(recipe, Mapping):
        if isinstance(step := recipe.get("python"), Mapping) and "file" in step:
            yield Path(str(step["file"])).name
        recipe = list(recipe.values())
    for value in recipe if isinstance(recipe, list) else ():
        yield from step_file_names(value)


def _read_code(path: Path, function: str) -> str:
    """Return the text of a step's file; InputError if it does not define the function."""
    try:
        code = _STEP_FILE.read_raw(path).decode()
    except FileNotFoundError:
        raise UsageError("file not found", path, "write it there, or correct `file`") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"not UTF-8 (byte {error.start})", path, "save it as UTF-8") from None
    names = [node.name for node in _parse(code, path).body if isinstance(node, ast.FunctionDef)]
    if function not in names:
        what = f"function {function} not found; the functions are {', '.join(names) or 'none'}"
        raise UsageError(what, path, "define it by `def` at the top level of the file, or correct `function`")
    return code


def _parse(code: str, path: Path) -> ast.Module:
    try:
        return ast.parse(code.removeprefix("\ufeff"), path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two if nested too deeply
        location = f"{path}:{getattr(error, 'lineno', None) or 1}"
        what = f"not valid Python ({getattr(error, 'msg', str(error) or 'nested too deeply')})"
        raise UsageError(what, location, "correct that line") from None


def _find_pins(code: str, path: Path) -> dict[str, str]:
    """Return the pins of a file: its sha256, and the versions of Python and packages.

    An installed package is pinned if the file imports it, or if a pinned package requires it. Raise UsageError if the
    file imports modules that are neither in the standard library nor in an installed package; it names all of them.
    """
    python, needed, missing = "{}.{}".format(*sys.version_info), list[str](), list[tuple[int, str]]()
    pins = {path.name: hashlib.sha256(code.encode()).hexdigest(), "python": python}
    for node in ast.walk(_parse(code, path)):
        if isinstance(node, ast.ImportFrom):
            modules = ["." * node.level + (node.module or "")]
        else:
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for root in {module.partition(".")[0] for module in modules} - sys.stdlib_module_names:
            needed += (packages := _packages_providing(root))
            missing += [] if packages else [(getattr(node, "lineno", 1), root or "a relative import")]
    if missing:
        what = f"no installed package provides {', '.join(sorted({module for _, module in missing}))}"
        raise UsageError(what, f"{path}:{min(missing)[0]}", "install one that does, or put the code into this file")
    while needed:
        package = _find_distribution(needed.pop())
        name = "" if package is None else package.metadata["Name"].lower().replace("_", "-")
        if package is not None and name not in pins:
            pins[name] = package.version
            plain = filter(lambda requirement: "extra ==" not in requirement, package.requires or ())
            needed += [match[0] for match in map(_PACKAGE_NAME.match, plain) if match]
    return dict(sorted(pins.items()))


def _packages_providing(module: str) -> list[str]:
    """Return the installed packages that provide a module."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):  # such as a relative import
        spec = None
    locations = [] if spec is None else [*(spec.submodule_search_locations or ()), str(spec.origin)]
    packages = [module] if _find_distribution(module) is not None else _packages_by_module().get(module, [])
    return packages if any(_PACKAGE_FOLDERS & {*Path(origin).parts} for origin in locations) else []


def _find_distribution(package: str) -> metadata.Distribution | None:
    return next(iter(metadata.distributions(name=package)), None)
