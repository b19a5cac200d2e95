"""Valid descriptions of datasets, with the origin of each value."""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from command_results import Corpusmill, refused
from description_checks import check_standards, croissant_warnings, describe_artifact, spdx_elements
from stage_a_build import build, local_source, parse_recipe

from pipeline_assets.build.rows.row_facts import url_domain
from pipeline_assets.corpus.publishing.description import Description, Fact, chain_facts
from pipeline_assets.corpus.publishing.forms import form_lines, load_disclosures, read_answers, render_standard
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.lineage import Chain, Lineage
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion
from pipeline_assets.systems.healing import SnapshotRecipe

ANSWERS = {"url": "https://data.example/sites", "creator": "Example Lab", "date_published": "2026-01-02"}
TITLE = "stage_a/filtered mixed/sites"
URLS = {"https://www.one.example.co.uk/a": 100, "http://two.example.org:80/": 900, "one.example.co.uk": 1000, "": 50}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a data root with four generated documents of web sites."""
    root = tmp_path_factory.mktemp("sites")
    rows = [
        {"key": str(number), "text": "é" * (size // 2), "url": url, "license": "MIT" if number else None}
        for number, (url, size) in enumerate(URLS.items())
    ]
    build(parse_recipe(local_source(root, "sites", rows, generated_by="some-model 1")), root)
    return root


@pytest.fixture(scope="module")
def folder(root: Path) -> Path:
    return root / "stage_a" / "mixed" / "filtered" / "sites"


@pytest.fixture(scope="module")
def description(folder: Path, root: Path) -> Description:
    return describe_artifact(folder, root, **ANSWERS)


def form_items(form: str, description: Description) -> dict[str, list[list[str]]]:
    """Return the rows of a form (value, details, origin) by the number of their item."""
    items: dict[str, list[list[str]]] = {}
    for line in form_lines(form, description):
        if line.startswith("## "):
            rows = items.setdefault(line.removeprefix("## ").split()[0], [])
        elif line.startswith("| ") and not line.startswith(("| value", "| ---")):
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return items


def test_croissant_has_the_facts_and_their_origins(folder: Path, description: Description) -> None:
    shard, *_ = [file for file in open_artifact(folder).manifest.storage if file.path.startswith("shards/")]

    text = render_standard("croissant", description)

    content = json.loads(text)
    assert croissant_warnings(text) == {"citeAs", "version"}
    assert content["name"] == TITLE
    assert content["description"] == f"{TITLE}, built by corpusmill: 4 documents, 2,050 text bytes"
    assert content["license"] == [
        "https://opensource.org/license/mit",
        "https://creativecommons.org/publicdomain/zero/1.0/",
    ]
    assert (content["url"], content["datePublished"]) == ("https://data.example/sites", "2026-01-02")
    assert [source["name"] for source in content["prov:wasDerivedFrom"]] == ["folder sites"]
    assert [file for file in content["distribution"] if file["@id"] == shard.path] == [
        {
            "@type": "cr:FileObject",
            "@id": shard.path,
            "name": shard.path,
            "contentUrl": shard.path,
            "contentSize": f"{shard.bytes} B",
            "encodingFormat": "application/zstd",
            "sha256": shard.sha256,
        }
    ]
    assert {entry["name"]: entry["description"] for entry in content["dct:provenance"]} == {
        "name": f"{TITLE} (kind, name)",
        "description": f"{content['description']} (kind, name, identity.counts)",
        "identifier": f"{description.manifest.digest} (digest)",
        "url": "https://data.example/sites (answers: url)",
        "version": "not answered (answers: version)",
        "datePublished": "2026-01-02 (answers: date_published)",
        "license": f"CC0-1.0 ({TITLE}: rows)",  # the last of two
        "creator": "Example Lab (answers: creator)",
        "inLanguage": "not answered (answers: languages)",
        "prov:wasDerivedFrom": "folder sites (stage_a/raw mixed/sites: identity.inputs, identity.recipe)",
    }


def test_spdx_has_a_dataset_licences_and_an_annotation_per_property(description: Description) -> None:
    text = render_standard("spdx", description)

    assert spdx_elements(text) == {
        "Annotation": 12,
        "CreationInfo": 1,
        "Hash": 1,
        "Organization": 1,
        "Relationship": 2,
        "SpdxDocument": 1,
        "dataset_DatasetPackage": 1,
        "simplelicensing_LicenseExpression": 2,
    }
    [dataset] = [element for element in json.loads(text)["@graph"] if element["type"] == "dataset_DatasetPackage"]
    assert dataset["releaseTime"] == "2026-01-02T00:00:00Z"
    assert dataset["software_downloadLocation"] == "https://data.example/sites"
    assert "dataset_intendedUse" not in dataset
    assert '"dataset_intendedUse: not answered (answers: purpose)"' in text
    expressions = [value for key, value in json_pairs(json.loads(text)) if key == "simplelicensing_licenseExpression"]
    assert expressions == ["NOASSERTION", "MIT AND CC0-1.0"]


def json_pairs(value: object) -> Iterator[tuple[str, object]]:
    for item in value.items() if isinstance(value, dict) else []:
        yield item
        yield from json_pairs(item[1])
    for entry in value if isinstance(value, list) else []:
        yield from json_pairs(entry)


def test_spdx_needs_a_date_and_does_not_use_the_clock(description: Description) -> None:
    with pytest.raises(UsageError, match="SPDX requires a date, which the manifest lacks"):
        render_standard("spdx", Description(description.manifest, description.files, {}))


def test_in_toto_statement_has_all_files_and_inputs(folder: Path, description: Description) -> None:
    manifest = open_artifact(folder).manifest

    statement = json.loads(render_standard("in-toto", description))

    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    assert subjects.items() >= {file.path: file.sha256 for file in manifest.storage}.items()
    assert subjects.keys() - {file.path for file in manifest.storage} == {"manifest.json"}
    [entry] = manifest.identity.inputs
    assert statement["predicate"]["buildDefinition"]["resolvedDependencies"] == [
        {"name": entry["name"], "digest": {"corpusmillIdentity": entry["digest"].removeprefix("sha256:")}}
    ]


def test_eu_summary_names_sources_domains_and_the_model_of_synthetic_text(description: Description) -> None:
    items = form_items("eu-summary", description)

    assert [row[0] for row in items["1.3"]][:3] == ["text", "4 documents, 2,050 text bytes", "not answered"]
    assert items["2.1"][0][0] == "folder sites"
    count, largest = items["2.3"][2:4]  # after the questions on crawlers
    assert (count[0], count[1].split()[0:2]) == ("1 of 2 domains", ["registrable", "domains"])
    assert largest == ["example.co.uk", "1,100 bytes of text in 2 documents", f"{TITLE}: rows, meta.url"]
    assert items["2.5"] == [
        ["some-model 1", "", "stage_a/normalized mixed/sites: identity.recipe.generated_by"],
        ["not answered", load_disclosures()["questions"]["synthetic"], "answers: synthetic"],
    ]


def test_ab2013_has_all_twelve_items_without_guesses(description: Description) -> None:
    items = form_items("ab2013", description)

    assert list(items) == [f"({number})" for number in range(1, 13)]
    answered = {number: [row[0] for row in rows if row[0] != "not answered"] for number, rows in items.items()}
    assert answered["(1)"] == ["folder sites", "Example Lab"]
    assert answered["(3)"] == ["4 documents, 2,050 text bytes"]
    assert answered["(9)"] == [
        "4 of 4 rows kept by normalize version 3",
        "4 of 4 rows kept by filter version 3",
    ]
    assert [number for number, values in answered.items() if not values] == ["(2)", "(6)", "(7)", "(8)", "(11)"]


def test_forms_use_every_question_and_only_known_facts(description: Description) -> None:
    forms, questions = load_disclosures()["forms"].values(), load_disclosures()["questions"]
    items = [item for form in forms for item in form["items"]]
    later = {"generated", "periods", "dump_dates", "opt_outs", "masking", "size_range"}  # facts of other datasets

    used = {question for item in items for question in item.get("ask", ())}
    assert questions.keys() - used == {"url", "date_published", "version", "licence"}  # used only by standards
    assert used <= questions.keys()
    assert {name for item in items for name in item.get("facts", ())} <= description.facts.keys() | later | {
        "languages"
    }


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        ("https://www.example.co.uk/a?b", "example.co.uk"),
        ("HTTP://User@A.Example.COM:8080", "example.com"),
        ("sub.example.org/page", "example.org"),
        ("https://me.github.io", "me.github.io"),  # subdomains belong to different people
        ("https://192.0.2.1/a", "192.0.2.1"),
        ("https://localhost/a", "localhost"),
        ("https://[::1", None),
        ("", None),
    ],
)
def test_domain_of_a_url_is_the_registrable_one(url: str, domain: str | None) -> None:
    assert url_domain(url) == domain


def test_recipe_content_has_a_model_only_if_it_is_set() -> None:
    section = {
        "name": "set",
        "dataset": "a/b",
        "revision": "ab" * 20,
        "files": ["*"],
        "source": "set",
        "amount": {"files": 1},
    }

    assert "generated_by" not in SnapshotRecipe.model_validate(section).content()
    assert SnapshotRecipe.model_validate(section | {"generated_by": "m"}).content()["generated_by"] == "m"


def test_missing_input_is_named_and_its_licence_is_not_guessed(folder: Path, root: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(folder, tmp_path / "stage_a" / "mixed" / "filtered" / "sites")
    manifest = open_artifact(moved).manifest
    [entry] = manifest.identity.inputs

    description = describe_artifact(moved, tmp_path)

    missing = Fact("missing input stage_a/normalized/sites", f"{TITLE}: identity.inputs", entry["digest"])
    assert description.facts["sources"] == [missing]
    assert str(tmp_path) not in "\n".join(form_lines("eu-summary", description))


@pytest.mark.parametrize("form", ["croissant", "spdx", "in-toto", "eu-summary", "ab2013"])
def test_equal_artifacts_get_equal_bytes(corpusmill: Corpusmill, demo_root: Path, tmp_path: Path, form: str) -> None:
    copied = shutil.copytree(demo_root, tmp_path / "copy", ignore=shutil.ignore_patterns("hub*"))

    outputs = []
    for root in (demo_root, copied):
        result = corpusmill("describe", root / "megatron" / "healing_text_v1", "--as", form)
        assert result.returncode == 0, result.stderr
        outputs.append(result.stdout)

    assert outputs[0] == outputs[1]
    assert str(demo_root) not in outputs[0]


def test_dataset_with_members_is_valid_in_each_standard(demo_root: Path) -> None:
    check_standards(describe_artifact(demo_root / "megatron" / "healing_text_v1", demo_root))


def test_answers_are_read_from_the_printed_questionnaire(corpusmill: Corpusmill, folder: Path, tmp_path: Path) -> None:
    printed = corpusmill("describe", folder, "--as", "answers").stdout
    answers = tmp_path / "answers.yaml"
    answers.write_text(printed.replace("\npurchased:", "\npurchased: no").replace("\nmodel:", "\nmodel: M | 1 <b>"))

    summary = corpusmill("describe", folder, "--as", "eu-summary", "--answers", answers)
    california = corpusmill("describe", folder, "--as", "ab2013", "--answers", answers)

    assert yaml.safe_load(printed) == dict.fromkeys(load_disclosures()["questions"])
    assert (
        "\n| M \\| 1 \\<b\\> | Names and versions of the models that are covered | answers: model |\n" in summary.stdout
    )
    assert "\n| no | Whether the datasets were purchased or licensed | answers: purchased |\n" in california.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("provder: A", "no question has the key `provder`; did you mean `provider`?"),
        ("zzz: A", "no question has the key `zzz`; `--as answers` prints all questions"),
        ("model: [a, b]", "`model` must be text, got \"['a', 'b']\"; correct that line"),
        (
            'date_published: "2026-13-01"',
            "`date_published` must be a date YYYY-MM-DD, got '2026-13-01'; correct that line",
        ),
        ("url: my page", "`url` must be a URL such as https://example.org/data, got 'my page'; correct that line"),
        ("version: 1.0", "`version` must be MAJOR.MINOR.PATCH, such as 1.0.0, got '1.0'; correct that line"),
        ("small_provider: perhaps", "`small_provider` must be yes or no, got 'perhaps'; correct that line"),
        ("- a", "a questionnaire file must be a mapping, got list; write `key: value` lines"),
    ],
)
def test_wrong_answer_is_named(corpusmill: Corpusmill, folder: Path, tmp_path: Path, text: str, message: str) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text(f"{text}\n")

    result = corpusmill("describe", folder, "--as", "ab2013", "--answers", answers)

    assert refused(result) == f"{answers}: {message}"


def test_wrong_use_is_one_line(corpusmill: Corpusmill, folder: Path, tmp_path: Path) -> None:
    copied_folder = shutil.copytree(folder, tmp_path / "apart")

    assert "nothing is sealed here" in refused(corpusmill("describe", tmp_path, "--as", "croissant"))
    assert "not inside a data root" in refused(corpusmill("describe", copied_folder, "--as", "croissant"))
    assert "questionnaire file not found" in refused(
        corpusmill("describe", folder, "--as", "spdx", "--answers", tmp_path / "none.yaml")
    )


@pytest.mark.parametrize(
    ("tokens", "size_range"),
    [
        (10**9 - 1, "less than 1 billion tokens"),
        (10**9, "1 billion to 10 trillion tokens"),
        (10**13 - 1, "1 billion to 10 trillion tokens"),
        (10**13, "more than 10 trillion tokens"),
    ],
)
def test_token_count_is_in_a_range_of_the_template(tokens: int, size_range: str) -> None:
    assert [fact.value for fact in stated_facts(counts={"tokens": tokens})["size_range"]] == [size_range]


def test_tokens_are_not_counted_if_rows_do_not_state_them() -> None:
    facts = stated_facts(counts={"documents": 14, "tokens": 0})

    assert [fact.value for fact in facts["size"]] == ["14 documents"]
    assert "size_range" not in facts


def test_settings_and_decisions_are_facts_with_their_paths() -> None:
    blocked = {"domains": {"opted_out": {"path": "lists/opted_out.txt", "sha256": "ab" * 32}}, "urls": {}}
    recipe = {"filters": {"language": {"keep": ["de", "en"]}, "blocklist": blocked, "masking": {"emails": True}}}

    facts = stated_facts(
        recipe, {"dumps": {"CC-MAIN-2013-20": {"rows": 1}, "CC-MAIN-2023-50": {"rows": 2}, "10BT": {"rows": 3}}}
    )

    stated = {
        name: [(fact.value, fact.origin) for fact in facts[name]] for name in ("languages", "opt_outs", "periods")
    }
    lists = '{"domains": {"opted_out": {"path": "lists/opted_out.txt", "sha256": "' + "ab" * 32 + '"}}}'
    assert stated == {
        "languages": [(code, "any/kind a: identity.recipe.filters.language.keep") for code in ("de", "en")],
        "opt_outs": [(lists, "any/kind a: identity.recipe.filters.blocklist")],
        "periods": [(name, "any/kind a: identity.decisions.dumps") for name in ("CC-MAIN-2013-20", "CC-MAIN-2023-50")],
    }


def stated_facts(
    recipe: Mapping[str, object] = {},
    decisions: Mapping[str, object] = {},
    counts: Mapping[str, object] = {},
) -> dict[str, list[Fact]]:
    """Return the facts that parts of an identity state."""
    identity = Identity(StageVersion("stage", 1), recipe, [], None, decisions, counts, [])
    facts = chain_facts(Chain(None, [Artifact(Path(), Manifest("any/kind", "a", identity, [], {}))]))
    return {name: list(values) for name, values in facts.items()}


def test_artifact_of_one_source_has_no_steps_of_other_sources() -> None:
    chain = list[Artifact]()

    def add(kind: str, name: str, recipe: Mapping[str, object], *inputs: Artifact) -> Artifact:
        upstream = [{"name": item.manifest.kind, "digest": item.manifest.digest} for item in inputs]
        counts = {"ledger": {"in": 1, "out": 1, "dropped": {}, "rejected": {}}}
        identity = Identity(StageVersion(kind, 1), recipe, upstream, None, {}, counts, [])
        chain.insert(0, Artifact(Path(), Manifest(kind, name, identity, [], {})))
        return chain[0]

    raw = [add("any/raw", f"mix/{name}", {"source": name, "dataset": name}) for name in ("a", "b")]
    filtered = [add("any/filtered", source.manifest.name, {}, source) for source in raw]
    tokenizer = add("any/tokenizer", "mix", {}, filtered[1])
    add("any/shards", "mix/a", {"source": "a"}, add("any/deduplicated", "mix", {}, *filtered), tokenizer)

    facts = chain_facts(Chain(None, chain))

    assert [fact.value for fact in facts["sources"]] == ["folder a"]
    names = ["any/raw mix/a", "any/filtered mix/a", "any/deduplicated mix", "any/shards mix/a"]
    assert [fact.origin for fact in facts["processing"]] == [f"{name}: identity.counts.ledger" for name in names]
    equal_counts = chain_facts(Chain(None, chain[1:]))["processing"]
    names = ["any/raw mix/b", "any/raw mix/a", "any/filtered mix/b", "any/filtered mix/a", "any/deduplicated mix"]
    assert [fact.origin for fact in equal_counts] == [f"{name}: identity.counts.ledger" for name in names]


def test_domains_are_not_counted_for_rows_without_urls(intact_roots: Path) -> None:
    root = intact_roots / "nemotron"
    folder = next(path for path, sealed in Lineage(root).manifests.items() if sealed.kind == "nemotron/candidate_pools")

    facts = describe_artifact(folder, root).facts

    assert facts["licences"] and not facts["domains"]


@pytest.mark.parametrize(
    "text", ["MIT", "MIT AND (Apache-2.0+ OR CC0-1.0)", "((A OR B) AND C) OR LicenseRef-x", "A WITH B"]
)
def test_spdx_expression_is_read_as_a_licence(tmp_path: Path, text: str) -> None:
    (tmp_path / "answers.yaml").write_text(f"licence: {text}\n")
    assert read_answers(tmp_path / "answers.yaml") == {"licence": text}


@pytest.mark.parametrize(
    "text", ["MIT License", "AND MIT", "MIT OR", "(MIT", "MIT)", "MIT, CC0-1.0", "A AND " * 900 + "!"]
)
def test_licence_that_is_not_an_spdx_expression_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "answers.yaml").write_text(f"licence: '{text}'\n")
    with pytest.raises(UsageError, match="`licence` must be an SPDX expression, such as `MIT`, "):
        read_answers(tmp_path / "answers.yaml")


def test_missing_form_and_empty_answers_are_one_line(folder: Path, tmp_path: Path, corpusmill: Corpusmill) -> None:
    (tmp_path / "answers.yaml").write_text("# nothing\n")
    missing = "missing option '--as'. Choose from: croissant, spdx, in-toto, eu-summary, ab2013, answers"
    assert (
        f"corpusmill: describe: {missing}; see corpusmill describe --help\n"
        == corpusmill("describe", folder, check=False).stderr
    )
    with pytest.raises(UsageError, match="the file is empty; `--as answers` prints all questions"):
        read_answers(tmp_path / "answers.yaml")
