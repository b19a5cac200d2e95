"""Loads what was published as whoever trains on it does: each config by its name, at a commit.

In a process of its own, since `datasets` reads the hub's address when it is imported, and stays in memory.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from pipeline_assets.corpus.spine.errors import InputError

_LONGEST_S = 1800.0


def load_back(repo: str, commit: str, address: str, token: str | None, configs: Mapping[str, Sequence[str]]) -> None:
    """
    Args:
        address: of the hub.
        configs: splits by config, as the hub names them.
    Raises:
        InputError: `datasets` can't load one, finds other splits, or no row in one.
    """
    variables = {"HF_ENDPOINT": address, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-m", __name__, repo, commit, *configs]
    done = subprocess.run(
        command,
        env={**os.environ, **variables, **({"HF_TOKEN": token} if token else {})},
        capture_output=True,
        text=True,
        timeout=_LONGEST_S,
    )
    found = json.loads(done.stdout) if done.returncode == 0 else {}
    if found != {config: sorted(splits) for config, splits in configs.items()}:
        said = (done.stderr.strip().splitlines() or [f"it finds {found}"])[-1]
        fix = "its files are as they were sent: look at its card"
        raise InputError(f"`datasets` can't load what was published ({said[:300]})", f"{repo}@{commit}", fix)


def _splits_with_rows(repo: str, commit: str, config: str) -> list[str]:
    import datasets

    loaded = datasets.load_dataset(repo, config, revision=commit, streaming=True)
    next(iter(next(iter(loaded.values()))))
    return sorted(map(str, loaded))


if __name__ == "__main__":
    _, asked, revision, *names = sys.argv
    print(json.dumps({name: _splits_with_rows(asked, revision, name) for name in names}), flush=True)
    os._exit(0)  # what Arrow's threads still read ahead may abort an orderly end
