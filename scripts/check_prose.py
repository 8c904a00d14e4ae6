#!/usr/bin/env python3
"""Checks the prose of the tree: comments, documents, and the texts that programs print.

usage: check_prose.py [--count | --lower] [ROOT]

ROOT     the top of the tree; default: the tree this file is in
--count  prints the number of findings of each file and of each kind instead of the findings
--lower  writes the numbers into scripts/prose_baseline.txt, if no file has more than before

CONTRIBUTING.md, "How we write", has the rules. This script finds the violations that an expression can find: phrases that are hard to
read, words of a private vocabulary, sentences that are too long, and lines beyond the column limit. prose_baseline.txt has the number
of findings that each file may have; a file that is not in it may have none. The numbers may only fall. If a file has more or fewer
findings than its number, the script prints them ("file:line: advice: the words") and exits 1; else it prints one line and exits 0.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

COLUMNS = 120
LONGEST_SENTENCE = 30  # words

# Files whose texts are data or are compared with something else byte for byte.
SKIPPED = re.compile(r"(^|/)(third_party|corpus|results)/|\.svg$|exported\.txt$|\.xz$")

START = r"(?:^|(?<=[.;:!?] )|(?<=[(\"]))"
# The advice for each pattern, and the pattern.
PATTERNS = [
    ("name the thing that acts, not 'who'",
     rf"{START}[Ww]ho(?:ever|mever)?\b|\b(?:for|of|to|by|with|and|or|than|as|from|but|whether|says|tells|until|before|after|while|when|if|that) "
     r"who(?:ever|m|mever)?\b|\bwhose(?= is\b)|\bwhoever\b|\b[Tt]he one (?:who|that|which)\b|\b[Tt]hose (?:who|that|which)\b"),
    ("name the thing instead of 'what ...'",
     rf"{START}What (?![^.?]*\?)(?:\w+)|\b(?:of|to|with|from|by|in|for|at|on|all|than|as|after|before|into|but|except) what\b|[,;:] what\b"),
    ("'if' for a condition, not 'where'",
     r"\b[Ww]here (?:there (?:is|are|was|were)|none|nobody|nothing|no|not|both|needed|given|possible|only|"
     r"(?:it|they|this|that|these) (?:is|are|has|have|can|may|does|do|would|was|were))\b"),
    ("'except', not 'but'", r"(?i)\b(?:all|any|every|everything|none|nobody|no \w+|anything|anybody|else) but\b|\bbut (?:for|that|by|of)\b"),
    ("no 'of' at the head of a sentence", rf"{START}Of (?!course\b)"),
    ("name the number", r"\b[Ss]o (?:many|much|few|long as)\b|\bas many as\b|\bas much as\b|\bas long as\b(?= (?:that|one|the other))|\b[Hh]andful of\b|\bthat many\b|\bas many\b"),
    ("use the plain possessive", r"\bof (?:the|this|that|a|an|each|another|other|its|their) \w+(?:'s|s')(?= |,|\.|;|:|$)(?! \w+'s)|\bof (?:this|that|the other|either|each) side's\b"),
    ("'peer', 'local' or 'remote'", r"(?i)\b(?:the other|this|that|either|far|near|own) side\b|\bthe (?:far|near) (?:end|peer|device|process)\b|\bthe other end\b"),
    ("use another verb", r"\b(?:go|goes|went|going) (?:by|its way|their way|with|without)\b|\b(?:is|are|was|were|be) had\b"),
    ("begin with the subject", rf"{START}There (?:is|are|was|were)\b|{START}It is (?!not\b)\w+ (?:that|who|which)\b"),
    ("a word of a private vocabulary",
     r"\b(?:knock\w*|stranger\w*|newcomer\w*|goodbye\w*|visitor\w*|dawdl\w+|talk|talks|talked|talking|leaves? word|signs? of life|happenings?|"
     r"tend(?:s|ed|ing)? (?:to )?(?:the|its|all) (?:peers?|members?)|doors?)\b"),
]
PATTERNS = [(what, re.compile(pattern)) for what, pattern in PATTERNS]

# The texts in tests are data.
TEST = re.compile(r"(^|/)tests/")

Paragraph = collections.namedtuple("Paragraph", "line text")


def plain(text):
    """A paragraph without its markup: code becomes one word, links their text."""
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"https?://\S+", "URL", text)
    return re.sub(r"[*_]{2}|(?<!\w)\*|\*(?!\w)", "", text)


def markdown(lines):
    """The paragraphs, items and table cells of a Markdown document, without code."""
    fenced = False
    begun, parts = 0, []

    def done():
        nonlocal parts
        if parts:
            yield Paragraph(begun, " ".join(parts))
        parts = []

    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith("```"):
            yield from done()
            fenced = not fenced
            continue
        if fenced or line.startswith("    ") and not parts:
            continue
        if not text or re.match(r"#|>|\||[-*] |\d+\. |<!--|---", text):
            yield from done()
        if text.startswith("|"):
            for cell in text.strip("|").split("|"):
                if re.search(r"\w", cell):
                    yield Paragraph(number, cell.strip())
            continue
        if not text:
            continue
        if not parts:
            begun = number
        parts.append(re.sub(r"^(#+|>|[-*]|\d+\.) ", "", text))
        if text.startswith("#"):
            yield from done()
    yield from done()


def without_strings(line):
    """A line with its string literals blanked, so that the first comment mark is that of a comment."""
    return re.sub(r'"(?:\\.|[^"\\])*"', lambda match: '"' + " " * (len(match.group()) - 2) + '"', line)


def comments(lines, mark):
    """Blocks of comment lines. `mark` finds a comment's beginning, and what follows it is text."""
    begun, parts = 0, []
    for number, line in enumerate(lines, 1):
        match = mark.search(without_strings(line))
        alone = match and not line[: match.start()].strip()
        text = line[match.end():].strip() if match else ""
        # A labelled line, an item, an example in a comment: a paragraph of its own.
        labelled = re.match(r"[A-Za-z_.,() ]{1,40}?\S {2,}\S|[-*] |\d+\. |[A-Z]\w+: ", text)
        if parts and (not alone or not text or labelled):
            yield Paragraph(begun, " ".join(parts))
            parts = []
        if not match or not text or text.startswith(("clang-format", "NOLINT")) or re.match(r"-{5}", text):
            continue
        if re.match(r" {4,}", line[match.end():]) and not parts:
            continue  # code in a comment
        if labelled:
            text = re.sub(r"^(?:[-*]|\d+\.) |^\S.{0,40}? {2,}", "", text)
        if not parts:
            begun = number
        parts.append(re.sub(r" NOLINT.*| -{5,}$", "", text))
        if not alone:
            yield Paragraph(begun, " ".join(parts))
            parts = []
    if parts:
        yield Paragraph(begun, " ".join(parts))


CPP = re.compile(r"(?<![:\"'\w])///?<?(?= |$)")
HASH = re.compile(r"(?:^|(?<=\s))#(?!!)(?= )")


LITERAL = r'"(?:\\.|[^"\\\n])*"'


def printed(text):
    """The string literals of C++ code that are sentences: log lines, error texts, --help. Adjacent literals are one text."""
    code = re.sub(rf'{LITERAL}|//[^\n]*|/\*.*?\*/',
                  lambda match: match.group() if match.group()[0] == '"' else re.sub(r"[^\n]", " ", match.group()), text, flags=re.S)
    code = re.sub(r"^[ \t]*#include[^\n]*", "", code, flags=re.M)
    for match in re.finditer(rf"{LITERAL}(?:\s*{LITERAL})*", code):
        words = "".join(part[1:-1] for part in re.findall(LITERAL, match.group()))
        for part in re.split(r"(?:\\n)+", words):
            if len(part.split()) >= 3 and not part.lstrip().startswith("<"):  # no markup
                yield Paragraph(text.count("\n", 0, match.start()) + 1, part.replace('\\"', "'").strip())


PYTHON_LITERAL = re.compile(r"(?<![\w\"'])[bf]?(\"(?:\\.|[^\"\\\n])+\"|'(?:\\.|[^'\\\n])+')")
SHELL_TEXT = re.compile(r'\b(?:say|fail|echo|printf|message\([A-Z_]+)\b[^"\n]*"((?:\\.|[^"\\])*)"')
HERE_DOCUMENT = re.compile(r"<<'?END'?\n(.*?)^END$", re.S | re.M)


def printed_by_script(path, text):
    """The texts that Python, shell and CMake scripts print."""
    def line_of(match):
        return text.count("\n", 0, match.start()) + 1

    if path.endswith(".py") or "python" in text[:40]:
        for match in PYTHON_LITERAL.finditer(text):
            words = match[1][1:-1]
            if len(words.split()) >= 4 and "(?" not in words and "\\" not in words:
                yield Paragraph(line_of(match), words)
        return
    for match in SHELL_TEXT.finditer(text):
        yield Paragraph(line_of(match), match[1])
    for match in HERE_DOCUMENT.finditer(text):
        for number, line in enumerate(match[1].splitlines(), 1):
            yield Paragraph(line_of(match) + number, line.strip())


def docstrings(text):
    for match in re.finditer(r'^[ \t]*"""(.*?)"""', text, re.S | re.M):
        line = text.count("\n", 0, match.start()) + 1
        for part in re.split(r"\n\s*\n", match.group(1)):
            if not re.match(r"\s*(usage:|    |-?-?\w+  )", part):
                yield Paragraph(line, " ".join(part.split()))


def paragraphs(path, text):
    lines = text.splitlines()
    if path.endswith(".md"):
        return list(markdown(lines))
    if path.endswith((".cc", ".h", ".c")):
        found = list(comments(lines, CPP))
        return found if TEST.search(path) else found + list(printed(text))
    if path.endswith((".py", ".sh", ".in", ".cmake", ".txt", ".yml")) or "CMakeLists" in path or text.startswith("#!"):
        found = list(comments(lines, HASH))
        if not TEST.search(path):
            found += printed_by_script(path, text)
        return found + list(docstrings(text)) if path.endswith(".py") or "python" in text[:40] else found
    return []


def findings(path, text):
    """Yields the line, the advice and the words of each finding in a file."""
    for paragraph in paragraphs(path, text):
        words = plain(paragraph.text)
        for what, pattern in PATTERNS:
            for match in pattern.finditer(words):
                yield paragraph.line, what, words[max(0, match.start() - 30): match.end() + 40].strip()
        for sentence in re.split(r"(?<=[.!?;:])\s+", words):
            count = len(re.findall(r"[\w'./-]+", sentence))
            if count > LONGEST_SENTENCE:
                yield paragraph.line, f"a sentence of {count} words", sentence[:60]
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > COLUMNS and not line.lstrip().startswith(("|", "http", "[")) and path.endswith(".md"):
            yield number, f"{len(line)} columns", line[:40]


def all_findings(root):
    """Maps the path of each file that has findings to these."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True)
    found = {}
    for path in sorted(set(listed.stdout.splitlines())):
        if SKIPPED.search(path):
            continue
        try:
            text = (root / path).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        if of_file := list(findings(path, text)):
            found[path] = of_file
    return found


def read_baseline(file):
    """{path: number}"""
    if not file.exists():
        return {}
    rows = (line.split(maxsplit=1) for line in file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    return {path: int(number) for number, path in rows}


def print_counts(found):
    for path, of_file in sorted(found.items(), key=lambda item: -len(item[1])):
        print(f"{len(of_file):5} {path}")
    kinds = collections.Counter(re.sub(r"\d+", "N", what) for of_file in found.values() for _, what, _ in of_file)
    for kind, count in kinds.most_common():
        print(f"{count:5} {kind}")


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", action="store_true", help="the number of findings of each file and of each kind")
    parser.add_argument("--lower", action="store_true", help="write lower numbers into prose_baseline.txt")
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=root)
    arguments = parser.parse_args()
    found = all_findings(arguments.root)
    total = sum(len(of_file) for of_file in found.values())
    if arguments.count:
        print_counts(found)
        return 0
    file = arguments.root / "scripts" / "prose_baseline.txt"
    allowed = read_baseline(file)
    higher = [path for path in found if len(found[path]) > allowed.get(path, 0)]
    lower = [path for path in allowed if len(found.get(path, [])) < allowed[path]]
    for path in higher:
        for line, what, words in found[path]:
            print(f"{path}:{line}: {what}: {words}")
        print(f"{path}: {len(found[path])} findings; it may have {allowed.get(path, 0)}")
    if arguments.lower and not (higher and file.exists()):
        rows = "".join(f"{len(of_file):5} {path}\n" for path, of_file in found.items())
        file.write_text("# Findings of check_prose.py that each file may have. Written by check_prose.py --lower; the numbers may only fall.\n" + rows,
                        encoding="utf-8")
        higher, lower = [], []
    for path in lower:
        print(f"{path}: {len(found.get(path, []))} findings, fewer than its {allowed[path]}: run check_prose.py --lower")
    print(f"check_prose.py: {total} findings in {len(found)} files")
    return 1 if higher or lower else 0


if __name__ == "__main__":
    sys.exit(main())
