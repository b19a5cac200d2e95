"""What a manifest keeps of a recipe is enough to make the artifact by; a split is made of one selection's snapshot."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.megatron_recipe import MegatronRecipe
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.text_selection import TextRecipe
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.registry import KINDS

RECIPE = Path(__file__).parents[3] / "manifests" / "recipes" / "healing_text_v1.yaml"
INLINE = EngineSettings(workers=0)
AMOUNTS = st.one_of(
    st.builds(lambda count: {"documents": count}, st.integers(1, 10**9)),
    st.builds(lambda count: {"text_bytes": count}, st.integers(1, 10**13)),
)


def test_every_artifact_of_a_recipe_is_of_a_kind_that_can_be_made() -> None:
    for target in HealingRecipe.read(RECIPE).targets():
        assert (KINDS[target.kind].name, KINDS[target.kind].stage) == (target.kind, target.stage)


@given(amount=AMOUNTS, rules=st.lists(st.sampled_from(["a >= 3", "b < 1"])))
def test_the_snapshot_section_is_read_back_from_its_content(
    amount: dict[str, object], rules: list[str], healing_recipe: Callable[..., HealingRecipe]
) -> None:
    wanted = healing_recipe("ab" * 20, {"amount": amount, "rules": rules}).snapshot

    recipe = SnapshotRecipe.of_rows(wanted.rows_content())

    assert recipe.model_copy(update={"name": wanted.name}) == wanted
    assert recipe.rows_content() == wanted.rows_content()


def test_the_other_sections_are_read_back_from_their_content() -> None:
    recipe = HealingRecipe.read(RECIPE)

    assert MegatronRecipe.from_content(recipe.megatron.content()) == recipe.megatron
    assert TextRecipe.from_content(recipe.healing_text_manifest().recipe).shards == recipe.selection.shards


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"valid_part": "0.1"}, "unknown key `valid_part`"),
        ({"token_budget": 0}, "`token_budget` is 0: Input should be greater than 0"),
    ],
)
def test_a_section_that_this_program_does_not_read_asks_for_the_one_that_wrote_it(
    change: dict[str, object], complaint: str
) -> None:
    content = HealingRecipe.read(RECIPE).megatron.content() | change

    with pytest.raises(UsageError) as refused:
        MegatronRecipe.from_content(content)

    assert str(refused.value) == (
        f"the recipe in the manifest: {complaint}; use the version of the program that made it"
    )


def test_a_split_is_not_made_of_a_snapshot_that_took_the_place_of_its_selections(
    publish: Callable[..., str],
    healing_recipe: Callable[..., HealingRecipe],
    build_snapshot: Callable[..., Artifact],
    tmp_path: Path,
) -> None:
    table = pa.table({"text": [f"Page {n}" for n in range(30)], "id": [f"page-{n}" for n in range(30)]})
    recipe = healing_recipe(publish({"a.parquet": table}))
    snapshot, selection, split, *_ = recipe.targets()
    build_snapshot(recipe, tmp_path)
    KINDS[selection.kind].build(selection, Run(tmp_path, INLINE))
    (tmp_path / snapshot.folder).rename(tmp_path / "moved")
    build_snapshot(healing_recipe(recipe.snapshot.revision, {"amount": {"documents": 3}}), tmp_path)

    with pytest.raises(InputError, match=r"digest is sha256:.*, expected sha256:.*; it was replaced: run again"):
        KINDS[split.kind].build(split, Run(tmp_path, INLINE))


def test_a_snapshot_needs_a_hub(healing_recipe: Callable[..., HealingRecipe], tmp_path: Path) -> None:
    target = healing_recipe("ab" * 20).fineweb_edu_snapshot()

    with pytest.raises(ValueError, match="a snapshot is read from a hub, and the run has none"):
        KINDS[target.kind].build(target, Run(tmp_path, INLINE))
