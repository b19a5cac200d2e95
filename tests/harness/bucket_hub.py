"""Loopback hub with a bucket of each dataset's files."""

from dataclasses import replace

from faulty_hub import FaultyHub

from pipeline_assets.demo.loopback_http import HubRequest, Origin, Response


class BucketHub(FaultyHub):
    """A hub with a bucket of each dataset's files, at the addresses of buckets."""

    def answer(self, origin: Origin, request: HubRequest) -> Response:
        match request.raw_path.strip("/").split("/"):
            case ["api", "buckets", owner, name, "tree", folder]:
                request = replace(request, raw_path=f"/api/datasets/{owner}/{name}/tree/main/{folder}")
            case ["buckets", owner, name, "resolve", *path]:
                request = replace(request, raw_path=f"/datasets/{owner}/{name}/resolve/main/{'/'.join(path)}")
        return super().answer(origin, request)
