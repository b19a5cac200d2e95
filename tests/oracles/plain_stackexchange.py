"""Stack Exchange reader in plain Python, in memory and by character.

It is slow, simple enough to be checked by reading, and shares no line with the reader.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

BLOCKS = {"p", "div", "dl", "dt", "dd", "table", "thead", "tbody", "tfoot"}
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
WHITE = " \t\n\r\f\xa0"
TAG = ""  # where a tag stood in a line
CELL = " |"  # where a cell began after another one


@dataclass
class Container:
    """Body or quote: its text so far, and the next numbers of its open lists."""

    text: str = ""
    ends_in_item: bool = False
    lists: list[int | None] = field(default_factory=list)


class BodyReader(HTMLParser):
    """Parser of a body: feed it, close it, read `containers[0].text`."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.containers = [Container()]
        self.line: list[tuple[str, bool]] = []  # (character or TAG, whether it is code) of the block at hand
        self.item = self.heading = ""
        self.is_item = self.is_row = False  # is_row: a cell began in the block at hand
        self.verbatim: str | None = None  # text of <code> or <pre>
        self.closes_at = self.language = ""
        self.images = ""  # text of code in which there is nothing else

    def handle_data(self, data: str) -> None:
        if self.verbatim is not None:
            self.verbatim += data.replace("\r", "")
            self.images += data.replace("\r", "")
        else:
            self.line += [(character, False) for character in data]

    def end_block(self) -> None:
        text, gap, has_text = "", "", False
        for place, (character, is_code) in enumerate(self.line):
            if not is_code and character in WHITE and character:
                gap = "\n" if character == "\n" or gap == "\n" else " "
            elif character == TAG:
                text += "^" if self.is_power(place) else ""
            else:
                text += (gap if text else "") + character
                gap, has_text = "", has_text or character != CELL
        self.line, self.is_row = [], False
        if has_text:
            self.emit(self.item + self.heading + text.lstrip(" "))

    def is_power(self, place: int) -> bool:
        """Check whether the tag is <sup> after a word, before a number or letter."""
        is_sup = self.line[place][1]
        before = next((character for character, _ in reversed(self.line[:place]) if character != TAG), "")
        after = "".join(character or "\0" for character, _ in self.line[place + 1 :])
        is_number = re.match(r"[-+]?([0-9]|[A-Za-z](?![0-9A-Za-z_\x80-\U0010ffff]))", after)
        return is_sup and bool(re.fullmatch(r"[0-9A-Za-z)]", before)) and bool(is_number)

    def emit(self, text: str) -> None:
        container = self.containers[-1]
        if container.text:
            container.text += "\n" if self.is_item and container.ends_in_item else "\n\n"
        container.text += text
        container.ends_in_item = self.is_item
        self.forget_marker()

    def forget_marker(self) -> None:
        self.item = self.heading = ""
        self.is_item = False

    def emit_lonely_marker(self) -> None:
        if self.item:
            self.emit((self.item + self.heading).rstrip(" "))

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        self.handle_starttag(tag, attrs)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        values = {name: value or "" for name, value in attrs}
        lists = self.containers[-1].lists
        alt = values.get("alt") if tag == "img" else None
        words = "" if alt in (None, "", "enter image description here", "alt text") else f" {alt} "
        if tag == "br":
            self.handle_data("\n")
        elif self.verbatim is not None:
            self.end_verbatim_line("p" if tag in ("hr", "pre") else tag)
            self.images += words
        elif tag == "code":
            self.verbatim, self.images, self.closes_at = "", "", tag
        elif tag == "pre":
            self.end_block()
            self.verbatim, self.closes_at = "", tag
            language = re.search(r"lang-([\w+#-]*)", values.get("class", ""))
            self.language = language[1] if language else ""
        elif tag in BLOCKS:
            self.end_block()
        elif tag == "li":
            self.end_block()
            number = lists[-1] if lists else None
            if number is not None and values.get("value", "").isdecimal():
                number = int(values["value"])
            self.item = "  " * (len(lists) - 1) + ("- " if number is None else f"{number}. ")
            if number is not None:
                lists[-1] = number + 1
            self.is_item = True
        elif tag in ("ul", "ol"):
            self.end_block()
            start = values.get("start", "")
            lists.append(None if tag == "ul" else int(start) if start.isdecimal() else 1)
        elif tag == "blockquote":
            self.end_block()
            self.emit_lonely_marker()
            self.containers.append(Container())
        elif tag in HEADINGS:
            self.end_block()
            self.heading = "#" * int(tag[1]) + " "
        elif tag == "hr":
            self.end_block()
            self.forget_marker()
            self.emit("---")
        elif tag == "tr":
            self.end_block()
            self.is_item = True
        elif tag in ("td", "th"):
            while self.line and (self.line[-1][0] == TAG or self.line[-1] in [(white, False) for white in WHITE]):
                self.line.pop()
            if self.line or self.is_row:
                self.line += [(CELL, True), (" ", False)]
            self.is_row = True
        elif words:
            self.handle_data(words)
        else:
            self.line.append((TAG, tag == "sup"))

    def handle_endtag(self, tag: str) -> None:
        if tag == "br":
            self.handle_data("\n")
        elif self.verbatim is not None:
            self.end_verbatim_line(tag)
            if tag == self.closes_at:
                self.end_verbatim()
        elif tag in BLOCKS:
            self.end_block()
        elif tag in HEADINGS or tag in ("li", "tr"):
            self.end_block()
            self.forget_marker()
        elif tag in ("ul", "ol"):
            self.end_block()
            self.forget_marker()
            del self.containers[-1].lists[-1:]
        elif tag == "blockquote":
            self.end_block()
            if len(self.containers) > 1:
                self.forget_marker()
                self.end_quote()
        else:
            self.line.append((TAG, False))

    def end_quote(self) -> None:
        inner = self.containers.pop().text
        if inner:
            self.emit("\n".join(f"> {line}" if line else ">" for line in inner.split("\n")))

    def end_verbatim_line(self, tag: str) -> None:
        """End a line of code that has text, at the start or end of a block."""
        if tag in BLOCKS or tag in HEADINGS or tag in ("li", "ul", "ol", "tr", "blockquote"):
            self.handle_data("\n" if self.verbatim and not self.verbatim.endswith("\n") else "")

    def end_verbatim(self) -> None:
        code, self.verbatim = self.verbatim or "", None
        if self.closes_at == "code":
            around = ("`` ", " ``") if "`" in code else ("`", "`")
            if not code.strip(" \n\t"):
                self.handle_data(self.images)
            else:
                self.line += [(character, True) for character in around[0] + code + around[1]]
        else:
            fence = max(["``", *re.findall("`+", code)], key=len) + "`"
            code = code.removeprefix("\n").removesuffix("\n")
            if code.strip(" \n\t"):
                self.emit_lonely_marker()
                self.is_item = False
                self.emit(f"{self.heading}{fence}{self.language}\n{code}\n{fence}")

    def close(self) -> None:
        super().close()
        if self.verbatim is not None:
            self.end_verbatim()
        self.end_block()
        while len(self.containers) > 1:
            self.forget_marker()
            self.end_quote()


def to_text(body: str) -> str:
    """Return the text of an unescaped HTML body."""
    reader = BodyReader()
    reader.feed(body)
    reader.close()
    return reader.containers[0].text


@dataclass(frozen=True)
class Thread:
    """Question and answers of a thread, as attributes with row numbers."""

    question: dict[str, str]
    answers: list[dict[str, str]]
    text: str


@dataclass
class ReadSite:
    threads: list[Thread] = field(default_factory=list)
    not_used: Counter[str] = field(default_factory=Counter)


def read_site(posts_xml: Path) -> ReadSite:
    """Read every thread by question id; count unused posts by reason."""
    site, answers = ReadSite(), defaultdict(list)
    posts = [{**row.attrib, "row": str(number)} for number, row in enumerate(ElementTree.parse(posts_xml).getroot())]
    questions = {post["Id"]: post for post in posts if post["PostTypeId"] == "1"}
    for post in posts:
        if post["PostTypeId"] == "2":
            answers[post["ParentId"]].append(post)
        elif post["PostTypeId"] != "1":
            site.not_used[post["PostTypeId"]] += 1
    for question_id in sorted(questions, key=int):
        question = questions[question_id]
        accepted = question.get("AcceptedAnswerId")
        theirs = sorted(
            answers.pop(question_id, []),
            key=lambda post: (post["Id"] != accepted, -int(post["Score"]), int(post["Id"])),
        )
        full = [post for post in theirs if to_text(post["Body"])]
        site.not_used["empty_answer"] += len(theirs) - len(full)
        parts = [question["Title"], to_text(question["Body"]), *(f"Answer:\n\n{to_text(a['Body'])}" for a in full)]
        site.threads.append(Thread(question, full, "\n\n".join(part for part in parts if part)))
    site.not_used["no_question"] = sum(map(len, answers.values()))
    return site
