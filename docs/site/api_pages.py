"""The pages of the API reference: an index of the public headers, and a page for each of them. Used by stage.py.

Reads the XML that Doxygen has written. A page has the declarations of its header in the order of the header, as directives of breathe.
"""

import pathlib
import re
import xml.etree.ElementTree as ElementTree

LAYERS = ("base", "verbs", "softdev", "device", "memory", "adapter", "connector", "channel", "endpoint", "session", "stream")
KINDS = {"function": "function", "enum": "enum", "typedef": "typedef", "variable": "variable"}


def summary(header):
    """The layer of a header, and its first comment without its name. A header that only includes others has no layer."""
    head = re.match(r"// \S+ - ((?:.|\n// (?!Layer))*)(?:\n// Layer: (\w+))?", header.read_text(encoding="utf-8"))
    return head[2] or "", head[1].replace("\n// ", " ")


def directive(kind, name, options=""):
    return f"```{{doxygen{kind}}} {name}\n{options}```\n"


def line_of(element):
    return int(element.find("location").get("line"))


def signature(member):
    """The parameter types of a function, which tell its overloads apart."""
    types = ("".join(param.find("type").itertext()) for param in member.findall("param"))
    return f"({', '.join(types)}){' const' if member.get('const') == 'yes' else ''}"


def declarations(xml, name):
    """The declarations of a header: rows of line, heading, and directive. Classes have a heading, their members do not."""
    rows = []
    compound = ElementTree.parse(next(file for file in xml.glob("*_8h.xml") if file_name(file) == name)).getroot().find("compounddef")
    for inner in compound.findall("innerclass"):
        of_class = ElementTree.parse(xml / f"{inner.get('refid')}.xml").getroot().find("compounddef")
        short = inner.text.removeprefix("rdmacomm::").removeprefix("detail::")
        options = ":members:\n" if of_class.findall("sectiondef") else ""
        if "::" not in short:
            rows.append((line_of(of_class), short, directive(of_class.get("kind"), inner.text, options)))
    for member in compound.iter("memberdef"):
        if member.get("kind") in KINDS:
            full = member.findtext("qualifiedname") or f"rdmacomm::{member.findtext('name')}"
            suffix = signature(member) if member.get("kind") == "function" else ""
            heading = member.findtext("name") if member.get("kind") == "enum" else ""
            rows.append((line_of(member), heading, directive(KINDS[member.get("kind")], full + suffix)))
    return sorted(rows)


def file_name(file):
    return ElementTree.parse(file).getroot().find("compounddef").findtext("compoundname")


def pages(headers, xml, toctree):
    """{page: text} for the headers in folder `headers`. toctree(names) is the text of a menu."""
    written, rows = {}, {}
    for header in sorted(headers.glob("*.h")):
        layer, what = summary(header)
        if not layer:
            continue
        text = f"# {header.name}\n\n{what[0].upper()}{what[1:]}\n\nLayer {layer} · `#include <rdmacomm/{header.name}>`\n"
        for _, heading, block in declarations(xml, header.name):
            text += (f"\n## {heading}\n" if heading else "") + f"\n{block}"
        written[f"api/{header.stem}.md"] = text
        rows.setdefault(layer, []).append((header, what))
    text = ("# API reference\n\nThe public headers of the library, from the top layer down. Everything is in namespace `rdmacomm`.\n"
            "`#include <rdmacomm/rdmacomm.h>` includes all of them.\n")
    order = []
    for layer in reversed(LAYERS):
        if layer in rows:
            text += f"\n## {layer.capitalize()}\n\n| | |\n|---|---|\n"
        for header, what in rows.get(layer, []):
            text += f"| [{header.name}]({header.stem}.md) | {what} |\n"
            order.append(header.stem)
    written["api/index.md"] = text + toctree(order)
    return written
