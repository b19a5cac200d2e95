"""Loads what was published as whoever trains on it does: each config by its name, at a commit.

In a process of its own, since `datasets` reads the hub's address when it is imported, and stays in memory. The token is
in no variable of that process: `datasets` sends it to any address that starts like the hub's, and its session to none
but the hub.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from pipeline_assets.spine.errors import InputError, RetryableError

_LONGEST_S = 1800.0
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def load_back(repo: str, commit: str, address: str, token: str | None, configs: Mapping[str, Sequence[str]]) -> None:
    """
    Args:
        address: of the hub.
        configs: splits by config, as the hub names them.
    Raises:
        InputError: `datasets` can't load one, finds other splits, or no row in one.
    """
    variables = {
        **{name: value for name, value in os.environ.items() if name not in _TOKENS},
        "HF_ENDPOINT": address,
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": "0",
    }
    command = [sys.executable, "-m", __name__, repo, commit, *configs]
    where, fix = f"{repo}@{commit}", "its files are as they were sent: look at its card"
    try:
        done = subprocess.run(
            command, env=variables, input=token or "", capture_output=True, text=True, timeout=_LONGEST_S
        )
    except subprocess.TimeoutExpired:
        what = f"`datasets` must load what was published within {_LONGEST_S:,.0f} s, and did not"
        raise RetryableError(what, where, "run the same command again: it sends nothing twice") from None
    found = json.loads(done.stdout) if done.returncode == 0 else {}
    if found != {config: sorted(splits) for config, splits in configs.items()}:
        said = (done.stderr.strip().splitlines() or [f"it finds {found}"])[-1]
        raise InputError(f"`datasets` can't load what was published ({said[:300]})", where, fix)


def _splits_with_rows(repo: str, commit: str, config: str) -> list[str]:
    import datasets

    loaded = datasets.load_dataset(repo, config, revision=commit, streaming=True)
    next(iter(next(iter(loaded.values()))))
    return sorted(map(str, loaded))


def _restrict(address: str, token: str) -> None:
    """Limit what `datasets` may do for a hub: its requests, and the file systems that a changed card can name."""
    import datasets
    import fsspec
    from huggingface_hub import set_client_factory

    from pipeline_assets.corpus.readers.hub_library import LibraryClient

    set_client_factory(lambda: LibraryClient(address, token=token or None, retries=True))
    datasets.config.STREAMING_READ_MAX_RETRIES = 1  # each of which is retried five times below
    for protocol in {*fsspec.available_protocols()} - {"hf", "file", "local"}:
        message = f"the card names an address of {protocol}"
        fsspec.register_implementation(protocol, "load_back.refused:", clobber=True, errtxt=message)


if __name__ == "__main__":
    _, asked, revision, *names = sys.argv
    _restrict(os.environ["HF_ENDPOINT"], sys.stdin.read())
    print(json.dumps({name: _splits_with_rows(asked, revision, name) for name in names}), flush=True)
    os._exit(0)  # what Arrow's threads still read ahead may abort an orderly end
