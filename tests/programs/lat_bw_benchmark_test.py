#!/usr/bin/env python3
"""Runs lat_bw_benchmark as a user does: its measurements, output, verification, and all ways in which it ends."""

import json
import os
import random
import signal
import socket
import tempfile
import time
import unittest

from connection_errors import ConnectionErrors
from program_runs import LAT_BW, SLOW, ProgramTest, children_of, wait_until_gone

OPS = ("send", "write", "write_imm", "read", "fetch_add", "compare_swap")
QUICK = ("--device=soft0", "--iterations=20", "--rounds=2")
# Runs long enough to be killed at any point.
ENDLESS = ("--device=soft0", "--duration=600", "--rounds=1", "--sizes=64")
MOMENTS = (("write", "lat"), ("send", "lat"), ("write_imm", "lat"), ("read", "lat"), ("fetch_add", "lat"),
           ("send", "bw"), ("write", "bw"), ("write", "bibw"), ("send", "bibw"), ("compare_swap", "rate"))


class Runs(ProgramTest):
    def run_json(self, *arguments, **options):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "out.json")
            out = self.assert_success(self.run_program(LAT_BW, *arguments, f"--json={path}", **options))
            with open(path, encoding="utf-8") as file:
                return out, json.load(file)

    def test_everything(self):
        out, data = self.run_json(*QUICK, "--sizes=1,8,4K,64K", "--verify")
        seen = {(r["op"], r["measures"]) for r in data["results"]}
        expected = {(op, "half-rt") for op in ("send", "write", "write_imm")}
        expected |= {(op, "post-done") for op in ("write", "read", "fetch_add", "compare_swap")}
        expected |= {(op, way) for op in ("send", "write", "write_imm", "read") for way in ("one-way", "both-ways")}
        expected |= {(op, "rate") for op in OPS}
        self.assertEqual(seen, expected)
        for result in data["results"]:
            with self.subTest(result):
                self.check_result(result, data["machine"])
                self.assertRegex(out, rf"(?m)^{result['op']} +{result['measures']} .*$")
        self.assertIn("path_mtu_bytes", data)
        self.assertRegex(out, r"a cache line from core to core")

    def test_every_mode(self):
        for polling in ("busy", "channel", "epoll", "adaptive"):
            for threads in ("none", "per-qp", "shared-cq", "sharded"):
                with self.subTest(polling=polling, threads=threads):
                    _, data = self.run_json(*QUICK, "--sizes=64", "--tests=lat,bibw", "--verify",
                                            f"--polling={polling}", f"--threads={threads}")
                    self.assertEqual({result["op"] for result in data["results"]}, set(OPS))

    def check_result(self, result, machine):
        self.assertEqual(result["iterations"], 20)
        if result["measures"] in ("half-rt", "post-done"):
            us = result["latency_us"]
            ordered = [us[key] for key in ("min", "p50", "max")]
            self.assertNotIn("p99", us)  # with 20 it would be the largest
            self.assertNotIn("p99.9", us)
            self.assertEqual(ordered, sorted(ordered))
            self.assertTrue(us["min"] <= us["mean"] <= us["max"])
            if machine["cache_line_one_way_ns"] is not None:
                self.assertGreater(result["ratio"], 0)
        else:
            self.assertGreater(result["GB_per_s"], 0)
            self.assertAlmostEqual(result["Gb_per_s"], 8 * result["GB_per_s"], places=3)
            self.assertAlmostEqual(result["Mops_per_s"] * result["bytes"], 1000 * result["GB_per_s"], delta=0.01 * 1000 * result["GB_per_s"])
            self.assertGreater(result["memcpy_GB_per_s"], 0)
            self.assertGreater(result["ratio"], 0)

    def test_sizes_and_buffers_verified(self):
        for options in (["--buffers=one"], ["--buffers=roundrobin"], ["--inline=64"], ["--queue-depth=1"],
                        ["--queue-depth=3", "--buffers=roundrobin"], ["--queue-depth=1000"]):
            with self.subTest(options):
                self.assert_success(self.run_program(
                    LAT_BW, "--device=soft0", "--iterations=100", "--rounds=1", "--verify",
                    "--sizes=1,2,7,64,65,4097,100000", *options))

    def test_large_messages(self):
        self.assert_success(self.run_program(LAT_BW, "--device=soft0", "--iterations=4", "--rounds=1", "--verify",
                                             "--sizes=8M", "--ops=send,write,write_imm,read"))

    def test_by_duration(self):
        _, data = self.run_json("--device=soft0", "--duration=0.1", "--ops=write", "--tests=lat,bw", "--sizes=8,64K")
        for result in data["results"]:
            self.assertGreater(result["iterations"], 0)
        self.assertEqual(data["plan"]["rounds"], 5)

    def test_bandwidths_alone_need_no_cache_line(self):
        out, data = self.run_json("--device=soft0", "--iterations=20", "--rounds=1", "--ops=write", "--tests=bw", "--sizes=64K")
        self.assertNotIn("core to core, one way", out)
        self.assertIsNone(data["machine"]["cache_line_one_way_ns"])

    def test_more_iterations_than_samples_of_another_number_of_rounds(self):
        for rounds in (1, 3, 7):
            with self.subTest(rounds):
                _, data = self.run_json("--device=soft0", "--iterations=100", f"--rounds={rounds}", "--ops=write",
                                        "--tests=lat,rate", "--sizes=8")
                for result in data["results"]:
                    self.assertGreaterEqual(result["iterations"], 100)
                    self.assertLess(result["iterations"], 100 + rounds)

    def test_server_and_client(self):
        for server_role, client_role in (("server", "client"), ("master", "slave")):
            with self.subTest(server_role):
                server = self.start(LAT_BW, f"--role={server_role}", "--port=0", "--device=soft0")
                port = server.wait_for(r"listening on port (\d+)").group(1)
                self.assert_success(self.run_program(LAT_BW, f"--role={client_role}", f"--port={port}", *QUICK, "--sizes=64"))
                self.assert_success(server.finish())

    def test_keep_serving(self):
        server, port = self.start_server(LAT_BW, "--keep-serving")
        for _ in range(2):
            self.assert_success(self.run_program(LAT_BW, "--role=client", f"--port={port}", *QUICK, "--sizes=64"))
        self.assertIsNone(server.process.poll())

    def test_a_busy_server_says_so(self):
        server, port = self.start_server(LAT_BW)
        # Large messages: a run of small ones reaches its maximum number of operations before the other client gives up.
        first = self.start(LAT_BW, "--role=client", f"--port={port}", "--device=soft0", "--duration=600", "--rounds=1",
                           "--sizes=4M", "--ops=write", "--tests=lat")
        first.wait_for("op +measures")
        self.assert_one_line(self.run_program(LAT_BW, "--role=client", f"--port={port}", *QUICK), "busy")
        self.assertIsNone(first.process.poll())
        self.assertIsNone(server.process.poll())

    def test_one_cpu(self):
        one = {min(os.sched_getaffinity(0))}
        out, data = self.run_json("--device=soft0", "--iterations=5", "--rounds=1", "--ops=send,write", "--sizes=64",
                                  preexec_fn=lambda: os.sched_setaffinity(0, one))
        self.assertIn("may use one CPU only", out)
        self.assertIsNone(data["machine"]["cache_line_one_way_ns"])


class Verification(ProgramTest):
    def test_corruption_is_found(self):
        for op in ("send", "write", "write_imm", "read"):
            for test in ("lat", "bw", "bibw", "rate"):
                with self.subTest(op=op, test=test):
                    self.assert_one_line(
                        self.run_program(LAT_BW, *QUICK, f"--ops={op}", f"--tests={test}", "--sizes=100", "--verify",
                                         "--inject-corruption"),
                        f"verification failed: {op} 100 ", r"byte 49 of \d+ is 0x\w\w and should be 0x\w\w")

    def test_corruption_is_checked_only_on_request(self):
        self.assert_success(self.run_program(LAT_BW, *QUICK, "--ops=write", "--sizes=100", "--inject-corruption"))


class Errors(ConnectionErrors):
    program = LAT_BW

    def test_arguments(self):
        self.assert_refused((
            (["--ops=send,wriet"], ["--ops", '"wriet" is not one of']),
            (["--tests=speed"], ["--tests", '"speed" is not one of']),
            (["--sizes=0"], ["--sizes", "smallest size is 1 byte"]),
            (["--sizes=1,x"], ["--sizes", '"x" is not a size']),
            (["--sizes=8:1"], ["--sizes", "8:1"]),
            (["--sizes=2G"], ["2G", "limit", "1G"]),
            (["--sizes=3G"], ["3221225472"]),
            (["--buffers=many"], ["--buffers", "many"]),
            (["--iterations=0"], ["--iterations=0"]),
            (["--iterations=x"], ["x", "iterations"]),
            (["--iterations=99999999"], ["99999999"]),
            (["--iterations=2000000", "--tests=lat"], ["2000000", "possible are"]),
            (["--duration=0"], ["--duration"]),
            (["--duration=-1"], ["--duration"]),
            (["--duration=nan"], ["--duration"]),
            (["--rounds=0"], ["rounds"]),
            (["--queue-depth=0"], ["queue depth is 0"]),
            (["--queue-depth=5000"], ["5000"]),
            (["--queue-depth=-1"], ["--queue-depth=-1"]),
            (["--inline=1000"], ["1000"]),
            (["--ops=fetch_add", "--tests=bw"], ["nothing to measure"]),
            (["--polling=never"], ["--polling=never", "adaptive"]),
            (["--threads=many"], ["--threads=many", "shared-cq"]),
            (["--threads=sharded", "--shards=257"], ["--shards=257: possible are 1 to 256"]),
            (["--shards=4", "--threads=none"], ["--shards=4: works only with --threads=sharded, not with --threads=none"]),
            (["--json=/nonexistent/directory/x.json"], ["/nonexistent/directory/x.json"]),
        ))

    def test_a_run_that_fails_leaves_the_json_of_the_last_one(self):
        with tempfile.TemporaryDirectory() as directory, socket.socket() as probe:
            path = os.path.join(directory, "out.json")
            with open(path, "w", encoding="ascii") as file:
                file.write("before")
            probe.bind(("127.0.0.1", 0))
            self.assert_one_line(
                self.run_program(LAT_BW, "--role=client", f"--port={probe.getsockname()[1]}", "--device=soft0",
                                 "--connect-timeout=0.1", f"--json={path}"), "127.0.0.1")
            with open(path, encoding="ascii") as file:
                self.assertEqual(file.read(), "before")
            self.assert_success(self.run_program(LAT_BW, *QUICK, "--ops=write", "--sizes=8", f"--json={path}"))
            with open(path, encoding="ascii") as file:
                self.assertEqual(json.load(file)["program"], "lat_bw_benchmark")
            self.assertEqual(os.listdir(directory), ["out.json"])

    def test_json_to_a_pipe(self):
        out = self.assert_success(self.run_program(LAT_BW, *QUICK, "--ops=write", "--sizes=8", "--json=/dev/stdout"))
        self.assertIn('"program": "lat_bw_benchmark"', out)

    def test_a_client_of_another_program_is_refused(self):
        server, port = self.start_server(LAT_BW)
        ping_pong = os.path.join(os.path.dirname(LAT_BW), "ping_pong_test")
        self.assert_one_line(self.run_program(ping_pong, "--role=client", f"--port={port}", "--device=soft0"),
                             "not lat_bw_benchmark")
        self.assertIsNone(server.process.poll(), "the server goes on waiting for its client")

    def test_help(self):
        out = self.assert_success(self.run_program(LAT_BW, "--help"))
        self.assertEqual(self.run_program(LAT_BW, "-h"), (0, out, ""))
        for text in ("usage: lat_bw_benchmark", "--queue-depth=N", "--verify", "--json=FILE", "--sizes=SIZES", "(default 1:8M)", "(default 0.1)"):
            self.assertIn(text, out)


class Deaths(ProgramTest):
    """kill -9 of server or client, during each kind of measurement."""

    def setUp(self):
        super().setUp()
        self.seed = random.randrange(1 << 30)
        self.random = random.Random(self.seed)

    def run_until(self, moment):
        op, test = moment
        server, port = self.start_server(LAT_BW)
        client = self.start(LAT_BW, "--role=client", f"--port={port}", *ENDLESS, f"--ops={op}", f"--tests={test}")
        client.wait_for("op +measures")
        time.sleep(self.random.random() * 0.2)
        return server, client, port

    def test_of_the_server(self):
        for moment in MOMENTS:
            with self.subTest(moment=moment, seed=self.seed):
                server, client, port = self.run_until(moment)
                server.kill()
                began = time.monotonic()
                result = client.finish()
                self.assertLess(time.monotonic() - began, 2 * SLOW)
                self.assert_one_line(result, f"127.0.0.1:{port}", f"pid {server.pid}")

    def test_of_the_client(self):
        for moment in MOMENTS:
            with self.subTest(moment=moment, seed=self.seed):
                line = b""
                # killed too early to count as a client: see RestingClients
                while not line or b"it had not begun a measurement" in line:
                    server, client, _ = self.run_until(moment)
                    client.kill()
                    began = time.monotonic()
                    line = server.process.stderr.readline()
                    if b"it had not begun a measurement" in line:
                        server.end()
                status, out, err = server.finish()
                self.assertLess(time.monotonic() - began, 2 * SLOW)
                self.assert_one_line((status, out, line.decode() + err), r"127\.0\.0\.1:\d+", f"pid {client.pid}")

    def test_of_the_client_of_a_server_that_keeps_serving(self):
        server, port = self.start_server(LAT_BW, "--keep-serving")
        client = self.start(LAT_BW, "--role=client", f"--port={port}", *ENDLESS, "--ops=write", "--tests=bw")
        client.wait_for("op +measures")
        client.kill()
        client.finish()
        self.assert_success(self.run_program(LAT_BW, "--role=client", f"--port={port}", *QUICK, "--sizes=64", "--ops=write",
                                             "--connect-timeout=5"))
        self.assertIsNone(server.process.poll())

    def test_of_either_process_with_role_both(self):
        for whom in ("parent", "child", "parent by SIGTERM"):
            with self.subTest(whom):
                both = self.start(LAT_BW, "--role=both", *ENDLESS, "--ops=write", "--tests=lat")
                both.wait_for("op +measures")
                children = children_of(both.pid)
                self.assertEqual(len(children), 1)
                if whom == "child":
                    os.kill(children[0], signal.SIGKILL)
                    self.assert_one_line(both.finish(5), f"pid {children[0]}")
                else:
                    both.kill(signal.SIGKILL if whom == "parent" else signal.SIGTERM)
                    both.finish(5)
                self.assertTrue(wait_until_gone(children[0], 2), "the server process goes on")


if __name__ == "__main__":
    os.environ.pop("RCL_MAX_VLOG_LEVEL", None)
    unittest.main()
