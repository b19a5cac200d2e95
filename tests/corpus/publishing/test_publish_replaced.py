"""Content of a repo that a publication replaces only on request."""

from pathlib import Path

import pytest
from hub_pools import Place, build_rows, check_whole, pools
from pool_publications import send, someone_commits

from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError


def test_another_publication_is_replaced_only_on_request(
    place: Place, first: Artifact, tmp_path: Path, unloaded: None
) -> None:
    send(first, place)
    other = pools(tmp_path / "other", {"low": build_rows(place.revision)}, name="mine/letters")

    with pytest.raises(
        UsageError, match=r"the repo contains nemotron/candidate_pools mine/chats, which .* mine/letters would"
    ):
        send(other, place)
    assert check_whole(place.folder) == first.manifest.digest

    send(other, place, replaces=True)
    assert check_whole(place.folder) == other.manifest.digest


@pytest.mark.parametrize("kept", [None, -2], ids=["signed", "without its last line"])
def test_an_edited_card_is_replaced_only_on_request(
    kept: int | None, place: Place, first: Artifact, second: Artifact, unloaded: None
) -> None:
    send(first, place)
    card = (place.folder / "README.md").read_bytes().replace(b"## Configs", b"Read this first.\n\n## Configs")
    edited = b"\n".join(card.split(b"\n")[:kept])
    someone_commits(place, "README.md", edited)

    with pytest.raises(UsageError, match=r"README\.md was edited after its publication"):
        send(second, place)
    assert (place.folder / "README.md").read_bytes() == edited

    send(second, place, replaces=True)
    assert check_whole(place.folder) == second.manifest.digest


@pytest.mark.parametrize(
    ("name", "what"),
    [("README.md", r"a card without a readable manifest\.json"), ("croissant.json", r"a different croissant\.json")],
)
def test_a_foreign_file_is_replaced_only_on_request(
    name: str, what: str, place: Place, first: Artifact, unloaded: None
) -> None:
    place.repo().create(private=True)
    someone_commits(place, name, b"Mine.")

    with pytest.raises(UsageError, match=rf"the repo contains {what}, which .* mine/chats would"):
        send(first, place)
    assert (place.folder / name).read_bytes() == b"Mine."

    send(first, place, replaces=True)
    assert check_whole(place.folder) == first.manifest.digest
