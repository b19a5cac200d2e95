"""Commands that install an optional part of the program."""

import re
import sys
from importlib import metadata

from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.shipped import shipped_path

_CHECKOUT_FILE = shipped_path("constraints.txt").with_name("pyproject.toml")  # missing next to the copies of a wheel


def install_hint(extra: str) -> str:
    """Return the instruction to install an extra of `pyproject.toml`.

    The program is not in a package index. In a checkout, the instruction installs the checkout itself with the extra.
    If the program was installed from a wheel, the instruction installs only the packages of the extra.
    """
    if _CHECKOUT_FILE.is_file():
        return pip_hint(f"-e '.[{extra}]'")
    requirement = re.compile(rf"""(.+?) *; *extra *== *["']{extra}["']""")
    installed = next(iter(metadata.distributions(name="corpusmill")), None)  # None in the image for Modal
    required = (installed.requires if installed else None) or ()
    return pip_hint(" ".join(f"'{match[1]}'" for match in map(requirement.fullmatch, required) if match))


def pip_hint(packages: str) -> str:
    """Return the instruction to install packages (pip arguments) in pinned versions."""
    if _CHECKOUT_FILE.is_file():
        return f"in the project's folder run .venv/bin/python -m pip install -c constraints.txt {packages}"
    return f"run {sys.executable} -m pip install -c {shipped_path('constraints.txt')} {packages}"


def not_installed_error(error: ImportError, extra: str) -> UsageError:
    """Return the error for an optional package that is missing or cannot be loaded."""
    what = f"{error.name} is not installed" if isinstance(error, ModuleNotFoundError) else f"{error}"
    return UsageError(what, extra, install_hint(extra))
