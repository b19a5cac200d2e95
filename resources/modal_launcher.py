"""Launcher of score shards on Modal, with estimates and limits of their cost."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from modal.config import config

from pipeline_assets.corpus.scoring.launcher import Launcher, ScoreWork
from pipeline_assets.corpus.scoring.modal_settings import BYTES_PER_TOKEN, NO_GPU, ModalSettings, variable_name
from pipeline_assets.spine.errors import RecipeKey, UsageError
from pipeline_assets.spine.staging import StagingView
from resources.modal_calls import ModalLauncher

logger = logging.getLogger("corpusmill")


def has_token() -> bool:
    """Check whether a token of Modal is set or stored, without sending it."""
    return bool(config.get("token_id") and config.get("token_secret"))


@dataclass(frozen=True)
class ModalLauncherFactory:
    """Factory of launchers that run score shards on Modal.

    `salt` is a part of each request; results of requests with a different salt are not reused. `cost_by_split` maps
    (split, model digest), for each split that this command started, to its cost: an estimate while the split runs, then
    the measured cost.
    """

    settings: ModalSettings
    salt: str = ""
    cost_by_split: dict[tuple[str, str], float] = field(default_factory=dict)

    def describe_costs(self, splits: Sequence[ScoreWork], finished_shards: int = 0) -> Iterator[str]:
        """Yield an estimate for each split, a total for several splits, and the rates.

        `finished_shards` is the number of shards of each split that are scored already. After the last line, UsageError
        is raised for the first split that cannot run, for example because of a cost limit.
        """
        refusals, tokens, shards = list[UsageError | None](), 0, 0
        spent = sum(self.cost_by_split.values())
        for work in splits:
            split_tokens, split_shards = self._remaining_work(work, finished_shards)
            tokens, shards = tokens + split_tokens, shards + split_shards
            yield f"{work.split}: {self.settings.describe_estimate(split_tokens, split_shards)}"
            rows = min(split_shards * work.recipe.shard_rows, work.rows)
            refusal = self.settings.start_error(work.split, split_tokens, split_shards, rows, spent)
            refusals.append(self._unsupported_error(work) or refusal)
            spent += self.settings.cost(split_tokens / self.settings.tokens_per_s) or 0.0
        if len(splits) > 1:
            yield f"all: {self.settings.describe_estimate(tokens, shards)}"
        yield self.settings.describe_rates()
        for refusal in filter(None, refusals):
            raise refusal

    def _remaining_work(self, work: ScoreWork, finished_shards: int) -> tuple[int, int]:
        """Return the unfinished shards' estimated tokens, and the number of these shards."""
        shards = -(-work.rows // work.recipe.shard_rows)  # rounded up
        remaining = max(shards - finished_shards, 0)
        return work.text_bytes // BYTES_PER_TOKEN * remaining // max(shards, 1), remaining

    def _unsupported_error(self, work: ScoreWork) -> UsageError | None:
        """Return the error for a split that Modal cannot score; None if it can."""
        device, gpu = work.recipe.device, self.settings.gpu
        if work.pool_files is None:
            fix = "publish them (corpusmill nemotron publish), and score the published pools: --pool OWNER/NAME"
            return UsageError("pools are in a local folder, and Modal reads pools of a hub", work.split, fix)
        if work.model_files is None:
            fix = "name a model of a hub, or score on this machine: --launcher local"
            what = "the model is in a local folder, and Modal reads models of a hub"
            return UsageError(what, RecipeKey("scoring.model"), fix)
        if (device == "cpu") != (gpu == NO_GPU):
            what = f"{device} does not match {variable_name('gpu')}, which is {gpu}"
            return UsageError(what, RecipeKey("scoring.device"), f"use cpu with {NO_GPU!r}, and cuda with a GPU")
        if self.settings.gpus > 1 and not work.recipe.spreads:
            what = f"must be 1 unless the model is spread over GPUs, got {self.settings.gpus}"
            return UsageError(what, variable_name("gpus"), "set it to 1, or set `scoring.spreads`")
        return None

    @contextlib.contextmanager
    def open_launcher(self, work: ScoreWork, folder: StagingView) -> Iterator[Launcher]:
        """Fetch a split's files and yield a launcher; UsageError if Modal cannot score it."""
        finished, key = folder.count_finished_shards("score"), (work.split, work.model_digest)
        for line in self.describe_costs([work], finished):
            logger.info("on Modal: %s", line)
        tokens, _ = self._remaining_work(work, finished)
        earlier_cost = self.cost_by_split.get(key, 0.0)  # cost of an attempt that failed in this command
        self.cost_by_split[key] = earlier_cost + (self.settings.cost(tokens / self.settings.tokens_per_s) or 0.0)
        calls = ModalLauncher(self.settings, self.salt, work)
        try:
            calls.fetch(folder)
            yield calls
        finally:
            usage = calls.provenance()["modal"]
            self.cost_by_split[key] = earlier_cost + (usage["cost"] or 0.0)
        figures = work.split, usage["calls"], usage["container_seconds"], usage["cost"]
        logger.info("%s on Modal: %d calls; %.0f container seconds, cost %s", *figures)
