"""The demo: small corpora of all systems and their recipes in a data root of their own; built, shown, built again. And
stage 2's smoke run: the shipped mixture over seven made datasets, small, up to verified token shards.

Paths, columns and cards of stage 2's are those of the real ones. Five have documentation of the running Python, two its
modules. Planted: in each of the five a text of one sentence, one of over 8,000 characters, and three that aren't
English; in C4 three pages of FineWeb and one of its own, quoted whole, and that one again with a word changed; in
codeparrot modules of other licences, and one twice, also in starcoderdata.
"""

import datetime
import gzip
import hashlib
import importlib.util
import itertools
import json
import logging
import os
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, get_args

import pyarrow as pa
import typer
import yaml
import zstandard

from pipeline_assets.commands.terminal import VERBOSE, Root, Workers, aligned, counted, echo, log_to_stderr, tell
from pipeline_assets.corpus.recipes.drive import run_targets
from pipeline_assets.corpus.recipes.kind import files_match_manifest
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.rows.trace import preview
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.errors import InputError, install_hint
from pipeline_assets.corpus.spine.recipe import Recipe, read_yaml
from pipeline_assets.corpus.trust.rebuild import rebuild
from pipeline_assets.demo import library
from pipeline_assets.demo.library import HUB_FOLDER, HUB_TOKEN, parquet, write_changed, write_fineweb_edu, write_recipe
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.demo.nemotron import made_pools, pool_lines, write_datasets
from pipeline_assets.demo.stage_a import (
    closing_lines,
    made_stage_a,
    paragraphs,
    sentence,
    step_lines,
    write_stage_a_inputs,
)
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.parallel_text import ParallelRecipe
from pipeline_assets.systems.registry import PROJECT_RECIPES
from pipeline_assets.systems.stage2_mixture import Stage2Recipe

PAIRS_DATASET = "wmt/wmt14"
DATASET = "HuggingFaceFW/fineweb-edu"
RECIPE_NAME = "healing_text_v1"
REBUILT = ".rebuilt"  # digests of what was shown to rebuild
System = Literal["healing", "stage_a", "nemotron", "stage2", "parallel_text"]
_NEEDS: dict[System, dict[str, str]] = {  # modules of optional parts, and their extras
    "stage2": {"py3langid": "languages", "sentencepiece": "tokenizers"},
    "parallel_text": {"sentencepiece": "tokenizers"},
}
_DIGEST_LETTERS = len("sha256:") + 12
_TOKEN_BUDGET = 247_000  # both splits come within 1 % of theirs
_TEXT_BYTES = 1_920_000  # 1.6 times 4.8 bytes a token: the corpus is small, so chance needs room
_SHARD_TEXT_BYTES = 262_144
_PAIRS = {"train": 2000, "validation": 200}
_VOWELS = str.maketrans("aeiou", "éouia")
_PAIRS_CARD = """---
configs:
- config_name: fr-en
  data_files:
  - {split: train, path: fr-en/train-*}
  - {split: validation, path: fr-en/validation-*}
---
# WMT14, made up

This is not WMT14 and holds none of its text: it has the same files and columns, so that a pipeline for the real set
runs on it offline. The side `fr` is no French.
"""


def demo(
    data: Root = Path("data/demo"),
    only: Annotated[System | None, typer.Option(help="Only this system.")] = None,
    workers: Workers = 2,
) -> None:
    """Example: corpusmill demo --data data/demo"""
    Run.of(data, os.environ)  # refuses what is set and can't be used
    log_to_stderr()
    if not os.environ.get(VERBOSE):
        logging.getLogger("corpusmill").setLevel(logging.WARNING)
    durable.make_folder(data)  # a place where nothing can be written is told at once
    systems: Sequence[System] = get_args(System)
    missing = {system: missing_extras(system) for system in systems}
    asked: Sequence[System] = [system for system in systems if not missing[system]] if only is None else [only]
    hub_folder = data / HUB_FOLDER
    for system in asked:
        match system:
            case "healing":
                write_hub(data)
            case "stage_a":
                write_stage_a_inputs(data)
            case "nemotron":
                write_datasets(hub_folder)
            case "stage2":
                write_mixture(hub_folder)
            case "parallel_text":
                write_pairs(hub_folder)
    with LoopbackHub(hub_folder, writable="nemotron" in asked) as hub:
        os.environ.update({"HF_TOKEN": HUB_TOKEN} | hub.variables())
        commits = hub.commits()
        tell(f"hub on loopback: {dataset} at {commit}" for dataset, commit in commits.items())
        for system in asked:
            _show(system, data, commits, workers)
    for system in systems if only is None else ():
        for extra in missing[system]:
            echo(f"left out {system}, which needs the extra {extra}: {install_hint(extra)}")
    where = "" if data == Path("data/demo") else f" DATA={data}"
    echo(f"\nlook at it:  make ui{where}   (or: corpusmill ui --data {data})")


def missing_extras(system: System) -> list[str]:
    """List the extras that the demo of a system needs and this environment lacks."""
    needs = _NEEDS.get(system, {})
    return sorted({extra for module, extra in needs.items() if importlib.util.find_spec(module) is None})


def write_hub(root: Path) -> Path:
    """Return the demo's hub folder, with the healing dataset, written if missing."""
    dataset = root / HUB_FOLDER / "datasets" / DATASET
    if not (dataset / "README.md").exists():
        durable.remove(dataset)
        write_fineweb_edu(dataset)
    return root / HUB_FOLDER


def made_healing(root: Path, commits: Mapping[str, str]) -> HealingRecipe:
    """Write the shipped healing recipe, scaled down for the demo, and return it."""
    content: dict[str, Any] = read_yaml(PROJECT_RECIPES / f"{RECIPE_NAME}.yaml")
    content["snapshot"] |= {
        "revision": commits[DATASET],
        "amount": {"text_bytes": _TEXT_BYTES},
        "shard_text_bytes": _SHARD_TEXT_BYTES,
        "license_tag": "psf-2.0",
    }
    content["megatron"]["token_budget"] = _TOKEN_BUDGET
    return HealingRecipe.read(write_recipe(root, content))


def write_pairs(hub: Path) -> None:
    """Write a translation dataset to a hub's folder, in the layout of WMT14 fr-en.

    Its sentences and their "French" are generated: each word always has the same translation.
    """
    folder = hub / "datasets" / PAIRS_DATASET
    for split, rows in _PAIRS.items():
        draw, pairs = Random(split), list[dict[str, str]]()
        for _ in range(rows):
            english = sentence(draw)
            pairs.append({"fr": english.lower().translate(_VOWELS).capitalize(), "en": english})
        table = pa.table({"translation": pairs})
        write_changed(folder / "fr-en" / f"{split}-00000-of-00001.parquet", parquet(table, 100))
    write_changed(folder / "README.md", _PAIRS_CARD.encode())


def made_pairs(root: Path, commits: Mapping[str, str]) -> ParallelRecipe:
    """Write the shipped translation recipe, pinned to the demo dataset, and return it."""
    content: dict[str, Any] = read_yaml(PROJECT_RECIPES / "wmt14_fr_en.yaml")
    content |= {"name": "wmt14_made", "source": content["source"] | {"revision": commits[PAIRS_DATASET]}}
    return ParallelRecipe.read(write_recipe(root, content))


def _show(system: System, root: Path, commits: Mapping[str, str], workers: int) -> None:
    """Builds the demo of a system, says what came out, and that it comes out again. But for healing the sources are so
    small that starting workers would take most of the time.
    """
    match system:
        case "healing":
            healing = made_healing(root, commits)
            _build(healing, root, workers)
            dataset = open_artifact(root / healing.megatron_dataset().folder)
            tokens = dataset.manifest.identity.counts["tokens"]
            echo(f"\n{tokens['train']:,} tokens in train, {tokens['valid']:,} in valid")
            for row in preview(open_artifact(root / healing.megatron_split("train").folder))[:2]:
                echo(f"  {row['doc_id']}  {row['tokens']} tokens: {row['text'][:90]}")
            echo(f"verify {dataset.folder}: {files_match_manifest(dataset).because}")
            _show_rebuild(root, dataset.folder, 0 if workers else 1)
        case "stage_a":
            stage_a = made_stage_a(root, commits)
            _build(stage_a, root)
            tell(["", *step_lines(stage_a, root)])
            _show_rebuild(root, root / stage_a.target("stage_a/packed").folder)
            _show_rebuild(root, root / stage_a.target("stage_a/report").folder, with_upstream=False)
        case "nemotron":
            pools = made_pools(root, commits)
            tell(["", f"{_counted_new(pools, root)} of nemotron built", *pool_lines(pools, root)])
            of_agentic = pools.target("nemotron/candidate_pools", "nemotron-agentic-v1")
            _show_rebuild(root, root / of_agentic.folder)
        case "stage2":
            mixture = made_mixture(root, commits)
            tell(["", f"{_counted_new(mixture, root)} of stage 2 built", *mixture_lines(mixture, root)])
            _show_rebuild(root, root / mixture.target("stage2/token_shards", "c4_en").folder)
        case "parallel_text":
            pairs = made_pairs(root, commits)
            _build(pairs, root)
            cache = root / pairs.target("parallel_text/token_cache").folder
            counts = open_artifact(cache).manifest.identity.counts
            tell([f"parallel text: {counts['pairs']} pairs, {counts['tokens']} tokens"])
            _show_rebuild(root, cache)


def _counted_new(recipe: Recipe, root: Path) -> str:
    """Builds a recipe; how many artifacts were not there."""
    built = list(run_targets(recipe, Run.of(root, os.environ, workers=0, replace=True)))
    return counted(sum(not outcome.was_current for outcome in built), "artifact")


def _build(recipe: Recipe, root: Path, workers: int = 0) -> None:
    """Builds a recipe, with a line for each artifact meanwhile, and one for each check that didn't pass."""
    for outcome in run_targets(recipe, Run.of(root, os.environ, workers=workers, replace=True)):
        word, passed = "is current" if outcome.was_current else "built", [one for one in outcome.checks if one.passed]
        digest = outcome.manifest.digest[:_DIGEST_LETTERS] if outcome.manifest else "waiting"
        checks = f"{counted(len(passed), 'check')} passed" if passed else ""
        echo(f"{word:10} {digest}  {outcome.target.kind:30} {outcome.target.name:36} {checks}".rstrip())
        for check in outcome.checks:
            if not check.passed:
                echo(f"{'':10} {check.word} {check.name}: {check.because}")


def _show_rebuild(root: Path, folder: Path, workers: int = 0, with_upstream: bool = True) -> None:
    """The promise, kept: everything again from manifests, pinned hub files and the sources here; once for a digest."""
    digest, shown = open_artifact(folder).manifest.digest, root / REBUILT
    before = shown.read_text().splitlines() if shown.exists() else []
    if digest in before:
        return
    done = rebuild(folder, Run.of(root, os.environ, workers=workers), with_upstream)
    if not done.is_identical:
        fix = "type the command `corpusmill rebuild` to see why"
        raise InputError("the rebuild is not what was sealed", folder, fix)
    durable.write_durably(shown, "\n".join([*before, digest]).encode())
    words = f"rebuild {folder} {'--upstream ' if with_upstream else ''}--workers {workers}"
    count = len(done.outcomes)
    echo(f"{words}: {f'all {count} artifacts' if count > 1 else 'it is'} identical")


NAME = "mixture_made"
_DOCUMENTS = 2000  # of each source, at most
TEXT_BYTES = 150_000  # that a dataset takes of what ships with Python; what is planted comes on top
_MODULE_BYTES = 12_000
_ROWS_PER_GROUP = 25
_WEB_COLUMNS = "text id dump url date file_path language language_score token_count"
_FOREIGN = (
    "Am Morgen lag der Nebel noch über dem Hafen, und die Fischer warteten auf besseres Wetter. Niemand wusste, wann "
    "das Schiff aus dem Norden kommen würde. Die Wirtin glaubte kein Wort davon und stellte das Brot auf den Tisch.",
    "Le marché ouvrait chaque samedi avant le lever du soleil, et les paysans arrivaient de toute la vallée. On y "
    "vendait des pommes et du fromage. Personne ne se souvenait de l'année où la halle avait été construite.",
    "La biblioteca del pueblo estaba junto al río, en una casa que antes había sido un molino. Cada tarde llegaban los "
    "niños para escuchar los cuentos de la maestra. Cuando llovía mucho, había que subir los libros al otro piso.",
)
_CARD = """\
This is not {name} and holds none of its text. It has the same paths and columns, and in its head what the real card
says of licence and files, so that a pipeline for the real dataset runs on it offline.

The texts ship with Python, under the Python Software Foundation licence (PSF-2.0), or are made up. Ids, dates, scores
and all else is made, too: no page was crawled, no repository read.
"""
Json = dict[str, Any]


def smoke(
    out_dir: Annotated[Path, typer.Option("--out-dir", help="Data root of what is made.")] = Path("out_stage2"),
    workers: Workers = 0,
) -> None:
    """Example: corpusmill stage2 smoke --out-dir out_stage2"""
    run = Run.of(out_dir, os.environ, workers=workers, replace=True)
    log_to_stderr()
    write_mixture(out_dir / library.HUB_FOLDER)
    with LoopbackHub(out_dir / library.HUB_FOLDER) as hub:
        os.environ.update(hub.variables())
        recipe = made_mixture(out_dir, hub.commits())
        built = sum(not outcome.was_current for outcome in run_targets(recipe, run))
    done = f"{counted(built, 'artifact')} built" if built else "all was there, nothing built"
    shards = out_dir / recipe.target("stage2/token_shards", "refinedweb").folder
    look: list[tuple[object, ...]] = [("stage2", verb, NAME, "--data", out_dir) for verb in ("verify", "train-config")]
    look += [("trace", shards, "--token", 0), ("peek", shards, "--row", 0), ("ui", "--data", out_dir)]
    tell([*mixture_lines(recipe, out_dir), *closing_lines(done, look)])


def made_mixture(root: Path, commits: Mapping[str, str]) -> Stage2Recipe:
    """The shipped mixture with filters, small and pinned to made datasets, in the data root's recipes; and segments."""
    content: dict[str, Any] = read_yaml(PROJECT_RECIPES / "refinedweb_mixture_filtered.yaml")
    content |= {"name": NAME, "shard_text_bytes": 1 << 17}
    for section in content["sources"]:
        section |= {"revision": commits[section["dataset"]], "amount": {"documents": _DOCUMENTS}}
        if section["source"] == "code":
            section["files"] = ["python/*.parquet"]
    content["tokenizer"] |= {"vocab_size": 2000, "sample_bytes": 400_000}
    content["shards"] |= {"seq_len": 512, "rows_per_shard": 64}
    halves = {"refinedweb": "0.5", "wikipedia_en": "0.5"}
    segments = [{"name": name, "tokens": 8192, "weights": halves} for name in ("first", "next")]
    content["segments"] = {"segments": segments}
    return Stage2Recipe.read(library.write_recipe(root, content))


def mixture_lines(recipe: Stage2Recipe, root: Path) -> list[str]:
    """What became of the documents of each source, and its shards."""
    assert recipe.shards is not None
    table: list[tuple[str, ...]] = [("source", "rows", "documents", "filtered", "tokens", "sequences")]
    for name in recipe.shards.sources:
        raw, left, shards = (
            open_artifact(root / recipe.target(f"stage2/{kind}", name).folder).manifest.identity
            for kind in ("raw_corpus", "filtered", "token_shards")
        )
        of_shards = (shards.counts["tokens"], shards.counts["sequences"])
        numbers = (raw.ledger.rows_in, raw.ledger.out, left.ledger.out, *of_shards)
        table.append((name, *(f"{number:,}" for number in numbers)))
    trained = open_artifact(root / recipe.target("stage2/tokenizer").folder).manifest.identity.decisions
    words = f"tokenizer {trained['model']}, sha256 {trained['sha256'][:16]}"
    return [*aligned(table, numbers={1, 2, 3, 4, 5}), words]


def _head(licence: str | list[str], config: str, files: str) -> Json:
    return {"license": licence, "configs": [{"config_name": config, "data_files": [{"split": "train", "path": files}]}]}


# Of each: what the head of its card says, and its files, to which rows go in turn.
_DATASETS: dict[str, tuple[Json, Sequence[str]]] = {
    "HuggingFaceFW/fineweb": (_head("odc-by", "sample-10BT", "sample/10BT/*"), ["sample/10BT/000_00000.parquet"]),
    "wikimedia/wikipedia": (
        _head(["cc-by-sa-3.0", "gfdl"], "20231101.en", "20231101.en/train-*"),
        [f"20231101.en/train-0000{number}-of-00002.parquet" for number in range(2)],
    ),
    "allenai/c4": (
        _head("odc-by", "en", "en/c4-train.*.json.gz"),
        [f"en/c4-train.0000{number}-of-01024.json.gz" for number in range(2)],
    ),
    "togethercomputer/RedPajama-Data-1T-Sample": ({}, ["arxiv_sample.jsonl", "cc_2023-06_sample.jsonl"]),
    "cerebras/SlimPajama-627B": ({}, [f"train/chunk1/example_train_{number}.jsonl.zst" for number in range(2)]),
    "codeparrot/codeparrot-clean": ({}, [f"file-00000000000{number}.json.gz" for number in (1, 2)]),
    "bigcode/starcoderdata": ({"license": "other"}, ["python/train-00000-of-00059.parquet"]),
}


def write_mixture(folder: Path) -> None:
    """Writes the seven into a hub's folder, as `datasets/<owner>/<name>`; files of the same name are replaced.

    Raises:
        InputError: this Python ships no standard-stdlib sources.
    """
    stdlib = Path(sysconfig.get_path("stdlib"))
    documentation = itertools.starmap(_with_odd_texts, enumerate(_shares(library.library_pages(stdlib), 5)))
    rows = [*_rows_of_pages(*documentation), *_rows_of_modules(*_shares(_modules(stdlib), 2))]
    for (name, (head, paths)), of_dataset in zip(_DATASETS.items(), rows, strict=True):
        for number, path in enumerate(paths):
            library.write_changed(folder / "datasets" / name / path, _encoded(path, of_dataset[number :: len(paths)]))
        said = yaml.safe_dump({"pretty_name": name.partition("/")[2], **head}, sort_keys=False)
        card = f"---\n{said}---\n# Demo stand-in for {name}\n\n{_CARD.format(name=name)}"
        library.write_changed(folder / "datasets" / name / "README.md", card.encode())


def _encoded(path: str, rows: Sequence[Json]) -> bytes:
    if path.endswith(".parquet"):
        return library.parquet(pa.Table.from_pylist(rows), _ROWS_PER_GROUP)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    lines = gzip.compress(lines, mtime=0) if path.endswith(".gz") else lines
    return zstandard.compress(lines) if path.endswith(".zst") else lines


def _shares(pages: Iterable[library.Page], count: int) -> Iterator[list[library.Page]]:
    """So many sets, no page in two, of about `TEXT_BYTES` each; drawn by the hashes of addresses."""
    drawn = sorted(pages, key=lambda page: library.urn(page.url))
    for number in range(count):
        share, size = list[library.Page](), 0
        for page in drawn[number::count]:
            if size < TEXT_BYTES:
                share.append(page)
                size += len(page.text.encode())
        yield share


def _modules(stdlib: Path) -> Iterator[library.Page]:
    for path in sorted([*stdlib.glob("*.py"), *stdlib.glob("*/*.py")]):
        name, text = path.relative_to(stdlib), path.read_bytes()
        if library.FOLDERS_LEFT_OUT.isdisjoint(name.parts) and text.isascii() and 0 < len(text) <= _MODULE_BYTES:
            yield library.Page(f"Lib/{name.as_posix()}", text.decode())


def _with_odd_texts(number: int, pages: Sequence[library.Page]) -> list[library.Page]:
    draw = Random(f"mixture {number}")
    foreign = [[*itertools.permutations(text.rstrip(".").split(". "))][number] for text in _FOREIGN]
    odd = [sentence(draw), "\n\n".join(paragraphs(draw, 30)), *(f"{'. '.join(text)}." for text in foreign)]
    return [*pages, *(library.Page(f"{pages[0].url}?odd={place}", text) for place, text in enumerate(odd))]


def _repeats(others: Sequence[library.Page], own: library.Page) -> Iterator[library.Page]:
    for number, page in enumerate([*others, own]):
        before, after = (paragraphs(Random(f"{place} {number}"), 2) for place in ("before", "after"))
        yield library.Page(f"{page.url}?quoted", "\n\n".join([*before, page.text, *after]))
    yield library.Page(f"{own.url}?again", f"{own.text.replace(' the ', ' that ', 1)}\n\nSo they say.")


def _date(page: library.Page) -> str:
    seconds = int.from_bytes(hashlib.sha256(page.url.encode()).digest()[:4]) // 20
    return f"{(datetime.datetime(2014, 5, 1) + datetime.timedelta(seconds=seconds)).isoformat()}Z"


def _rows_of_pages(*shares: Sequence[library.Page]) -> Iterator[Sequence[Json]]:
    web, wikipedia, crawl, sample, slim = shares
    quoted = [[page for page in one if len(page.text) > 1_500 and " the " in page.text] for one in (web, crawl)]
    rows = (
        library.Row(page.text, library.urn(page.url), library.DUMPS[number % 4], page.url)
        for number, page in enumerate(web)
    )
    web_rows = [{**library.columns(row), "date": _date(page)} for row, page in zip(rows, web, strict=True)]
    yield [{name: row[name] for name in _WEB_COLUMNS.split()} for row in web_rows]
    named = [{"id": str(number), "url": page.url, "title": page.url[8:]} for number, page in enumerate(wikipedia, 12)]
    yield [{**row, "text": page.text} for row, page in zip(named, wikipedia, strict=True)]
    crawled = [*crawl, *_repeats(quoted[0][:3], quoted[1][0])]
    yield [{"text": page.text, "timestamp": _date(page), "url": page.url} for page in crawled]
    about = [{"timestamp": _date(page)[:-1], "language": "en", "url": page.url} for page in sample]
    metas = [json.dumps(meta) if number % 2 else meta for number, meta in enumerate(about)]  # objects of papers alone
    yield [{"text": page.text, "meta": meta} for page, meta in zip(sample, metas, strict=True)]
    sets = [{"redpajama_set_name": f"RedPajama{name}"} for name in ("CommonCrawl", "C4", "StackExchange")]
    yield [{"text": page.text, "meta": sets[number % 3]} for number, page in enumerate(slim)]


def _rows_of_modules(modules: Sequence[library.Page], starred: Sequence[library.Page]) -> Iterator[Sequence[Json]]:
    files = [*((page, "python/cpython", "psf-2.0") for page in modules), (modules[0], "demo/vendor", "psf-2.0")]
    for number, licence in enumerate(("mit", "apache-2.0", "gpl-3.0")):
        draw = Random(f"module {number}")
        text = "\n".join(f'def rule_{one}():\n    """{sentence(draw)}"""\n    return {one}\n' for one in range(9))
        files.append((library.Page("made.py", text), f"demo/made-{number}", licence))
    yield [_code_row(*file) for file in files]
    names = ("max_stars_repo_path", "max_stars_repo_name", "max_stars_count", "id", "content")
    values = ((page.url, "python/cpython", 37, page.url, page.text) for page in [*starred, modules[0]])
    yield [dict(zip(names, row, strict=True)) for row in values]


def _code_row(page: library.Page, repo: str, licence: str) -> Json:
    lengths, text = [*map(len, page.text.splitlines())], page.text
    of_file = {"repo_name": repo, "path": page.url, "copies": "1", "size": str(len(text)), "content": text}
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], signed=True)
    of_lines = {"line_mean": sum(lengths) / len(lengths), "line_max": max(lengths)}
    alpha_frac = sum(map(str.isalnum, text)) / len(text)
    return {**of_file, "license": licence, "hash": number, **of_lines, "alpha_frac": alpha_frac, "autogenerated": False}
