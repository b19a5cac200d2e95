"""Licences, datasets and domains of text rows, for a dataset description."""

import contextlib
import functools
import math
import sqlite3
from collections.abc import Iterable, Iterator
from importlib.metadata import version

import pyarrow as pa
import pyarrow.compute as pc
from publicsuffixlist import PublicSuffixList

from pipeline_assets.build.rows.row_stores import RowStores
from pipeline_assets.build.rows.table_shard import TableShard
from pipeline_assets.build.target import Kinds
from pipeline_assets.corpus.licences import tag_or_unknown
from pipeline_assets.corpus.publishing.description import Fact, dataset_fact, licence_fact, text_artifacts
from pipeline_assets.corpus.urls import split_url
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.lineage import Chain, Lineage

_load_suffixes = functools.cache(PublicSuffixList)  # reads its list of 300 kB
# Totals of rows and bytes of text by value of a property, on disk, since a corpus may have millions of domains.
_CREATE_TABLE = "CREATE TABLE totals (property, value, rows, bytes, PRIMARY KEY (property, value)) WITHOUT ROWID"
_ADD_ROW = """INSERT INTO totals VALUES (?, ?, 1, ?)
ON CONFLICT DO UPDATE SET rows = rows + 1, bytes = bytes + excluded.bytes"""
_SELECT_LARGEST = "SELECT value, rows, bytes FROM totals WHERE property = ? ORDER BY bytes DESC, value LIMIT ?"


def row_facts(chain: Chain, kinds: Kinds, domain_share: float) -> dict[str, Iterable[Fact]]:
    """Return `licences`, `sources` and `domains` of an artifact's text rows.

    Facts are sorted by bytes of text, largest first. If the artifact has no text rows, the rows of the nearest
    upstream artifacts are counted. `sources` are the datasets that the rows name; rows of published pools name the
    pools' datasets. The first fact of `domains` states the number of domains; the other facts are the largest domains,
    as many as the fraction `domain_share` (from 0 to 1) of all domains.
    """
    stores, shards = RowStores(kinds, chain.lineage or Lineage(chain.artifacts[0].folder)), list[TableShard]()
    totals, nearest = sqlite3.connect(""), list[Artifact]()
    for artifact in text_artifacts(chain):
        with contextlib.suppress(UsageError):  # its rows are tokens or pairs
            store = stores.for_artifact(artifact)
            if store is not None and (not nearest or artifact.manifest.kind == nearest[0].manifest.kind):
                shards += store.table_shards()
                nearest.append(artifact)
    source = chain.artifacts[0].manifest.identity.recipe.get("source")
    totals.execute(_CREATE_TABLE)
    for rows in (rows for shard in shards for rows in shard.tables()):
        chosen = rows if source is None else rows.filter(pc.equal(rows["source"], source))
        totals.executemany(_ADD_ROW, _row_values(chosen))
    origin = "; ".join(f"{artifact.manifest.kind} {artifact.manifest.name}: rows" for artifact in nearest)
    licences = totals.execute(_SELECT_LARGEST, ("licence", -1))
    datasets = (value.split("\n") for value, _, _ in totals.execute(_SELECT_LARGEST, ("dataset", -1)))
    has_urls = any("meta" in shard.schema.names for shard in shards)
    return {
        "licences": [licence_fact(tag, f"{rows:,} rows", origin) for tag, rows, _ in licences],
        "sources": [
            dataset_fact(name, commit or None, f"{origin}, dataset, source_revision") for name, commit in datasets
        ],
        "domains": _domain_facts(totals, f"{origin}, meta.url", domain_share) if has_urls else [],
    }


def _domain_facts(totals: sqlite3.Connection, origin: str, domain_share: float) -> Iterator[Fact]:
    [(count,)] = totals.execute("SELECT count(*) FROM totals WHERE property = 'domain'")
    limit = math.ceil(count * domain_share)
    rule = f"registrable domains by publicsuffixlist {version('publicsuffixlist')}, the largest first"
    yield Fact(f"{limit:,} of {count:,} domains", origin, rule)
    for domain, rows, size in totals.execute(_SELECT_LARGEST, ("domain", limit)):
        yield Fact(domain, origin, f"{size:,} bytes of text in {rows:,} documents")


def _row_values(rows: pa.Table) -> Iterator[tuple[str, str, int]]:
    """Yield (property, value, bytes of text) for licences, datasets and domains."""
    sizes = pc.binary_length(rows["text"]).to_pylist()
    if "source_revision" in rows.schema.names:  # rows are conversations
        named = zip(rows["dataset"].to_pylist(), rows["source_revision"].to_pylist(), sizes, strict=True)
        yield from (("dataset", f"{name}\n{commit or ''}", size) for name, commit, size in named if name)
    for licence in {"license_tag", "meta_license"} & {*rows.schema.names}:  # columns of Documents and of conversations
        tags = map(tag_or_unknown, rows[licence].to_pylist())
        yield from (("licence", tag, size) for tag, size in zip(tags, sizes, strict=True))
    if "meta" in rows.schema.names:  # rows are Documents
        domains = map(url_domain, pc.struct_field(rows["meta"], "url").to_pylist())
        yield from (("domain", domain, size) for domain, size in zip(domains, sizes, strict=True) if domain)


def url_domain(url: str) -> str | None:
    """Return a URL's registrable domain, or else its host; None if it has no host."""
    host = split_url(url)[0].strip("[]")
    is_address = host.replace(".", "").isdigit()
    return (None if is_address else _load_suffixes().privatesuffix(host)) or host or None
