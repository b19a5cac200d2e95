"""Pages of English made from the documentation inside the running Python, without importing any of its modules."""

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from pipeline_assets.corpus.spine.errors import InputError

PAGE_CHARS_MIN = 300
PAGE_CHARS_MAX = 30_000
# Docstrings come in short pieces: at 2,000 characters a page the library gives over a thousand pages.
# Prose (help topics, licences, histories) stays long, so that the corpus has long documents too.
DOCSTRING_PAGE_CHARS = 2_000
PROSE_PAGE_CHARS = 12_000
CLASS_PAGE_CHARS_MIN = 1_200

SITE = "https://docs.python.org/3"
# Test suites are data and broken syntax by intent; the others hold nothing of the standard library.
FOLDERS_LEFT_OUT = frozenset(
    {"__pycache__", "dist-packages", "idle_test", "lib-dynload", "site-packages", "test", "tests"}
)
PROSE_SUFFIXES = frozenset({".htm", ".html", ".rst", ".txt"})


@dataclass(frozen=True)
class Page:
    """One text and the address that it could have on docs.python.org; the address is unique in the corpus."""

    url: str
    text: str


def library_pages(library: Path) -> list[Page]:
    """Pages of everything readable below `library`: no two with the same text or address, in order of address."""
    sources = [
        path for path in sorted(library.rglob("*")) if not FOLDERS_LEFT_OUT & set(path.relative_to(library).parts)
    ]
    candidates: list[Page] = []
    for path in sources:
        if path.suffix == ".py":
            candidates += module_pages(path, library)
        elif path.suffix in PROSE_SUFFIXES:
            address = f"{SITE}/{path.relative_to(library).with_suffix('').as_posix()}-{path.suffix[1:]}.html"
            candidates += split_page(Page(address, prose(path)), PROSE_PAGE_CHARS)
    candidates += help_topics(library / "pydoc_data" / "topics.py")
    if not candidates:
        raise InputError("no standard-library sources found", library, "run a Python installed with its .py files")
    first_of_text: dict[str, Page] = {}
    for page in sorted(candidates, key=lambda page: page.url):
        if reads_as_english(page.text):
            first_of_text.setdefault(page.text, page)
    return list(first_of_text.values())


def module_pages(path: Path, library: Path) -> Iterator[Page]:
    """A page of a module's docstrings, and one for each class with much to say; a file that does not parse has none."""
    tree = parsed(path)
    if tree is None:
        return
    module = ".".join(path.relative_to(library).with_suffix("").parts).removesuffix(".__init__")
    url = f"{SITE}/library/{module}.html"
    module_page = [module]
    class_pages: dict[str, list[str]] = {}
    if docstring := readable_docstring(tree):
        module_page.append(docstring)
    for name, definition in public_definitions(tree.body):
        paragraphs = documented(f"{module}.{name}", definition)
        if isinstance(definition, ast.ClassDef) and sum(map(len, paragraphs)) >= CLASS_PAGE_CHARS_MIN:
            # A class may be defined again in another branch of an `if`; both definitions share its page.
            class_pages.setdefault(name, []).extend(paragraphs)
        else:
            module_page += paragraphs
    yield from split_page(Page(url, "\n\n".join(module_page)), DOCSTRING_PAGE_CHARS)
    for name, paragraphs in class_pages.items():
        yield from split_page(Page(f"{url}#{module}.{name}", "\n\n".join(paragraphs)), DOCSTRING_PAGE_CHARS)


def parsed(path: Path) -> ast.Module | None:
    """Syntax tree of a source file, or None where it is in no encoding or grammar of this Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            return None


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public_definitions(body: Iterable[ast.stmt]) -> Iterator[tuple[str, Definition]]:
    """Name and node of each class and function whose name has no leading underscore, also inside `if` and `try`."""
    for statement in body:
        if isinstance(statement, Definition):
            if not statement.name.startswith("_"):
                yield statement.name, statement
        elif isinstance(statement, ast.If):
            yield from public_definitions(statement.body + statement.orelse)
        elif isinstance(statement, ast.Try):
            yield from public_definitions(statement.body + statement.orelse + statement.finalbody)


def documented(name: str, definition: Definition) -> list[str]:
    """Paragraphs of a definition: its name above its docstring, then the same for the public members of a class."""
    paragraphs = []
    if docstring := readable_docstring(definition):
        paragraphs.append(f"{name}\n\n{docstring}")
    if isinstance(definition, ast.ClassDef):
        for member_name, member in public_definitions(definition.body):
            paragraphs += documented(f"{name}.{member_name}", member)
    return paragraphs


def readable_docstring(node: ast.Module | Definition) -> str:
    docstring = ast.get_docstring(node) or ""
    # A docstring may hold NUL or a lone surrogate through an escape. NUL stays out, so that the planted one is alone.
    return docstring.replace("\0", "").encode(errors="replace").decode().strip()


def help_topics(path: Path) -> Iterator[Page]:
    """The texts of `help("topics")`, read from the dict literal of `pydoc_data.topics`."""
    tree = parsed(path) if path.is_file() else None
    for statement in tree.body if tree else []:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            for topic, text in sorted(ast.literal_eval(statement.value).items()):
                yield from split_page(Page(f"{SITE}/reference/{topic}.html", text.strip()), PROSE_PAGE_CHARS)


def prose(path: Path) -> str:
    text = path.read_bytes().decode("utf-8", errors="replace").replace("\r\n", "\n")
    if path.suffix in {".htm", ".html"}:
        stripper = TagStripper()
        stripper.feed(text)
        stripper.close()
        lines = (line.rstrip() for line in "".join(stripper.pieces).split("\n"))
        text = "\n".join(lines)
        while "\n\n\n" in text:
            text = text.replace("\n\n\n", "\n\n")
    return text.strip()


class TagStripper(HTMLParser):
    """Collects in `pieces` the text of a page, without tags, scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self.hidden_depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden_depth += tag in {"script", "style"}

    def handle_endtag(self, tag: str) -> None:
        self.hidden_depth -= tag in {"script", "style"}

    def handle_data(self, data: str) -> None:
        if not self.hidden_depth:
            self.pieces.append(data)


def split_page(page: Page, page_chars: int) -> list[Page]:
    """The page in parts of about equal length, cut at paragraph ends.

    Args:
        page_chars: a longer page is cut; parts come out at or below this but for a last paragraph that passes it.
    Returns:
        parts of 300 to 30,000 characters. A page under 300 gives none: too short to stand alone. So does a part
        over 30,000, one paragraph without a blank line: that is a table, not prose.
    """
    parts: list[list[str]] = [[]]
    part_chars = len(page.text) / -(-len(page.text) // page_chars) if page.text else 0
    for paragraph in page.text.split("\n\n"):
        if sum(map(len, parts[-1])) >= part_chars - len(paragraph) / 2 and parts[-1]:
            parts.append([])
        parts[-1].append(paragraph)
    if len(parts) > 1 and len("\n\n".join(parts[-1])) < PAGE_CHARS_MIN:
        parts[-2] += parts.pop()
    texts = ["\n\n".join(part).strip() for part in parts]
    return [
        Page(page.url if number == 1 else f"{page.url}?page={number}", text)
        for number, text in enumerate(texts, start=1)
        if PAGE_CHARS_MIN <= len(text) <= PAGE_CHARS_MAX
    ]


def reads_as_english(text: str) -> bool:
    """Whether over 95 % of the characters are ASCII and over 60 % are letters: tables and grammars are not prose."""
    ascii_chars = sum(char.isascii() for char in text)
    letters = sum(char.isalpha() for char in text)
    return ascii_chars > 0.95 * len(text) and letters > 0.6 * len(text)
