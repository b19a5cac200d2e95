"""Licences: a value as somebody wrote it is a tag or unknown, never a guess; nobody's attribution is forgotten.

A text has the tag of its licence where its words are exactly those; with a clause more, or beside others, none.
"""

import json
import re
import sysconfig
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.licence_texts import (
    _HOLDER,
    _LINES_WITHOUT_WORDS,
    _WORD,
    MAX_LICENCE_TEXT_BYTES,
    identify_licence,
)
from pipeline_assets.corpus.licences import (
    Licence,
    LicenceTable,
    LicenceTag,
    attribution_text,
    licence_table,
    read_licences,
)
from pipeline_assets.spine.errors import InputError, UsageError

PROJECT = Path(__file__).parents[2]
TABLE = PROJECT / "manifests" / "licences.json"


@pytest.fixture(scope="module")
def table() -> LicenceTable:
    return read_licences(TABLE)


@pytest.mark.parametrize(
    ("written", "tag"),
    [
        ("CC BY-SA 4.0", "cc-by-sa-4.0"),  # Posts.xml, ContentLicense
        ("cc-by-sa-3.0", "cc-by-sa-3.0"),
        ("https://creativecommons.org/licenses/by-sa/2.5/", "cc-by-sa-2.5"),
        ("ODC-By-1.0", "odc-by"),
        ("odc-by", "odc-by"),
        ("Apache License 2.0", "apache-2.0"),
        ("  MIT ", "mit"),
        ("public_domain", "public-domain"),
    ],
)
def test_the_usual_spellings_of_a_licence_are_one_tag(table: LicenceTable, written: str, tag: str) -> None:
    assert table.match_tag(written) == tag


@pytest.mark.parametrize("written", ["cc-by-sa", "gpl", "free", "CC BY-SA 5.0"])
def test_a_licence_without_its_version_is_not_guessed(table: LicenceTable, written: str) -> None:
    assert table.match_tag(written) is None
    assert table.find_licence_tag(written, "row: license") == LicenceTag("unknown", f"row: license is {written!r}")


def test_the_fingerprint_is_of_spellings_alone(table: LicenceTable) -> None:
    renamed = [{**licence, "name": licence["name"].upper()} for licence in json.loads(TABLE.read_bytes())]
    respelled = [{**licence, "aliases": [*licence["aliases"], f"my {licence['tag']}"]} for licence in renamed]

    def fingerprint(licences: list[dict[str, object]]) -> str:
        return LicenceTable([msgspec.convert(licence, Licence) for licence in licences]).fingerprint

    assert fingerprint(renamed) == table.fingerprint
    assert fingerprint(respelled) != table.fingerprint


def test_a_recipe_that_names_no_known_licence_hears_the_nearest(table: LicenceTable) -> None:
    assert table.require_tag("CC BY-SA 4.0", "recipe") == "cc-by-sa-4.0"
    with pytest.raises(UsageError, match=r"unknown licence 'cc-by-sa-4'; did you mean cc-by-sa-4\.0\?"):
        table.require_tag("cc-by-sa-4", "recipe")


def test_attribution_names_each_source_with_its_licence_and_what_is_not_known(table: LicenceTable) -> None:
    text = attribution_text(
        table, {"coffee": ["cc-by-sa-4.0", "cc-by-sa-3.0"], "laws": ["public-domain"], "scraps": ["unknown"]}
    )

    assert text.splitlines() == [
        "This set holds text of the following sources, under licences that ask for attribution:",
        "",
        "coffee: Creative Commons Attribution-ShareAlike 3.0 (https://creativecommons.org/licenses/by-sa/3.0/); "
        "what is made from it carries the same licence",
        "coffee: Creative Commons Attribution-ShareAlike 4.0 International "
        "(https://creativecommons.org/licenses/by-sa/4.0/); what is made from it carries the same licence",
        "",
        "Of these it is not known what their licence asks for:",
        "",
        "scraps: unknown licence",
    ]
    assert attribution_text(table, {"laws": ["public-domain"]}) == "No licence of this set asks for attribution.\n"


def test_every_licence_of_the_table_is_found_by_its_tag_and_spdx_id(table: LicenceTable) -> None:
    for entry in json.loads((PROJECT / "manifests" / "licences.json").read_text()):
        assert table.match_tag(entry["tag"]) == entry["tag"]
        assert entry["spdx"] is None or table.match_tag(entry["spdx"]) == entry["tag"]


def entry(tag: str, *aliases: str) -> dict[str, object]:
    unsaid = dict.fromkeys(("spdx", "url", "redistributable", "attribution", "share_alike"))
    return {"tag": tag, "name": tag, "aliases": list(aliases), **unsaid}


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ([entry("unknown"), entry("a", "x"), entry("b", "X ")], "'x' is both a and b"),
        ([entry("a")], "licence `unknown` is missing"),
        ([entry("unknown") | {"attributon": True}], "not a valid licence table"),
        ({"unknown": {}}, "not a valid licence table"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(tmp_path: Path, content: object, what: str) -> None:
    path = tmp_path / "licences.json"
    path.write_text(json.dumps(content))

    with pytest.raises(InputError, match=what):
        read_licences(path)


def test_a_table_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the licence table"):
        read_licences(tmp_path / "licences.json")


MIT = """\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""
SOURCE_FORM = (
    "1. Redistributions of source code must retain the above copyright notice, this list of conditions and the\n"
)
BSD = f"""\
Redistribution and use in source and binary forms, with or without modification, are permitted provided that the
following conditions are met:

{SOURCE_FORM}following disclaimer.
2. Redistributions in binary form must reproduce the above copyright notice, this list of conditions and the following
disclaimer in the documentation and/or other materials provided with the distribution.
{{}}
THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES,
INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL,
SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR
SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF LIABILITY,
WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF
THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
"""
NO_NAMES = """
3. Neither the name of the copyright holder nor the names of its contributors may be used to endorse or promote products
derived from this software without specific prior written permission.
"""
ADVERTISING = """
3. All advertising materials mentioning features or use of this software must display the following acknowledgement:
This product includes software developed by the organization.
4. Neither the name of the copyright holder nor the names of its contributors may be used to endorse or promote products
derived from this software without specific prior written permission.
"""
COMMON_LICENCES = Path("/usr/share/common-licenses")


def tag_of(text: str) -> str:
    return identify_licence(text, "file: LICENSE").tag


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        (MIT, "mit"),
        (f"The MIT License (MIT)\n\nCopyright (c) 2019 A. Author\n\n{MIT}", "mit"),
        ("".join(f"Copyright (c) {year} Author {year} and many others\n" for year in range(1990, 2020)) + MIT, "mit"),
        ("# " + MIT.replace("\n", "\n# "), "mit"),
        (re.sub(r"\s+", " ", MIT), "mit"),
        (BSD.format(""), "bsd-2-clause"),
        (f"BSD 3-Clause License\n\n© 2020, A. Author\n\n{BSD.format(NO_NAMES)}", "bsd-3-clause"),
        (BSD.format("").replace("1. ", "* ").replace("2. ", "* "), "bsd-2-clause"),
        (f"Copyright 2020 A. Author\nAll rights reserved.\n\n{BSD.format(NO_NAMES)}", "bsd-3-clause"),
    ],
)
def test_a_licence_is_known_whoever_holds_it_and_however_it_is_laid_out(text: str, tag: str) -> None:
    assert identify_licence(text, "file: a/LICENSE") == LicenceTag(tag, "file: a/LICENSE")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "All rights reserved.",
        "MIT License",
        MIT[: len(MIT) // 2],
        MIT.replace("conditions:\n", "conditions:\n\nThe Software shall be used for Good, not Evil.\n"),
        MIT
        + "\nThe name of A. Author may not be used in advertising or otherwise to promote the sale of this Software, "
        "its use or other dealings without prior written authorization from A. Author.",
        BSD.format(ADVERTISING),
        BSD.format(NO_NAMES).replace(SOURCE_FORM, ""),
        BSD.format("") + "You acknowledge that this software is not designed, licensed or intended for use in the "
        "design, construction, operation or maintenance of any nuclear facility.",
        MIT + BSD.format(""),
        f"{MIT}\n{MIT}",
        f"Not the MIT License\nbut another\n{MIT}",
        f"This is not the MIT License\n\n{MIT}",
        f"MIT License (non-commercial)\n\n{MIT}",
        f"Modified MIT License\n\n{MIT}",
        f"MIT License with exceptions\n\n{MIT}",
        f"Copyright (c) 2020 Acme. Commercial use is prohibited.\n\n{MIT}",
        f"Copyright 2020 Acme\nAll rights reserved. No training of models.\n\n{MIT}",
        f"© 2020 Acme, for internal purposes\n\n{MIT}",
    ],
)
def test_what_is_no_licence_of_the_table_is_unknown(text: str) -> None:
    assert identify_licence(text, "file: LICENSE").tag == "unknown"


@pytest.mark.parametrize(
    ("line", "tag", "evidence"),
    [
        ("SPDX-License-Identifier: Apache-2.0", "apache-2.0", "file: LICENSE"),
        ("/* SPDX-License-Identifier: GPL-3.0-only */", "gpl-3.0", "file: LICENSE"),
        ("<!-- SPDX-License-Identifier: MIT -->", "mit", "file: LICENSE"),
        ("# spdx-license-identifier: mit", "mit", "file: LICENSE"),
        ("SPDX-License-Identifier: MIT OR Apache-2.0", "unknown", "file: LICENSE is 'MIT OR Apache-2.0'"),
        ("SPDX-License-Identifier: LicenseRef-Ours", "unknown", "file: LICENSE is 'LicenseRef-Ours'"),
        (f"SPDX-License-Identifier: MIT\n\n{MIT}", "mit", "file: LICENSE"),
        ("MIT License\n\nSPDX-License-Identifier: MIT", "mit", "file: LICENSE"),
        ("Apache License\n\nSPDX-License-Identifier: MIT", "unknown", "file: LICENSE"),
        (f"SPDX-License-Identifier: Apache-2.0\n\n{MIT}", "unknown", "file: LICENSE"),
        (f"SPDX-License-Identifier: MIT\n\n{BSD.format('').replace('binary', 'object')}", "unknown", "file: LICENSE"),
    ],
)
def test_an_identifier_says_the_licence_unless_the_text_says_more(line: str, tag: str, evidence: str) -> None:
    assert identify_licence(line, "file: LICENSE") == LicenceTag(tag, evidence)


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        *(("Apache-2.0", "apache-2.0"), ("CC0-1.0", "cc0-1.0"), ("GPL-2", "gpl-2.0"), ("GPL-3", "gpl-3.0")),
        *((name, "unknown") for name in ("Artistic", "GFDL-1.3", "GPL-1", "LGPL-2.1", "LGPL-3", "MPL-2.0")),
    ],
)
def test_texts_of_debian_are_what_they_are_called(name: str, tag: str) -> None:
    if not (COMMON_LICENCES / name).is_file():
        pytest.skip("needs Debian's common-licenses")
    assert tag_of((COMMON_LICENCES / name).read_text(encoding="utf-8")) == tag


def test_pythons_own_licence_is_that_of_its_foundation() -> None:
    path = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    if not path.is_file():
        pytest.skip("this Python ships no LICENSE.txt")
    assert tag_of(path.read_text(encoding="utf-8")) == "psf-2.0"


_OF_CLASSIFIERS = {
    "MIT License": {"mit"},
    "Apache Software License": {"apache-2.0"},
    "BSD License": {"bsd-2-clause", "bsd-3-clause"},
    "Python Software Foundation License": {"psf-2.0"},
}


def installed() -> Iterator[tuple[str, Path, set[str]]]:
    """Name, licence file and stated tags of packages that state one licence and ship one file of it."""
    for package in distributions():
        files = [file for file in package.files or () if re.match(r"(?i)licen[cs]e|copying", file.name)]
        files = [file for file in files if ".dist-info" in file.parts[0] and len(file.parts) <= 3]
        expression = package.metadata.get("License-Expression")
        classifiers = [one.split(" :: ")[-1] for one in package.metadata.get_all("Classifier") or ()]
        licences = [one for one in classifiers if one in _OF_CLASSIFIERS or "(MPL" in one or "GPL" in one]
        if expression is not None:
            stated = set() if " " in expression else {licence_table().match_tag(expression) or "unknown"}
        else:
            stated = _OF_CLASSIFIERS.get(licences[0], {"unknown"}) if len(licences) == 1 else set()
        if len(files) == 1 and stated:
            yield package.metadata["Name"], Path(str(package.locate_file(files[0]))), stated


def test_installed_packages_are_under_the_licence_that_they_state() -> None:
    found = {name: (tag_of(path.read_text("utf-8", "replace")), stated) for name, path, stated in installed()}
    if len(found) < 50:
        pytest.skip(f"{len(found)} packages here state one licence and ship its text")

    known = {name: (tag, stated) for name, (tag, stated) in found.items() if tag != "unknown"}
    assert {name: both for name, both in known.items() if both[0] not in both[1]} == {}
    assert len(known) > 0.7 * sum(stated != {"unknown"} for _, stated in found.values())


@pytest.mark.parametrize("piece", ["\n", ".\n", "© \n", ". ", "SPDX-License-Identifier: ", "copyright x\n"])
def test_a_text_made_to_take_long_is_read_in_linear_time(piece: str) -> None:
    """A quarter of a megabyte, the longest text that is read: in quadratic time, some of these take an hour."""
    text = (piece * MAX_LICENCE_TEXT_BYTES)[:MAX_LICENCE_TEXT_BYTES]

    assert identify_licence(text, "file: LICENSE").tag == "unknown"


@given(
    st.lists(st.sampled_from(["\n", ".", "©", "(c)", "copyright 1999", "Copyright (c) me", "word", " "]), max_size=12)
)
def test_lines_without_words_change_no_other_word(pieces: list[str]) -> None:
    text = "".join(pieces)

    assert _WORD.findall(_HOLDER.sub("", _LINES_WITHOUT_WORDS.sub("\n", text))) == _WORD.findall(_HOLDER.sub("", text))
