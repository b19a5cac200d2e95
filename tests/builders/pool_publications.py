"""Publications of pools on a loopback hub, with commits of others."""

from typing import Any

from hub_pools import NAME, Place
from huggingface_hub import CommitOperationAdd, HfApi

from pipeline_assets.corpus.publishing.publication import Publication, prepare_publication
from pipeline_assets.corpus.publishing.publish import publish
from pipeline_assets.spine.artifact import Artifact


def prepare(artifact: Artifact, place: Place, **options: Any) -> Publication:
    return prepare_publication(artifact, place.repo(), **options)


def send(artifact: Artifact, place: Place, **options: Any) -> Any:
    return publish(prepare(artifact, place), place.repo(), **options)


def someone_commits(place: Place, path: str, content: bytes) -> str:
    api = HfApi(endpoint=place.hub.endpoint, token="hf_any")
    add = CommitOperationAdd(path, content)
    return str(api.create_commit(NAME, [add], commit_message="By hand", repo_type="dataset").oid)
