"""Two network namespaces, like two containers or hosts: each only has its own interface and address.

rxe only works in the first namespace, so this tests siw.
"""

import contextlib
import re
import unittest

from kernel_pair import IS_IWARP, OPERATIONS, PairTest, command, disturbed
from program_runs import LAT_BW, PING_PONG

NAMES = ("east", "west")
ADDRESSES = {"east": "10.4.0.1", "west": "10.4.0.2"}


def interface_in(name):
    return f"net_{name}"


def device_in(name):
    return f"siw_{name}"


@contextlib.contextmanager
def two_hosts():
    """Two namespaces with one device each, joined by a cable. The objects of a namespace are removed with it."""
    with contextlib.ExitStack() as stack:
        for name in NAMES:
            stack.enter_context(disturbed(("ip", "netns", "add", name), ("ip", "netns", "del", name)))
        # The indices must differ. If siw listens on all addresses, it binds a socket of this namespace to the interface
        # index of each device, even if that interface is in another namespace. With equal indices these sockets
        # conflict.
        east, west = NAMES
        command("ip", "link", "add", interface_in(east), "netns", east, "index", 101, "type", "veth",
                "peer", "name", interface_in(west), "netns", west, "index", 102)
        for name in NAMES:
            command("ip", "-n", name, "address", "add", f"{ADDRESSES[name]}/24", "dev", interface_in(name))
            command("ip", "-n", name, "link", "set", interface_in(name), "up")
        # Both links must be up before: siw checks when a device is created and, except in the first namespace, never
        # again.
        for name in NAMES:
            inside = ("ip", "netns", "exec", name)
            stack.enter_context(disturbed(
                (*inside, "rdma", "link", "add", device_in(name), "type", "siw", "netdev", interface_in(name)),
                (*inside, "rdma", "link", "delete", device_in(name))))
        yield


@unittest.skipUnless(IS_IWARP, "rxe works in the first network namespace only")
class Namespaces(PairTest):
    connector = "auto"
    server_address = ADDRESSES["west"]
    server_device = device_in("west")
    client_device = device_in("east")

    def setUp(self):
        super().setUp()
        hosts = two_hosts()
        hosts.__enter__()
        self.addCleanup(hosts.__exit__, None, None, None)

    def start(self, program, role, *arguments, **options):
        name = "west" if role == "--role=server" else "east"
        return super().start("ip", "netns", "exec", name, program, role, *arguments, **options)

    def test_programs(self):
        out = self.run_between(PING_PONG, "--iterations=20")
        self.assertRegex(out, r"(?m)^client  siw_east\b.*\nserver  siw_west\b")
        self.run_between(LAT_BW, "--iterations=10", "--rounds=1", "--verify", "--sizes=64K", "--ops=" + ",".join(OPERATIONS))

    def test_device_is_found_by_the_route(self):
        server, port = self.start_server(PING_PONG)
        client = self.start(PING_PONG, "--role=client", f"--server={self.server_address}", f"--port={port}",
                            "--iterations=10")
        self.assertRegex(self.assert_success(client.finish()), r"(?m)^client  siw_east\b")
        self.assert_success(server.finish(10))

    def test_server_killed(self):
        server, port = self.start_server(LAT_BW)
        client = self.start_client(LAT_BW, port, "--duration=600", "--rounds=1", "--sizes=64", "--ops=write", "--tests=lat")
        client.wait_for("op +measures")
        server.kill()
        self.assert_one_line(client.finish(10), re.escape(self.server_address), f"pid {server.pid}")
