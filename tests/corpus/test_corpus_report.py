"""The report on a stage A corpus: figures, attribution, estimates and its page."""

import json
import random
import re
import string
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from refusals import refusal
from stage_a_build import INLINE, NO_COMMIT, build, ledger, local_source, parse_recipe
from stage_a_sources import recipe_content, with_decontamination, with_dedup, with_pack, write_quiz

from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.commands.lines import artifact_lines
from pipeline_assets.corpus.corpus_report import build_report, ledger_entry, preview_report
from pipeline_assets.corpus.evidence import Example
from pipeline_assets.corpus.licences import licence_table
from pipeline_assets.corpus.pages import render_report
from pipeline_assets.corpus.profile import DocumentGroup, Profile, ProfileCounts
from pipeline_assets.corpus.token_sample import LENGTH_BINS, WEIGHT_ONE, SampleSums
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import StageARecipe
from resources.artifact_metadata import artifact_metadata

ENCODER = load_encoder(VOCABULARY_SHA256)
Rows = list[dict[str, Any]]
Build = Callable[..., dict[str, Artifact]]
# Two sources: one of three licences with a bad row and two short ones, one of a page of the web.
LETTERS: Rows = [
    {"text": "Dear friend, the river is high today.", "key": "l-0", "license": "CC BY 4.0"},
    {"text": "Short.", "key": "l-1"},
    {"text": None, "key": "l-2"},
    {"text": "<script>alert('x')</script> & so on", "key": "l-3", "license": "my own"},
    {"text": "Too.", "key": "l-4"},
    {"text": "Nothing is kept of this one here.", "key": "l-5", "license": "proprietary"},
]
PAGES: Rows = [{"text": "日本語 is spoken in this page <b>here</b>.", "key": "p-0"}]


@pytest.fixture
def build_artifacts(tmp_path: Path) -> Build:
    """Return a function that builds a recipe over rows by source, filtered by length."""

    def run(sources: Mapping[str, Rows]) -> dict[str, Artifact]:
        changes = {"filters": {"length": {"min_words": 3}}, "max_reject_fraction": "0.5"}
        sections = [local_source(tmp_path, name, rows, **changes) for name, rows in sources.items()]
        return build(parse_recipe(*sections, refuse_licences=["proprietary"]), tmp_path / "data")

    return run


@pytest.fixture
def report(build_artifacts: Build) -> Artifact:
    return build_artifacts({"letters": LETTERS, "pages": PAGES})["stage_a/report"]


def numbers(report: Artifact) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(report.path("report.json").read_text(encoding="utf-8"))
    return values


def test_totals_are_those_of_kept_documents(report: Artifact) -> None:
    assert numbers(report)["totals"] == {"documents": 3, "characters": 111, "utf8_bytes": 117, "tokens": 33}
    assert report.manifest.identity.counts == {"documents": 3, "tokens": 33, "text_bytes": 117}
    assert [file.path for file in report.manifest.identity.files] == ["report.json", "ATTRIBUTION"]


def test_documents_are_counted_by_source_domain_and_licence(report: Artifact) -> None:
    values = numbers(report)

    by_group = {
        name: {key: row["documents"] for key, row in values[name].items()}
        for name in ("sources", "domains", "licences")
    }
    assert by_group == {
        "sources": {"letters": 2, "pages": 1},
        "domains": {"books": 3},
        "licences": {"cc0-1.0": 1, "unknown": 1, "cc-by-4.0": 1},
    }
    assert sum(values["sources"]["letters"]["lengths"]) == 2
    assert values["licences"]["cc-by-4.0"]["licence"]["attribution"] is True


def test_the_ledgers_of_a_source_add_up_over_its_stages(build_artifacts: Build) -> None:
    artifacts = build_artifacts({"letters": LETTERS, "pages": PAGES})

    ledgers = {(entry["source"], entry["step"]): entry for entry in numbers(artifacts["stage_a/report"])["ledgers"]}

    for (source, step), entry in ledgers.items():
        stage_ledger = ledger(artifacts[f"stage_a/{step}/{source}"])
        assert (entry["rows_in"], entry["documents_out"]) == (stage_ledger["in"], stage_ledger["out"])
        lost = sum(entry["dropped"].values()) + sum(entry["rejected"].values())
        assert entry["rows_in"] == entry["documents_out"] + entry["merged"] + lost
    assert ledgers["letters", "normalized"]["documents_out"] == ledgers["letters", "filtered"]["rows_in"] == 5
    assert ledgers["letters", "filtered"]["dropped"] == {"few_words": 2, "refused_licence": 1}


def test_examples_of_rejects_and_drops_have_their_reasons(report: Artifact) -> None:
    normalized, filtered, *_ = numbers(report)["ledgers"]

    rejected = {"doc_id": "", "measured": "null", "text": "", "place": "rows.jsonl byte 121"}
    assert normalized["examples"] == {"no_text": [rejected]}
    by_id = {example["doc_id"]: example for examples in filtered["examples"].values() for example in examples}
    assert {reason: len(examples) for reason, examples in filtered["examples"].items()} == {
        "few_words": 2,
        "refused_licence": 1,
    }
    few = {"measured": "few_words 1 < 3"}
    assert by_id == {
        "l-1": {"doc_id": "l-1", **few, "text": "Short.", "place": "rows.jsonl byte 88"},
        "l-4": {"doc_id": "l-4", **few, "text": "Too.", "place": "rows.jsonl byte 233"},
        "l-5": {
            "doc_id": "l-5",
            "measured": "refused_licence proprietary",
            "text": "Nothing is kept of this one here.",
            "place": "rows.jsonl byte 264",
        },
    }


def test_a_reason_has_three_examples_with_the_beginning_of_their_texts(build_artifacts: Build) -> None:
    rows: Rows = [{"text": f"{number}" + "x" * 1000, "key": str(number)} for number in range(9)]
    kept: Rows = [{"text": "one two three", "key": "kept"}]

    artifacts = build_artifacts({"letters": rows + kept})

    _, filtered = numbers(artifacts["stage_a/report"])["ledgers"]
    ids = [example["doc_id"] for example in filtered["examples"]["few_words"]]
    assert len({*ids}) == 3 and {*ids} < {*"012345678"} and ids != ["0", "1", "2"], "drawn, not the first"
    assert [len(example["text"]) for example in filtered["examples"]["few_words"]] == [400, 400, 400]


def test_decontamination_is_reported_with_the_remainder_of_each_source(tmp_path: Path) -> None:
    content: dict[str, Any] = {}
    with_decontamination(content, str(tmp_path / "quiz"))
    write_quiz(tmp_path / "quiz", ["The river is <b>high</b> today", "Of this nobody speaks here", "Short"])
    leak = {
        "text": "Dear friend, the river is b high b today. It will be so tomorrow, and for a week or two.",
        "key": "leak",
    }
    sources = [local_source(tmp_path, "letters", [leak]), local_source(tmp_path, "pages", PAGES)]

    report = build(parse_recipe(*sources, **content), tmp_path)["stage_a/report"]

    values, page = numbers(report)["decontamination"], report.path("report.html").read_text(encoding="utf-8")
    documents = {"contaminated_documents": 1, "cut_documents": 1, "dropped_documents": 0}
    assert values["by_set"] == {"quiz": {"items": 3, "repeated": 0, "too_short": 1, "without_ngrams": 0} | documents}
    assert {name: (row["in"], row["cut"], row["out"]) for name, row in values["by_source"].items()} == {
        "letters": (1, 1, 1),
        "pages": (1, 0, 1),
    }
    assert [(line["doc_id"], line["item"], line["source"]) for line in values["samples"]] == [
        ("leak", "q-0", "letters")
    ]
    assert values["kept"]["totals"]["documents"] == numbers(report)["totals"]["documents"] == 2
    lost = len("the river is b high b today")
    assert values["kept"]["sources"]["letters"]["utf8_bytes"] == len(leak["text"]) - lost
    assert values["kept"]["totals"]["estimated_tokens"] < numbers(report)["totals"]["tokens"], "nothing is packed"
    assert "Token counts after decontamination are scaled from those of the sources" in page
    assert "<h2>Contamination</h2>" in page
    assert "<pre>the river is b high b today</pre>" in page


@pytest.mark.slow
def test_requested_and_packed_mixtures_are_reported(tmp_path: Path) -> None:
    letters = [
        {"text": f"Dear friend, letter {n} is of the river.", "key": f"l-{n}", "license": "CC BY 4.0"}
        for n in range(40)
    ]
    pages: Rows = [{"text": f"日本語 is spoken in page {n}.", "key": f"p-{n}"} for n in range(40)]
    sources = [local_source(tmp_path, "letters", letters), local_source(tmp_path, "pages", pages)]
    content = recipe_content(NO_COMMIT) | {"sources": sources}
    with_pack(content)
    content["pack"] |= {"weights": {"letters": "0.25", "pages": "0.75"}, "num_seqs": 5}

    artifacts = build(StageARecipe.model_validate(content), tmp_path)

    figures, page = numbers(artifacts["stage_a/report"])["packed"], artifacts["stage_a/report"].path("report.html")
    lines = pq.read_table(artifacts["stage_a/packed"].path("documents.parquet")).to_pylist()
    packed = {
        name: sum(row["packed_tokens"] for row in lines if row["source"] == name) for name in ("letters", "pages")
    }
    assert (figures["rows"], figures["seq_len"], figures["tokens"] + figures["padding_tokens"]) == (5, 64, 5 * 64)
    assert figures["packing_efficiency"] == f"{figures['tokens'] / (5 * 64):.6f}"
    assert {name: row["asked_share"] for name, row in figures["by_source"].items()} == {
        "letters": "0.25",
        "pages": "0.75",
    }
    for name, row in figures["by_source"].items():
        assert row["share"] == f"{packed[name] / figures['tokens']:.6f}"
        assert row["epochs"] == f"{packed[name] / row['text_tokens']:.6f}"
    assert packed["pages"] > packed["letters"]
    assert [*figures["license_tokens"].items()] == [("cc0-1.0", packed["pages"]), ("cc-by-4.0", packed["letters"])]
    reached = f"{100 * packed['letters'] / figures['tokens']:.2f} %"
    shown = ["<td>letters</td>", *(f"<td class='number'>{share}</td>" for share in ("25.00 %", reached))]
    assert "".join(shown) in page.read_text(encoding="utf-8")


def test_the_first_table_has_the_documents_after_each_stage(tmp_path: Path) -> None:
    letters: Rows = [{"text": f"Dear friend, letter {n // 2} is of the river.", "key": f"l-{n}"} for n in range(40)]
    sources = [local_source(tmp_path, "letters", letters)]
    content = recipe_content(NO_COMMIT) | {"sources": sources}
    with_dedup(content)
    write_quiz(tmp_path / "quiz", ["Of this nobody speaks here"])
    with_decontamination(content, str(tmp_path / "quiz"))
    with_pack(content)

    artifacts = build(StageARecipe.model_validate(content), tmp_path)
    page = artifacts["stage_a/report"].path("report.html").read_text(encoding="utf-8")

    table = page.partition("<th>step</th>")[2]
    steps = re.findall(r"<tr><td>([^<]*)</td><td class='number'>([\d,]+)</td>", table)[:4]
    assert [(step, int(documents)) for step, documents in steps] == [
        ("in the sources", 40),
        ("without duplicates", 20),
        ("without items of evaluation sets", 20),
        (f"packed, {content['pack']['num_seqs']} rows", 20),
    ]


def test_unknown_licences_are_marked_and_attribution_is_written(report: Artifact) -> None:
    page = report.path("report.html").read_text(encoding="utf-8")

    assert "<span class='unknown'>unknown</span>" in page
    assert report.path("ATTRIBUTION").read_text(encoding="utf-8").splitlines()[2::4] == [
        "letters: Creative Commons Attribution 4.0 International (https://creativecommons.org/licenses/by/4.0/)",
        "letters: unknown licence",
    ]


def test_a_doc_id_in_two_sources_is_an_error_that_names_both(build_artifacts: Build, tmp_path: Path) -> None:
    other: Rows = [{"text": "A text of its own.", "key": "o-0"}, {"text": "Another text with that id.", "key": "l-0"}]

    assert refusal(lambda: build_artifacts({"letters": LETTERS, "others": other})) == (
        f"{tmp_path / 'data/stage_a/mixed/filtered/others'}: doc_id 'l-0' is in letters and in others "
        "(shards/00000.jsonl.zst row 1); remove one of these sources, "
        "or set `columns.id` to another column, or to null for ids that are derived from the texts"
    )
    assert not (tmp_path / "data/stage_a/mixed/report/mixed").exists()


def test_many_doc_ids_in_two_sources_are_counted(build_artifacts: Build) -> None:
    rows: Rows = [{"text": f"The text number {number}.", "key": str(number)} for number in range(5)]

    with pytest.raises(InputError, match=r"'0' is in a and in b .*; 4 more ids are in two sources;"):
        build_artifacts({"a": rows, "b": rows})


def test_an_id_dropped_from_one_source_may_be_in_another(build_artifacts: Build) -> None:
    artifacts = build_artifacts({"a": [{"text": "Short.", "key": "1"}, {"text": "One two three.", "key": "2"}],
                       "b": [{"text": "Long enough, this one.", "key": "1"}]})  # fmt: skip

    assert numbers(artifacts["stage_a/report"])["totals"]["documents"] == 2


_draw = random.Random(7)
_WORDS = [f"{first}{last}" for first in ("river", "Fluss", "川", "नदी") for last in string.ascii_lowercase]
LARGE: Rows = [
    {"text": " ".join(_draw.choices(_WORDS, k=100 + number % 900)), "key": f"n-{number}"} for number in range(1500)
]


@pytest.fixture(scope="module")
def large_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a packed corpus of a 7 MB source and a small one, each with a copy."""
    root = tmp_path_factory.mktemp("large")
    sources = {"numbers": [*LARGE, LARGE[0] | {"key": "copy"}], "pages": [*PAGES, PAGES[0] | {"key": "copy of p"}]}
    content = recipe_content(NO_COMMIT) | {"sources": [local_source(root, *source) for source in sources.items()]}
    with_dedup(content)
    write_quiz(root / "quiz", ["Of this nobody speaks here"])
    with_decontamination(content, str(root / "quiz"))
    with_pack(content)
    content["pack"] |= {"num_seqs": None, "weights": None, "seq_len": 2048}
    content["shard_text_bytes"] = 1 << 20
    recipe = StageARecipe.model_validate(content)
    list(run_targets(recipe.targets(), Run(root, INLINE)))
    (root / "recipe.json").write_text(json.dumps(content))
    return root


def report_again(root: Path, engine: RunSettings = INLINE, **changes: object) -> Artifact:
    """Report on the corpus of `large_root` again, in another folder."""
    recipe = StageARecipe.model_validate(json.loads((root / "recipe.json").read_text()) | changes)
    target = replace(recipe.target("stage_a/report"), folder=Path("again", str(len(list(root.glob("again/*"))))))
    return target.kind.build(target, Run(root, engine))


def test_estimated_tokens_of_a_large_source_are_never_called_tokens(large_root: Path) -> None:
    report = report_again(large_root)

    figures, exact = numbers(report), sum(ENCODER.encode([row["text"] for row in LARGE] + [LARGE[0]["text"]]).lengths)
    large, small = figures["sources"]["numbers"], figures["sources"]["pages"]
    [(name, sample)] = figures["estimates"]["sources"].items()
    assert (name, sample["documents"]) == ("numbers", 1501)
    assert 0.5 < float(sample["sampled_share"]) < 0.9
    assert large["estimated_tokens"] == pytest.approx(exact, rel=2 * float(sample["error_fraction"]))
    assert sum(large["estimated_lengths"]) == 1501
    assert (small["tokens"], sum(small["lengths"])) == (2 * len(ENCODER.oracle.encode(PAGES[0]["text"])), 2)
    assert figures["totals"]["estimated_tokens"] == large["estimated_tokens"] + small["tokens"]
    for estimate in (large, figures["totals"], figures["domains"]["books"], report.manifest.identity.counts):
        assert "tokens" not in estimate and "lengths" not in estimate
    assert report.manifest.identity.counts["estimated_tokens"] == figures["totals"]["estimated_tokens"]


def test_estimates_have_a_sign_and_an_explanation(large_root: Path) -> None:
    report = report_again(large_root)

    page = report.path("report.html").read_text(encoding="utf-8")
    estimate = numbers(report)["totals"]["estimated_tokens"]
    rounded = f"≈ {round(estimate, 3 - len(str(estimate))):,}"
    assert f"<td>in the sources</td><td class='number'>1,503</td><td class='number'>{rounded}</td>" in page
    assert "A number with ≈ is an estimate. The tokens of the sources below are estimated from sampled" in words(page)
    assert "numbers: 1,501 documents (estimated)" in page and "pages: 2 documents<" in page
    assert [preview["tokens"][0] for preview in preview_report(report)] == ["≈", "2"]
    assert f"estimated tokens {estimate:,}" in "\n".join(artifact_lines(report))
    metadata = artifact_metadata(report, SYSTEMS.kinds, was_current=False)
    assert metadata["estimated_tokens"].value == estimate
    assert "tokens" not in metadata


def test_tokens_of_the_packed_corpus_are_exact_without_reading_documents(large_root: Path) -> None:
    report, texts = report_again(large_root), [row["text"] for row in [*LARGE, *PAGES]]

    for step in ("deduplicated", "decontaminated"):
        for shard in (large_root / "stage_a/mixed" / step / "mixed/shards").iterdir():
            size = shard.stat().st_size
            shard.unlink()  # it may be a link to a shard of the source
            shard.write_bytes(bytes(size))
    rebuilt = report_again(large_root)

    assert rebuilt.manifest.digest == report.manifest.digest
    steps = numbers(report)["steps"]
    assert steps["without items of evaluation sets"] == {
        "documents": 1501,
        "utf8_bytes": sum(len(text.encode()) for text in texts),
        "tokens": int(sum(ENCODER.encode(texts).lengths)),
    }
    assert steps["without duplicates"] == {"documents": 1501}


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_no_estimate(large_root: Path, workers: int) -> None:
    assert report_again(large_root, RunSettings(workers)).manifest.digest == report_again(large_root).manifest.digest


def test_a_report_without_a_tokenizer_has_only_the_tokens_of_the_packed_set(large_root: Path) -> None:
    report = report_again(large_root, tokenizer=None)

    figures, page = numbers(report), report.path("report.html").read_text(encoding="utf-8")
    measured = ("steps", "totals", "sources", "domains", "licences", "groups", "decontamination")
    assert not re.search("tokens|lengths", json.dumps([figures[name] for name in measured[1:]]))
    assert [name for name, size in figures["steps"].items() if "tokens" in size] == ["packed, 3,503 rows"]
    assert report.manifest.identity.tokenizer is None
    assert report.manifest.identity.counts.keys() == {"documents", "text_bytes"}
    assert "<h2>Lengths</h2>" not in page and "≈" not in page
    assert preview_report(report)[1] == {"source": "pages", "documents": "2", "utf8_bytes": "90"}


def test_sources_that_are_packed_directly_have_an_exact_total(tmp_path: Path) -> None:
    content = recipe_content(NO_COMMIT) | {"sources": [local_source(tmp_path, "numbers", LARGE)]}
    with_pack(content)
    content["pack"] |= {"num_seqs": None, "weights": None, "seq_len": 2048}
    content["shard_text_bytes"] = 1 << 20

    report = build(StageARecipe.model_validate(content), tmp_path)["stage_a/report"]

    exact = int(sum(ENCODER.encode([row["text"] for row in LARGE]).lengths))
    assert report.manifest.identity.counts["tokens"] == exact
    assert numbers(report)["steps"]["in the sources"]["tokens"] == exact
    assert "estimated_tokens" in numbers(report)["sources"]["numbers"]


def profile_counts(documents: int, tokens: int, **lengths: int) -> ProfileCounts:
    bins = [0] * LENGTH_BINS
    for name, count in lengths.items():
        bins[int(name.removeprefix("bin"))] = count
    return ProfileCounts(
        documents, tokens * 4, tokens * 5, tokens, tuple(bins), SampleSums(documents, weights=documents * WEIGHT_ONE)
    )


PROFILE = {
    DocumentGroup("fineweb", "web", "odc-by"): profile_counts(1200, 900_000, bin9=1000, bin12=200),
    DocumentGroup("scraps", "web", "unknown"): profile_counts(3, 100_000, bin0=1, bin15=2),
}
LEDGER = ledger_entry(
    "fineweb",
    "filtered",
    Ledger(1500, 1200, {"ascii_ratio": 290}, {"no_text": 10}),
    {"ascii_ratio": [Example("id<1>", "0.43 < 0.8", "<script>alert('x')</script> & more", "a.jsonl row 7")]},
)


def render_page(name: str, profile: Profile, ledgers: list[dict[str, Any]], attribution: str, **parts: object) -> str:
    licences = defaultdict(lambda: licence_table()["unknown"])
    identity = Identity(StageVersion("report", 1), {}, [], None, {}, {}, [])
    built = {"started_at_utc": "2026-11-25T12:00:00+00:00", "command": {"typed": f"corpusmill run {name}"}}
    report = json.loads(msgspec.json.encode(build_report(profile, ledgers, licences, attribution)))
    return render_report(report | parts, Manifest("stage_a/report", name, identity, [], built))


@pytest.fixture(scope="module")
def page() -> str:
    return render_page("My corpus <v1>", PROFILE, [LEDGER], "fineweb: Open Data Commons & co")


class Tags(HTMLParser):
    """Parser of every tag and its attributes, and of the tags that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.start_tags: list[tuple[str, dict[str, str | None]]] = []
        self.open_tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.start_tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open_tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_the_page_has_every_number_by_source_domain_and_licence(page: str) -> None:
    text = words(page)

    assert "step documents tokens in the sources 1,203 1,000,000 " in text
    assert "fineweb 1,200 4,500,000 900,000 90.0 %" in text
    assert "web 1,203 5,000,000 1,000,000 100.0 %" in text
    assert "unknown 3 500,000 100,000 10.0 %" in text
    assert "in out merged dropped rejected fineweb filtered 1,500 1,200 0 ascii_ratio 290 no_text 10" in text


def test_the_page_has_its_provenance(page: str) -> None:
    facts = dict(re.findall(r"<dt>(\w+)</dt><dd>(.*?)</dd>", page))

    assert re.fullmatch("<code>sha256:[0-9a-f]{64}</code>", facts.pop("digest"))
    assert facts == {
        "recipe": "My corpus &lt;v1&gt;",
        "built": "2026-11-25T12:00:00+00:00",
        "command": "<code>corpusmill run My corpus &lt;v1&gt;</code>",
    }


def test_the_title_names_the_recipe(page: str) -> None:
    assert "<title>My corpus &lt;v1&gt;: report on 2 sources</title>" in page
    assert "<h1>My corpus &lt;v1&gt;: report on 2 sources</h1>" in page


def test_columns_without_an_example_are_omitted() -> None:
    reject = {"no_text": [Example("", "null", "", "a.jsonl row 7")]}
    ledger = ledger_entry("fineweb", "normalized", Ledger(10, 9, {}, {"no_text": 1}), reject)

    assert " no_text source row measured a.jsonl row 7 null " in words(render_page("web", PROFILE, [ledger], ""))


def test_duplicate_groups_and_their_search_are_described() -> None:
    first = {"doc_id": "a", "source": "fineweb", "beginning": "One."}
    groups = [{"gone": count, "kept": first, "samples": [first | {"doc_id": "b"}]} for count in (1, 1234)]
    duplicates = {"by_source": {}, "comparisons": {"edges": 3, "buckets": 1500}, "groups": groups, "near": []}

    text = words(render_page("web", PROFILE, [], "", duplicates=duplicates))

    assert (
        " How duplicates were searched: counted number buckets: groups of documents that may be near duplicates 1,500 "
        "pairs of near duplicates 3 " in text
    )
    assert " 1 duplicate of the first document was dropped: document source text a fineweb One. " in text
    assert " 1,234 duplicates of the first document were dropped: " in text


def test_the_page_explains_that_packed_tokens_include_ends_of_documents() -> None:
    sizes = {"documents": 9, "tokens": 90, "by_source": {}, "lost_text": {}, "rejected": {}, "license_tokens": {}}
    ends = "Tokens of the packed set include the token that ends each document; those of the other steps do not."

    assert ends in render_page("web", PROFILE, [], "", packed=sizes)
    assert ends not in render_page("web", PROFILE, [], "")


def test_control_characters_are_visible() -> None:
    assert "<dd>red␛[31m</dd>" in render_page("red\x1b[31m", {}, [], "")


def test_each_length_between_the_shortest_and_the_longest_has_a_bar(page: str) -> None:
    heights = [float(height) for height in re.findall(r"<rect class='bar'[^>]*height='([\d.]+)'", page)]

    assert heights[:4] == [120.0, 0.0, 0.0, 24.0]
    assert len(heights) == 4 + 16
    assert "<title>200 documents of 4,096 to 8,191 tokens</title>" in page


def test_hostile_content_of_the_corpus_is_escaped(page: str) -> None:
    tags = Tags()
    tags.feed(page)

    assert tags.open_tags == []
    assert "script" not in [tag for tag, _ in tags.start_tags]
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; more" in page
    assert "id&lt;1&gt;" in page
    assert "My corpus &lt;v1&gt;" in page


def test_no_text_changes_the_tags_of_the_page() -> None:
    def read_tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
        ledger = ledger_entry(text, text, Ledger(2, 1, {text: 1}, {text: 1}), {text: [Example(text, text, text, text)]})
        tags = Tags()
        tags.feed(render_page(text, {DocumentGroup(text, text, text): profile_counts(1, 9, bin3=1)}, [ledger], text))
        return tags.start_tags

    for text in ("</pre><img src=x>", "'><a href='http://evil.example'>", "<!--", "]]>", "&lt;b&gt;", "\0<\0b>"):
        assert read_tags(text) == read_tags("text")


def test_the_page_loads_nothing(page: str) -> None:
    tags = Tags()
    tags.feed(page)

    links = [attributes["href"] for _, attributes in tags.start_tags if "href" in attributes]
    assert links == [f"#s{number}" for number in range(1, page.count("<h2>") + 1)]
    assert not [attributes for _, attributes in tags.start_tags if "src" in attributes]
    assert "url(" not in page
    assert "@import" not in page


def test_long_ids_and_words_wrap_within_the_table_of_examples(page: str) -> None:
    style = page.partition("<style>")[2].partition("</style>")[0]

    assert "<table class='examples'>" in page
    assert ".examples { table-layout: fixed; width: 100% }" in style
    assert "td, pre { overflow-wrap: anywhere }" in style


def test_an_empty_corpus_has_a_page() -> None:
    assert "documents tokens in the sources 0 0 " in words(render_page("nothing", {}, [], ""))
