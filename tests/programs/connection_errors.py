"""Errors that each connecting program must print for unreachable servers and wrong connection flags."""

import socket
import time

from program_runs import SLOW, ProgramTest


class ConnectionErrors(ProgramTest):
    """For the errors of one program. The derived class sets `program`."""

    program = None

    @classmethod
    def setUpClass(cls):
        if cls.program is None:
            cls.skipTest(cls, "is there to be derived from")

    def assert_refused(self, cases, *flags):
        """Each case: arguments, and text that its error line must contain."""
        for arguments, parts in cases:
            with self.subTest(arguments):
                self.assert_one_line(self.run_program(self.program, "--device=soft0", *flags, *arguments), *parts)

    def test_connection_flags(self):
        self.assert_refused((
            (["--bogus"], ["bogus"]),
            (["--role=spectator"], ["--role=spectator", "server, client and both"]),
            (["--role=client", "--port=0"], ["--port=0"]),
            (["--port=70000"], ["--port=70000", "65535"]),
            (["--mtu=17"], ["--mtu=17"]),
            (["--mtu=1000"], ["--mtu=1000"]),
            (["--traffic-class=256"], ["--traffic-class=256"]),
            (["--service-level=16"], ["--service-level=16"]),
            (["--ib-port=-1"], ["--ib-port=-1"]),
            (["--gid-index=-2"], ["--gid-index=-2"]),
            (["--gid-index=256"], ["--gid-index=256", "-1 to 255"]),
            (["--gid-type=v3"], ["--gid-type=v3", "auto, v1, v2 and ib"]),
            (["--connector=udp"], ["--connector=udp", "auto, tcp and cm"]),
            (["--role=both", "--connector=cm"], ["soft0", "not known to rdma_cm"]),
            (["--pkey=many"], ["--pkey=many"]),
            (["--pkey=0x8000"], ["--pkey=0x8000"]),
            (["--pkey=0x10000"], ["--pkey=0x10000"]),
            (["--connect-timeout=-1"], ["connect-timeout"]),
            (["--connect-timeout=nan"], ["--connect-timeout=nan", "0.001 to 3600 seconds"]),
            (["--silent-peer-after=2.9"], ["--silent-peer-after=2.9", "3 to 3600 seconds, and 0"]),
            (["--silent-peer-after=3601"], ["--silent-peer-after=3601"]),
            (["--silent-peer-after=-1"], ["--silent-peer-after=-1"]),
            (["--silent-peer-after=nan"], ["--silent-peer-after=nan"]),
            (["--silent-peer-after=soon"], ["soon", "silent-peer-after=soon"]),
            (["extra"], ["extra"]),
        ))

    def test_devices(self):
        for role in ("both", "server", "client"):
            with self.subTest(role):
                self.assert_one_line(self.run_program(self.program, f"--role={role}", "--device=mlx9_9"),
                                     "mlx9_9", "soft0")
        self.assert_refused(((["--ib-port=9"], ["9"]), (["--gid-index=200"], ["200"])))

    def test_unsupported_capabilities(self):
        server, port = self.start_server(self.program, "--keep-serving")
        self.assert_refused((
            (["--service-level=8"], ["service_level is 8", "0..7 on this device"]),
            (["--gid-type=ib"], ["no IB GID", "RoCE v2"]),
            (["--pkey=0x8001"], ["P_Key 0x8001", "0xffff at index 0"]),
        ), "--role=client", f"--port={port}")
        server.kill()

    def assert_gives_up(self, port):
        """A client whose server does not answer prints one line with its address, soon after the given limit."""
        began = time.monotonic()
        self.assert_refused((([f"--port={port}"], [f"127.0.0.1:{port}"]),), "--role=client", "--connect-timeout=0.5")
        self.assertLess(time.monotonic() - began, 0.5 + 2 * SLOW)

    def test_no_listener(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.assert_gives_up(probe.getsockname()[1])

    def test_a_silent_server(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            self.assert_gives_up(silent.getsockname()[1])

    def test_port_in_use(self):
        with socket.create_server(("", 0)) as other:
            port = other.getsockname()[1]
            self.assert_refused((([f"--port={port}"], [str(port), "in use"]),), "--role=server")
