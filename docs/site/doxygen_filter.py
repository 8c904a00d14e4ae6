#!/usr/bin/env python3
"""Doxygen's input filter: prints a header with the labels of its comments turned into Doxygen's commands.

usage: doxygen_filter.py HEADER

A documentation comment of this project has labelled paragraphs, whose further lines are indented:

    /// name     the name of ...
    /// Returns  kTimeout: ...;
    ///          kWrongState: ...
    /// Threads  any thread

They become @param, @returns and @par.
"""

import pathlib
import re
import sys

COMMENT = re.compile(r"^(?P<margin> *)///(?P<text>(?: .*)?)$")
SECTIONS = "Threads|Lifetime|Errors|Cost|ABI|Source|Server|Client"
LABEL = re.compile(rf"^ (?:(?P<section>{SECTIONS}|Returns)(?: {{2,}}|: )|(?P<names>[a-z][a-z_0-9]*(?:, [a-z][a-z_0-9]*)*) {{2,}})(?P<rest>\S.*)$")


def command(match):
    """The Doxygen command of a labelled line."""
    if match["names"]:
        return f"@param {match['names'].replace(', ', ',')} {match['rest']}"
    if match["section"] == "Returns":
        return f"@returns {match['rest']}"
    return f"@par {match['section']}\n{match['rest']}"


def filtered(text):
    """The header with the same lines of code; a comment may get more lines."""
    lines = []
    labelled = False
    for line in text.splitlines():
        comment = COMMENT.match(line)
        if not comment:
            labelled = False
            lines.append(line)
            continue
        margin, words = comment["margin"], comment["text"]
        if label := LABEL.match(words):
            labelled = True
            lines += [f"{margin}///"] + [f"{margin}/// {part}" for part in command(label).splitlines()]
        elif labelled and not words.startswith("  ") and words:
            labelled = False
            lines += [f"{margin}///", line]
        else:
            lines.append(f"{margin}/// {words.strip()}" if labelled else line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(filtered(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")))
