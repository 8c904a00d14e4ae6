#!/usr/bin/env python3
"""Programs that use several devices (multi-rail), on soft0 with devices that belong to network interfaces: perftest, UCX
and programs of librdmacm. Two hosts, which are network namespaces of this machine, are joined by two cables.

usage: rails_test.py [TEST...]

RDMACOMM_BIN names the folder of softdev-run. Needs root for the namespaces; without root the tests are skipped.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from foreign_programs_test import RUN, SECONDS, ForeignProgramTest  # noqa: E402
from hosts import Hosts, why_not  # noqa: E402
from listening import listens, listens_by_cm  # noqa: E402

IPV4 = "3"  # the entry of the GID table
PORT = 18515
MANY_BYTES = 1 << 20  # more than programs exchange to find each other


class RailTest(ForeignProgramTest):
    """Rail N is the interface ethN of both hosts, with the device softN. Host H has the address ipv4(H, N) there."""

    one_subnet = False

    def setUp(self):
        reason = why_not()
        if reason:
            self.skipTest(reason)
        self.hosts = self.enterContext(Hosts(2))
        namespaces = [self.hosts[number].namespace for number in range(2)]
        self.ip("link", "add", "eth1", "netns", namespaces[0], "type", "veth", "peer", "name", "eth1", "netns", namespaces[1])
        for number in range(2):
            self.ip("-n", namespaces[number], "link", "set", "eth1", "up")
            self.ip("-n", namespaces[number], "address", "add", self.ipv4(number, 1) + "/24", "dev", "eth1")
        # The kernel reports carriers asynchronously.
        for number in range(2):
            for rail in range(2):
                self.wait_for_carrier(number, rail)

    @staticmethod
    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True)

    def ipv4(self, host, rail):
        if rail == 0:
            return self.hosts[host].ipv4
        return self.hosts[host].ipv4.replace("10.77.0.", "10.77.0.10" if self.one_subnet else "10.78.0.")

    def wait_for_carrier(self, host, rail):
        while "state UP" not in self.hosts[host].command("ip", "link", "show", "dev", f"eth{rail}"):
            pass

    def set_rail(self, host, rail, state):
        self.ip("-n", self.hosts[host].namespace, "link", "set", f"eth{rail}", state)

    def sent(self, host, rail):
        """The number of bytes that the host has sent on this rail."""
        links = self.hosts[host].command("cat", "/proc/net/dev")
        return int(re.search(rf"(?m)^ *eth{rail}:(?: *\d+){{8}} *(\d+)", links).group(1))

    def start_on(self, host, *arguments, devices="eth0,eth1", environment=()):
        process = self.hosts.run(host, ("env", *environment, RUN, "--devices", devices, *arguments),
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 start_new_session=True)
        self.addCleanup(self.end_group, process)
        return process

    @staticmethod
    def end_group(process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def wait_for(self, server, is_ready):
        # `ip netns exec` changes the namespace and then becomes the program. Before that, it is in this namespace.
        own = os.readlink("/proc/self/ns/net")
        while server.poll() is None and (os.readlink(f"/proc/{server.pid}/ns/net") == own or not is_ready(server.pid)):
            time.sleep(0.01)

    def start_pair(self, *arguments, client=1, port=PORT, **options):
        """Returns the server, on host 0, and the client."""
        common = (*arguments, "-p", str(port))
        server = self.start_on(0, *common, **options)
        self.wait_for(server, lambda pid: listens(port, pid))
        return server, self.start_on(client, *common, self.hosts[0].ipv4, **options)

    def run_pair(self, *arguments, **options):
        server, client = self.start_pair(*arguments, **options)
        out = self.output(client)
        self.output(server)
        return out


class Rails(RailTest):
    def test_each_device_has_its_interface(self):
        out = self.output(self.start_on(0, "ibv_devinfo", "-v"))
        for rail, part in enumerate(out.split("hca_id:")[1:]):
            self.assertIn("PORT_ACTIVE", part)
            found = re.findall(r"::ffff:([\d.]+), RoCE v2", part)
            self.assertEqual(found, [self.ipv4(0, rail)])
        folders = [f"/sys/class/infiniband/soft{rail}/device/net" for rail in range(2)]
        out = self.output(self.start_on(0, "ls", *folders))
        self.assertEqual(out.split(), [f"{folders[0]}:", "eth0", f"{folders[1]}:", "eth1"])

    def test_the_state_of_the_port(self):
        script = 'ip link set eth1 down; for i in 0 1; do cat /sys/class/infiniband/soft$i/ports/1/state; done'
        self.assertEqual(self.output(self.start_on(0, "sh", "-c", script)), "4: ACTIVE\n1: DOWN\n")

    def test_names(self):
        run = ("ip", "netns", "exec", self.hosts[0].namespace, RUN, "--devices=eth1,eth0", "--names=mlx5_0,mlx5_1")
        out = subprocess.run([*run, "ibv_devinfo", "-v"], text=True, capture_output=True, check=True).stdout
        self.assertRegex(out, rf"(?s)mlx5_0.*::ffff:{self.ipv4(0, 1)},.*mlx5_1.*::ffff:{self.ipv4(0, 0)},")

    def test_perftest(self):
        for rail in range(2):
            with self.subTest(rail):
                before = [self.sent(1, number) for number in range(2)]
                self.run_pair("ib_write_bw", "-d", f"soft{rail}", "-x", IPV4, "-F", "-n", "100")
                sent = [self.sent(1, number) - before[number] for number in range(2)]
                self.assertGreater(sent[rail], MANY_BYTES)
                self.assertLess(sent[1 - rail], MANY_BYTES)

    def test_perftest_on_one_host(self):
        """Both devices of a host reach each other, as over a switch."""
        server = self.start_on(0, "ib_send_lat", "-d", "soft0", "-x", IPV4, "-n", "100")
        self.wait_for(server, lambda pid: listens(PORT, pid))
        self.output(self.start_on(0, "ib_send_lat", "-d", "soft1", "-x", IPV4, "-n", "100", "localhost"))
        self.output(server)

    @unittest.skipUnless(shutil.which("ucx_perftest"), "no ucx_perftest")
    def test_ucx_uses_both_rails(self):
        before = [self.sent(1, rail) for rail in range(2)]
        environment = ("UCX_NET_DEVICES=soft0:1,soft1:1", "UCX_TLS=rc_verbs,ud_verbs", "UCX_MAX_RNDV_RAILS=2")
        out = self.run_pair("ucx_perftest", "-t", "tag_bw", "-s", "4000000", "-n", "20", "-w", "2", port=13337,
                            environment=environment)
        self.assertRegex(out, r"(?m)^Final: ")
        for rail in range(2):
            self.assertGreater(self.sent(1, rail) - before[rail], 20 * MANY_BYTES, rail)

    def test_one_rail_goes_down(self):
        common = ("ib_write_bw", "-x", IPV4, "-F", "-D")
        ends = self.start_pair(*common, "20", "-d", "soft1", port=PORT)
        others = self.start_pair(*common, "3", "-d", "soft0", port=PORT + 1)
        before = self.sent(1, 1)
        while self.sent(1, 1) < before + MANY_BYTES:
            self.assertIsNone(ends[1].poll())
        self.set_rail(0, 1, "down")
        for process in others:
            self.output(process)
        out, _ = ends[1].communicate(timeout=SECONDS)
        self.assertNotEqual(ends[1].returncode, 0)
        self.assertRegex(out, r"(?i)status 12|transport retry counter exceeded")

    def test_one_rail_of_a_host_goes_down(self):
        """The messages of one host do not use the network, but stop with the interface."""
        common = ("ib_write_bw", "-x", IPV4, "-F", "-D")
        # The count goes on from that of an earlier namespace with the same number.
        counter = ("cat", "/sys/class/infiniband/soft1/ports/1/counters/port_xmit_packets")
        before = self.output(self.start_on(0, *counter))
        ends = self.start_pair(*common, "20", "-d", "soft1", client=0, port=PORT)
        others = self.start_pair(*common, "1", "-d", "soft0", client=0, port=PORT + 1)
        while self.output(self.start_on(0, *counter)) == before:
            self.assertIsNone(ends[1].poll())
        self.set_rail(0, 1, "down")
        out, _ = ends[1].communicate(timeout=SECONDS)
        self.assertNotEqual(ends[1].returncode, 0)
        self.assertRegex(out, r"(?i)status 12|transport retry counter exceeded")
        for process in others:
            self.output(process)

    def cm_pair(self, server_options, address):
        common = ("rping", "-p", str(PORT), "-C", "10", "-V")
        server = self.start_on(0, *common, "-s", *server_options)
        self.wait_for(server, lambda pid: listens_by_cm(PORT, pid))
        before = [self.sent(1, rail) for rail in range(2)]
        self.output(self.start_on(1, *common, "-c", "-S", "60000", "-a", address))
        # Its status is not checked: when it ends, one of its threads may ask for events of a channel that it has closed.
        server.communicate(timeout=SECONDS)
        return [self.sent(1, rail) - before[rail] > 100_000 for rail in range(2)]

    def test_rdma_cm_chooses_the_device(self):
        for rail in range(2):
            address = self.ipv4(0, rail)
            for server_options in (("-a", address), ()):
                with self.subTest(rail=rail, server_options=server_options):
                    used = self.cm_pair((*server_options, "-S", "60000"), address)
                    self.assertEqual(used, [rail == 0, rail == 1])

    def test_an_address_without_a_device(self):
        for option, text in (("-s", "rdma_bind_addr: No such device"), ("-c", "rdma_resolve_addr: No such device")):
            out, _ = self.start_on(0, "rping", option, "-a", self.ipv4(0, 1), devices="eth0").communicate(timeout=SECONDS)
            self.assertIn(text, out)


class OneSubnet(RailTest):
    """Both interfaces have addresses of one subnet. The routes of the kernel then lead to one of them only."""

    one_subnet = True

    def test_perftest(self):
        self.run_pair("ib_write_bw", "-d", "soft1", "-x", IPV4, "-F", "-n", "100")


if __name__ == "__main__":
    unittest.main()
