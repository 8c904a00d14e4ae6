#!/usr/bin/env python3
"""Runs rdma_copy as a user does: trees, sizes, names, refusals of a server, interrupted copies, and every error
line."""

import errno
import fcntl
import hashlib
import json
import os
import pty
import random
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unicodedata
import unittest

from program_runs import BIN, PING_PONG, SLOW, ProgramTest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
from held_ports import hold_ports  # noqa: E402
import hosts  # noqa: E402  pylint: disable=wrong-import-position

COPY = os.path.join(BIN, "rdma_copy")
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BLOCK = 512 << 10
MIB = 1 << 20
GIB = 1 << 30
FULL = os.environ.get("RDMACOMM_CONFORMANCE") == "full"


def sha(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else sha_of(file)


def sha_of(file):
    state = hashlib.sha256()
    for part in iter(lambda: file.read(MIB), b""):
        state.update(part)
    return state.hexdigest()


def data_of(path):
    """All data of a file that is not zero, by offset. Holes are not read."""
    found, at = {}, 0
    with open(path, "rb") as file:
        end = os.fstat(file.fileno()).st_size
        while at < end:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            until = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            found.update((at + match.start(), match.group()) for match in re.finditer(rb"[^\0]+", os.pread(file.fileno(), until - at, at)))
            at = until
    return found


def description(path, times):
    about = os.lstat(path)
    modified = about.st_mtime_ns if times else None
    if stat.S_ISLNK(about.st_mode):
        return "link", os.readlink(path), modified
    mode = stat.S_IMODE(about.st_mode) if times else None
    return ("directory", mode, modified) if stat.S_ISDIR(about.st_mode) else ("file", mode, modified, sha(path))


def tree(top, times=False):
    """The contents of a directory, by relative name (in bytes)."""
    top = os.fsencode(top)
    found = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, top)] = description(path, times)
    return found


class CopyTest(ProgramTest):
    def setUp(self):
        super().setUp()
        seed = random.randrange(1 << 32)
        self.random = random.Random(seed)
        print(f"{self.id()}: seed {seed}", file=sys.stderr)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        for name in ("root", "in", "out"):
            os.mkdir(self.path(name))
        self.port = None

    def path(self, *names):
        return os.path.join(self.folder.name, *names)

    def file(self, name, data):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def content(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def serve(self, *arguments, prefix=(), **options):
        server = self.start(*prefix, COPY, "--serve", f"--root={self.path('root')}", "--port=0", "--device=soft0", *arguments,
                            **options)
        self.port = int(server.wait_for(r"listening on port (\d+)").group(1))
        return server

    def begin(self, *words, host="127.0.0.1", prefix=(), **options):
        """Starts a copy. A word that begins with ":" is a path on the server."""
        words = [host + word if word.startswith(":") else word for word in words]
        return self.start(*prefix, COPY, f"--port={self.port}", "--device=soft0", *words, **options)

    def copy(self, *words, **options):
        return self.begin(*words, **options).finish(250)

    def assert_copied(self, *words, **options):
        out = self.assert_success(self.copy(*words, **options))
        return json.loads(out) if "--json" in words else out

    def assert_ends_in_order(self, server):
        server.kill(signal.SIGTERM)
        status, _, err = server.finish(20)
        self.assertEqual((status, err), (0, ""))

    def wait_until_nobody_writes(self, name):
        """Waits until the server has noticed a client's death, which takes a moment."""
        with open(self.path(name), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)

    def assert_no_partials(self, top="root"):
        self.assertEqual([name for name in tree(self.path(top)) if b"partial" in name], [])


class Runs(CopyTest):
    def test_sizes_there_and_back(self):
        server = self.serve()
        for size in (0, 1, 4095, 4096, 64 << 10, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 8 * MIB + 1):
            with self.subTest(size):
                data = self.random.randbytes(size)
                self.assert_copied(self.file("in/file", data), ":file")
                self.assertEqual(self.content("root/file"), data)
                self.assert_copied(":file", self.path("out"))
                self.assertEqual(self.content("out/file"), data)
        self.assert_no_partials()
        self.assert_ends_in_order(server)

    def make_tree(self, top="in/tree"):
        names = ["plain", "with blanks  ", "Grüße/日本語", "a\nnewline/b\n", "-dash", "x" * 255, "deep/er/and/deeper/file",
                 "back\\slash\ttab", ".hidden", "colon:name"]
        for name in names:
            self.file(os.path.join(top, name), self.random.randbytes(self.random.randrange(100000)))
        with open(os.path.join(os.fsencode(self.path(top)), b"no utf-8 \xff\xfe"), "wb") as file:
            file.write(b"bytes")
        self.file(os.path.join(top, "none"), b"")
        os.mkdir(self.path(top, "empty directory"))
        os.symlink("plain", self.path(top, "link"))
        os.symlink("../../outside", self.path(top, "link out"))
        os.symlink("/nowhere", self.path(top, "broken link"))
        os.symlink("deep", self.path(top, "link to a directory"))
        for name, mode in (("plain", 0o600), ("-dash", 0o444), ("none", 0o711), ("deep/er", 0o555), ("empty directory", 0o1770)):
            os.chmod(self.path(top, name), mode)
        for name in (*names, "deep/er", "deep", "empty directory", "link"):
            when = self.random.randrange(-10**18, 2 * 10**18)
            os.utime(self.path(top, name), ns=(when, when), follow_symlinks=False)
        return self.path(top)

    def test_a_tree_there_and_back_with_modes_and_times(self):
        self.serve()
        top = self.make_tree()
        self.assert_copied("-ra", top, ":")
        self.assertEqual(tree(self.path("root/tree"), times=True), tree(top, times=True))
        self.assert_copied("-ra", ":tree", self.path("out"))
        self.assertEqual(tree(self.path("out/tree"), times=True), tree(top, times=True))
        # Copies again, over the existing files.
        for more in ([], ["--resume"], ["--delta"], ["--fsync"], ["--no-checksum"]):
            with self.subTest(more):
                self.assert_copied("-ra", *more, top, ":")
                self.assertEqual(tree(self.path("root/tree"), times=True), tree(top, times=True))
        self.assert_no_partials()

    def test_a_tree_under_another_name_and_without_one(self):
        self.serve()
        top = self.make_tree()
        self.assert_copied("-r", top, ":other")
        self.assertEqual(tree(self.path("root/other")), tree(top))
        self.assert_copied("-r", os.path.join(top, "."), ":")
        self.assertEqual({name: about for name, about in tree(self.path("root")).items() if not name.startswith(b"other")},
                         tree(top))
        self.assert_copied("-r", ":other/", self.path("out/x"))
        self.assertEqual(tree(self.path("out/x")), tree(top))

    def test_the_documented_lines_resume(self):
        """The commands that docs/rdma_copy.md and --help show for starting and resuming a copy."""
        self.serve()
        self.make_tree()
        self.file("in/tree/big", self.random.randbytes(8 * MIB))
        with open(os.path.join(REPOSITORY, "docs/rdma_copy.md"), encoding="utf-8") as file:
            documented = file.read()
        said = self.run_program(COPY, "--help")[1]
        lines = ["rdma_copy -ra tree/ node2:backup", "rdma_copy -ra --resume tree/ node2:backup"]
        first, again = ([word.replace("node2", "127.0.0.1") for word in line.split()[1:]] for line in lines)
        for line in lines:
            self.assertIn(f"  {line}  ", documented)
            self.assertIn(f"  {line}  ", said)
        copying = self.begin("--bwlimit=4M", *first, cwd=self.path("in"))
        Broken.wait_for_partial(self, MIB, "root/backup/.big.rdma_copy-partial")
        copying.kill()
        copying.finish()
        self.wait_until_nobody_writes("root/backup/.big.rdma_copy-partial")
        result = self.assert_copied("--json", *again, cwd=self.path("in"))
        self.assertLess(result["bytes_sent"], 8 * MIB)
        self.assertEqual(tree(self.path("root/backup"), times=True), tree(self.path("in/tree"), times=True))

    def test_a_trailing_slash(self):
        """For a source, a slash means its contents. For a destination, a directory that is created if it is missing."""
        self.serve()
        self.file("in/tree/a", b"a")
        self.assert_copied("-r", self.path("in/tree/"), ":other")
        self.assert_copied("-r", self.path("in/tree") + "//", ":other")
        self.assertEqual(sorted(tree(self.path("root/other"))), [b"a"])
        self.assert_copied("-n", self.path("in/tree/a"), ":new/")
        self.assertEqual(os.listdir(self.path("root")), ["other"])
        self.assert_copied(self.path("in/tree/a"), ":new/")
        self.assert_copied("-r", self.path("in/tree"), self.path("in/tree/"), ":newer//")
        self.assertEqual(sorted(tree(self.path("root/new"))), [b"a"])
        self.assertEqual(sorted(tree(self.path("root/newer"))), [b"a", b"tree", b"tree/a"])
        self.assert_one_line(self.copy(self.path("in/tree/a"), ":new/a/"), 'cannot copy to "new/a/" .Not a directory')
        self.assert_one_line(self.copy(self.path("in/tree/a/"), ":"), "cannot be read: Not a directory")
        self.assert_one_line(self.copy(self.path("in/tree/a"), ":none/deeper/"), 'cannot copy to "none/deeper/" .No such file')

    def test_several_sources(self):
        self.serve()
        sources = [self.file(f"in/{name}", self.random.randbytes(1000)) for name in "abc"]
        os.mkdir(self.path("root/folder"))
        self.assert_copied(*sources, ":folder/")
        self.assert_copied(":folder/a", ":folder/c", self.path("out"))
        self.assertEqual(sorted(tree(self.path("root/folder"))), [b"a", b"b", b"c"])
        self.assertEqual(self.content("out/c"), self.content("in/c"))

    def test_thousands_of_sources(self):
        self.serve()
        sources = []
        for number in range(3000):
            name = f"{number:04}-{'n' * 200}"
            self.file(f"root/in/{name}", name.encode())
            sources.append(f":in/{name}")
        self.assert_copied(*sources, self.path("out/"))
        self.assertEqual(tree(self.path("out")), tree(self.path("root/in")))

    def test_later_sources_replace_earlier_ones(self):
        self.serve()
        for top in ("in/first", "in/second"):
            for number in range(200):
                self.file(f"{top}/{number}", f"{top} {number}".encode())
            os.symlink(top, self.path(top, "link"))
            self.file(f"{top}/deeper/file", top.encode())
        os.mkdir(self.path("root/folder"))
        self.assert_copied("-r", self.path("in/first/."), self.path("in/second/."), ":folder")
        self.assertEqual(tree(self.path("root/folder")), tree(self.path("in/second")))
        names = [self.path(top, str(number)) for top in ("in/first", "in/second") for number in range(200)]
        self.assert_copied(*names, *names[:200], ":folder")
        self.assertEqual([name for name in names[:200] if self.content("root/folder/" + os.path.basename(name)) != self.content(name)],
                         [])

    def test_a_sparse_file_stays_sparse(self):
        self.serve()
        source = self.path("in/sparse")
        with open(source, "wb") as file:
            file.truncate(10 * GIB)
            for at in (0, 3 * GIB + 12345, 10 * GIB - 5):
                file.seek(at)
                file.write(b"tail!")
        result = self.assert_copied("--json", source, ":sparse")
        self.assertEqual(result["bytes"], 10 * GIB)
        self.assertLess(result["bytes_sent"], MIB)
        about = os.stat(self.path("root/sparse"))
        self.assertEqual(about.st_size, 10 * GIB)
        self.assertLess(about.st_blocks * 512, MIB)
        self.assert_copied(":sparse", self.path("out"))
        self.assertLess(os.stat(self.path("out/sparse")).st_blocks * 512, MIB)
        began = time.monotonic()
        for more in ("--delta", "--resume"):
            result = self.assert_copied("--json", more, source, ":sparse")
            self.assertLess(result["bytes_sent"], MIB)
        self.assertLess(time.monotonic() - began, 10 * SLOW)
        self.assertLess(os.stat(self.path("root/sparse")).st_blocks * 512, MIB)
        self.assertEqual(data_of(self.path("root/sparse")), data_of(source))
        self.assertEqual(data_of(self.path("out/sparse")), data_of(source))

    def test_holes_behind_much_data_stay_holes(self):
        self.serve()
        source = self.path("in/file")
        with open(source, "wb") as file:
            for at in (0, 30 * MIB):
                file.seek(at)
                file.write(self.random.randbytes(2 * MIB))
            file.truncate(60 * MIB)
        self.assert_copied(source, ":file")
        self.assertEqual(sha(self.path("root/file")), sha(source))
        self.assertLess(os.stat(self.path("root/file")).st_blocks * 512, 5 * MIB)

    def test_an_existing_file_is_replaced_as_a_whole(self):
        self.serve()
        self.file("root/file", b"old" * 100000)
        with open(self.path("root/file"), "rb") as old:
            self.assert_copied(self.file("in/file", b"new"), ":file")
            self.assertEqual(old.read(), b"old" * 100000, "who has it open keeps it")
        self.assertEqual(self.content("root/file"), b"new")

    def test_delta_sends_the_differences(self):
        self.serve()
        data = bytearray(self.random.randbytes(24 * MIB))
        source = self.file("in/file", data)
        self.assert_copied("-a", source, ":file")
        inode = os.stat(self.path("root/file")).st_ino
        result = self.assert_copied("-a", "--delta", "--json", source, ":file")
        self.assertEqual((result["bytes_sent"], result["bytes"]), (0, len(data)))
        self.assertEqual(os.stat(self.path("root/file")).st_ino, inode, "nothing is written where nothing differs")
        changes = [self.random.randrange(len(data)) for _ in range(len(data) // 100 // 4096)]
        for at in changes:
            data[at] ^= 1
        data += b"and more"
        self.file("in/file", data)
        result = self.assert_copied("--delta", "--json", source, ":file")
        self.assertLessEqual(result["bytes_sent"], (len(set(at // 4096 for at in changes)) + 1) * 4096)
        self.assertEqual(self.content("root/file"), data)
        # In the other direction, where the destination has less.
        self.file("out/file", data[:10 * MIB])
        result = self.assert_copied("--delta", "--json", ":file", self.path("out"))
        self.assertEqual(result["bytes_sent"], len(data) - 10 * MIB)
        self.assertEqual(self.content("out/file"), data)

    def test_delta_finds_moved_data(self):
        self.serve()
        data = self.random.randbytes(10 * MIB)
        self.file("root/file", data)
        source = self.file("in/file", b"in front" + data[:3 * MIB + 77] + data[4 * MIB:] + data[:MIB])
        result = self.assert_copied("--delta", "--json", source, ":file")
        self.assertLessEqual(result["bytes_sent"], 5 * 4096)
        self.assertEqual(sha(self.path("root/file")), sha(source))

    def altered(self, old):
        """Creates a file from another one: parts of it, cut at blocks or anywhere, and new parts."""
        block = 4096
        place = lambda: self.random.randrange(len(old) // block + 1) * block if self.random.random() < 0.7 else self.random.randrange(len(old) + 1)
        kind = self.random.randrange(4)
        if kind == 0:
            return old[:place()]
        if kind == 1:
            return old + self.random.randbytes(self.random.choice((0, 1, block, 3 * block + 1)))
        pieces = []
        for _ in range(self.random.randrange(1, 5)):
            begin, end = sorted((place(), place()))
            pieces.append(self.random.choice((old[begin:end], self.random.randbytes(self.random.choice((1, block, 70_000))), old[:end])))
        return b"".join(pieces) if kind == 2 else old[:place()] + pieces[0] + old[place():]

    def test_delta_and_resume_of_files_made_from_the_old_ones(self):
        self.serve()
        for number in range(70):
            base = 4096 * self.random.randrange(16, 80)
            old = self.random.randbytes(base + self.random.choice((0, 0, 1, 4095)))
            if number % 3 == 0:
                old = old[:8192] * (len(old) // 8192)
            new = old[:64 * 1024 + 4096 * self.random.randrange(4)] if number % 10 == 0 else self.altered(old)
            self.file(f"in/tree/{number}", new)
            for folder in ("root/delta", "root/resume", "out/delta", "out/resume"):
                left = number % 2 == 1 and folder.endswith("resume")
                self.file(f"{folder}/.{number}.rdma_copy-partial" if left else f"{folder}/{number}", old)
        expected = tree(self.path("in/tree"))
        self.assert_copied("-r", self.path("in/tree"), ":")
        for more in ("delta", "resume"):
            self.assert_copied("-r", f"--{more}", self.path("in/tree/"), f":{more}/")
            self.assert_copied("-r", f"--{more}", ":tree/", self.path("out", more) + "/")
            self.assertEqual(tree(self.path("root", more)), expected)
            self.assertEqual(tree(self.path("out", more)), expected)

    def test_delta_to_a_shorter_file_and_to_holes(self):
        self.serve()
        self.file("root/file", self.random.randbytes(8 * MIB))
        data = self.content("root/file")[:3 * MIB + 5]
        self.assert_copied("--delta", self.file("in/file", data), ":file")
        self.assertEqual(self.content("root/file"), data)
        with open(self.path("in/file"), "r+b") as file:
            file.truncate(MIB)
            file.truncate(2 * MIB)
            file.seek(2 * MIB)
            file.write(data[2 * MIB:])
        self.assert_copied("--delta", self.path("in/file"), ":file")
        self.assertEqual(self.content("root/file"), data[:MIB] + bytes(MIB) + data[2 * MIB:])

    def test_resume_skips_existing_data(self):
        self.serve()
        data = self.random.randbytes(5 * MIB)
        source = self.file("in/file", data)
        self.file("root/.file.rdma_copy-partial", data[:2 * MIB] + b"garbage" + data[2 * MIB + 7:3 * MIB + 99])
        result = self.assert_copied("--resume", "--json", source, ":file")
        self.assertEqual(self.content("root/file"), data)
        self.assertLess(result["bytes_sent"], 2 * MIB + 3 * 4096)
        result = self.assert_copied("--resume", "--json", source, ":file")
        self.assertEqual(result["bytes_sent"], 0)
        # A longer file with completely wrong contents, and one that must get a hole.
        self.file("root/.file.rdma_copy-partial", self.random.randbytes(9 * MIB))
        os.truncate(source, 100)
        os.truncate(source, 5 * MIB)
        self.assert_copied("--resume", source, ":file")
        self.assertEqual(self.content("root/file"), data[:100] + bytes(5 * MIB - 100))
        self.assert_no_partials()

    def test_a_partial_file_of_an_earlier_copy_is_replaced(self):
        self.serve()
        self.file("root/.file.rdma_copy-partial", b"left behind" * 1000)
        os.chmod(self.path("root/.file.rdma_copy-partial"), 0o444)
        self.assert_copied(self.file("in/file", b"new"), ":file")
        self.assertEqual(self.content("root/file"), b"new")
        self.assert_no_partials()

    def test_dry_run_changes_nothing(self):
        self.serve()
        top = self.make_tree()
        before = tree(self.path("root"))
        out = self.assert_copied("-ran", top, ":new")
        self.assertIn(os.path.join(top, "deep/er/and/deeper/file") + "\n", out)
        self.assertIn("a\\nnewline", out)
        self.assertEqual(tree(self.path("root")), before)
        self.assert_copied("-r", top, ":")
        self.assert_copied("-rn", ":tree", self.path("out"))
        self.assertEqual(os.listdir(self.path("out")), [])

    def test_dry_run_finds_the_errors_of_a_copy(self):
        self.serve()
        source = self.file("in/directory/name", b"x")
        os.makedirs(self.path("root/name"))
        self.file("root/directory", b"a file")
        self.assert_copied("-rn", self.path("in/directory"), ":new/")  # if the name does not exist
        for words in ([source, ":"], ["-r", self.path("in/directory"), ":"]):
            results = [self.copy(*dry, *words) for dry in ([], ["-n"])]
            self.assertEqual(results[0][2], results[1][2])
            self.assertEqual(results[0][0], results[1][0])
            self.assertEqual(results[0][0], 1)
            self.assertIn("cannot be written", results[0][2])

    def test_equal_files_are_not_copied(self):
        self.serve()
        data = self.random.randbytes(200_000)
        source, there = self.file("in/file", data), self.file("root/file", data)
        os.chmod(source, 0o755)
        os.chmod(there, 0o600)
        before = os.stat(there)
        self.assert_copied("--resume", source, ":")
        after = os.stat(there)
        self.assertEqual((after.st_mode, after.st_mtime_ns, after.st_ino), (before.st_mode, before.st_mtime_ns, before.st_ino))
        self.assert_copied("--resume", "-a", source, ":")
        after = os.stat(there)
        self.assertEqual((stat.S_IMODE(after.st_mode), after.st_mtime_ns, after.st_ino),
                         (0o755, os.stat(source).st_mtime_ns, before.st_ino))

    def test_a_partial_file_of_another_user_is_not_continued(self):
        """A completed file would belong to that user. The partial file is kept, because this user may not delete it."""
        if os.geteuid() != 0:
            self.skipTest("only root may give files away")
        self.serve()
        data = self.random.randbytes(MIB)
        partial = self.file("root/.file.rdma_copy-partial", data[:MIB // 2])
        os.chown(partial, 65534, 65534)
        with open(partial, "rb") as theirs:
            result = self.assert_copied("--resume", "--json", self.file("in/file", data), ":")
            self.assertNotEqual(os.stat(self.path("root/file")).st_ino, os.fstat(theirs.fileno()).st_ino)
            self.assertEqual(os.stat(partial).st_ino, os.fstat(theirs.fileno()).st_ino)
        self.assertEqual((result["bytes_sent"], os.stat(self.path("root/file")).st_uid), (MIB, os.geteuid()))
        self.assertEqual(self.content("root/file"), data)
        self.assertEqual(self.content("root/.file.rdma_copy-partial"), data[:MIB // 2])
        os.unlink(partial)
        self.assert_no_partials()

    def test_a_server_keeps_nothing_of_former_clients(self):
        def threads_and_files():
            return len(os.listdir(f"/proc/{server.pid}/task")), len(os.listdir(f"/proc/{server.pid}/fd"))
        server = self.serve()
        self.assert_copied(self.file("in/first", b"x"), ":")  # creates what all clients share
        source = self.file("in/file", self.random.randbytes(MIB))
        copies = [self.begin("--bwlimit=100k", source, f":{number}") for number in range(12)]
        for number in range(12):
            Broken.wait_for_partial(self, 1, f"root/.{number}.rdma_copy-partial")
        for copying in copies:
            copying.kill()
            copying.finish()
        deadline = time.monotonic() + 20 * SLOW
        while any(now > most for now, most in zip(threads_and_files(), (8, 30))):  # each client has about five files
            self.assertLess(time.monotonic(), deadline, threads_and_files())
            time.sleep(0.05)

    def test_several_clients_at_once(self):
        server = self.serve()
        data = {name: self.random.randbytes(5 * MIB) for name in "abcd"}
        copies = [self.begin(self.file(f"in/{name}", content), ":") for name, content in data.items()]
        for copying in copies:
            self.assert_success(copying.finish())
        for name, content in data.items():
            self.assertEqual(self.content(f"root/{name}"), content)
        self.assert_ends_in_order(server)


class Display(CopyTest):
    """The texts, the rights of files and the limits of a user, which do not depend on the device."""

    @staticmethod
    def with_locked_memory(size):
        """A prefix that runs a program like one of an ordinary user, who may lock `size` bytes."""
        unprivileged = ("setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock") if os.geteuid() == 0 else ()
        return ("env", "RDMACOMM_SOFT0_MEMLOCK=on", "prlimit", f"--memlock={size}", *unprivileged)

    def test_needs_less_locked_memory_than_users_may_have(self):
        ordinary = self.with_locked_memory(8 * MIB)  # the default of Linux since 5.16
        server = self.serve(prefix=ordinary)
        data = self.random.randbytes(3 * MIB)
        self.assert_copied(self.file("in/file", data), ":file", prefix=ordinary)
        self.assertEqual(self.content("root/file"), data)
        self.assert_ends_in_order(server)

    def test_a_server_with_too_little_locked_memory_says_so(self):
        server = self.serve(prefix=self.with_locked_memory(4 * MIB))
        self.assert_one_line(self.copy(self.file("in/file", b"data"), ":file"), "closed the connection")
        server.kill(signal.SIGTERM)
        status, _, err = server.finish(20)
        self.assertEqual(status, 0)
        self.assertRegex(err, "cannot serve 127.0.0.1.*RLIMIT_MEMLOCK. of this process is 4 MiB")

    def test_modes_without_a_follow_the_umask(self):
        self.serve(umask=0o27)
        source = self.file("in/file", b"x")
        os.chmod(source, 0o4777)
        self.assert_copied(source, ":file")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("root/file")).st_mode), 0o750)

    def test_the_rights_of_an_owner_are_not_given_away(self):
        """Owners are not copied, so set-user-ID and set-group-ID are not either. Directories keep the receiver's own
        bits."""
        for name in ("root", "out"):
            os.chmod(self.path(name), 0o2755)
        self.serve(umask=0o22)
        for top in ("in/tree", "root/tree"):
            for name, size in (("empty", 0), ("small", 1), ("big", BLOCK)):
                self.file(f"{top}/{name}", self.random.randbytes(size))
            for name in ("shared", "closed"):
                os.mkdir(self.path(top, name))
            for name in os.listdir(self.path(top)):
                os.chmod(self.path(top, name), 0o7555 if name == "closed" else 0o7755)
            os.chmod(self.path(top), 0o6755)
        for name in ("root/there", "out/there"):
            os.mkdir(self.path(name))
            os.chmod(self.path(name), 0o755)
        os.rename(self.path("root/tree"), self.path("root/pulled"))
        for number, more in enumerate(([], ["-a"], ["--resume"], ["--delta", "-a"], ["--resume", "-a"])):
            for end, source, folder in (("root", self.path("in/tree"), ":"), ("out", ":pulled", self.path("out") + "/")):
                for name in (f"new {number}", "there"):
                    with self.subTest(more=more, end=end, name=name):
                        target = self.path(end, name)
                        big = os.path.join(target, "big")
                        if "--resume" in more and os.path.exists(big):  # resumed in place, with a mode of its own
                            os.truncate(big, BLOCK // 2)
                            os.chmod(big, 0o7755)
                            os.rename(big, os.path.join(target, ".big.rdma_copy-partial"))
                        elif os.path.exists(big):
                            os.chmod(big, 0o7755)
                        self.assert_copied("-r", *more, source + "/", folder + name)
                        sticky = stat.S_ISVTX if "-a" in more else 0
                        modes = {found: stat.S_IMODE(os.stat(os.path.join(target, found)).st_mode) for found in os.listdir(target)}
                        inherited = stat.S_ISGID if os.stat(target).st_mode & stat.S_ISGID else 0
                        self.assertEqual(inherited != 0, name != "there", "the system's own bit of a directory stays")
                        for found in ("empty", "small", "big"):
                            if not more or "-a" in more or name != "there":
                                self.assertEqual(oct(modes[found]), oct(0o755 | sticky), found)
                        for found, mode in (("shared", 0o755), ("closed", 0o555)):
                            if "-a" in more or name != "there":
                                self.assertEqual(oct(modes[found]), oct(mode | sticky | inherited), found)

    def test_a_default_acl_applies_except_with_a(self):
        everything, none = 0xFFFFFFFF, 0
        # Version 2; rwx for the owner, r-x for the group, nothing for others. Source: acl(5), linux/posix_acl_xattr.h
        acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, rights, everything)
                                              for tag, rights in ((0x01, 7), (0x04, 5), (0x20, none)))
        try:
            os.setxattr(self.path("root"), "system.posix_acl_default", acl)
        except OSError as error:
            self.skipTest(f"no ACLs here: {error}")
        self.serve(umask=0)
        for name, size in (("small", 1), ("big", BLOCK)):
            source = self.file("in/" + name, b"x" * size)
            for mode, made in ((0o644, 0o640), (0o444, 0o440)):
                os.chmod(source, mode)
                self.assert_copied(source, f":{name}{mode:o}")
                self.assertEqual(stat.S_IMODE(os.stat(self.path(f"root/{name}{mode:o}")).st_mode), made)
                self.assert_copied("-a", source, f":{name}{mode:o}")
                self.assertEqual(stat.S_IMODE(os.stat(self.path(f"root/{name}{mode:o}")).st_mode), mode)

    def test_output_that_cannot_be_written(self):
        self.serve()
        source = self.file("in/file", b"x")
        for option in ("--json", "-v"):
            for where, why in (("/dev/full", "No space left on device"), ("&-", "Bad file descriptor")):
                result = self.copy(option, source, ":file", prefix=["sh", "-c", f'exec "$0" "$@" >{where}'])
                self.assert_one_line(result, "cannot write to standard output .*" + why)
        self.assertEqual(self.content("root/file"), b"x")

    def test_bwlimit(self):
        self.serve()
        source = self.file("in/file", self.random.randbytes(MIB))
        for words in ([source, ":file"], [":file", self.path("out")]):
            began = time.monotonic()
            self.assert_copied("--bwlimit=1M", *words)
            self.assertGreater(time.monotonic() - began, 0.7)
            self.assert_copied("--bwlimit=0", *words)
        self.assertEqual(self.content("out/file"), self.content("in/file"))

    def test_json(self):
        self.serve()
        self.file("in/tree/a", bytes(1000))
        result = self.assert_copied("-r", "--json", self.path("in/tree"), ":")
        self.assertEqual([result[name] for name in ("ok", "files", "directories", "links", "bytes", "bytes_sent", "failures", "error")],
                         [True, 1, 1, 0, 1000, 1000, [], ""])
        self.assertGreater(result["seconds"], 0)
        status, out, _ = self.copy("-r", "--json", self.path("in/tree"), self.path("in/none"), ":")
        result = json.loads(out)
        self.assertEqual((status, result["ok"], result["files"], len(result["failures"])), (1, False, 1, 1))

    def on_terminal(self, *words, columns=0, status=0, after=None):
        """The output on a terminal of that width. after: called with the process after the first output."""
        parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        words = ["127.0.0.1" + word if word.startswith(":") else word for word in words]
        process = subprocess.Popen([COPY, f"--port={self.port}", "--device=soft0", *words], stderr=child,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        os.close(child)
        said = b""
        while True:
            try:
                part = os.read(parent, 4096)
            except OSError as error:
                self.assertEqual(error.errno, errno.EIO)
                break
            if not part:
                break
            said += part
            if after and b" MB" in said:
                after(process)
        os.close(parent)
        self.assertEqual(process.wait(), status, said)
        return said.decode()  # complete characters only

    def test_progress_is_for_terminals(self):
        self.serve()
        source = self.file("in/progressing", self.random.randbytes(2 * MIB))
        for more, shown in (([], True), (["--no-progress"], False)):
            said = self.on_terminal("--bwlimit=1M", *more, source, ":file")
            # For the file its progress; in total the bytes, rate, share and remaining time. Also the last line.
            self.assertEqual(bool(re.search(r"progressing \d+ %, entry 1: .*B  .*B/s  \d+ %  0:\d\d left", said)), shown, said)
            self.assertEqual(bool(re.search(r"rdma_copy: 1 file, 2\.097 MB, .*/s, \d+\.\d s", said)), shown, said)

    def test_progress_fits_the_terminal(self):
        self.serve()
        for name, widths in (("n" * 60, (20, 80)), ("日本語の名前" * 10, (40, 79)), ("é\x1b[2J\n" * 20, (80,))):
            source = self.file(f"in/{name}", self.random.randbytes(3 * MIB // 2))
            for columns in widths:
                said = self.on_terminal("--bwlimit=1M", source, ":file", columns=columns)
                lines = [line for line in re.split(r"\r\x1b\[K|\r?\n", said) if line and ", 1.573 MB" not in line]
                self.assertTrue(lines, said)
                for line in lines:
                    width = sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in line)
                    self.assertLess(width, columns, line)
                    if columns >= 79:
                        self.assertRegex(line, r"%, entry 1: .*B  .*B/s  \d+ %  0:\d\d left$")

    def test_an_interrupted_copy_names_the_way_to_resume(self):
        self.serve()
        source = self.file("in/file", self.random.randbytes(3 * MIB))
        said = self.on_terminal("--bwlimit=1M", source, ":", after=lambda process: process.send_signal(signal.SIGINT),
                                status=-signal.SIGINT)
        self.assertRegex(said, "rdma_copy: interrupted; the same command with --resume continues the file that was begun\r\n$")

    def test_the_last_line_has_the_right_numbers(self):
        self.serve()
        data = self.random.randbytes(MIB)
        self.file("in/tree/file", data)
        os.symlink("file", self.path("in/tree/link"))
        rest = r"\d+(\.\d+)? .?B/s, \d+\.\d s"
        self.assertRegex(self.on_terminal("-ran", self.path("in/tree"), ":"),
                         "rdma_copy: would copy 1 file, 1 directory, 1 link, 1.049 MB; nothing was changed\r\n")
        self.assertRegex(self.on_terminal("-ra", self.path("in/tree"), self.path("in/none"), ":", status=1),
                         f"rdma_copy: 1 file, 1 directory, 1 link, 1.049 MB, {rest}, 1 failed\r\n")
        self.file("in/tree/file", data[:-4096] + bytes(4096))
        self.assertRegex(self.on_terminal("--delta", self.path("in/tree/file"), ":tree/"),
                         rf"rdma_copy: 1 file, 1.049 MB \(4.096 kB sent\), {rest}\r\n")

    def test_forms_of_hosts_and_ports(self):
        self.serve("--listen=::")
        source = self.file("in/file", b"x")
        for number, word in enumerate((f"localhost:{self.port}:a", f"[::1]:{self.port}:b", f"127.0.0.1:{self.port}:c")):
            self.assert_success(self.run_program(COPY, "--device=soft0", source, word))
            self.assertEqual(len(os.listdir(self.path("root"))), number + 1)

    def test_help(self):
        status, out, err = self.run_program(COPY, "--help")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(self.run_program(COPY, "-h"), (0, out, ""))
        for flag in ("--recursive", "--archive", "--resume", "--delta", "--checksum", "--dry-run", "--bwlimit", "--fsync",
                     "--json", "--serve", "--root", "--listen", "--port"):
            self.assertIn(f"  {flag}", out)


class Many(CopyTest):
    """Tests that take longer."""

    def test_a_gibibyte(self):
        self.serve()
        source = self.path("in/file")
        with open(source, "wb") as file:
            for _ in range(64):
                file.write(self.random.randbytes(16 * MIB))
        self.assert_copied(source, ":file")
        self.assertEqual(sha(self.path("root/file")), sha(source))
        self.assert_copied(":file", self.path("out"))
        self.assertEqual(sha(self.path("out/file")), sha(source))

    def test_a_tree_of_20000_small_files(self):
        self.serve()
        for number in range(20000):
            folder = self.path("in/tree", f"d{number % 100}")
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, f"f{number}"), "wb") as file:
                file.write(self.random.randbytes(self.random.randrange(3000)))
        result = self.assert_copied("-ra", "--json", self.path("in/tree"), ":")
        self.assertEqual((result["files"], result["directories"]), (20000, 101))
        self.assert_copied("-ra", ":tree", self.path("out"))
        there = tree(self.path("in/tree"), times=True)
        self.assertEqual(tree(self.path("root/tree"), times=True), there)
        self.assertEqual(tree(self.path("out/tree"), times=True), there)


class Safety(CopyTest):
    """Requests that a server refuses: each with one error line, and without changes outside of its root."""

    def setUp(self):
        super().setUp()
        self.secret = self.file("secret/file", b"secret")
        os.symlink("../secret", self.path("root/out"))
        os.symlink("../secret/file", self.path("root/link"))
        os.symlink(self.path("secret"), self.path("root/absolute"))
        os.symlink("/proc/self/cwd", self.path("root/magic"))
        self.file("root/fine/file", b"fine")
        os.symlink("fine", self.path("root/inside"))
        self.serve()
        self.mine = self.file("in/file", b"mine")

    def tearDown(self):
        self.assertEqual(os.listdir(self.path("secret")), ["file"])
        self.assertEqual(self.content("secret/file"), b"secret")
        self.assertEqual(os.listdir(self.path("out")), [])
        super().tearDown()

    def test_reading(self):
        for path, why in (("../secret/file", r'contains "\.\."'), ("fine/../../secret/file", r'contains "\.\."'), ("fine/..", r'contains "\.\."'),
                          ("..", r'contains "\.\."'), (self.secret, "is an absolute path"), ("/", "is an absolute path"),
                          ("out/file", "leads out of the root directory of the server"), ("link", "leads out of the root directory of the server"),
                          ("absolute/file", "leads out of the root directory of the server"),
                          ("magic/root", "leads out of the root directory of the server|Too many levels")):
            with self.subTest(path):
                self.assert_one_line(self.copy(":" + path, self.path("out")), re.escape(path), why)
        self.assert_one_line(self.copy("-r", ":out/", self.path("out")), "leads out of the root directory of the server")

    def test_writing(self):
        for path, why in (("../secret/new", r'contains "\.\."'), ("..", r'contains "\.\."'), (self.path("secret/new"), "is an absolute path"),
                          ("out/new", "leads out of the root directory of the server"), ("out", "leads out of the root directory of the server"),
                          ("absolute/new", "leads out of the root directory of the server"), ("absolute", "leads out of the root directory of the server")):
            with self.subTest(path):
                self.assert_one_line(self.copy(self.mine, ":" + path), re.escape(path), why)

    def test_a_tree_does_not_go_through_a_link(self):
        """A link is not accepted as a directory to write into. As a destination it is replaced, not followed."""
        self.file("in/out/file", b"mine")
        self.assert_one_line(self.copy("-r", self.path("in/out"), ":"), '"out": cannot be written: ')
        self.file("in/inside/new", b"mine")
        self.assert_one_line(self.copy("-r", self.path("in/inside"), ":"), '"inside": cannot be written: ')
        self.assert_copied("-r", self.file("in/sub/link", b"mine"), self.path("in/sub/."), ":")
        self.assertEqual(self.content("root/link"), b"mine")

    def test_a_partial_that_is_a_link_is_not_followed(self):
        os.symlink("../secret/file", self.path("root/.file.rdma_copy-partial"))
        self.assert_copied("--resume", self.file("in/file", bytes(100000)), ":")
        os.symlink("../secret/file", self.path("root/.file.rdma_copy-partial"))
        self.assert_copied(self.file("in/file", bytes(100000)), ":")
        os.link(self.secret, self.path("root/.file.rdma_copy-partial"))
        self.assert_copied("--resume", self.path("in/file"), ":")

    def test_links_inside_the_root_are_followed(self):
        self.assert_copied(self.mine, ":inside/new")
        self.assertEqual(self.content("root/fine/new"), b"mine")

    def test_special_files_are_refused(self):
        os.mkfifo(self.path("root/fifo"))
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(self.path("root/socket"))
        kinds = [("fifo", "is a FIFO"), ("socket", "is a socket")]
        if os.geteuid() == 0:
            try:
                os.mknod(self.path("root/device"), stat.S_IFCHR | 0o666, os.makedev(1, 5))
                kinds.append(("device", "is a device"))
            except OSError:
                pass
        for name, why in kinds:
            with self.subTest(name):
                self.assert_one_line(self.copy(":" + name, self.path("out/x")), f'"{name}": {why}')
                self.assert_one_line(self.copy(self.mine, ":" + name), f'cannot copy to "{name}": it is not a regular file')
                os.symlink(name, self.path("root", "to " + name))
                self.assert_one_line(self.copy(self.mine, ":to " + name), f'cannot copy to "to {name}": it is not a regular file')
        os.mkdir(self.path("root/all"))
        for name, _ in kinds:
            os.rename(self.path("root", name), self.path("root/all", name))
        self.file("root/all/file", b"fine")
        status, _, err = self.copy("-r", ":all", self.path("got"))
        self.assertEqual((status, len(err.splitlines())), (1, len(kinds)), err)
        self.assertEqual(os.listdir(self.path("got")), ["file"])

    def test_links_are_copied_as_they_are(self):
        os.symlink("/etc/passwd", self.path("in/passwd"))
        self.assert_copied("-a", self.path("in/passwd"), ":")
        self.assertEqual(os.readlink(self.path("root/passwd")), "/etc/passwd")
        self.assert_one_line(self.copy(":passwd", self.path("out")), "leads out of the root directory of the server")


class Broken(CopyTest):
    """Copies that end too early."""

    def big(self, mib=24):
        return self.file("in/big", self.random.randbytes(mib * MIB))

    def test_killed_at_any_moment_and_resumed(self):
        server = self.serve()
        source = self.big(48)
        began = time.monotonic()
        self.assert_copied(source, ":big")
        takes = time.monotonic() - began
        os.unlink(self.path("root/big"))
        for turn in range(20):
            victim = self.begin("--resume" if turn % 2 else "--delta", source, ":big")
            time.sleep(self.random.uniform(0, takes))
            victim.kill()
            victim.finish()
            if os.path.exists(self.path("root/big")):
                self.assertEqual(sha(self.path("root/big")), sha(source), "a half file has the name")
            # The server notices the death after a moment. Until then the file is still being written.
            for _ in range(100):
                status, out, err = self.copy("--resume", "--json", source, ":big")
                if "another copy is writing this file" not in err:
                    break
                time.sleep(0.05)
            self.assertEqual((status, err), (0, ""), out)
            self.assertEqual(sha(self.path("root/big")), sha(source))
            os.unlink(self.path("root/big"))
        self.assert_no_partials()
        self.assert_ends_in_order(server)

    def test_a_server_that_is_killed(self):
        source = self.big()
        server = self.serve()
        copying = self.begin("--bwlimit=20M", source, ":big")
        self.wait_for_partial(MIB)
        server.kill()
        self.assert_one_line(copying.finish(20), "127.0.0.1")
        self.assertFalse(os.path.exists(self.path("root/big")))
        server.finish()
        self.serve()
        result = self.assert_copied("--resume", "--json", source, ":big")
        self.assertLess(result["bytes_sent"], 24 * MIB - MIB + 4096)
        self.assertEqual(sha(self.path("root/big")), sha(source))

    def wait_for_partial(self, least, name="root/.big.rdma_copy-partial"):
        partial = self.path(name)
        deadline = time.monotonic() + 20 * SLOW
        while not os.path.exists(partial) or os.stat(partial).st_size < least:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_a_pull_that_is_killed_and_resumed(self):
        self.serve()
        data = self.random.randbytes(16 * MIB)
        self.file("root/big", data)
        pull = self.begin("--bwlimit=20M", ":big", self.path("out"))
        time.sleep(0.3)
        pull.kill()
        pull.finish()
        self.assertFalse(os.path.exists(self.path("out/big")))
        self.assert_copied("--resume", ":big", self.path("out"))
        self.assertEqual(self.content("out/big"), data)
        self.assert_no_partials("out")

    def test_a_server_that_is_ended_says_so(self):
        source = self.big()
        server = self.serve()
        copying = self.begin("--bwlimit=5M", source, ":big")
        self.wait_for_partial(MIB)
        self.assert_ends_in_order(server)
        self.assert_one_line(copying.finish(20), "the server ends")

    def test_a_server_ends_while_it_waits_for_its_turn(self):
        """At one byte per second, the first piece has to wait for an hour."""
        server = self.serve()
        self.file("root/big", self.random.randbytes(100_000))
        pull = self.begin("--bwlimit=1", ":big", self.path("out"))
        self.wait_for_partial(4096, "out/.big.rdma_copy-partial")
        self.assert_ends_in_order(server)
        self.assert_one_line(pull.finish(20), "the server ends")

    def test_a_client_that_dies_does_not_affect_the_others(self):
        source = self.big(8)
        server = self.serve()
        other = self.begin("--bwlimit=4M", source, ":other")
        for _ in range(3):
            victim = self.begin("--bwlimit=1M", source, ":big")
            self.wait_for_partial(1)
            victim.kill()
            victim.finish()
        self.assert_success(other.finish())
        self.assertEqual(sha(self.path("root/other")), sha(source))
        self.assert_ends_in_order(server)

    def test_two_copies_of_one_file_at_once(self):
        source = self.big(8)
        self.serve()
        first = self.begin("--bwlimit=4M", source, ":big")
        self.wait_for_partial(1)
        for more in ([], ["--resume"]):
            self.assert_one_line(self.copy(*more, source, ":big"), "another copy is writing this file")
        self.assert_success(first.finish())
        self.assertEqual(sha(self.path("root/big")), sha(source))

    def test_a_file_that_becomes_shorter_while_it_is_read(self):
        source = self.big(8)
        self.serve()
        self.file("root/big", b"old")
        copying = self.begin("--bwlimit=4M", source, ":big")
        self.wait_for_partial(1)
        os.truncate(source, 1000)
        self.assert_one_line(copying.finish(), '/big": has become shorter while it was read')
        self.assertEqual(self.content("root/big"), b"old")
        self.assert_no_partials()


    def change_while_it_is_copied(self, size, change):
        """Pulls and pushes a file, and calls `change` for it after a part has arrived."""
        data = self.random.randbytes(size)
        for top, source, target in (("out", ":changing", self.path("out")), ("root", self.path("in/changing"), ":")):
            path = self.file("root/changing" if top == "out" else "in/changing", data)
            there = self.file(f"{top}/changing", b"old")
            copying = self.begin("--bwlimit=2M", source, target)
            self.wait_for_partial(1, f"{top}/.changing.rdma_copy-partial")
            with open(path, "r+b") as file:
                change(file)
            yield copying.finish(), there, data
            self.assert_no_partials(top)

    def test_a_file_that_is_rewritten_while_it_is_read(self):
        self.serve()
        for result, there, _ in self.change_while_it_is_copied(2 * MIB, lambda file: file.write(b"rewritten")):
            self.assert_one_line(result, 'changing": has changed while it was read, and is not copied')
            with open(there, "rb") as file:
                self.assertEqual(file.read(), b"old")

    def test_a_file_that_grows_while_it_is_read(self):
        self.serve()

        def grow(file):
            file.seek(0, os.SEEK_END)
            file.write(b"more")
        for result, there, data in self.change_while_it_is_copied(2 * MIB, grow):
            self.assert_one_line(result, 'changing": has grown while it was read: its first 2097152 bytes were copied')
            with open(there, "rb") as file:
                self.assertEqual(file.read(), data)

    def test_two_copies_of_one_tree_at_once(self):
        """If both copies write the same file at the same time, one of them reports that and skips the file."""
        self.serve()
        for number in range(300):
            self.file(f"in/tree/{number % 7}/{number}", self.random.randbytes(self.random.choice((0, 100, 40_000, 300_000))))
        expected = tree(self.path("in/tree"))
        for more in ([], ["-a", "--delta"]):
            copies = [self.begin("-r", *more, self.path("in/tree"), ":") for _ in range(2)]
            for copying in copies:
                status, _, err = copying.finish()
                self.assertEqual(status, 1 if err else 0, err)
                for line in err.splitlines():
                    self.assertRegex(line, "cannot be written: (another copy is writing this file|another process has removed it)")
            self.assertEqual(tree(self.path("root/tree")), expected)
            self.assert_no_partials()

    def test_a_root_that_was_replaced(self):
        """Data that is written into a root that was moved away or mounted over would not be found."""
        source = self.file("in/file", b"x")
        self.file("root/there", b"x")
        self.serve()
        self.assert_copied(source, ":")
        os.rename(self.path("root"), self.path("moved"))
        refused = "the server's root is another directory now, or is mounted over: start the server again"
        self.assert_one_line(self.copy(source, ":"), refused)
        os.mkdir(self.path("root"))
        for words in ([source, ":new"], [":there", self.path("out")]):
            self.assert_one_line(self.copy(*words), refused)
        self.assertEqual((os.listdir(self.path("root")), sorted(os.listdir(self.path("moved")))), ([], ["file", "there"]))
        os.rmdir(self.path("root"))
        os.rename(self.path("moved"), self.path("root"))
        self.assert_copied(source, ":new")


class Errors(CopyTest):
    def test_one_bad_file_among_many(self):
        self.serve()
        for name in "abc":
            self.file(f"in/tree/{name}", name.encode())
        os.mkfifo(self.path("in/tree/bad"))
        os.makedirs(self.path("root/tree/b"))
        status, _, err = self.copy("-r", self.path("in/tree"), self.path("in/none"), ":")
        self.assertEqual(status, 1)
        self.assertEqual(len(err.splitlines()), 3, err)
        for part in ("bad\": is a FIFO", "tree/b\": cannot be written", "none\": cannot be read"):
            self.assertIn(part, err)
        self.assertEqual((self.content("root/tree/a"), self.content("root/tree/c")), (b"a", b"c"))
        self.assert_no_partials()

    def test_names_of_unfinished_copies_are_not_copied(self):
        self.serve()
        for name in "abcdefgh":
            self.file(f"in/tree/{name}", name.encode())
            self.file(f"in/tree/.{name}.rdma_copy-partial", b"left behind")
        self.file("in/tree/.x.rdma_copy-partial/file", b"in a directory")
        self.file("in/tree/x", b"x")
        status, out, err = self.copy("--json", "-ra", self.path("in/tree"), ":")
        self.assertEqual((status, len(err.splitlines()), json.loads(out)["files"]), (1, 9, 9), err)
        self.assertEqual(sorted(tree(self.path("root/tree"))), [name.encode() for name in "abcdefghx"])
        self.assertEqual(self.content("root/tree/h"), b"h")
        left = self.path("in/tree/.a.rdma_copy-partial")
        self.assert_one_line(self.copy(left, ":y"), "has the name of an unfinished copy, and is not copied")
        self.assert_one_line(self.copy(self.path("in/tree/a"), ":.y.rdma_copy-partial"), "such names are reserved for unfinished copies")

    def test_no_listener(self):
        (self.port,) = hold_ports(self)
        source = self.file("in/file", b"x")
        self.assert_one_line(self.copy("--connect-timeout=0.5", source, ":"), f"127.0.0.1:{self.port}")
        self.assert_one_line(self.copy("--connect-timeout=0.5", ":file", self.path("out")), f"127.0.0.1:{self.port}")

    def test_a_server_of_another_program(self):
        server, self.port = self.start_server(PING_PONG, "--keep-serving")
        self.assert_one_line(self.copy(self.file("in/file", b"x"), ":"), "127.0.0.1|rdma_copy")
        server.end()

    def test_a_client_of_another_program(self):
        server = self.serve()
        self.assert_one_line(self.run_program(PING_PONG, "--role=client", f"--port={self.port}", "--device=soft0"),
                             "the handshake is not from rdma_copy")
        with socket.create_connection(("127.0.0.1", self.port)) as unknown:
            unknown.sendall(b"GET / HTTP/1.0\r\n\r\n")
            self.assert_copied(self.file("in/file", b"x"), ":")
        server.kill(signal.SIGTERM)
        self.assertEqual(server.finish(20)[0], 0)

    def test_names(self):
        self.serve()
        source = self.file("in/file", b"x")
        long_name = "n" * 256
        self.assert_one_line(self.copy(source, ":" + long_name), "File name too long")
        self.assert_one_line(self.copy(":" + long_name, self.path("out")), "File name too long")
        self.assert_one_line(self.copy(":none", self.path("out")), '"none": cannot be read')
        self.assert_one_line(self.copy(source, ":no/such/place"), "cannot copy to \"no/such/place\"")
        self.assert_one_line(self.copy(source, source, ":none"), "the destination of several sources must be a directory")
        self.assert_one_line(self.copy(":", self.path("out")), "is a directory; --recursive")
        self.assert_one_line(self.copy("x" * 5000, ":"), "File name too long")
        self.assert_one_line(self.copy(source, ":" + "x" * 5000), "is too long: a path has 4096 bytes at most")

    def test_a_full_disk(self):
        if os.geteuid() != 0:
            self.skipTest("mounts want root")
        self.file("in/tree/small", b"small")
        self.file("in/tree/z", bytes(1))
        big = self.file("in/big", self.random.randbytes(4 * MIB))
        server = self.serve(prefix=["unshare", "--mount", "sh", "-ec",
                                    f'mount -t tmpfs -o size=1m none {self.path("root")}; exec "$0" "$@"'])
        self.assert_copied("-r", self.path("in/tree"), ":")
        self.assert_one_line(self.copy(big, ":tree/small"), "No space left on device", '"tree/small": cannot be written')
        self.assert_one_line(self.copy(big, self.file("in/big2", bytes(4 * MIB)), ":tree"), '"tree/big": cannot be written')
        self.assertEqual(os.listdir(f"/proc/{server.pid}/root{self.path('root')}"), ["tree"])
        for number in range(1000):
            self.file(f"in/many/{number}", bytes(3000))
        self.assert_one_line(self.copy("-r", self.path("in/many"), ":"), "No space left on device", '"many/\\d+": cannot be written')
        self.assert_copied(":tree/small", self.path("out"))
        self.assertEqual(self.content("out/small"), b"small")
        self.assert_ends_in_order(server)

    def test_a_pull_that_cannot_write_names_the_reason(self):
        self.serve()
        self.file("root/big", self.random.randbytes(4 * MIB))
        self.file("root/small", b"x")
        self.assert_one_line(self.copy(":small", self.path("none/x")), 'cannot copy to ".*/none/x" .No such file')
        self.assert_one_line(self.copy(":small", ":big", self.path("none")), "the destination of several sources must be a directory")
        if os.geteuid() != 0:
            self.skipTest("mounts want root")
        for option, part in (("size=1m", '/big": cannot be written .No space left'), ("ro", 'cannot be written.*Read-only')):
            mounted = ["unshare", "--mount", "sh", "-ec", f'mount -t tmpfs -o {option} none {self.path("out")}; exec "$0" "$@"']
            self.assert_one_line(self.copy(":big", self.path("out"), prefix=mounted), part)

    def test_a_directory_that_is_refused_is_not_sent(self):
        self.serve()
        self.file("root/tree/x", b"no directory")
        for number in range(3):
            self.file(f"in/tree/x/deep/{number}", bytes(range(256)) * (32 * MIB // 256))
        self.assert_one_line(self.copy("-rn", self.path("in/tree"), ":"), '"tree/x": cannot be written: Not a directory')
        status, out, err = self.copy("--json", "-r", "--bwlimit=40M", self.path("in/tree"), ":")
        self.assertIn('"tree/x": cannot be written: Not a directory', err)
        self.assertEqual((status, len(err.splitlines())), (1, 1))
        self.assertLess(json.loads(out)["bytes_sent"], 64 * MIB)

    def test_a_file_that_reports_a_size_of_zero(self):
        self.serve()
        self.assert_one_line(self.copy("/proc/self/mem", ":"), '"/proc/self/mem": cannot be read .Input/output error')
        self.assert_one_line(self.copy("/proc/self/status", ":"), '"/proc/self/status": has more bytes than its size says')
        self.assertEqual(os.listdir(self.path("root")), [])

    def as_nobody(self):
        """Options to run programs as a user that is subject to file modes."""
        who = {"user": "nobody"} if os.geteuid() == 0 else {}
        if who and subprocess.run([COPY, "--help"], **who, capture_output=True, check=False).returncode != 0:
            self.skipTest("others cannot run the program")
        os.chmod(self.folder.name, 0o755)
        return who

    def test_trees_that_may_not_be_written(self):
        who = self.as_nobody()
        for name in ("root", "out"):
            os.chmod(self.path(name), 0o777)
        self.serve(**who)
        self.file("in/tree/deep/file", b"x")
        self.file("in/tree/new", b"x")
        for name in ("deep", "."):
            os.chmod(self.path("in/tree", name), 0o555)
        for more in ([], ["-a"], ["-a", "--resume"], ["-a", "--delta"], []):
            with self.subTest(more):
                self.assert_copied("-r", *more, self.path("in/tree"), ":", **who)
                self.assertEqual(stat.S_IMODE(os.stat(self.path("root/tree/deep")).st_mode), 0o555)
        self.assertEqual(tree(self.path("root/tree")), tree(self.path("in/tree")))

    def test_a_read_only_directory_is_made_writable_only_if_necessary(self):
        """If the server can write without a change of the mode, it keeps the mode. If killed, it has nothing to
        restore."""
        if os.geteuid() != 0:
            self.skipTest("only root may write in closed directories")
        server = self.serve()
        self.file("in/closed/big", self.random.randbytes(8 * MIB))
        os.mkdir(self.path("root/closed"), 0o500)
        copying = self.begin("-r", "--bwlimit=2M", self.path("in/closed"), ":")
        Broken.wait_for_partial(self, 1, "root/closed/.big.rdma_copy-partial")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("root/closed")).st_mode), 0o500)
        server.kill()
        server.finish()
        self.assert_one_line(copying.finish(), "127.0.0.1")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("root/closed")).st_mode), 0o500)

    def test_directories_that_may_only_be_searched(self):
        who = self.as_nobody()
        self.serve(**who)
        self.file("in/closed/file", b"x")
        os.chmod(self.path("in/closed"), 0o711)
        os.chmod(self.path("root"), 0o733)
        self.assert_copied(self.path("in/closed/file"), ":", **who)
        self.assertEqual(self.content("root/file"), b"x")
        os.chmod(self.path("root"), 0o711)
        self.file("in/new/file", b"x")
        self.assert_one_line(self.copy("-r", self.path("in/new"), ":", **who), '"new": cannot be written: Permission denied')

    def test_a_server_that_cannot_start_threads_continues(self):
        if os.geteuid() != 0:
            self.skipTest("only root has users to spare")
        nobody = 70_000 + os.getpid() % 10_000
        if subprocess.run([COPY, "--help"], user=nobody, capture_output=True, check=False).returncode != 0:
            self.skipTest("others cannot run the program")
        os.chmod(self.folder.name, 0o755)
        os.chmod(self.path("root"), 0o777)
        for number in range(20):
            self.file(f"in/tree/{number}", b"x" * number)
            self.file(f"root/tree/{number}", b"x" * number)
        server = self.serve(user=nobody)

        def limit_threads(number):
            subprocess.run(["prlimit", f"--pid={server.process.pid}", f"--nproc={number}:"], user=nobody, check=True)

        for words, reason in ((["-r", self.path("in/tree"), ":pushed"], "cannot start a thread that writes files"),
                              (["-r", ":tree", self.path("out/pulled")], "cannot start a thread that receives the answers")):
            # The thread that exceeds the limit depends on the threads that have already ended.
            for attempt in range(400 if SLOW == 1 else 40):
                limit_threads(3 + attempt % 10)
                status, _, err = self.copy("--connect-timeout=1", *words)
                self.assertIn(status, (0, 1), err)
                if reason in err:
                    break
            else:
                # With a sanitizer, its own threads and its speed decide which thread fails. Then this only checks that
                # the server continues.
                if SLOW == 1:
                    self.fail(f"{reason}: never seen")
            limit_threads(40)
            self.assert_copied(*words[:-1], words[-1] + "_then")
        for copied in ("root/pushed_then", "out/pulled_then"):
            self.assertEqual(tree(self.path(copied)), tree(self.path("in/tree")))
        limit_threads(3)
        server.kill(signal.SIGTERM)
        ended, _, complaint = server.finish(20)
        self.assertEqual(ended, 0, complaint)

    def test_an_open_file_is_no_destination(self):
        """The link would be replaced: for root that would be /dev/stdout itself."""
        self.serve()
        self.file("root/file", b"x")
        os.symlink("/proc/self/fd/1", self.path("open"))
        os.symlink("/proc/self/fd/999", self.path("closed"))
        os.symlink("open", self.path("again"))
        with open(self.path("log"), "wb") as log:
            for name in ("open", "closed", "again"):
                with self.subTest(name):
                    copy = subprocess.run([COPY, "--device=soft0", f"--port={self.port}", "127.0.0.1:file", self.path(name)],
                                          stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.PIPE, timeout=60 * SLOW, check=False)
                    self.assertEqual((copy.returncode, len(copy.stderr.splitlines())), (1, 1), copy.stderr)
                    self.assertIn(b"it leads to an open file, not to a name", copy.stderr)
                    self.assertTrue(os.path.islink(self.path(name)))
        self.assertEqual(os.path.getsize(self.path("log")), 0)
        self.assert_one_line(self.copy(":file", "/proc/self/fd/1"), "it leads to an open file")

    def test_no_permission(self):
        who = self.as_nobody()
        self.file("in/file", b"x")
        self.file("in/closed", b"x")
        os.chmod(self.path("in/closed"), 0)
        os.chmod(self.path("root"), 0o555)
        self.serve(**who)
        self.assert_one_line(self.copy(self.path("in/file"), ":", **who), '"file": cannot be written: .*Permission denied')
        self.assert_one_line(self.copy(self.path("in/closed"), ":", **who), 'closed": cannot be read: .*Permission denied')
        self.file("root/there", b"x")
        self.assert_one_line(self.copy(":there", self.path("out"), **who), 'there": cannot be written: .*Permission denied')
        os.chmod(self.path("root"), 0o755)

    def test_flags(self):
        source = self.file("in/file", b"x")
        for words, part in ((["a", "b"], '"b" is not HOST:PATH'), (["h:a", "h:b"], '"h:b" is on a server'),
                            (["h:a", "g:b", "c"], '"g:b" is on another server'), (["h:a", "b", "c"], '"b" is not HOST:PATH'),
                            ([source], "at least two paths"), (["--bwlimit=x", source, "h:"], "--bwlimit"),
                            (["--serve"], "--root: is missing"), (["--serve", "--root=/nowhere"], "cannot serve \"/nowhere\""),
                            (["--serve", "--root=/", "x"], '"x" is unexpected'), (["--root=/", source, "h:"], "--root: is an option"),
                            (["--serve", "--root=/", "--delta"], "--delta: is an option"), (["--nonsense", "a", "h:"], "nonsense"),
                            (["--server=x", source, "h:"], "--server is not an option"), ([":a", "b"], '":a" is not HOST'),
                            (["--timeout=1", source, "h:"], "--timeout: possible are 5 to 604800 seconds"),
                            (["--serve", "--root=/", "--timeout=nan"], "--timeout: possible are 5 to"), (["-r", "", "h:a"], '"" is not a name'), (["h:a", ""], '"" is not a name')):
            with self.subTest(words):
                self.assert_one_line(self.run_program(COPY, *words), re.escape(part))
        self.assert_one_line(self.run_program(COPY, "--serve", "--root=.", "--listen=203.0.113.9", "--device=soft0"), "203.0.113.9")

    def test_the_default_address_is_loopback(self):
        self.serve()
        with open("/proc/self/net/tcp", encoding="ascii") as file:
            local = [line.split()[1] for line in file.read().splitlines()[1:] if line.split()[3] == "0A"]
        self.assertIn(f"0100007F:{self.port:04X}", local, "loopback, unless --listen says otherwise")


class SeveralHosts(CopyTest):
    def setUp(self):
        super().setUp()
        reason = hosts.why_not(loss=True)
        if reason:
            self.skipTest(reason)

    def serve_on(self, network):
        inside = ["ip", "netns", "exec"]
        server = self.serve("--listen=0.0.0.0", prefix=[*inside, network[1].namespace])
        return server, {"host": network[1].ipv4, "prefix": [*inside, network[0].namespace]}

    def test_with_loss(self):
        for name, size in (("none", 0), ("one", 1), ("block", BLOCK), ("more", BLOCK + 1), ("big", 8 * MIB + 1)):
            self.file(f"in/tree/{name}", self.random.randbytes(size))
        for number in range(300):
            self.file(f"in/tree/small/{number}\n", self.random.randbytes(number))
        with hosts.Hosts(2) as network:
            network.loss(1)
            _, there = self.serve_on(network)
            self.assert_copied("-ra", self.path("in/tree"), ":", **there)
            self.assert_copied("-ra", ":tree", self.path("out"), **there)
        self.assertEqual(tree(self.path("out/tree"), times=True), tree(self.path("in/tree"), times=True))

    def test_many_files_with_loss(self):
        """Copies a GiB and 20,000 files with RDMACOMM_CONFORMANCE=full."""
        for number in range(20000 if FULL else 1000):
            self.file(f"in/tree/{number % 100}/Größe {number}\n", self.random.randbytes(self.random.randrange(3000)))
        with open(self.path("in/tree/big"), "wb") as file:
            for _ in range(64 if FULL else 2):
                file.write(self.random.randbytes(16 * MIB))
        with open(self.path("in/tree/sparse"), "wb") as file:
            file.truncate(10 * GIB)
            file.seek(5 * GIB)
            file.write(b"something")
        there_data = data_of(self.path("in/tree/sparse"))
        with hosts.Hosts(2) as network:
            network.loss(1)
            _, there = self.serve_on(network)
            self.assert_copied("-ra", self.path("in/tree"), ":", **there)
            self.assert_copied("-ra", ":tree", self.path("out"), **there)
        for top in ("root/tree", "out/tree"):
            self.assertEqual(data_of(self.path(top, "sparse")), there_data)
            about = os.stat(self.path(top, "sparse"))
            self.assertEqual(about.st_blocks, os.stat(self.path("in/tree/sparse")).st_blocks)
            self.assertEqual(about.st_size, 10 * GIB)
            os.unlink(self.path(top, "sparse"))
        os.unlink(self.path("in/tree/sparse"))
        expected = tree(self.path("in/tree"))
        for top in ("root/tree", "out/tree"):
            self.assertEqual(tree(self.path(top)), expected)

    def test_the_link_is_down_for_three_seconds(self):
        source = self.file("in/big", self.random.randbytes(8 * MIB))
        with hosts.Hosts(2) as network:
            _, there = self.serve_on(network)
            copying = self.begin("--bwlimit=4M", source, ":big", **there)
            Broken.wait_for_partial(self, MIB)
            network.link(1, "down")
            time.sleep(3)  # longer than the limit under test
            network.link(1, "up")
            status, _, err = copying.finish()
            if status != 0:
                self.assertEqual(len(err.splitlines()), 1, err)
                self.assert_copied("--resume", source, ":big", **there)
        self.assertEqual(sha(self.path("root/big")), sha(source))


if __name__ == "__main__":
    os.environ.pop("RCL_MAX_VLOG_LEVEL", None)
    unittest.main()
