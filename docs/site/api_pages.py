"""The pages of the API reference: an index of the public headers, and a page for each of them. Used by stage.py.

Reads the XML that Doxygen has written. A page has the declarations of its header in the order of the header, as directives of breathe.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"))
from check_layers import LAYERS, public_layer  # noqa: E402  pylint: disable=wrong-import-position

KINDS = ("function", "enum", "typedef", "variable", "define")


class Incomplete(Exception):
    """The headers or Doxygen's XML cannot become a reference. Its text says why."""


def summary(header):
    """The first comment of a header, without its name."""
    head = re.match(r"// \S+ - ((?:.|\n// (?!Layer))*)", header.read_text(encoding="utf-8"))
    if head is None:
        raise Incomplete(f"{header}: its first line must be: // {header.name} - what it is")
    return head[1].replace("\n// ", " ")


def directive(kind, name, options=""):
    return f"```{{doxygen{kind}}} {name}\n{options}```\n"


def is_described(element):
    return any("".join(element.find(kind).itertext()).strip() for kind in ("briefdescription", "detaileddescription"))


def signature(member):
    """The parameter types of a function, which tell its overloads apart."""
    types = ("".join(param.find("type").itertext()) for param in member.findall("param"))
    return f"({', '.join(types)})"


def of_class(compound, classes):
    """The heading and the directive of a class, with its members. None: a class in one of `classes`, which is part of that one."""
    name = compound.findtext("compoundname")
    if name.rpartition("::")[0] in classes:
        return None
    return name.removeprefix("rdmacomm::").removeprefix("detail::"), directive(compound.get("kind"), name, ":members:\n" if compound.findall("sectiondef") else "")


def of_member(member):
    """The heading and the directive of a function, an enum, a constant, a type or a macro."""
    kind, name = member.get("kind"), member.findtext("name")
    full = name if kind == "define" else member.findtext("qualifiedname") or f"rdmacomm::{name}"
    return name if kind == "enum" else "", directive(kind, full + (signature(member) if kind == "function" else ""))


def declarations(xml):
    """{header: rows of line, heading and directive}, and the names of enumerators and macros without a comment."""
    found, undescribed = {}, []
    compounds = [each for file in sorted(xml.glob("*.xml")) for each in ElementTree.parse(file).getroot().iter("compounddef")]
    classes = {each.findtext("compoundname") for each in compounds if each.get("kind") in ("class", "struct")}
    for compound in compounds:
        elements = [(compound, of_class(compound, classes))] if compound.get("kind") in ("class", "struct") else [
            (member, of_member(member)) for member in compound.iter("memberdef") if member.get("kind") in KINDS]
        for element, row in elements:
            if row is not None:
                where = element.find("location")
                found.setdefault(pathlib.Path(where.get("file")).name, []).append((int(where.get("line")), *row))
        # Doxygen reports other symbols without a comment, but not these.
        for member in compound.iter("memberdef"):
            if member.get("prot") != "public":
                continue
            small = member.findall("enumvalue") + ([member] if member.get("kind") == "define" else [])
            undescribed += [each.findtext("name") for each in small if not is_described(each)]
    return {header: sorted(rows) for header, rows in found.items()}, undescribed


def pages(headers, xml, toctree):
    """{page: text} for the headers in folder `headers`. toctree(names) is the text of a menu."""
    if not (xml / "index.xml").exists():
        raise Incomplete(f"{xml} has no output of Doxygen: run scripts/docs.sh")
    declared, undescribed = declarations(xml)
    if undescribed:
        raise Incomplete(f"enumerators and macros without a comment: {', '.join(undescribed)}")
    written, rows = {}, {}
    for header in sorted(headers.glob("*.h")):
        layer, what = public_layer(header), summary(header)
        if layer is None:
            continue  # it only includes others
        if header.name not in declared:
            raise Incomplete(f"Doxygen has found no symbol in {header}")
        text = f"# {header.name}\n\n{what[0].upper()}{what[1:]}\n\nLayer {layer} · `#include <rdmacomm/{header.name}>`\n"
        for _, heading, block in declared[header.name]:
            text += (f"\n## {heading}\n" if heading else "") + f"\n{block}"
        written[f"api/{header.stem}.md"] = text
        rows.setdefault(layer, []).append((header, what))
    text = ("# API reference\n\nThe public headers of the library, from the top layer down. Everything is in namespace `rdmacomm`.\n"
            "`#include <rdmacomm/rdmacomm.h>` includes all of them.\n")
    order = []
    for layer in reversed(list(LAYERS)):
        if layer in rows:
            text += f"\n## {layer.capitalize()}\n\n| | |\n|---|---|\n"
        for header, what in rows.get(layer, []):
            text += f"| [{header.name}]({header.stem}.md) | {what} |\n"
            order.append(header.stem)
    written["api/index.md"] = text + toctree(order)
    return written
