"""A copy takes the place of a damaged artifact whole, and what was damaged is somewhere at any instant."""

import itertools
import random
import shutil
from pathlib import Path
from unittest import mock

import pytest
from crash_points import killed_at
from forged import flip, overwrite
from healing_set import HealingSet
from power_loss import Tree, followed, write_tree

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import Damage, verify
from pipeline_assets.corpus.spine.errors import RetryableError
from pipeline_assets.corpus.spine.lock import BuilderBusy, locked
from pipeline_assets.corpus.spine.staging import recover
from pipeline_assets.corpus.trust.rebuild import put_back, rebuild

NAME = "tokens.bin"


@pytest.fixture
def damaged(made: HealingSet) -> bytes:
    """What lies in the place of the train split's tokens: one bit is another."""
    flip(made.folder("train") / NAME)
    return (made.folder("train") / NAME).read_bytes()


def findings(folder: Path) -> list[str]:
    return [item.what for item in verify(folder) if isinstance(item, Damage)]


def kept_tokens(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(root.glob(f"rebuilds/*.replaced*/{NAME}"))]


@pytest.fixture(params=["in one step", "in three"])
def _exchange(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in three":
        monkeypatch.setattr(durable, "exchange", lambda first, second: False)


@pytest.mark.usefixtures("_exchange")
def test_the_copy_is_in_its_place_and_the_damaged_one_is_kept(made: HealingSet, damaged: bytes) -> None:
    done = rebuild(made.folder("dataset"), made.run, puts_back=True)

    assert (done.is_identical, done.is_sound, done.kept) == (False, True, None)
    assert findings(made.folder("dataset")) == []
    assert kept_tokens(made.root) == [damaged]
    assert [path.name for path in made.folder("train").parent.glob(".*.old.*")] == []


def test_damage_of_an_artifact_that_was_put_back_before_is_kept_beside_the_first(
    made: HealingSet, damaged: bytes
) -> None:
    rebuild(made.folder("train"), made.run, puts_back=True)
    overwrite(made.folder("train") / NAME, b"")

    rebuild(made.folder("train"), made.run, puts_back=True)

    assert findings(made.folder("train")) == []
    assert kept_tokens(made.root) == [damaged, b""]


def test_the_manifest_beside_its_folder_is_that_of_the_copy(made: HealingSet, damaged: bytes) -> None:
    place = made.folder("train")
    beside = place.with_name("train.manifest.json")
    shutil.copy(place / "manifest.json", beside)

    rebuild(place, made.run, puts_back=True)

    assert beside.read_bytes() == (place / "manifest.json").read_bytes()


def test_what_is_intact_is_not_replaced(made: HealingSet) -> None:
    before = (made.folder("train") / NAME).stat().st_ino

    done = rebuild(made.folder("train"), made.run, puts_back=True)

    assert done.is_identical
    assert (made.folder("train") / NAME).stat().st_ino == before


@pytest.mark.slow
@pytest.mark.usefixtures("_exchange")
def test_killed_before_any_step_the_place_is_never_empty_after_recovery_and_the_same_command_mends_it(
    made: HealingSet, damaged: bytes
) -> None:
    place, manifest = made.folder("train"), made.manifest("train")
    copy = made.root / "copy"
    rebuilt = rebuild(place, made.run, keep=True).kept
    shutil.copytree(rebuilt / "megatron_split", copy)
    start = made.root.rename(made.root.with_name("start"))

    for step in itertools.count(1):
        shutil.copytree(start, made.root)
        if killed_at(step, lambda: put_back(copy, place, manifest, made.root / "rebuilds" / "train")) is None:
            break
        recover(place)
        again = rebuild(place, made.run, puts_back=True)

        assert again.is_sound
        assert findings(place) == []
        assert damaged in kept_tokens(made.root)
        assert [path.name for path in place.parent.glob(".*.old.*")] == []
        shutil.rmtree(made.root)

    assert step > 5


def test_after_seeded_power_losses_what_was_damaged_is_kept_and_the_same_command_mends_it(
    made: HealingSet, damaged: bytes
) -> None:
    disks: list[Tree] = []
    with followed(made.root, lambda disk: disks.extend(disk.after_power_loss(f"{len(disks)}").values())) as disk:
        rebuild(made.folder("train"), made.run, puts_back=True)
    disks.extend(disk.after_power_loss("at the end").values())

    for left in [*random.Random(3).sample(disks, 6), *disks[-5:]]:
        shutil.rmtree(made.root)
        write_tree(left, made.root)
        with mock.patch.object(durable, "boot", lambda: "the next"):
            rebuild(made.folder("train"), made.run, puts_back=True)

        assert findings(made.folder("train")) == []
        assert damaged in kept_tokens(made.root)


def test_another_builder_is_waited_for(made: HealingSet, damaged: bytes) -> None:
    with locked(made.folder("train")), pytest.raises(BuilderBusy):
        rebuild(made.folder("train"), made.run, puts_back=True)

    assert (made.folder("train") / NAME).read_bytes() == damaged


def test_an_artifact_that_was_replaced_meanwhile_is_left_alone(made: HealingSet, damaged: bytes) -> None:
    copy = Path(shutil.copytree(made.folder("train"), made.root / "copy"))

    with pytest.raises(RetryableError, match="it was replaced meanwhile"):
        put_back(copy, made.folder("train"), made.manifest("valid"), made.root / "rebuilds" / "train")

    assert (made.folder("train") / NAME).read_bytes() == damaged
