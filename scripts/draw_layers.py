#!/usr/bin/env python3
"""Draws the layers of the library, as the code has them: docs/layers.svg.

usage: draw_layers.py [--write]     --write: into docs/layers.svg; else to standard output

Each box is a layer of check_layers.py. It stands above all layers that its files may include, and names them. The text
in a box comes from the public headers (classes), from the table of docs/architecture.md (what the layer owns), and from
the folders (rooms).
"""

import pathlib
import re
import sys
import textwrap
from xml.sax.saxutils import escape

from check_layers import DECLARED, LAYERS, ROOMS, blanked, public_layer

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "layers.svg"

WIDTH, MARGIN, GAP, LINE, PAD = 760, 20, 12, 16, 12
CHARACTER = 7.2  # average width of a character of size 12 in a wide font
COLOURS = ["#f2f2f2", "#fbf3e4", "#fbf3e4", "#fbf3e4", "#eef6ea", "#eef6ea", "#e8f0fb", "#e8f0fb"]


def rank(layer):
    """The number of layers in the longest chain below it."""
    return max((rank(below) + 1 for below in LAYERS[layer]), default=0)


def public_classes(layer):
    """The classes that applications can name, in the order of the headers."""
    names = []
    for header in sorted((ROOT / "include" / "rdmacomm").glob("*.h")):
        if public_layer(header) != layer:
            continue
        text = blanked(header.read_text(encoding="utf-8"), "/\"'").replace("RDMACOMM_API ", "")
        text = re.sub(r"namespace (?:rdmacomm::)?detail \{.*?\n\}", "", text, flags=re.S)
        names += [name for name in DECLARED.findall(text) if re.search(rf"^class .*\b{name}\b", text, re.M)]
    return names


def owned(layer):
    """The table cell of docs/architecture.md about what the layer owns, without links."""
    table = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    says = re.search(rf"^\| `{layer}` \| ([^|]*) \|", table, re.M).group(1)
    return re.sub(r"\s*\(\[[^]]*\]\([^)]*\)\)|\[([^]]*)\]\([^)]*\)", r"\1", says)


class Box:
    """A layer, with its text in lines that fit into a given width."""

    def __init__(self, layer, width):
        self.layer, self.width = layer, width
        classes = public_classes(layer)
        rooms = [room for room in ROOMS.get(layer, {}) if room]
        uses = LAYERS[layer]
        self.lines = []
        for text, colour in ((", ".join(classes), "#000"), (owned(layer), "#556"),
                             (("rooms: " + ", ".join(rooms)) if rooms else "", "#556"),
                             (("uses " + ", ".join(uses)) if uses else "", "#889")):
            self.lines += [(line, colour) for line in textwrap.wrap(text, int((width - 2 * PAD) / CHARACTER))]
        self.height = PAD + LINE * (1 + len(self.lines)) + PAD

    def draw(self, x, y, height):
        colour = COLOURS[min(rank(self.layer), len(COLOURS) - 1)]
        drawn = [f'<rect x="{x}" y="{y}" width="{self.width}" height="{height}" rx="6" fill="{colour}" stroke="#3b4a5a"/>',
                 f'<text x="{x + PAD}" y="{y + PAD + 12}" font-weight="bold">{self.layer}</text>']
        for number, (line, colour_of_line) in enumerate(self.lines, 1):
            drawn.append(f'<text x="{x + PAD}" y="{y + PAD + 12 + number * LINE}" font-size="12" fill="{colour_of_line}">'
                         f"{escape(line)}</text>")
        return drawn


def picture():
    drawn, y = [], MARGIN
    for row in range(max(map(rank, LAYERS)), -1, -1):
        layers = [layer for layer in LAYERS if rank(layer) == row]
        width = (WIDTH - 2 * MARGIN - GAP * (len(layers) - 1)) // len(layers)
        boxes = [Box(layer, width) for layer in layers]
        height = max(box.height for box in boxes)
        for column, box in enumerate(boxes):
            drawn += box.draw(MARGIN + column * (width + GAP), y, height)
        y += height + GAP
    height = y - GAP + MARGIN
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="Helvetica, Arial, sans-serif" font-size="14">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *drawn, "</svg>", ""])


def main(arguments):
    if arguments == ["--write"]:
        PICTURE.write_text(picture(), encoding="utf-8")
        return 0
    if arguments:
        print(__doc__.strip(), file=sys.stderr)
        return 1
    sys.stdout.write(picture())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
