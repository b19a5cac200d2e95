"""Licences: spellings and texts become tags, or unknown, and attribution is kept.

A text has the tag of a licence only if its words are exactly those of the licence.
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
    ("spelling", "tag"),
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
def test_the_usual_spellings_of_a_licence_have_one_tag(table: LicenceTable, spelling: str, tag: str) -> None:
    assert table.match_tag(spelling) == tag


@pytest.mark.parametrize("spelling", ["cc-by-sa", "gpl", "free", "CC BY-SA 5.0"])
def test_a_licence_without_its_version_is_not_guessed(table: LicenceTable, spelling: str) -> None:
    assert table.match_tag(spelling) is None
    assert table.find_licence_tag(spelling, "row: license") == LicenceTag("unknown", f"row: license is {spelling!r}")


def test_the_fingerprint_depends_only_on_spellings(table: LicenceTable) -> None:
    renamed = [{**licence, "name": licence["name"].upper()} for licence in json.loads(TABLE.read_bytes())]
    respelled = [{**licence, "aliases": [*licence["aliases"], f"my {licence['tag']}"]} for licence in renamed]

    def fingerprint(licences: list[dict[str, object]]) -> str:
        return LicenceTable([msgspec.convert(licence, Licence) for licence in licences]).fingerprint

    assert fingerprint(renamed) == table.fingerprint
    assert fingerprint(respelled) != table.fingerprint


def test_an_unknown_licence_is_reported_with_the_nearest(table: LicenceTable) -> None:
    assert table.require_tag("CC BY-SA 4.0", "recipe") == "cc-by-sa-4.0"
    with pytest.raises(UsageError, match=r"unknown licence 'cc-by-sa-4'; did you mean cc-by-sa-4\.0\?"):
        table.require_tag("cc-by-sa-4", "recipe")


def test_attribution_names_each_source_with_its_licence_or_as_unknown(table: LicenceTable) -> None:
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


def licence_entry(tag: str, *aliases: str) -> dict[str, object]:
    unset = dict.fromkeys(("spdx", "url", "redistributable", "attribution", "share_alike"))
    return {"tag": tag, "name": tag, "aliases": list(aliases), **unset}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([licence_entry("unknown"), licence_entry("a", "x"), licence_entry("b", "X ")], "'x' is both a and b"),
        ([licence_entry("a")], "licence `unknown` is missing"),
        ([licence_entry("unknown") | {"attributon": True}], "not a valid licence table"),
        ({"unknown": {}}, "not a valid licence table"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(tmp_path: Path, content: object, message: str) -> None:
    path = tmp_path / "licences.json"
    path.write_text(json.dumps(content))

    with pytest.raises(InputError, match=message):
        read_licences(path)


def test_an_empty_spdx_id_or_url_of_a_table_is_no_spelling(tmp_path: Path) -> None:
    path = tmp_path / "licences.json"
    path.write_text(json.dumps([licence_entry(tag) | {"spdx": "", "url": ""} for tag in ("unknown", "a")]))

    assert read_licences(path).match_tag("") is None


def test_a_missing_table_is_reported(tmp_path: Path) -> None:
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
""" + NO_NAMES.lstrip().replace("3.", "4.")
COMMON_LICENCES = Path("/usr/share/common-licenses")


def find_tag(text: str) -> str:
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
def test_a_licence_is_identified_for_any_holder_and_layout(text: str, tag: str) -> None:
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
        f"Copyright (c) 2020 Acme. Redistribution requires a fee.\n\n{MIT}",
        f"Copyright (c) 2020 Acme. Royalties apply.\n\n{MIT}",
        f"Copyright (c) 2020 Acme. Evaluation copy.\n\n{MIT}",
        f"Copyright (c) 2020 Acme. Resale needs a contract.\n\n{MIT}",
        f"© 2020 Acme, for internal purposes\n\n{MIT}",
    ],
)
def test_texts_other_than_licences_of_the_table_are_unknown(text: str) -> None:
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
def test_an_spdx_identifier_decides_unless_the_text_contradicts_it(line: str, tag: str, evidence: str) -> None:
    assert identify_licence(line, "file: LICENSE") == LicenceTag(tag, evidence)


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        *(("Apache-2.0", "apache-2.0"), ("CC0-1.0", "cc0-1.0"), ("GPL-2", "gpl-2.0"), ("GPL-3", "gpl-3.0")),
        *((name, "unknown") for name in ("Artistic", "GFDL-1.3", "GPL-1", "LGPL-2.1", "LGPL-3", "MPL-2.0")),
    ],
)
def test_debian_licence_texts_have_the_tag_of_their_name(name: str, tag: str) -> None:
    if not (COMMON_LICENCES / name).is_file():
        pytest.skip("needs Debian's common-licenses")
    assert find_tag((COMMON_LICENCES / name).read_text(encoding="utf-8")) == tag


def test_pythons_own_licence_is_psf_2_0() -> None:
    path = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    if not path.is_file():
        pytest.skip("this Python ships no LICENSE.txt")
    assert find_tag(path.read_text(encoding="utf-8")) == "psf-2.0"


_TAGS_BY_CLASSIFIER = {
    "MIT License": {"mit"},
    "Apache Software License": {"apache-2.0"},
    "BSD License": {"bsd-2-clause", "bsd-3-clause"},
    "Python Software Foundation License": {"psf-2.0"},
}


def list_packages() -> Iterator[tuple[str, Path, set[str]]]:
    """Yield name, licence file and stated tags of packages with one licence and file."""
    for package in distributions():
        files = [file for file in package.files or () if re.match(r"(?i)licen[cs]e|copying", file.name)]
        files = [file for file in files if ".dist-info" in file.parts[0] and len(file.parts) <= 3]
        expression = package.metadata.get("License-Expression")
        classifiers = [name.split(" :: ")[-1] for name in package.metadata.get_all("Classifier") or ()]
        licences = [name for name in classifiers if name in _TAGS_BY_CLASSIFIER or "(MPL" in name or "GPL" in name]
        if expression is not None:
            stated = set() if " " in expression else {licence_table().match_tag(expression) or "unknown"}
        else:
            stated = _TAGS_BY_CLASSIFIER.get(licences[0], {"unknown"}) if len(licences) == 1 else set()
        if len(files) == 1 and stated:
            yield package.metadata["Name"], Path(str(package.locate_file(files[0]))), stated


def test_installed_packages_have_the_licence_that_they_state() -> None:
    tags = {name: (find_tag(path.read_text("utf-8", "replace")), stated) for name, path, stated in list_packages()}
    if len(tags) < 50:
        pytest.skip(f"{len(tags)} packages here state one licence and ship its text")

    known = {name: (tag, stated) for name, (tag, stated) in tags.items() if tag != "unknown"}
    assert {name: pair for name, pair in known.items() if pair[0] not in pair[1]} == {}
    assert len(known) > 0.7 * sum(stated != {"unknown"} for _, stated in tags.values())


@pytest.mark.parametrize("piece", ["\n", ".\n", "© \n", ". ", "SPDX-License-Identifier: ", "copyright x\n"])
def test_an_adversarial_text_is_read_in_linear_time(piece: str) -> None:
    """Quadratic time would be an hour for a quarter of a megabyte, the longest text."""
    text = (piece * MAX_LICENCE_TEXT_BYTES)[:MAX_LICENCE_TEXT_BYTES]

    assert identify_licence(text, "file: LICENSE").tag == "unknown"


@given(
    st.lists(st.sampled_from(["\n", ".", "©", "(c)", "copyright 1999", "Copyright (c) me", "word", " "]), max_size=12)
)
def test_lines_without_words_change_no_other_word(pieces: list[str]) -> None:
    text = "".join(pieces)

    assert _WORD.findall(_HOLDER.sub("", _LINES_WITHOUT_WORDS.sub("\n", text))) == _WORD.findall(_HOLDER.sub("", text))
