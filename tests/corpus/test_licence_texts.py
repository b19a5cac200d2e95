"""Licences told from their texts: whole and alone they have their tag, with a clause more, or beside others, none."""

import re
import sysconfig
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest

from pipeline_assets.corpus.licences import Licensed, licence_of_text, licence_table

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
    return licence_of_text(text, "file: LICENSE").tag


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
        (f"{MIT}\n{MIT}", "mit"),
    ],
)
def test_a_licence_is_known_whoever_holds_it_and_however_it_is_laid_out(text: str, tag: str) -> None:
    assert licence_of_text(text, "file: a/LICENSE") == Licensed(tag, "file: a/LICENSE")


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
    ],
    ids=["nothing", "no-licence", "title", "half", "json", "x11", "bsd-4", "no-source-form", "no-nuclear", "two"],
)
def test_what_is_no_licence_of_the_table_is_unknown(text: str) -> None:
    assert licence_of_text(text, "file: LICENSE") == Licensed("unknown", "file: LICENSE")


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
        (f"SPDX-License-Identifier: Apache-2.0\n\n{MIT}", "unknown", "file: LICENSE"),
        (f"SPDX-License-Identifier: MIT\n\n{BSD.format('').replace('binary', 'object')}", "unknown", "file: LICENSE"),
    ],
)
def test_an_identifier_says_the_licence_unless_the_text_says_more(line: str, tag: str, evidence: str) -> None:
    assert licence_of_text(line, "file: LICENSE") == Licensed(tag, evidence)


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
            stated = set() if " " in expression else {licence_table().tag_of(expression) or "unknown"}
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
    assert len(known) > 0.8 * sum(stated != {"unknown"} for _, stated in found.values())
