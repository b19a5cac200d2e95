"""Copies of all reachable commits of a dataset repo, made by plain HTTP requests."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


def get(url: str, token: str) -> bytes | None:
    """Return the body of an answer; None after a refusal."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as error:
        error.close()
        return None


def copy_revisions(endpoint: str, name: str, token: str, folder: Path, more: tuple[str, ...] = ()) -> dict[str, Any]:
    """Write the files of each commit to `folder/<commit>`; return the refs.

    `more` has further commits, which need not exist.
    """
    api = f"{endpoint}/api/datasets/{name}"
    listed = json.loads(get(f"{api}/refs?include_prs=1", token) or b"{}")
    refs = {entry["ref"]: entry["targetCommit"] for kind in listed.values() for entry in kind}
    commits = [*more]
    for commit in refs.values():
        commits += [entry["id"] for entry in json.loads(get(f"{api}/commits/{commit}", token) or b"[]")]
    for commit in dict.fromkeys(commits):
        for entry in json.loads(get(f"{api}/tree/{commit}?recursive=true", token) or b"[]"):
            content = get(f"{endpoint}/datasets/{name}/resolve/{commit}/{entry['path']}", token)
            if entry["type"] == "file" and content is not None:
                path = folder / commit / entry["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
    return refs
