"""The hub as a resource: address, token and cache around `readers.hub_files`."""

from pathlib import Path

import dagster as dg
from pydantic import Field

from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER, HubFiles
from pipeline_assets.corpus.recipes.run import HUB_TRIES
from resources.store import environment


class Hub(dg.ConfigurableResource):
    """Where datasets are read from. The token is the client's own (HF_TOKEN or the saved login): it is no config."""

    endpoint: str | None = Field(
        default=None, description="Address, without a password; empty means HF_ENDPOINT or the public hub"
    )
    cache: str | None = Field(default=None, description="Folder for fetched bytes; empty means <data root>/hub_cache")

    tries: int | None = Field(default=None, ge=1, description="Tries of a call; else CORPUSMILL_HUB_TRIES, 6")

    def files(self, data_root: Path, tries: int | None = None) -> HubFiles:
        """Reading access, with the cache below the data root unless the config says otherwise.

        Args:
            tries: of a call, whatever is set; None leaves it at that.
        """
        cache = Path(self.cache) if self.cache else data_root / CACHE_FOLDER
        tries = tries or self.tries or HUB_TRIES.of(environment())
        return HubFiles(cache, endpoint=self.endpoint, tries=tries)
