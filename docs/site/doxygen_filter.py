#!/usr/bin/env python3
"""Doxygen's input filter: prints a header with the labels of its comments turned into Doxygen's commands.

usage: doxygen_filter.py HEADER

A documentation comment of this project has labelled paragraphs, whose further lines are indented:

    /// name     the name of ...
    /// Returns  kTimeout: ...; kWrongState: ...;
    ///          kNotSupported: ...
    /// Threads  any thread

Names of parameters become @param, the other labels headings (@par). Error codes become the items of a list. So do the lines of a list
whose items are aligned: "///   kName   text".
"""

import pathlib
import re
import sys

COMMENT = re.compile(r"^(?P<margin> *)/// ?(?P<text>.*)$")
SECTION = re.compile(r"^(?P<label>Returns|Errors|Completes with|Threads|Lifetime|Cost|ABI|Source|Server|Client)(?: {2,}|: )(?P<text>\S.*)$")
PARAMETER = re.compile(r"^(?P<label>[a-z][a-z_0-9]*(?:, [a-z][a-z_0-9]*)*) {2,}(?P<text>\S.*)$")
ITEM = re.compile(r"^ {2,}(?P<label>\S+) {2,}(?P<text>\S.*)$")
# The beginning of an item in a list of errors.
CODE = re.compile(r"(?:^|(?<=; ))(?=(?:k[A-Z]\w+|std::errc::\w+)(?:[,:]| or ))")
# Designated initializers, which Sphinx cannot read. The comment of the member says what they mean.
INITIALIZER = re.compile(r" = \{\{\..*\}\}(?=;)")


def errors(text):
    """The lines of a list of errors. A text that is no list is one line."""
    parts = [part.strip().rstrip(";") for part in CODE.split(text) if part.strip()]
    return [text] if len(parts) < 2 else [part if number == 0 and not CODE.match(part) else f"- {part}" for number, part in enumerate(parts)]


def section(label, text):
    return ["", f"@par {label}", *errors(text), ""]


def converted(lines):
    """The lines of one comment, without their marks, for Doxygen."""
    out, label, parts = [], "", []

    def done():
        nonlocal label, parts
        text = " ".join(parts)
        out.extend(section(label, text) if SECTION.match(f"{label}: x") else ["", f"@param {label.replace(', ', ',')} {text}"] if label else [])
        label, parts = "", []

    for line in lines:
        if match := SECTION.match(line) or PARAMETER.match(line):
            done()
            label, parts = match["label"], [match["text"]]
        elif label and line.startswith("  "):
            parts.append(line.strip())
        else:
            if label:
                done()
                out.append("")
            item = ITEM.match(line)
            out.append(f"- `{item['label']}`: {item['text']}" if item else line)
    done()
    return out


def filtered(text):
    """The header with the same lines of code; a comment may get more lines, or fewer."""
    lines, comment, margin = [], [], ""
    for line in [*text.splitlines(), ""]:
        if match := COMMENT.match(line):
            margin = match["margin"]
            comment.append(match["text"])
            continue
        lines += [f"{margin}/// {part}".rstrip() for part in converted(comment)]
        comment = []
        lines.append(INITIALIZER.sub("", line))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        sys.exit(0 if "--help" in sys.argv else 2)
    sys.stdout.write(filtered(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")))
