#!/usr/bin/env python3
"""Writes the version map and the assembly file that turn the front into a drop-in for libibverbs.so.1. The drop-in has
every symbol of the installed library, with the same versions. The front implements some of them; all others jump to the
installed library.

usage: generate_dropin.py --nm=NM --installed=LIBIBVERBS --front=FRONT --map=FILE --assembly=FILE
"""

import argparse
import collections
import re
import subprocess

# The symbols of C++, and those of assembly().
LOCAL = ("_Z*", "forward_*", "variable_*")

Symbol = collections.namedtuple("Symbol", "kind size name version is_default")


def symbols_of(nm, library):
    """The dynamic symbols that `library` defines. Symbols that name a version have the kind A."""
    listing = subprocess.run([nm, "-D", "-S", "--defined-only", "--with-symbol-versions", library], check=True,
                             capture_output=True, text=True).stdout
    found = []
    for line in listing.splitlines():
        match = re.fullmatch(r"[0-9a-f]+ (?:([0-9a-f]+) )?(\w) ([\w.]+)(?:(@@?)([\w.]+))?", line)
        if match is None:
            raise SystemExit(f"generate_dropin.py: cannot understand this line that {nm} printed for {library}: {line}")
        size, kind, name, ats, version = match.groups()
        found.append(Symbol(kind, int(size or "0", 16), name, version, ats == "@@"))
    return found


def in_order(versions):
    """IBVERBS_1.9 is before IBVERBS_1.10."""
    return sorted(versions, key=lambda version: [int(part) if part.isdigit() else part
                                                 for part in re.split(r"(\d+)", version)])


def version_script(symbols, versions):
    """The newest version first: the linker gives the front's functions, which say none, the first that has their name.
    The front's other symbols are functions of the C library. They get no version, because a reference to a version such
    as GLIBC_2.2.5 is bound only to a symbol of this version or of none. A symbol has no version if it is exported and
    the script does not name it. So the script has patterns for the symbols that are not exported, in place of "*"."""
    text = ""
    for version in reversed(in_order(versions)):
        names = "".join(f"    {s.name};\n" for s in symbols if s.version == version)
        text += f"{version} {{\n  global:\n{names}}};\n"
    own = "".join(f"    {pattern};\n" for pattern in LOCAL)
    return text.removesuffix("};\n") + "  local:\n" + own + "};\n"


def assembly(symbols, front):
    forwarded = [s for s in symbols if s.kind in "TWi" and not (s.name in front and s.is_default)]
    text = "# For x86-64. Made by generate_dropin.py.\n\t.text\n"
    for index, symbol in enumerate(forwarded):
        text += (f"\t.globl forward_{index}\n\t.type forward_{index}, @function\nforward_{index}:\n\tendbr64\n"
                 f"\tjmp *(dropin_slots + {8 * index})(%rip)\n\t.size forward_{index}, .-forward_{index}\n"
                 f"\t.symver forward_{index}, {symbol.name}{'@@' if symbol.is_default else '@'}{symbol.version}\n")
    text += "\t.section .rodata\n"
    for index, symbol in enumerate(forwarded):
        text += f'name_{index}:\t.string "{symbol.name}"\nversion_{index}:\t.string "{symbol.version}"\n'
    text += "\t.globl dropin_count\n\t.hidden dropin_count\n\t.balign 8\ndropin_count:\n" + f"\t.quad {len(forwarded)}\n"
    text += "\t.section .data.rel.ro, \"aw\"\n\t.balign 8\n\t.globl dropin_symbols\n\t.hidden dropin_symbols\ndropin_symbols:\n"
    text += "".join(f"\t.quad name_{index}, version_{index}\n" for index in range(len(forwarded)))
    text += "\t.bss\n\t.balign 8\n\t.globl dropin_slots\n\t.hidden dropin_slots\ndropin_slots:\n" + f"\t.zero {8 * len(forwarded)}\n"
    for index, symbol in enumerate(s for s in symbols if s.kind in "BD"):
        text += (f"\t.balign 8\n\t.globl variable_{index}\n\t.type variable_{index}, @object\n"
                 f"variable_{index}:\n\t.zero {symbol.size}\n\t.size variable_{index}, {symbol.size}\n"
                 f"\t.symver variable_{index}, {symbol.name}@@{symbol.version}\n")
    return text + '\t.section .note.GNU-stack, "", @progbits\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--nm", "--installed", "--front", "--map", "--assembly"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    symbols = [s for s in symbols_of(options.nm, options.installed) if s.kind != "A"]
    versions = {s.version for s in symbols}
    front = {s.name for s in symbols_of(options.nm, options.front)}
    with open(options.map, "w", encoding="ascii") as file:
        file.write(version_script(symbols, versions))
    with open(options.assembly, "w", encoding="ascii") as file:
        file.write(assembly(symbols, front))


if __name__ == "__main__":
    main()
