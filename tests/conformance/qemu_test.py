#!/usr/bin/env python3
"""QEMU migrates a virtual machine over soft0 ("migrate rdma:..."), on this host and between two hosts, which are network
namespaces of this machine. The machine is paused, so its memory can be compared.

usage: qemu_test.py [TEST...]

RDMACOMM_BIN names the folder of softdev-run. Needs root for the namespaces, and qemu-system-x86_64; else it is skipped.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from foreign_programs_test import RUN, SECONDS, ForeignProgramTest  # noqa: E402
from held_ports import hold_ports  # noqa: E402
from hosts import Hosts, why_not  # noqa: E402

QEMU = "qemu-system-x86_64"
ADDRESS = 16 << 20  # of the file in the memory of the machine


class Machine:
    """A process of QEMU, controlled by QMP on its standard input and output."""

    def __init__(self, test, where, *options):
        self.test = test
        self.process = subprocess.Popen(
            [*where, RUN, QEMU, "-nodefaults", "-display", "none", "-accel", "tcg", "-m", "64", "-S", "-qmp", "stdio", *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        test.addCleanup(test.end, self.process)
        self.log = []
        self.read()
        self.command("qmp_capabilities")

    def read(self):
        """The next message; {} for a line of another kind."""
        line = self.process.stdout.readline()
        self.log.append(line)
        self.test.assertNotEqual(line, "", "QEMU has ended\n" + "".join(self.log))
        try:
            return json.loads(line)
        except ValueError:
            return {}

    def command(self, name, **arguments):
        self.process.stdin.write(json.dumps({"execute": name, "arguments": arguments}) + "\n")
        self.process.stdin.flush()
        while True:
            answer = self.read()
            self.test.assertNotIn("error", answer, "".join(self.log))
            if "return" in answer:
                return answer["return"]

    def wait_for_end(self):
        while True:
            message = self.read()
            if message.get("event") == "MIGRATION":
                self.test.assertNotEqual(message["data"]["status"], "failed", "".join(self.log))
                if message["data"]["status"] == "completed":
                    return

    def quit(self):
        out, _ = self.process.communicate('{"execute":"quit"}\n', timeout=SECONDS)
        self.test.assertEqual(self.process.returncode, 0, "".join(self.log) + out)


class Migration(ForeignProgramTest):
    def setUp(self):
        reason = why_not(loss=True) or ("" if shutil.which(QEMU) else "no " + QEMU)
        if reason:
            self.skipTest(reason)
        self.hosts = self.enterContext(Hosts(2))
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def migrate(self, source_host, *, pins_all):
        """Migrates a machine to host 0."""
        content = random.Random(1).randbytes(8 << 20)
        path = os.path.join(self.folder, "content")
        with open(path, "wb") as file:
            file.write(content)
        where = [("ip", "netns", "exec", self.hosts[i].namespace) for i in (source_host, 0)]
        source = Machine(self, where[0], "-device", f"loader,file={path},addr={ADDRESS},force-raw=on")
        target = Machine(self, where[1], "-incoming", "defer")
        for machine in (source, target):
            machine.command("migrate-set-capabilities", capabilities=[{"capability": "events", "state": True},
                                                                      {"capability": "rdma-pin-all", "state": pins_all}])
        uri = f"rdma:{self.hosts[0].ipv4}:{hold_ports(self)[0]}"
        target.command("migrate-incoming", uri=uri)
        source.command("migrate", uri=uri)
        source.wait_for_end()
        target.wait_for_end()
        saved = os.path.join(self.folder, "saved")
        target.command("pmemsave", val=ADDRESS, size=len(content), filename=saved)
        with open(saved, "rb") as file:
            self.assertEqual(file.read(), content)
        for machine in (source, target):
            machine.quit()

    def test_on_one_host(self):
        self.migrate(0, pins_all=False)

    def test_between_hosts(self):
        self.migrate(1, pins_all=True)

    def test_on_a_bad_cable(self):
        self.hosts.loss(1)
        self.migrate(1, pins_all=False)


if __name__ == "__main__":
    unittest.main()
