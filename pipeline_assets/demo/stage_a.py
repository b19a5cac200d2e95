"""Stage A's demo and its smoke run: a made hub dataset, four small sources in their real formats, and an evaluation
set; with planted copies, leaks and bad rows.

| source | format | text |
|---|---|---|
| wikipedia_en | wikiextractor's `<doc>` elements, bzip2 | made up |
| coffee.stackexchange.com | `Posts.xml` | made up |
| notes | JSON lines and text files | made up; copies of pages of wikipedia_en |
| papers | Parquet with a nested column | made up |
| quiz | JSON lines: the evaluation set | sentences of a page and of a paper, and others |

What is made up is the same in every Python; what a file says already isn't written again.
"""

import bz2
import html
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Annotated

import pyarrow as pa
import typer

from pipeline_assets.commands.terminal import Workers, aligned, as_bytes, as_command, log_to_stderr, tell
from pipeline_assets.corpus.document_shards import shard_rows
from pipeline_assets.corpus.formats.compression import JsonlZstWriter, read_line_blocks
from pipeline_assets.corpus.formats.memmap import INPUT_IDS, META, open_packed
from pipeline_assets.corpus.recipes.drive import run_targets
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.errors import RetryableError, UsageError
from pipeline_assets.corpus.spine.manifest import FILE_NAME
from pipeline_assets.corpus.spine.temporary_names import is_temporary, temporary_path
from pipeline_assets.demo import library
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.systems.stage_a import StageARecipe

NORMALIZED, PACKED, REPORT = "normalized", "packed", "report.json"
DEDUPED, DECISIONS = "dedup/deduped.jsonl.zst", "dedup/decisions.jsonl.zst"
_CARD, _TITLE = "README.md", "# A smoke run of corpusmill's stage A\n"
_CARD_TEXT = f"""{_TITLE}
`corpusmill smoke` made this folder, and goes on here when it is run again. Nothing in it was fetched: what `help()`
says in the running Python stands for a hub dataset (PSF-2.0), all other text is made up.

| folder | holds |
|---|---|
| `hub`, `sources` | the five sources, and an evaluation set |
| `recipes` | what was asked for |
| `stage_a` | the artifacts, sealed; the files in `normalized`, `dedup`, `packed` and `report.json` are theirs |
"""
_ZSTD_LEVEL = 3
SITE = "coffee.stackexchange.com"
SOURCES_FOLDER = "sources"
_ROWS_PER_GROUP = 25
_PAGES, _QUESTIONS, _NOTES, _PAPERS = 48, 40, 36, 40
_COPIED_PAGES, _REVISED_PAGES = (2, 3, 5), (9, 10)
_LEAKED_PAGE, _LEAKED_PAPER = 20, 12
_SYLLABLES = ("Ash", "Brack", "Cold", "Dun", "Elder", "Fen", "Gran", "Harrow", "Ivel", "Kings", "Long", "Mar")
_ENDS = ("mere", "wick", "ford", "ley", "holm", "stead", "combe", "thorpe")
_STAGE_A = Path(__file__).with_name("stage_a.yaml")


def smoke(
    out_dir: Annotated[Path, typer.Option("--out-dir", help="Folder of what is made: new, empty or its own.")] = Path(
        "out"
    ),
    workers: Workers = 0,
) -> None:
    """Example: corpusmill smoke --out-dir out"""
    Run.of(out_dir, os.environ)  # refuses what is set and can't be used
    log_to_stderr()
    _take(out_dir)
    write_stage_a_inputs(out_dir)
    hub_folder = out_dir / library.HUB_FOLDER
    recipe = made_stage_a(out_dir, LoopbackHub(hub_folder).commits())
    built = checks = 0
    if not all(target.is_settled(out_dir) for target in recipe.targets()):
        with LoopbackHub(hub_folder) as hub:
            os.environ.update(hub.variables())
            for outcome in run_targets(recipe, Run.of(out_dir, os.environ, workers=workers, replace=True)):
                built += not outcome.was_current
                checks += len(outcome.checks)
    _publish(out_dir, recipe)
    names = (NORMALIZED, DEDUPED, DECISIONS, f"{PACKED}/{INPUT_IDS}", f"{PACKED}/{META}", REPORT)
    where = aligned([(str(out_dir / name), as_bytes(_bytes(out_dir / name))) for name in names], numbers={1})
    done = f"{built} artifacts built, {checks} checks passed" if built else "all was there, nothing built"
    packed = out_dir / recipe.target("stage_a/packed").folder
    first = open_packed(packed).segments(0)[0].doc_id
    look = [("verify", packed, "--upstream"), ("trace", packed, "--token", 0), ("peek", packed, "--row", 0)]
    look += [("stage-a", "why", first, "--data", out_dir), ("ui", "--data", out_dir)]
    tell([*step_lines(recipe, out_dir), "", *where, *closing_lines(done, look)])


def closing_lines(done: str, look: Sequence[Sequence[object]]) -> list[str]:
    """What a smoke run did, and the commands that look at it."""
    return ["", f"{done}; to look closer:", *(f"  {as_command(*words)}" for words in look)]


def _bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _take(root: Path) -> None:
    """Makes the folder this program's own, by its card; that is written first, and by one rename.

    Raises:
        UsageError: it is not.
        RetryableError: nothing may be written there.
    """
    if root.exists() and not root.is_dir():
        raise UsageError("this is a file", root, "give a folder with --out-dir")
    above = next(folder for folder in (root, *root.absolute().parents) if folder.exists())
    if above.is_dir() and not os.access(above, os.W_OK):
        raise RetryableError("writing is not allowed", above, "give write permission, or another folder")
    card = root / _CARD
    if card.is_file() and card.read_bytes().startswith(_TITLE.encode()):
        return
    names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    others = [name for name in names if not is_temporary(name)]
    if others:
        what = f"it holds {others[0]}, which no smoke run made"
        raise UsageError(what, root, "give an empty or a new folder with --out-dir")
    durable.make_folder(root)
    durable.write_durably(card, _CARD_TEXT.encode())


def _publish(root: Path, recipe: StageARecipe) -> None:
    """The files of the sealed artifacts under short names in `root`: second names of the same bytes, but for the
    deduplicated Documents, whose shards become one file. A name appears at once; what is right stays.

    normalized/<source>/…   the Documents of each source
    dedup/                  deduped.jsonl.zst and decisions.jsonl.zst
    packed/…                input_ids.mmap, meta.json, index.jsonl.zst, documents.parquet
    report.json
    """
    for source in recipe.sources:
        _publish_all(
            open_artifact(root / recipe.target("stage_a/normalized", source.source).folder),
            root / NORMALIZED / source.source,
        )
    corpus = open_artifact(root / recipe.target("stage_a/deduplicated").folder)
    durable.make_folder((root / DEDUPED).parent)
    with JsonlZstWriter(root / DEDUPED, _ZSTD_LEVEL) as writer:
        for shard in shard_rows(corpus):
            for block in read_line_blocks(corpus.path(shard)):
                writer.write_lines(block, block.count(b"\n"))
    _publish_file(corpus.path(Path(DECISIONS).name), root / DECISIONS)
    _publish_all(open_artifact(root / recipe.target("stage_a/packed").folder), root / PACKED)
    _publish_file(open_artifact(root / recipe.target("stage_a/report").folder).path(REPORT), root / REPORT)


def _publish_all(artifact: Artifact, folder: Path) -> None:
    names = {*(file.path for file in artifact.manifest.storage), FILE_NAME}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.relative_to(folder).as_posix() not in names:
            durable.remove(path)
    for name in sorted(names):
        _publish_file(artifact.folder / name, folder / name)


def _publish_file(source: Path, target: Path) -> None:
    if target.is_file() and os.path.samefile(source, target):
        return
    durable.make_folder(target.parent)
    temporary = temporary_path(target)
    durable.link(source, temporary)
    durable.rename(temporary, target)


def _words(text: str, separator: str = " ") -> list[str]:
    return " ".join(text.split()).split(separator)


_ADJECTIVES = _words("""
    old new quiet narrow broad distant early late common rare bright dark heavy light northern southern wooden
    stone shallow deep gentle steep busy empty""")
_NOUNS = _words("""
    harbour valley market bridge orchard mill library garden river forest workshop station tower school museum
    lighthouse quarry canal chapel meadow theatre railway brewery courtyard""")
_VERBS = _words("""
    supplied joined served crossed sheltered replaced resembled followed surrounded outlived inspired faced
    divided fed overlooked financed rebuilt repaired welcomed attracted""")
_ENDINGS = _words(
    """
    after the second winter, for nearly forty years, until the road was moved, in spite of the floods,
    long before the census, according to several letters, as the guild had asked, without any public money,
    during the dry summers, near the eastern border, on the advice of its council, with stone from the coast,
    while the ferry still ran, because the harvest failed, at the end of the century, to the surprise of visitors""",
    ", ",
)


def write_sources(folder: Path) -> None:
    """The four sources of files, and the evaluation set, a folder each."""
    pages, papers = _wikipedia_texts(), _paper_texts()
    _write_wikipedia(folder / "wikipedia", pages)
    _write_site(folder / SITE)
    _write_notes(folder / "notes", [f"{place_name(number)}\n\n{text}" for number, text in enumerate(pages)])
    _write_papers(folder / "papers", papers)
    _write_quiz(folder / "quiz", [_first_sentences(pages[_LEAKED_PAGE]), _first_sentences(papers[_LEAKED_PAPER])])


def _wikipedia_texts() -> list[str]:
    """Every twelfth page is a stub of one sentence; every twelfth has nothing but its title, as redirects do."""
    texts = []
    for number in range(_PAGES):
        draw = Random(f"page {number}")
        match number % 12:
            case 7:
                texts.append("")
            case 11:
                texts.append(sentence(draw))
            case _:
                lead = f"{place_name(number)} is a village of {draw.randrange(200, 9000)} inhabitants."
                texts.append("\n\n".join([lead, *paragraphs(draw, draw.randrange(2, 5))]))
    return texts


def _write_wikipedia(folder: Path, texts: list[str]) -> None:
    half = len(texts) // 2
    for file in range(2):
        pages = []
        for number in range(file * half, file * half + half):
            title, url = place_name(number), f"https://en.wikipedia.org/wiki?curid={number + 1}"
            text = html.escape(texts[number], quote=False)
            pages.append(f'<doc id="{number + 1}" url="{url}" title="{title}">\n{title}\n\n{text}\n\n</doc>\n')
        library.write_changed(folder / "AA" / f"wiki_{file:02d}.bz2", bz2.compress("".join(pages).encode()))


def _write_site(folder: Path) -> None:
    """Questions with two answers each. Every fifth question has a score of 0; the last one is deleted, its answers are
    not.
    """
    rows = []
    for number in range(_QUESTIONS):
        draw, first = Random(f"question {number}"), 3 * number + 1
        date = f"{2011 + number % 14}-03-{number % 28 + 1:02d}T05:06:07.890"
        if number < _QUESTIONS - 1:
            title = f"Why is coffee from {place_name(number)} so {draw.choice(('bitter', 'sour', 'strong', 'weak'))}?"
            rows.append(
                f'<row Id="{first}" PostTypeId="1" CreationDate="{date}" Score="{number % 5}" ViewCount="9"'
                f' Body="{_body(draw)}" Title="{title}" Tags="&lt;taste&gt;" AcceptedAnswerId="{first + 2}"'
                f' AnswerCount="2" />'
            )
        for answer in (1, 2):
            rows.append(
                f'<row Id="{first + answer}" PostTypeId="2" ParentId="{first}" CreationDate="{date}"'
                f' Score="{answer}" Body="{_body(draw)}" />'
            )
    lines = "".join(f"  {row}\n" for row in rows)
    library.write_changed(
        folder / "Posts.xml", f'\ufeff<?xml version="1.0" encoding="utf-8"?>\n<posts>\n{lines}</posts>\n'.encode()
    )


def _body(draw: Random) -> str:
    return html.escape("".join(f"<p>{text}</p>" for text in paragraphs(draw, 1, 4)))


def _write_notes(folder: Path, pages: list[str]) -> None:
    """Lines of several licences, two of which are refused; pages again, word by word or with a word changed; a line
    that is cut off, and one without text. And four text files.

    Args:
        pages: as Documents have them, with their titles.
    """
    texts = ["\n".join(paragraphs(Random(f"note {number}"), 2)) for number in range(_NOTES)]
    texts += [pages[number] for number in _COPIED_PAGES]
    texts += [pages[number].replace(" harbour", " jetty") + " So they say." for number in _REVISED_PAGES]
    licences = ("MIT", "CC BY-SA 4.0", None)
    rows = [
        {"text": text, "key": f"note-{number}", "license": "proprietary" if number in (4, 5) else licences[number % 3]}
        for number, text in enumerate(texts)
    ]
    rows.append({"text": "", "key": "note-empty", "license": None})
    lines = [json.dumps(row) + "\n" for row in rows]
    lines.insert(10, lines[10][:40] + "\n")
    library.write_changed(folder / "notes.jsonl", "".join(lines).encode())
    for number in range(4):
        text = "\n\n".join(paragraphs(Random(f"text {number}"), 3)) + f"\n\nWrite to clerk{number}@{SITE}.\n"
        library.write_changed(folder / "texts" / f"{number}.txt", text.encode())


def _paper_texts() -> list[str]:
    """Every eighth is mostly what the publisher says on every page."""
    texts = []
    for number in range(_PAPERS):
        parts = paragraphs(Random(f"paper {number}"), 4)
        texts.append(
            "\n".join([*parts[:1], *["All rights reserved by the publisher."] * 4] if number % 8 == 7 else parts)
        )
    return texts


def _write_papers(folder: Path, texts: list[str]) -> None:
    rows = [
        {
            "doi": f"10.5555/demo.{number}",
            "body": {"title": f"On {place_name(number)}", "text": text},
            "published": f"{2001 + number % 20}-01-01",
            "license": "CC0-1.0" if number % 4 == 3 else "CC-BY-4.0",
        }
        for number, text in enumerate(texts)
    ]
    library.write_changed(folder / "papers.parquet", library.parquet(pa.Table.from_pylist(rows), _ROWS_PER_GROUP))


def _write_quiz(folder: Path, leaked: list[str]) -> None:
    others = [" ".join(sentence(Random(f"item {number}")) for _ in range(2)) for number in range(4)]
    rows = [{"id": f"q-{number}", "question": item} for number, item in enumerate([*leaked, *others, "Too short?"])]
    library.write_changed(folder / "quiz.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())


def _first_sentences(text: str) -> str:
    """Two of its first paragraph of several sentences."""
    longest = next(paragraph for paragraph in text.splitlines() if paragraph.count(". ") > 1)
    return ". ".join(longest.split(". ")[:2]) + "."


def sentence(draw: Random) -> str:
    """Eleven words or more; hardly ever the same one twice."""
    first, second = draw.choice(_ADJECTIVES), draw.choice(_ADJECTIVES)
    subject, verb, thing = draw.choice(_NOUNS), draw.choice(_VERBS), draw.choice(_NOUNS)
    return f"The {first} {subject} {verb} the {second} {thing} {draw.choice(_ENDINGS)}."


def paragraphs(draw: Random, count: int, sentences: int = 5) -> list[str]:
    """Paragraphs of so many sentences each."""
    return [" ".join(sentence(draw) for _ in range(sentences)) for _ in range(count)]


def place_name(number: int) -> str:
    """The name of a place; numbers below 96 have different ones."""
    return _SYLLABLES[number % len(_SYLLABLES)] + _ENDS[number // len(_SYLLABLES) % len(_ENDS)]


def write_stage_a_inputs(root: Path) -> None:
    """Stage A's dataset in the hub folder, the files of its sources and of the evaluation set beside it."""
    dataset = root / library.HUB_FOLDER / "datasets" / library.HELP_DATASET
    if not (dataset / "README.md").exists():
        durable.remove(dataset)
        library.write_help_dataset(dataset)
    write_sources(root / SOURCES_FOLDER)


def made_stage_a(root: Path, commits: Mapping[str, str]) -> StageARecipe:
    """The recipe that asks for every step of stage A, pinned to the made dataset, in the data root's recipes."""
    text = _STAGE_A.read_text(encoding="utf-8").replace("COMMIT", commits[library.HELP_DATASET])
    return StageARecipe.read(library.write_recipe_text(root, "stage_a_v1", text))


def step_lines(recipe: StageARecipe, root: Path) -> Iterator[str]:
    """What became of the documents of all sources, a line a step, and what each source has of the tokens."""
    packed = open_artifact(root / recipe.target("stage_a/packed").folder).manifest.identity.counts
    for step in ("normalized", "filtered", "deduplicated", "decontaminated"):
        targets = [target for target in recipe.targets() if target.kind == f"stage_a/{step}"]
        ledgers = [open_artifact(root / target.folder).manifest.identity.ledger for target in targets]
        fates: Counter[str] = Counter()
        for fate, reason, count in itertools.chain.from_iterable(ledger.fates() for ledger in ledgers):
            fates[reason or fate] += count
        rows, documents = sum(one.rows_in for one in ledgers), sum(one.out for one in ledgers)
        others = "".join(f" + {count:,} {fate}" for fate, count in fates.items() if count)
        yield f"{step:15} {rows:,} {'rows' if step == 'normalized' else 'documents'} in = {documents:,} out{others}"
    packed_rows = f"{packed['rows']:,} rows, {packed['padding_tokens']:,} of padding"
    yield f"{'packed':15} {packed['documents']:,} documents drawn: {packed['tokens']:,} tokens in {packed_rows}"
    for source, counts in packed["by_source"].items():
        epochs = f"{float(counts['epochs']):.2f} epochs"
        yield f"{'':15} {source}: {counts['packed_tokens']:,} tokens, {float(counts['share']):.1%}, {epochs}"
