#!/usr/bin/env python3
"""The links of the documents lead to files and headings that exist, README.md leads to every document, and
docs/configuration.md names every environment variable and every CMake option of the tree."""

import json
import pathlib
import re
import unittest
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md")),
             ROOT / "example/README.md", ROOT / "bench/README.md"]
CONFIGURATION = DOCS / "configuration.md"
VARIABLE = r"(?:RDMACOMM|RCL)_[A-Z0-9_]*[A-Z0-9]"


def text(path):
    return path.read_text(encoding="utf-8")


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def without_blocks(markdown):
    """The document without fenced and indented code, which has neither links nor headings."""
    lines = []
    fence = ""
    in_indented, after_blank = False, True
    for line in markdown.splitlines():
        mark = re.match(r" {0,3}(```+|~~~+)", line)
        if fence:
            fence = "" if line.strip().startswith(fence) else fence
        elif mark:
            fence = mark.group(1)
        elif line.strip():
            in_indented = line.startswith("    ") and (in_indented or after_blank)
            if not in_indented:
                lines.append(line)
        else:
            lines.append("")
        after_blank = not line.strip()
    return "\n".join(lines)


def links_in(markdown):
    """The targets of all links and images."""
    prose = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "CODE", without_blocks(markdown), flags=re.S)
    inline = re.findall(r"\]\(\s*<?([^()\s<>]+)>?(?:\s+\"[^\"]*\")?\s*\)", prose)
    named = re.findall(r"^ {0,3}\[[^\]]+\]:\s*<?([^\s<>]+)", prose, re.M)
    html = re.findall(r"\b(?:href|src)=\"([^\"]+)\"", prose)
    return inline + named + html


def anchors_of(markdown):
    """The anchors that GitHub gives to the headings: lower case, without punctuation, and '-' for each blank. If
    several headings have the same text, the second one and later ones get a number."""
    anchors = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", markdown))
    counts = {}
    for heading in re.findall(r"^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*$", without_blocks(markdown), re.M):
        shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", shown.replace("*", "").lower()).replace(" ", "-")
        count = counts.get(anchor, 0)
        counts[anchor] = count + 1
        anchors.add(f"{anchor}-{count}" if count else anchor)
    return anchors


def is_web(link):
    return re.match(r"[a-z][a-z0-9+.-]*:", link) is not None


def target_of(document, link):
    """The path that a relative link leads to, and its anchor."""
    path, _, anchor = link.partition("#")
    return (document.parent / urllib.parse.unquote(path)).resolve() if path else document, urllib.parse.unquote(anchor)


def fault_of(document, link):
    """The reason why a relative link is wrong; empty: it is right."""
    target, anchor = target_of(document, link)
    if link.startswith("/") or not target.is_relative_to(ROOT):
        return "leaves the tree"
    if not target.exists():
        return "leads to a file that does not exist"
    if not anchor:
        return ""
    if target.suffix == ".md":
        return "" if anchor in anchors_of(text(target)) else f"leads to a heading that {name_of(target)} does not have"
    is_line = target.is_file() and re.fullmatch(r"L\d+(-L\d+)?", anchor)
    return "" if is_line else "has an anchor, and leads to no document"


def reached_from(document):
    """All documents to which links lead from this one, directly or through other documents."""
    reached, left = set(), [document]
    while left:
        each = left.pop()
        if each in reached:
            continue
        reached.add(each)
        targets = [target_of(each, link)[0] for link in links_in(text(each)) if not is_web(link)]
        targets = [target / "README.md" if target.is_dir() else target for target in targets]
        left += [target for target in targets
                 if target.suffix == ".md" and target.is_file() and target.is_relative_to(ROOT)]
    return reached


def variables_read():
    """The environment variables that files of the tree read, with one of the files for each."""
    found = {}
    for folder in ("src", "include", "tools", "example", "scripts", "tests", "bench", ".ci"):
        for path in sorted((ROOT / folder).rglob("*")):
            if not path.is_file() or path.suffix not in (".cc", ".h", ".py", ".sh", ".in", ""):
                continue
            try:
                source = text(path)
            except UnicodeDecodeError:
                continue
            names = set()
            if re.search(r"\b(?:secure_)?getenv\b|\benviron\b|\benvironment\(", source):
                names |= set(re.findall(rf"[(\[]\"({VARIABLE})\"", source))
            names |= set(re.findall(rf"\bk\w+Variable = \"({VARIABLE})\"", source))
            if source.startswith("#!/") and "sh" in source.partition("\n")[0]:
                names |= set(re.findall(rf"\$\{{({VARIABLE})\b", source))
                names |= set(re.findall(rf"\bexport ({VARIABLE})\b", source))
            for name in names:
                found.setdefault(name, name_of(path))
    return found


class Links(unittest.TestCase):
    def test_each_leads_to_something_that_exists(self):
        count = 0
        for document in DOCUMENTS:
            for link in links_in(text(document)):
                if is_web(link):
                    continue
                count += 1
                with self.subTest(document=name_of(document), link=link):
                    self.assertEqual(fault_of(document, link), "")
        self.assertGreater(count, 100)

    def test_readme_leads_to_every_document(self):
        reached = reached_from(ROOT / "README.md")
        for document in DOCUMENTS:
            with self.subTest(name_of(document)):
                self.assertIn(document, reached)

    def test_wrong_links_are_found(self):
        document = DOCS / "errors.md"
        for link in ("no_such_file.md", "addressing.md#no-such-heading", "../../other/README.md", "/etc/hosts",
                     "#no-such-heading"):
            with self.subTest(link):
                self.assertNotEqual(fault_of(document, link), "")
        for link in ("addressing.md", "addressing.md#how-a-gid-is-chosen", "#ktimeout", "../README.md", "adr"):
            with self.subTest(link):
                self.assertEqual(fault_of(document, link), "")

    def test_links_and_headings_are_read_as_github_reads_them(self):
        links = "[a](b.md) `[c](d.md)` ![e\nf](g.svg)\n\n    [h](i.md)\n\n```\n[j](k.md)\n```\n[l]: m.md#n\n"
        self.assertEqual(links_in(links), ["b.md", "g.svg", "m.md#n"])
        headings = "# A `b_c`: d, e\n## [x](y) & z\n### A\n### A\n```\n# no\n```\n"
        self.assertEqual(anchors_of(headings), {"a-b_c-d-e", "x--z", "a", "a-1"})


class Configuration(unittest.TestCase):
    def test_every_environment_variable_is_named(self):
        named = set(re.findall(rf"`({VARIABLE})`", text(CONFIGURATION)))
        read = variables_read()
        self.assertGreater(len(read), 10)
        self.assertLessEqual({"RCL_MAX_VLOG_LEVEL", "RDMACOMM_SOFT0_NAMES", "RDMACOMM_SOFT0_WIRE"}, set(read))
        for name, path in read.items():
            with self.subTest(variable=name, path=path):
                self.assertIn(name, named)

    def test_every_cmake_option_and_preset_is_named(self):
        named = set(re.findall(r"`([\w-]+)`", text(CONFIGURATION)))
        cmake = text(ROOT / "CMakeLists.txt") + text(ROOT / "tests/CMakeLists.txt")
        options = set(re.findall(r"^option\((RDMACOMM_\w+) ", cmake, re.M))
        options |= set(re.findall(r"^set\((RDMACOMM_\w+) .*CACHE ", cmake, re.M))
        self.assertGreater(len(options), 8)
        presets = json.loads(text(ROOT / "CMakePresets.json"))["configurePresets"]
        names = {preset["name"] for preset in presets if not preset.get("hidden")}
        self.assertEqual((options | names) - named, set())

    def test_every_name_is_one_of_the_tree(self):
        suffixes = (".cc", ".h", ".py", ".sh", ".in", ".txt", ".cmake")
        sources = "".join(text(path) for folder in ("src", "include", "tools", "tests", "bench", "scripts", "cmake")
                          for path in (ROOT / folder).rglob("*") if path.suffix in suffixes)
        sources += text(ROOT / "CMakeLists.txt") + text(ROOT / "tests/kernel_vm/prepare")
        for name in sorted(set(re.findall(rf"`({VARIABLE})`", text(CONFIGURATION)))):
            with self.subTest(name):
                self.assertRegex(sources, rf"\b{name}\b")


if __name__ == "__main__":
    unittest.main()
