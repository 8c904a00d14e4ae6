#!/usr/bin/env python3
"""docs/troubleshooting.md quotes error texts as the sources have them."""

import re
import unittest

from documents import ROOT, blocks_of

PAGE = ROOT / "docs/troubleshooting.md"
LITERAL = r'"(?:\\.|[^"\\\n])*"'
# Parts of a quoted text that are values: numbers, addresses, names in quotation marks, placeholders, and omitted parts.
VALUE = re.compile(r'"[^"]*"|\'[^\']*\'|\.\.\.|\([^()]*\)|\S*[\d]\S*|--\S+|\b[A-Z_]{2,}\b|`[^`]*`')
# Texts of the C library.
OTHERS = "\nname or service not known\nnetwork is unreachable\n"
MOST_VALUES = 3  # words that may be values, for example a unit, between texts of the sources
LEAST_WORDS = 4  # shorter parts of a text are not looked up


def words_of(text):
    return " ".join(re.findall(r"[a-zA-Z]+", text)).lower()


def sources():
    """The words of all texts that the library and the programs can print."""
    texts = []
    for folder in ("src", "tools", "example"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".cc", ".h", ".in"):
                code = re.sub(r"^\s*//.*$", "", path.read_text(encoding="utf-8"), flags=re.M)
                for match in re.finditer(rf"{LITERAL}(?:\s*{LITERAL})*", code):
                    texts.append(words_of("".join(part[1:-1] for part in re.findall(LITERAL, match.group()))))
    return "\n".join(texts)


def quoted(page):
    """The parts of the quoted texts of a page that are not values."""
    text = page.read_text(encoding="utf-8")
    # A line that begins with blanks continues the one before it.
    lines = [line for block in blocks_of("", text) for line in re.sub(r"\n +", " ", block).splitlines()]
    # Tables have a message in the first column.
    lines += re.findall(r"^\| `(?:[\w-]+: )?([^`|]+)` \|", text, re.M)
    parts = [words_of(part) for line in lines for part in re.split(VALUE, re.sub(r" \([a-z :]+\)$", "", line))]
    return [part for part in parts if len(part.split()) >= LEAST_WORDS]


def unknown_words(part, known):
    """The number of words outside of runs of at least three words that stand in the sources."""
    words = part.split()
    best = [0] + [None] * len(words)  # of the first N words
    for end in range(1, len(words) + 1):
        best[end] = best[end - 1] + 1
        for begin in range(end - 3, -1, -1):
            if best[begin] < best[end] and " ".join(words[begin:end]) in known:
                best[end] = best[begin]
    return best[-1]


class Texts(unittest.TestCase):
    def test_each_quoted_text_is_in_the_sources(self):
        known = sources() + OTHERS
        parts = quoted(PAGE)
        self.assertGreater(len(parts), 25)
        for part in parts:
            with self.subTest(part):
                self.assertLessEqual(unknown_words(part, known), MOST_VALUES, "no text of the sources has these words")

    def test_a_changed_text_is_found(self):
        known = sources() + OTHERS
        for part in quoted(PAGE):
            words = part.split()
            self.assertGreater(unknown_words(" ".join(words[1:] + ["words", "never", "seen", "here", words[0]]), known), MOST_VALUES)


if __name__ == "__main__":
    unittest.main()
