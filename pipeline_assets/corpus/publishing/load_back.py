"""Test that `datasets` can load each config of a published dataset.

A subprocess loads the configs, because `datasets` reads the hub's address on import. The subprocess reads the token
from its standard input, and `LibraryClient` sends it only to the hub. A token in the environment would be unsafe:
`datasets` sends it to every address that starts like the hub's.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from pipeline_assets.spine.errors import InputError, RetryableError

_TIMEOUT_S = 1800.0
_TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def check_configs_load(
    repo: str, commit: str, endpoint: str, token: str | None, configs: Mapping[str, Sequence[str]]
) -> None:
    """Check that `datasets` loads each config's first row and finds all splits.

    `configs` maps each config to its split names on the hub. Raise InputError if loading fails or finds other splits,
    and RetryableError if loading takes more than 30 minutes.
    """
    variables = {
        **{name: value for name, value in os.environ.items() if name not in _TOKEN_VARIABLES},
        "HF_ENDPOINT": endpoint,
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": "0",
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",  # a request to another host, with the name of the repository
    }
    command = [sys.executable, "-m", __name__, repo, commit, *configs]
    where, fix = f"{repo}@{commit}", "its files are as sent; check its card"
    try:
        with tempfile.TemporaryDirectory() as cache:  # `datasets` falls back to earlier publications in its own cache
            variables["HF_DATASETS_CACHE"] = cache
            done = subprocess.run(
                command, env=variables, input=token or "", capture_output=True, text=True, timeout=_TIMEOUT_S
            )
    except subprocess.TimeoutExpired:
        what = f"`datasets` did not load the publication within {_TIMEOUT_S:,.0f} s"
        raise RetryableError(what, where, "run the same command again; files that arrived are not sent again") from None
    loaded_splits = json.loads(done.stdout) if done.returncode == 0 else {}
    if loaded_splits != {config: sorted(splits) for config, splits in configs.items()}:
        reason = (done.stderr.strip().splitlines() or [f"its splits are {loaded_splits}"])[-1]
        raise InputError(f"`datasets` cannot load the publication ({reason[:300]})", where, fix)


def _load_splits(repo: str, commit: str, config: str) -> list[str]:
    """Load the first row of a config's first split; return all split names, sorted."""
    import datasets

    loaded = datasets.load_dataset(repo, config, revision=commit, streaming=True)
    next(iter(next(iter(loaded.values()))))
    return sorted(map(str, loaded))


def _limit_requests(endpoint: str, token: str) -> None:
    """Limit the requests of `datasets`, and refuse files that are not on the hub."""
    import datasets
    import fsspec
    from huggingface_hub import set_client_factory

    from pipeline_assets.corpus.readers.hub_library import LibraryClient

    set_client_factory(lambda: LibraryClient(endpoint, token=token or None, retries_all=True))
    datasets.config.STREAMING_READ_MAX_RETRIES = 1  # `huggingface_hub` retries each read five times.
    for protocol in {*fsspec.available_protocols()} - {"hf", "file", "local"}:
        message = f"the card names an address of {protocol}"
        fsspec.register_implementation(protocol, "load_back.refused:", clobber=True, errtxt=message)


if __name__ == "__main__":
    _, repository, revision, *names = sys.argv
    _limit_requests(os.environ["HF_ENDPOINT"], sys.stdin.read())
    print(json.dumps({name: _load_splits(repository, revision, name) for name in names}), flush=True)
    os._exit(0)  # Arrow's threads may still read ahead, which can abort a normal exit.
