#!/usr/bin/env python3
"""iSCSI over RDMA (iSER) on soft0: the target of tgt and the programs of libiscsi, on this host and between two hosts, which
are network namespaces of this machine. Not with lost packets: libiscsi fails if it waits for more than a second.

usage: iser_test.py [TEST...]

RDMACOMM_BIN names the folder of softdev-run. Needs root for the namespaces and for tgtd; else it is skipped.
"""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from foreign_programs_test import RUN, SECONDS, ForeignProgramTest  # noqa: E402
from hosts import Hosts, why_not  # noqa: E402

TARGET, INITIATOR = "iqn.2026-01.rdmacomm:target", "iqn.2026-01.rdmacomm:initiator"
BYTES = 2 << 20
BLOCK = 512
PIECE = 256 * BLOCK  # of a command

# Reads all blocks of the disk, then writes them in reverse order. Prints the digest of the bytes that it has read.
READ_AND_WRITE = """
import ctypes, hashlib, sys
url, initiator, block, blocks, at_once = sys.argv[1].encode(), sys.argv[2].encode(), 512, int(sys.argv[3]), 256
library = ctypes.CDLL("libiscsi.so.7")
pointer, number, byte = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int
class Url(ctypes.Structure):
    _fields_ = [("portal", ctypes.c_char * 256), ("target", ctypes.c_char * 256)]
class Vector(ctypes.Structure):
    _fields_ = [("base", pointer), ("length", ctypes.c_size_t)]
for name, result, arguments in (
        ("iscsi_create_context", pointer, (ctypes.c_char_p,)), ("iscsi_get_error", ctypes.c_char_p, (pointer,)),
        ("iscsi_parse_full_url", ctypes.POINTER(Url), (pointer, ctypes.c_char_p)),
        ("iscsi_set_targetname", byte, (pointer, ctypes.c_char_p)), ("iscsi_set_session_type", byte, (pointer, byte)),
        ("iscsi_full_connect_sync", byte, (pointer, ctypes.c_char_p, byte)), ("iscsi_logout_sync", byte, (pointer,)),
        ("iscsi_read10_iov_sync", pointer, (pointer, byte, number, number, byte, byte, byte, byte, byte, byte, pointer, byte)),
        ("iscsi_write10_iov_sync", pointer, (pointer, byte, number, pointer, number, byte, byte, byte, byte, byte, byte,
                                             pointer, byte))):
    getattr(library, name).restype, getattr(library, name).argtypes = result, arguments
context = library.iscsi_create_context(initiator)
def check(good):
    if not good:
        sys.exit(library.iscsi_get_error(context).decode())
parsed = library.iscsi_parse_full_url(context, url)
check(parsed)
library.iscsi_set_targetname(context, parsed.contents.target)
library.iscsi_set_session_type(context, 2)
check(library.iscsi_full_connect_sync(context, parsed.contents.portal, 1) == 0)
memory = ctypes.create_string_buffer(blocks * block)
length = at_once * block
def status_of(task):
    check(task)
    return ctypes.cast(task, ctypes.POINTER(ctypes.c_int)).contents.value
for first in range(0, blocks, at_once):
    vector = Vector(ctypes.addressof(memory) + first * block, length)
    check(status_of(library.iscsi_read10_iov_sync(context, 1, first, length, block, 0, 0, 0, 0, 0, ctypes.byref(vector), 1)) == 0)
print(hashlib.sha256(memory.raw).hexdigest())
for first in range(0, blocks, at_once):
    vector = Vector(ctypes.addressof(memory) + (blocks - first - at_once) * block, length)
    check(status_of(library.iscsi_write10_iov_sync(context, 1, first, None, length, block, 0, 0, 0, 0, 0, ctypes.byref(vector), 1)) == 0)
check(library.iscsi_logout_sync(context) == 0)
"""


class Iser(ForeignProgramTest):
    def setUp(self):
        missing = [name for name in ("tgtd", "tgtadm", "iscsi-inq") if shutil.which(name) is None]
        reason = why_not() or ("no " + missing[0] if missing else "")
        if reason:
            self.skipTest(reason)
        self.hosts = self.enterContext(Hosts(2))
        self.where = [("ip", "netns", "exec", host.namespace) for host in self.hosts]
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.content = random.Random(1).randbytes(BYTES)
        self.disk = os.path.join(self.folder, "disk")
        with open(self.disk, "wb") as file:
            file.write(self.content)
        self.start_target()

    def start_on(self, host, *arguments):
        process = subprocess.Popen([*self.where[host], RUN, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, start_new_session=True, env=self.environment)
        self.addCleanup(self.end, process)
        return process

    def control(self, *arguments):
        return subprocess.run([*self.where[0], "tgtadm", "--lld", "iser", *arguments], env=self.environment,
                              capture_output=True, text=True, check=False, timeout=SECONDS)

    def start_target(self):
        # The UNIX socket between tgtadm and tgtd.
        self.environment = {**os.environ, "TGT_IPC_SOCKET": os.path.join(self.folder, "socket")}
        self.url = f"iser://{self.hosts[0].ipv4}/{TARGET}/1"
        self.target = self.start_on(0, "tgtd", "-f", "--iser", "pool_sz_mb=32")
        new = ("--op", "new", "--mode", "target", "--tid", "1", "-T", TARGET)
        while self.control(*new).returncode != 0:  # until it listens
            self.assertIsNone(self.target.poll())
        for arguments in (("--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", self.disk),
                          ("--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"),
                          ("--op", "bind", "--mode", "target", "--tid", "1", "-Q", INITIATOR)):
            done = self.control(*arguments)
            self.assertEqual(done.returncode, 0, done.stderr)

    def run_on(self, host, *arguments):
        # On a busy machine libiscsi may wait for more than a second, and then fails. So the program gets ten tries.
        for _ in range(10):
            out, _ = (process := self.start_on(host, *arguments)).communicate(timeout=SECONDS)
            if "revents is not POLLIN" not in out:
                break
        self.assertEqual(process.returncode, 0, out)
        return out

    def use_from(self, host):
        self.assertIn("Version Descriptor:0960 iSCSI", self.run_on(host, "iscsi-inq", "-i", INITIATOR, self.url))
        self.assertIn(f"Total size:{BYTES}", self.run_on(host, "iscsi-readcapacity16", "-i", INITIATOR, self.url))
        out = self.output(self.start_on(host, "/usr/bin/python3", "-c", READ_AND_WRITE, self.url, INITIATOR,
                                        str(BYTES // BLOCK)))
        self.assertIn(hashlib.sha256(self.content).hexdigest(), out)
        pieces = [self.content[at:at + PIECE] for at in range(0, BYTES, PIECE)]
        with open(self.disk, "rb") as file:
            self.assertEqual(file.read(), b"".join(reversed(pieces)))
        self.assertIsNone(self.target.poll())

    def test_on_one_host(self):
        self.use_from(0)

    def test_between_hosts(self):
        self.use_from(1)


if __name__ == "__main__":
    unittest.main()
