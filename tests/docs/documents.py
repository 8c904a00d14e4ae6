"""The documents of the tree and the blocks in them, for the tests of the documents."""

import pathlib
import re
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCUMENTS = sorted(ROOT.glob("*.md")) + [ROOT / "example/README.md", ROOT / "bench/README.md", ROOT / "third_party/README.md",
                                         *sorted((ROOT / "docs").rglob("*.md"))]
_FENCED = re.compile(r"^ *```(\S*)([^\n]*)\n(.*?)^ *```$", re.S | re.M)


def fenced(text):
    """The blocks between ``` of a document: their language, the words after it, and their text."""
    return [(language, words.split(), block) for language, words, block in _FENCED.findall(text)]


def blocks_of(language, text):
    """The texts of the blocks of one language. "": those without a language."""
    return [block for found, _, block in fenced(text) if found == language]


def without_fenced(text):
    return _FENCED.sub("", text)


def indented(text):
    """The indented blocks of a document, without their margin."""
    return [textwrap.dedent(block) for block in re.findall(r"(?<=\n\n)((?: {4}[^\n]*\n)+)", without_fenced(text))]
