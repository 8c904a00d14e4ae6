#!/usr/bin/env python3
"""Checks that the source tree keeps the rules of the layers.

usage: check_layers.py [ROOT]     ROOT: the top of the tree; default: the tree this file is in

Prints one line for each violation, "file:line: message", and exits 1; prints one line and exits 0 if there is none.
"""

import pathlib
import re
import sys

# The rules: for each layer, the other layers whose headers its files may include. Bottom layer first. A layer may only
# name layers above it in this list, so a cycle cannot be written. CMakeLists.txt must say the same.
LAYERS = {
    "base": [],
    "verbs": ["base"],
    "softdev": ["base", "verbs"],
    "device": ["base", "verbs", "softdev"],
    "memory": ["base", "verbs", "device"],
    "adapter": ["base", "verbs", "device"],
    "connector": ["base", "verbs"],
    "channel": ["base", "verbs", "device", "memory", "adapter"],
    "endpoint": ["base", "verbs", "device", "memory", "adapter", "channel", "connector"],
    "session": ["base", "verbs", "device", "memory", "adapter", "channel", "connector", "endpoint"],
    "stream": ["base", "device", "memory", "adapter", "channel", "endpoint"],
}

# Rooms are the folders of a layer, from the bottom up. Each has the other rooms that its files may include. "" stands
# for the files that are in no folder.
ROOMS = {
    "connector": {"": [], "cm": [""]},
    "softdev": {
        "common": [],
        "shared": [],
        "host": ["common", "shared"],
        "memory": ["common", "shared"],
        "faults": ["common", "shared", "memory"],
        "local": ["common", "shared", "host", "memory"],
        "tcp": ["common", "shared", "host", "memory", "local"],
        "queues": ["common", "shared", "host", "memory", "faults", "local", "tcp"],
        "context": ["common", "shared", "host", "memory", "faults", "local", "tcp", "queues"],
        "verbs": ["common", "shared", "host", "memory", "faults", "local", "tcp", "queues", "context"],
        "cm": ["common", "shared", "host", "memory", "local", "tcp", "queues", "context"],
        "check": [],
        "preload": ["cm", "common", "shared", "host", "memory", "context", "verbs"],
    },
}

# Files that may read errno. base/ has the helpers for files and sockets, verbs/call.h the helpers for verbs. softdev is
# a device: it implements the verbs, whose contract is to *set* errno.
ERRNO_ALLOWED = ("base/", "softdev/", "verbs/call.h")
GLOG_ALLOWED = "src/base/log.cc"
# From this layer upwards, code cannot distinguish the software device from other devices.
DEVICE_BLIND_FROM = "memory"

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
# Standard output belongs to the program, and standard error to log lines.
PRINTING = re.compile(r"\bstd::(cout|cerr|clog|puts|printf)\b|(?<![\w:.>])(printf|puts|putchar|perror|vprintf)\s*\(|\b(stdout|stderr)\b")
ERRNO = re.compile(r"\berrno\b")
# A flag of a program in a text of the library: "--device". Errors of the library name the library's options; the
# programs say which flag sets them.
FLAG = re.compile(r'"[^"\n]*--[a-z][a-z-]+')
KNOWS_SOFTDEV = re.compile(r'"soft0"|\bsoftdev::|\bis_software\s*\(|\bkDeviceName\b')
SAYS_LAYER = re.compile(r"^// Layer: (\w+)\.", re.M)
# Types that a header declares at the top level of a namespace, which is not indented.
MARKS = r"(?:\[\[nodiscard\]\]\s+)?(?:RDMACOMM_API\s+)?"
DECLARED = re.compile(rf"^(?:class|struct|enum class)\s+{MARKS}(\w+)\b[^;{{]*\{{", re.M)
NESTED = re.compile(rf"\b(?:class|struct|enum class|typename)\s+{MARKS}(\w+)\b")
FORWARD = re.compile(r"^(?:class|struct)\s+(\w+)\s*;")
UNREADABLE_INCLUDE = re.compile(r'^\s*#\s*(include_next\b|import\b|include\s*[^\s"<])')
# Functions report success and failure by Outcome, Status and Result. In a condition, a bare code has the opposite
# meaning.
BARE_CODE = re.compile(r"\bstd::error_code\s+(\w+)\s*\(")
MAY_RETURN_A_CODE = ("code", "make_error_code")
TYPE = re.compile(r"\b[A-Z]\w+\b")
CMAKE_LAYER = re.compile(r"^\s*rdmacomm_layer\(\s*(\w+)(?:\s+DEPENDS\s+([\w\s]+?))?\s*\)", re.M)
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def blanked(text, what):
    """The text with its comments (what = "/") or comments and literals ("/\"'") blanked out; line numbers stay."""
    def blank(match):
        token = match.group(0)
        return re.sub(r"[^\n]", " ", token) if token[0] in what else token
    return TOKEN.sub(blank, text)


def public_layer(header):
    """The layer that a public header says it belongs to; None if it does not say one."""
    said = SAYS_LAYER.search(header.read_text(encoding="utf-8"))
    return said.group(1) if said else None


class Tree:
    """The layer of each header, and the header that declares each type."""

    def __init__(self, root):
        self.root = root
        self.public = root / "include" / "rdmacomm"
        self.layer_of_public = {f"rdmacomm/{path.name}": public_layer(path) for path in self.public.glob("*.h")}
        self.layer_of_public.pop("rdmacomm/rdmacomm.h", None)
        self.header_of = {}   # by type
        self.includes_of = {}  # by header
        self.nested_in = {}  # all names of types that a header declares, nested ones too
        several = set()
        for path in [*self.public.glob("*.h"), *(root / "src").rglob("*.h")]:
            name = self.name_of(path)
            text = blanked(path.read_text(encoding="utf-8"), "/\"'")
            with_names = blanked(path.read_text(encoding="utf-8"), "/")
            self.includes_of[name] = [match.group(2) for match in map(INCLUDE.match, with_names.splitlines()) if match]
            self.nested_in[name] = set(NESTED.findall(text))
            for declared in DECLARED.findall(text):
                if self.header_of.setdefault(declared, name) != name:
                    several.add(declared)
        for name in several:  # rooms that do not include each other
            del self.header_of[name]

    def name_of(self, path):
        """The name that an #include of the file has."""
        top = self.root / "include" if self.public in path.parents else self.root / "src"
        return path.relative_to(top).as_posix()

    def layer_of(self, name):
        """The layer that an #include reaches into; '?' for something unknown."""
        if name.startswith("rdmacomm/"):
            return self.layer_of_public.get(name) or "?"
        layer = name.split("/")[0]
        return layer if "/" in name and layer in LAYERS else "?"

    def reached(self, name, layer, text):
        """Headers that a file includes directly, through its own layer, or within one other layer."""
        reached, waiting = {name}, [match.group(2) for match in map(INCLUDE.match, text.splitlines()) if match]
        while waiting:
            header = waiting.pop()
            if header in reached:
                continue
            reached.add(header)
            of = self.layer_of(header)
            waiting += [each for each in self.includes_of.get(header, []) if layer == of or self.layer_of(each) == of]
        return reached


def check_includes(tree, where, line_number, line, layer):
    match = INCLUDE.match(line)
    if not match:
        return
    quote, name = match.groups()
    here = f"{where}:{line_number}"
    if name.startswith("glog/") and where != GLOG_ALLOWED:
        yield f"{here}: glog is included by {GLOG_ALLOWED} only; log by base/logging.h"
    is_public = where.startswith("include/")
    if is_public and name.startswith("infiniband/"):
        yield f"{here}: public headers include nothing of the verbs; forward-declare what native_handle() returns"
    if quote == "<" and not name.startswith("rdmacomm/"):
        return
    if is_public and not name.startswith("rdmacomm/"):
        yield f'{here}: a public header includes "{name}", which is not installed'
        return
    target = tree.layer_of(name)
    if target == "?":
        yield f'{here}: "{name}" belongs to no layer'
    elif target != layer and target not in LAYERS[layer]:
        allowed = ", ".join(LAYERS[layer]) or "nothing"
        yield f"{here}: layer {layer} includes layer {target}; allowed: {allowed}"


def check_uses(tree, where, name, text, layer):
    """A file that uses a type of another layer must include its header: an indirect include may be removed."""
    code = blanked(text, "/\"'")
    reached = None
    in_layer = where.removeprefix("src/")
    beyond = set()
    for number, line in enumerate(code.splitlines(), 1):
        for used in sorted(set(TYPE.findall(line))):
            header = tree.header_of.get(used)
            if header is None or tree.layer_of(header) == "?":
                continue
            if tree.layer_of(header) == layer:
                problem = room_problem(layer, in_layer, header, "uses " + used + " of")
                if problem and used not in set(NESTED.findall(code)) and used not in beyond:
                    beyond.add(used)
                    yield f"{where}:{number}: {problem}"
                continue
            if reached is None:
                reached = tree.reached(name, layer, text)
                own = set(NESTED.findall(code)).union(*(tree.nested_in.get(each, ()) for each in reached
                                                        if tree.layer_of(each) == layer))
            if header in reached or used in own:
                continue
            yield f"{where}:{number}: uses {used} of layer {tree.layer_of(header)} without including {header}"
            reached.add(header)  # reported once for each file


def room_of(in_layer):
    """The room of "<layer>/<room>/<file>"; "" of "<layer>/<file>"."""
    parts = in_layer.split("/")
    return parts[1] if len(parts) > 2 else ""


def room_problem(layer, in_layer, header, does):
    """The violation, if a file `does` something with a header of a room that it may not include; else None."""
    if layer not in ROOMS or not header.startswith(layer + "/"):
        return None
    room = room_of(in_layer)
    target = room_of(header)
    if target == room or target in ROOMS[layer].get(room, []):
        return None
    allowed = ", ".join(f"{layer}/{each}" for each in ROOMS[layer].get(room, [])) or "none"
    return f"room {layer}/{room} {does} room {layer}/{target}; allowed: {allowed}"


def check_rooms(where, line_number, line, layer, in_layer):
    """An include of another room of the same layer must go downwards."""
    match = INCLUDE.match(line)
    problem = match and room_problem(layer, in_layer, match.group(2), "includes")
    if problem:
        yield f"{where}:{line_number}: {problem}"


def check_forward(tree, where, line_number, line, layer, in_layer):
    """A type that a file declares without including it must belong to its own layer and room, or to lower ones."""
    match = FORWARD.match(line)
    header = match and tree.header_of.get(match.group(1))
    if not header or tree.layer_of(header) == "?":
        return
    target = tree.layer_of(header)
    if target == layer:
        problem = room_problem(layer, in_layer, header, f"declares {match.group(1)} of")
        if problem:
            yield f"{where}:{line_number}: {problem}"
    elif target not in LAYERS[layer]:
        allowed = ", ".join(LAYERS[layer]) or "nothing"
        yield f"{where}:{line_number}: layer {layer} declares {match.group(1)} of layer {target}; allowed: {allowed}"


def check_code(where, line_number, line, code, layer, in_layer):
    """`code` is `line` without the contents of its literals."""
    here = f"{where}:{line_number}"
    found = PRINTING.search(code)
    if found and not (where == GLOG_ALLOWED and found.group(0) == "stderr"):
        yield f"{here}: the library does not print ({found.group(0).strip(' (')}); return an Error or use base/logging.h"
    if ERRNO.search(code) and not in_layer.startswith(ERRNO_ALLOWED):
        yield f"{here}: errno is read in base/, verbs/call.h and softdev/ only; use their helpers"
    if FLAG.search(line) and not in_layer.startswith("softdev/preload/"):
        yield f"{here}: the library names no flag; name its own option"
    if UNREADABLE_INCLUDE.match(line):
        yield f'{here}: an include that cannot be checked; write #include "..." or <...>'
    returned = BARE_CODE.search(code)
    if returned and where.startswith("include/") and returned.group(1) not in MAY_RETURN_A_CODE:
        yield f"{here}: {returned.group(1)}() returns a bare std::error_code; return an Outcome, a Status or a Result"
    order = list(LAYERS)
    if order.index(layer) >= order.index(DEVICE_BLIND_FROM) and KNOWS_SOFTDEV.search(line):
        yield f"{here}: above the device layer no code tells soft0 from other devices"


def check_file(tree, path, layer):
    where = path.relative_to(tree.root).as_posix()
    parts = path.relative_to(tree.root).parts
    in_layer = "/".join(parts[1:]) if parts[0] == "src" else path.name
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".h" and "#pragma once" not in text:
        yield f"{where}:1: no #pragma once"
    if layer in ROOMS and where.startswith("src/") and room_of(in_layer) not in ROOMS[layer]:
        yield f"{where}:1: lies in no room of layer {layer}; there are: {', '.join(ROOMS[layer])}"
    lines = zip(blanked(text, "/").splitlines(), blanked(text, "/\"'").splitlines())
    for number, (line, code) in enumerate(lines, 1):
        yield from check_includes(tree, where, number, line, layer)
        yield from check_rooms(where, number, line, layer, in_layer)
        yield from check_forward(tree, where, number, code, layer, in_layer)
        yield from check_code(where, number, line, code, layer, in_layer)
    yield from check_uses(tree, where, tree.name_of(path), text, layer)


def check_cmake(root):
    """The layers of CMakeLists.txt must be those of LAYERS, in an order from the bottom up."""
    text = (root / "CMakeLists.txt").read_text(encoding="utf-8")
    text = re.sub(r"#[^\n]*", "", text)
    said = {name: (depends or "").split() for name, depends in CMAKE_LAYER.findall(text)}
    for name, depends in said.items():
        if name not in LAYERS:
            yield f"CMakeLists.txt:1: layer {name} is not in the law (scripts/check_layers.py)"
        elif sorted(depends) != sorted(LAYERS[name]):
            yield f"CMakeLists.txt:1: layer {name} DEPENDS {' '.join(depends)}; the law says {' '.join(LAYERS[name])}"
    for name in LAYERS:
        exists = any((root / "src" / name).glob("*"))
        if exists and name not in said:
            yield f"CMakeLists.txt:1: layer {name} has files and no rdmacomm_layer line"


def check_law():
    """LAYERS and ROOMS themselves may only name lower ones."""
    seen = []
    for name, depends in LAYERS.items():
        for depend in depends:
            if depend not in seen:
                yield f"scripts/check_layers.py:1: layer {name} depends on {depend}, which is not below it"
        seen.append(name)
    for layer, rooms in ROOMS.items():
        below = []
        for room, depends in rooms.items():
            for depend in depends:
                if depend not in below:
                    yield f"scripts/check_layers.py:1: room {layer}/{room} depends on {depend}, which is not below it"
            below.append(room)


def check_umbrella(root):
    """rdmacomm/rdmacomm.h must include every public header, so that users need not know each of them."""
    top = root / "include" / "rdmacomm"
    umbrella = top / "rdmacomm.h"
    if not umbrella.exists():
        return
    included = set(re.findall(r'#include "(rdmacomm/[^"]+)"', umbrella.read_text(encoding="utf-8")))
    for header in sorted(top.glob("*.h")):
        name = f"rdmacomm/{header.name}"
        if header != umbrella and name not in included:
            yield f"include/rdmacomm/rdmacomm.h:1: does not include {name}"


def check_tree(root):
    """All violations in the tree, as lines."""
    yield from check_law()
    yield from check_cmake(root)
    yield from check_umbrella(root)
    tree = Tree(root)
    for path in sorted(tree.public.rglob("*.h")):
        where = path.relative_to(root).as_posix()
        if path.parent != tree.public:
            yield f"{where}:1: public headers lie in include/rdmacomm/ itself; others lie beside their sources"
        elif path.name != "rdmacomm.h":
            layer = public_layer(path)
            if layer in LAYERS:
                yield from check_file(tree, path, layer)
            else:
                yield f'{where}:1: the head of the file says no layer: "// Layer: base."'
    for path in sorted((root / "src").rglob("*")):
        if path.suffix in (".hpp", ".hh", ".cpp", ".cxx", ".c", ".inc"):
            yield f"{path.relative_to(root).as_posix()}:1: sources are .cc, headers are .h"
        if path.suffix not in (".h", ".cc"):
            continue
        layer = path.relative_to(root / "src").parts[0]
        if layer in LAYERS:
            yield from check_file(tree, path, layer)
        else:
            yield f"{path.relative_to(root).as_posix()}:1: {layer} is no layer"


def main(arguments):
    if len(arguments) > 1 or any(a.startswith("-") for a in arguments):
        print(__doc__.strip())
        return 0 if arguments in (["-h"], ["--help"]) else 2
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent).resolve()
    if not (root / "CMakeLists.txt").is_file():
        print(f"check_layers.py: no CMakeLists.txt in {root}", file=sys.stderr)
        return 2
    violations = list(check_tree(root))
    for violation in violations:
        print(violation)
    if not violations:
        print(f"check_layers.py: {len(LAYERS)} layers, no violation")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
