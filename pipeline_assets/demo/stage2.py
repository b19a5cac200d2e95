"""Stage 2's demo and its smoke run: the shipped mixture over seven made datasets, small, up to verified token shards.

Paths, columns and cards are those of the real ones.

Five have documentation of the running Python, two its modules. Planted: in each of the five a text of one sentence, one
of over 8,000 characters, and three that aren't English; in C4 three pages of FineWeb and one of its own, quoted whole,
and that one again with a word changed; in codeparrot modules of other licences, and one twice, also in starcoderdata.
"""

import datetime
import gzip
import hashlib
import itertools
import json
import os
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any

import pyarrow as pa
import typer
import yaml
import zstandard

from pipeline_assets.commands.terminal import Workers, aligned, counted, log_to_stderr, tell
from pipeline_assets.corpus.recipes.drive import run_targets
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.recipe import read_yaml
from pipeline_assets.demo import library
from pipeline_assets.demo.stage_a import closing_lines, paragraphs, sentence
from pipeline_assets.systems.registry import PROJECT_RECIPES
from pipeline_assets.systems.stage2_mixture import Stage2Recipe
from resources.loopback_hub import LoopbackHub

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
