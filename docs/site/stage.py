#!/usr/bin/env python3
"""Writes the source of the site: the documents of the tree, a page for each header, and a page for each file that they link to.

usage: stage.py FOLDER

FOLDER  is below build/. It is deleted and written again. sphinx-build makes the site of it, see scripts/docs.sh.

The documents are written for readers of the tree, whose links lead to files and folders. On the site
- README.md is index.md, the page where the site begins. docs/README.md is its menu: each section becomes a group of the menu;
- a link to a public header leads to the page of that header in the API reference;
- a link to another file, or to a folder without a README.md, leads to a page with its text, or with the list of its files.
"""

import os
import pathlib
import re
import shutil
import sys

import api_pages

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HEADERS = ROOT / "include" / "rdmacomm"
XML = ROOT / "build" / "docs" / "doxygen" / "xml"  # written by Doxygen
DECISIONS = ROOT / "docs" / "adr"
IN_MENU = (HEADERS, DECISIONS)  # folders with a menu of their own
FOLDERS = ("docs", "example", "bench", "third_party")  # with documents; others at the top
LANGUAGES = {".cc": "cpp", ".h": "cpp", ".py": "python", ".sh": "bash", ".txt": "text"}
# Code in a document, whose brackets are no links; and the target of a link.
CODE = re.compile(r"^```.*?^```$|(?<=\n\n)(?:    [^\n]*\n)+|(?<!`)(`+)(?!`)(?:(?!\n\n)[\s\S])*?(?<!`)\1(?!`)", re.M | re.S)
LINK = re.compile(r"(?<=\]\()([^()\s#]+)(?=[#)])")


def documents():
    """All Markdown documents of the tree."""
    return sorted(ROOT.glob("*.md")) + sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))


def page_of(path):
    """The page of the site, relative to its top, that a file or a folder of the tree has there."""
    name = path.relative_to(ROOT)
    if path == ROOT / "README.md":
        return pathlib.PurePath("index.md")
    if path == HEADERS:
        return pathlib.PurePath("api/index.md")
    if path.parent == HEADERS:
        return pathlib.PurePath("api", path.stem + ".md")
    if path.is_dir():
        readme = path / "README.md"
        return page_of(readme) if readme.exists() else name / "index.md"
    return name if path.suffix in (".md", ".svg", ".png") else pathlib.PurePath(f"{name}.md")


def is_generated(path):
    """Whether a file or folder that a document links to needs a page that shows it."""
    if path in IN_MENU or path.parent == HEADERS or (path / "README.md").exists():
        return False
    return path.suffix not in (".md", ".svg", ".png")


def relink(text, at, found):
    """The text of the page of file `at` with links for the site. Adds the paths that need a generated page to `found`."""
    def target(match):
        if re.match(r"[a-z][a-z0-9+.-]*:", match.group()):
            return match.group()
        path = (at.parent / match.group()).resolve()
        if is_generated(path):
            found.add(path)
        return os.path.relpath(page_of(path), page_of(at).parent)

    parts, end = [], 0
    for code in CODE.finditer(text):
        parts += [LINK.sub(target, text[end:code.start()]), code.group()]
        end = code.end()
    return "".join(parts) + LINK.sub(target, text[end:])


def source_page(path):
    """A page that shows a file, or lists the files of a folder."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        rows = "".join(f"- [{each.name}]({each.name}.md)\n" for each in sorted(path.iterdir()) if each.is_file())
        return f"---\norphan: true\n---\n# {name}/\n\n{rows}"
    text = path.read_text(encoding="utf-8")
    longest = max(map(len, re.findall(r"^ *(`{3,})", text, re.M)), default=2)
    fence = "`" * (longest + 1)
    return f"---\norphan: true\n---\n# {name}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text}{fence}\n"


def toctree(caption, pages, hidden=False):
    options = (f":caption: {caption}\n" if caption else "") + (":hidden:\n" if hidden else "") + ":maxdepth: 1\n"
    return f"\n```{{toctree}}\n{options}\n" + "\n".join(pages) + "\n```\n"


def menu():
    """The menu of the site: the sections of docs/README.md, with each page in the first section that links to it."""
    index = ROOT / "docs" / "README.md"
    shown, groups = {"index.md", "docs/README.md"}, [toctree("", ["docs/README"], hidden=True)]
    for section in re.split(r"^## ", index.read_text(encoding="utf-8"), flags=re.M)[1:]:
        pages = []
        for link in LINK.findall(section):
            path = (index.parent / link).resolve()
            page = page_of(path).as_posix()
            # Decisions and headers are in the menus of their folders. Other files and folders are pages without a place in the menu.
            if page not in shown and (path in IN_MENU or path.suffix == ".md" and path.parent != DECISIONS):
                shown.add(page)
                pages.append(page.removesuffix(".md"))
        if pages:
            groups.append(toctree(section.partition("\n")[0], pages, hidden=True))
    return "".join(groups), shown


def decisions():
    """The page of docs/adr: a list of the decisions."""
    return "# Decisions\n\nOne page for each decision that a reader cannot guess from the code.\n" + toctree(
        "", [path.stem for path in sorted(DECISIONS.glob("*.md"))])


def write_pages(folder):
    """Writes all pages into `folder`, which is deleted first."""
    groups, shown = menu()
    pages, found = api_pages.pages(HEADERS, XML, lambda names: toctree("", names, hidden=True)), set()
    pages["docs/adr/index.md"] = decisions()
    for path in documents():
        page = page_of(path).as_posix()
        text = relink(path.read_text(encoding="utf-8"), path, found)
        if page == "index.md":
            text += groups
        elif page not in shown and "/adr/" not in page:
            text = "---\norphan: true\n---\n" + text
        pages[page] = text
    for path in sorted(found):
        found |= {each for each in path.iterdir() if each.is_file()} if path.is_dir() else set()
    pages |= {page_of(path).as_posix(): source_page(path) for path in sorted(found)}
    shutil.rmtree(folder, ignore_errors=True)
    for page, text in pages.items():
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text(text, encoding="utf-8")
    for picture in (*(ROOT / "docs").rglob("*.svg"), *(ROOT / "docs").rglob("*.png")):
        shutil.copyfile(picture, folder / picture.relative_to(ROOT))


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 0 if "--help" in sys.argv else 2
    folder = pathlib.Path(sys.argv[1]).resolve()
    if ROOT / "build" not in folder.parents:
        print(f"stage.py: {folder} is not below {ROOT / 'build'}; it would be deleted", file=sys.stderr)
        return 1
    try:
        write_pages(folder)
    except (api_pages.Incomplete, OSError) as reason:
        print(f"stage.py: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
