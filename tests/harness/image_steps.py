"""Steps of docker/Dockerfile, replayed in folders instead of an image."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

PROJECT = Path(__file__).parents[2]
FOLDERS = ("/venv", "/build", "/kernels", "/tmp/demo")


def instructions(stage: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a named stage; continued lines are joined."""
    text = (PROJECT / "docker" / "Dockerfile").read_text()
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    [body] = [part for part in re.split(r"^(?=FROM )", joined, flags=re.MULTILINE) if f" AS {stage}\n" in part]
    for line in filter(None, body.splitlines()[1:]):
        name, _, rest = line.partition(" ")
        yield name, rest


def replay(stage: str, context: Path, root: Path, arguments: Mapping[str, str]) -> dict[str, str]:
    """Run a stage's steps with its folders below `root`; return its environment.

    `context` has the files that the build may copy. `arguments` replace defaults of ARG.
    """

    def relocate(text: str) -> str:
        for folder in FOLDERS:
            text = re.sub(rf"(?<![\w/]){folder}\b", f"{root}{folder}", text)
        return text

    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(root),
        "TMPDIR": str(root),
        "PIP_NO_COMPILE": "1",  # the image has all bytecode; here, modules that the steps import are enough
    }
    environment |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "REQUESTS_"))}
    folder = root
    for name, rest in instructions(stage):
        match name:
            case "WORKDIR":
                folder = Path(relocate(rest))
                folder.mkdir(parents=True)
            case "ENV" | "ARG":
                for assignment in shlex.split(relocate(rest)):
                    variable, has_default, value = assignment.partition("=")
                    value = arguments.get(variable, value) if name == "ARG" else value
                    if has_default or variable in arguments:
                        environment[variable] = value.replace("$PATH", environment["PATH"])
            case "COPY":
                *sources, target = rest.split()
                for source in sources:
                    copy(context / source, folder / target, into=target.endswith("/"))
            case "RUN":
                result = subprocess.run(["sh", "-ec", relocate(rest)], cwd=folder, env=environment, capture_output=True)
                assert result.returncode == 0, f"{rest}\n{(result.stdout + result.stderr).decode()[-3000:]}"
            case _:
                raise AssertionError(f"the replay does not know {name}")
    return environment


def copy(source: Path, target: Path, into: bool) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target / source.name if into else target)


def send_context(folder: Path) -> None:
    """Copy what .dockerignore lets through, as a build sends it."""
    lines = [line for line in (PROJECT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    dropped = shutil.ignore_patterns(*(line.removeprefix("**/") for line in lines if line.startswith("**/")))
    for name in (line[1:] for line in lines if line.startswith("!")):
        if (PROJECT / name).is_dir():
            shutil.copytree(PROJECT / name, folder / name, symlinks=True, ignore=dropped)
        else:
            shutil.copy2(PROJECT / name, folder / name)
