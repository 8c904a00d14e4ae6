#!/usr/bin/env python3
"""Runs mesh_comm_service as a user does: N nodes, all operations, all ways to start, and nodes that die, hang and
return."""

import glob
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

from program_runs import MESH, SLOW, ProgramTest, children_of, wait_until_gone

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from held_ports import hold_ports  # noqa: E402
from hosts import Hosts, why_not  # noqa: E402

OPS = ("write", "write_imm", "send", "read")
COUNTED = ("write", "write_imm", "send")  # with --verify the target checks each message
LAUNCHERS = ("OMPI_", "PMI_", "SLURM_", "MPI_")


class MeshTest(ProgramTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.json = os.path.join(folder.name, "mesh.json")
        self.folder = folder.name

    def results(self):
        with open(self.json, encoding="utf-8") as file:
            return json.load(file)

    def assert_exact(self, nodes, total, op, size, verified=True):
        """Each node has sent `total` bytes to each other node, and all of them have arrived."""
        results = self.results()
        messages = -(-total // size)
        self.assertEqual(results["nodes"], nodes)
        self.assertEqual(results["missing"], [])
        self.assertEqual(results["corrupt"], 0)
        self.assertEqual(results["bytes"], nodes * (nodes - 1) * total)
        self.assertEqual(results["messages"], nodes * (nodes - 1) * messages)
        self.assertEqual(results["connections"], nodes * (nodes - 1))
        self.assertEqual([node["rank"] for node in results["by_node"]], list(range(nodes)))
        for node in results["by_node"]:
            self.assertEqual([peer["rank"] for peer in node["peers"]],
                             [rank for rank in range(nodes) if rank != node["rank"]])
            self.assertEqual(node["queue_pairs"], 2 * (nodes - 1))
            for peer in node["peers"]:
                self.assertEqual((peer["bytes"], peer["messages"], peer["corrupt"], peer["lost"]),
                                 (total, messages, 0, False))
                if verified and op in COUNTED:
                    self.assertEqual((peer["arrived_bytes"], peer["arrived_messages"]), (total, messages))
                else:
                    self.assertEqual("arrived_bytes" in peer, op in ("send", "write_imm"))

    def run_exact(self, nodes, op, total, size, *flags, **options):
        out = self.assert_success(self.run_program(
            MESH, f"--local={nodes}", "--device=soft0", f"--op={op}", f"--total={total}", f"--size={size}", "--verify",
            f"--json={self.json}", *flags, **options))
        self.assert_exact(nodes, total, op, size)
        looked_at = nodes * (nodes - 1) * -(-total // size)
        self.assertIn(f"verified: {looked_at} messages, 0 of them differ from the sent ones", out)
        return out

    def start_cluster(self, count, *flags, start=None):
        """Starts `count` nodes individually, and chooses their addresses. start: the ranks to start; default: all."""
        ports = hold_ports(self, count)
        self.cluster = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.flags = flags
        return [self.start_node(rank) for rank in (range(count) if start is None else start)]

    def port_of(self, rank):
        return int(self.cluster.split(",")[rank].rsplit(":", 1)[1])

    def wait_for_tcp(self, wanted, what):
        """Waits until wanted(sockets) is true. sockets: a set of (local port, remote port, state). Does not connect
        itself."""
        deadline = time.monotonic() + 30 * SLOW
        while True:
            with open("/proc/net/tcp", encoding="ascii") as file:
                lines = [line.split() for line in file.readlines()[1:]]
            if wanted({(int(line[1].split(":")[1], 16), int(line[2].split(":")[1], 16), line[3]) for line in lines}):
                return
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.005)

    def wait_until_listening(self, rank, node=None):
        """Waits for the node's listener. node: its program, which may already have ended if this machine is slow."""
        port = self.port_of(rank)
        self.wait_for_tcp(lambda sockets: (port, 0, "0A") in sockets or (node is not None and node.process.poll() is not None),
                          "no server listens")

    def wait_until_connected(self, *ranks):
        """Waits until other nodes have connected to each of these."""
        ports = {self.port_of(rank) for rank in ranks}
        self.wait_for_tcp(lambda sockets: ports <= {local for local, _, state in sockets if state == "01"}, "nobody connects")

    def start_node(self, rank):
        return self.start(MESH, f"--cluster={self.cluster}", f"--rank={rank}", "--device=soft0", *self.flags)


class Runs(MeshTest):
    def test_every_operation(self):
        for nodes in (2, 4, 8):
            for op in OPS:
                with self.subTest(nodes=nodes, op=op):
                    self.run_exact(nodes, op, 100_001, 4096)

    def test_sizes(self):
        for size, total in ((1, 1000), (63, 10_000), (4096, 1), (1 << 20, 5 << 20)):
            for op in OPS:
                with self.subTest(size=size, op=op):
                    self.run_exact(2, op, total, size)

    def test_depths(self):
        for depth in (1, 2, 3, 500):
            for op in OPS:
                with self.subTest(depth=depth, op=op):
                    self.run_exact(3, op, 200_000, 1000, f"--queue-depth={depth}")

    def test_every_mode(self):
        for polling in ("busy", "channel", "epoll", "adaptive"):
            for threads in ("per-qp", "shared-cq", "sharded"):
                with self.subTest(polling=polling, threads=threads):
                    self.run_exact(3, "send", 100_000, 4096, f"--polling={polling}", f"--threads={threads}")

    def test_shards(self):
        """Each shard has a thread if a queue pair uses it. Here each node has four queue pairs."""
        def threads_for(*more):
            self.run_exact(3, "send", 100_000, 4096, "--threads=sharded", *more)
            # In such a short run the thread of the last handshake may still exist at the end, but not at all nodes.
            return min(node["threads"] for node in self.results()["by_node"])

        threads = {shards: threads_for(f"--shards={shards}") for shards in (1, 2, 3, 4, 256)}
        self.assertEqual(threads, {shards: threads[1] - 1 + min(shards, 4) for shards in threads})
        self.assertEqual(threads_for(), threads[4])

    def test_without_verification(self):
        for op in OPS:
            with self.subTest(op):
                self.assert_success(self.run_program(MESH, "--local=3", "--device=soft0", f"--op={op}", "--total=1M",
                                                     f"--json={self.json}"))
                self.assert_exact(3, 1 << 20, op, 4096, verified=False)

    def test_duration(self):
        began = time.monotonic()
        out = self.assert_success(self.run_program(MESH, "--local=4", "--device=soft0", "--duration=0.5",
                                                   f"--json={self.json}"))
        self.assertGreater(time.monotonic() - began, 0.5)
        results = self.results()
        for node in results["by_node"]:
            self.assertGreater(node["messages"], 0)
            self.assertGreater(node["memory_bytes"], 1 << 20)
            self.assertGreaterEqual(node["fairness"], 0)
            for peer in node["peers"]:
                self.assertLess(peer["elapsed_s"], 0.5 + 2 * SLOW)
        self.assertRegex(out, r"(?m)^node 0 of 4, 127\.0\.0\.1:\d+, pid \d+: --op=write --size=4K --duration=0\.500")
        self.assertRegex(out, r"(?m)^connected in [\d.]+ ms; 6 queue pairs, \d+ threads, [\d.]+ MiB")
        self.assertRegex(out, r"(?m)^fairness \(slowest / fastest peer\) [\d.]+, CPU [\d.]+ s$")
        self.assertRegex(out, r"(?m)^latency \(us\) p50 [\d.]+, p99 [\d.]+, p99\.9 [\d.]+, max [\d.]+; CPU ")

    def test_all_nodes_report_in_order(self):
        out = self.run_exact(4, "write", 4096, 4096)
        first = [line.split("]")[0] for line in out.splitlines() if line.startswith("[")]
        self.assertEqual(first, sorted(first))
        self.assertEqual(set(first), {"[1", "[2", "[3"})
        matrix = out.split("GB/s from each node (row) to each other (column)\n")[1].splitlines()[:5]
        self.assertEqual(matrix[0].split(), ["0", "1", "2", "3"])
        for rank, line in enumerate(matrix[1:]):
            self.assertEqual(line.split()[0], str(rank))
            self.assertEqual(line.split()[1 + rank], "-")

    def test_heat_map(self):
        for name in ("mesh.svg", "mesh.html"):
            with self.subTest(name):
                path = os.path.join(self.folder, name)
                self.run_exact(4, "write", 4096, 4096, f"--heatmap={path}")
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                self.assertEqual(text.count("GB/s</title></rect>"), 12)
                if name.endswith(".svg"):
                    xml.etree.ElementTree.fromstring(text)

    def test_nodes_that_are_started_separately(self):
        nodes = self.start_cluster(3, "--total=100K", "--verify", f"--json={self.json}")
        for node in nodes:
            self.assert_success(node.finish())
        self.assert_exact(3, 100 << 10, "write", 4096)

    def test_nodes_that_start_late(self):
        first = self.start_cluster(3, "--total=10K", start=[2])
        others = [self.start_node(0), self.start_node(1)]
        for node in first + others:
            self.assert_success(node.finish())

    def test_a_list_of_words_and_a_file(self):
        ports = hold_ports(self, 2)
        path = os.path.join(self.folder, "hosts")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"# two\n127.0.0.1:{ports[0]}\nlocalhost:{ports[1]}\n")
        nodes = [self.start(MESH, "--cluster", f"127.0.0.1:{ports[0]}", f"localhost:{ports[1]}", "--rank=0", "--total=4K",
                            "--device=soft0"),
                 self.start(MESH, f"--hostfile={path}", "--rank=1", "--total=4K", "--device=soft0")]
        for node in nodes:
            self.assert_success(node.finish())

    def test_under_launchers(self):
        """Starts nodes with the variables of Open MPI, PMI and Slurm, which need not be installed."""
        environments = (lambda rank: {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": "2",
                                      "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
                        lambda rank: {"PMI_RANK": rank, "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"},
                        lambda rank: {"SLURM_PROCID": rank, "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "localhost",
                                      "SLURM_STEP_TASKS_PER_NODE": "2"})
        rest = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
        for environment in environments:
            with self.subTest(environment("0")):
                port, _ = hold_ports(self, 2, in_a_row=True)
                nodes = [self.start(MESH, f"--port={port}", "--total=4K", "--device=soft0",
                                    env=rest | environment(str(rank))) for rank in range(2)]
                for node in nodes:
                    self.assert_success(node.finish())


class Many(MeshTest):
    """Enough nodes that the number of threads exceeds the cores of any machine."""

    def test_16(self):
        self.run_exact(16, "write", 64 << 10, 4096, seconds=200)

    def test_32(self):
        self.run_exact(32, "send", 16 << 10, 4096, "--connect-timeout=60", seconds=250)


class Deaths(MeshTest):
    """The death of one of eight nodes, and its effect on the others."""

    NAMED_WITHIN = 2  # seconds

    def victim(self, program, rank):
        """The process of a node of --local. Children are started in the order of their ranks."""
        return children_of(program.pid)[rank]

    def start_eight(self, *flags):
        nodes = self.start_cluster(8, *flags)
        self.wait_for_traffic(nodes[0])
        return nodes

    def wait_for_traffic(self, node):
        """Waits until all nodes are connected, because none of them sends before that."""
        deadline = time.monotonic() + 30 * SLOW
        while self.traffic_ticks(node.pid) < 20:
            self.assertLess(time.monotonic(), deadline, "no traffic")
            self.assertIsNone(node.process.poll(), "it has ended")
            time.sleep(0.01)

    @staticmethod
    def traffic_ticks(pid):
        """CPU time of the threads that do a node's traffic. Excludes connecting, which may take seconds of other
        threads."""
        ticks = 0
        for stat in glob.glob(f"/proc/{pid}/task/*/stat"):
            try:
                with open(stat, encoding="ascii", errors="replace") as file:
                    name, fields = file.read().rsplit(")", 1)
            except OSError:  # the thread has ended
                continue
            if "(rdma-cq-" in name:
                ticks += int(fields.split()[11]) + int(fields.split()[12])
        return ticks

    def assert_named(self, line, rank, victim, node):
        self.assertRegex(line, rf"^mesh_comm_service: node {rank}: node {victim} \(127\.0\.0\.1:\d+\) is lost: .*")
        self.assertIn(f"pid {node.pid}", line)

    def test_killed_and_the_others_stop(self):
        nodes = self.start_eight("--duration=60")
        nodes[3].kill()
        killed = time.monotonic()
        for rank, node in enumerate(nodes):
            if rank == 3:
                continue
            result = node.finish(seconds=20)
            self.assert_one_line(result, f"node {rank}: node 3 \\(127")
            self.assertIn(f"pid {nodes[3].pid}", result[2])
        self.assertLess(time.monotonic() - killed, (self.NAMED_WITHIN + 1) * SLOW)

    def test_killed_and_the_others_continue(self):
        nodes = self.start_eight("--duration=4", "--on-failure=continue", f"--json={self.json}", "--verify", "--op=send")
        nodes[3].kill()
        killed = time.monotonic()
        readers = [node for rank, node in enumerate(nodes) if rank != 3]
        for node in readers:
            self.wait_for_error(node, "node 3 ")
        self.assertLess(time.monotonic() - killed, self.NAMED_WITHIN * SLOW)
        for rank, node in enumerate(nodes):
            if rank == 3:
                continue
            status, out, err = node.finish()
            self.assertEqual(status, 0, out + err)
            self.assertRegex(out, r"(?m)^3 lost ")
        results = self.results()
        self.assertEqual(results["missing"], [3])
        self.assertEqual(results["corrupt"], 0)
        for node in results["by_node"]:
            self.assertEqual([peer["rank"] for peer in node["peers"] if peer["lost"]], [3])

    def wait_for_error(self, node, text):
        """Reads standard error until it contains `text`. finish() does not return the text that was read here."""
        seen = b""
        os.set_blocking(node.process.stderr.fileno(), False)
        deadline = time.monotonic() + 20 * SLOW
        while text.encode() not in seen:
            self.assertLess(time.monotonic(), deadline, f"no {text!r} in {seen!r}")
            more = node.process.stderr.read()
            seen += more or b""
            if not more:
                time.sleep(0.005)
        os.set_blocking(node.process.stderr.fileno(), True)
        return seen.decode()

    def test_the_first_node_killed_another_one_reports(self):
        nodes = self.start_eight("--duration=3", "--on-failure=continue", f"--json={self.json}")
        nodes[0].kill()
        for node in nodes[1:]:
            self.assertEqual(node.finish()[0], 0)
        self.assertEqual(self.results()["missing"], [0])

    def test_frozen(self):
        """A stopped node is lost after --silent-peer-after. When it continues, it is informed of that, and ends."""
        nodes = self.start_eight("--duration=8", "--on-failure=continue", "--silent-peer-after=3")
        nodes[5].kill(signal.SIGSTOP)
        for rank, node in enumerate(nodes):
            if rank == 5:
                continue
            status, out, err = node.finish()
            self.assertEqual(status, 0, out + err)
            self.assertRegex(err, rf"node {rank}: node 5 \(127\.0\.0\.1:\d+\) is lost: .*pid {nodes[5].pid}.*sent nothing for \d+ s")
        nodes[5].kill(signal.SIGCONT)
        status, _, err = nodes[5].finish()
        self.assertEqual(status, 1)
        self.assertIn("no other node is left", err)

    def test_frozen_for_a_moment_is_no_loss(self):
        nodes = self.start_eight("--total=100M", "--verify", f"--json={self.json}", "--silent-peer-after=60")
        nodes[5].kill(signal.SIGSTOP)
        time.sleep(0.5)
        nodes[5].kill(signal.SIGCONT)
        for node in nodes:
            self.assert_success(node.finish(200))
        self.assert_exact(8, 100 << 20, "write", 4096)

    def test_killed_and_started_again(self):
        nodes = self.start_eight("--duration=6", "--on-failure=continue", f"--json={self.json}", "--verify", "--op=write_imm")
        nodes[3].kill()
        for rank, node in enumerate(nodes):
            if rank != 3:
                self.wait_for_error(node, "node 3 ")
        nodes[3].finish()
        nodes[3] = self.start_node(3)
        for rank, node in enumerate(nodes):
            status, out, err = node.finish()
            self.assertEqual(status, 0, out + err)
            self.assertEqual(err, "" if rank == 3 else
                             f"mesh_comm_service: node {rank}: node 3 ({self.cluster.split(',')[3]}) is back\n")
        results = self.results()
        self.assertEqual(results["missing"], [])
        self.assertEqual(results["corrupt"], 0)
        for node in results["by_node"]:
            for peer in node["peers"]:
                self.assertFalse(peer["lost"])
                self.assertGreater(peer["messages"], 0)
                if peer["rank"] == 3:  # its first process did not report the number
                    self.assertLessEqual(peer["arrived_bytes"], peer["bytes"])
                else:
                    self.assertEqual(peer["arrived_bytes"], peer["bytes"])

    def test_children_end_with_their_parent(self):
        program = self.start(MESH, "--local=4", "--device=soft0", "--duration=60")
        children = []
        while len(children) < 4:
            children = children_of(program.pid)
        program.kill()
        for child in children:
            self.assertTrue(wait_until_gone(child, 10), child)

    def start_with_victim(self, nodes, rank, *flags):
        """Starts a launcher with `nodes` nodes. Returns it and the process of node `rank`, which has begun to send."""
        program = self.start(MESH, f"--local={nodes}", "--device=soft0", "--on-failure=continue", *flags)
        while len(children_of(program.pid)) < nodes:
            pass
        victim = self.victim(program, rank)
        self.wait_for_traffic_of(victim)
        return program, victim

    def test_a_killed_child_is_reported(self):
        program, victim = self.start_with_victim(4, 2, "--duration=3")
        os.kill(victim, signal.SIGKILL)
        status, _, err = program.finish()
        self.assertEqual(status, 1)
        self.assertIn(f"mesh_comm_service: node 2 (pid {victim}) was ended by signal 9\n", err)
        for rank in (0, 1, 3):
            self.assertRegex(err, rf"(?m)^mesh_comm_service: node {rank}: node 2 .* is lost: ")

    def wait_for_traffic_of(self, pid):
        deadline = time.monotonic() + 30 * SLOW
        while self.traffic_ticks(pid) < 10:
            self.assertLess(time.monotonic(), deadline, "no traffic")
            time.sleep(0.01)

    def test_a_child_that_stays_frozen_is_ended(self):
        program, victim = self.start_with_victim(3, 1, "--duration=2", "--silent-peer-after=3")
        os.kill(victim, signal.SIGSTOP)
        status, _, err = program.finish()
        self.assertEqual(status, 1)
        self.assertIn(f"node 1 (pid {victim}) was ended by signal 9", err)


class Connecting(MeshTest):
    def test_frozen_while_the_nodes_connect(self):
        """Nodes that wait for a node without an answer do not count each other as lost. If the stopped node had almost
        connected, it may be reported as back before it is finally lost."""
        for victim, unless_connected in ((5, False), (0, False), (3, True)):
            with self.subTest(victim=victim, unless_connected=unless_connected):
                nodes = self.start_cluster(8, "--total=100K", f"--connect-timeout={5 * min(SLOW, 4):g}", "--silent-peer-after=3",
                                           "--on-failure=continue", start=[victim])
                if not unless_connected:
                    self.wait_until_listening(victim)
                    nodes[0].kill(signal.SIGSTOP)
                nodes += [self.start_node(rank) for rank in range(8) if rank != victim]
                if unless_connected:
                    self.wait_until_listening(7, nodes[-1])
                    nodes[0].kill(signal.SIGSTOP)
                for node in nodes[1:]:
                    status, out, err = node.finish()
                    self.assertEqual(status, 0, out + err)
                    for line in err.splitlines():
                        self.assertRegex(line, rf"^mesh_comm_service: node \d: node {victim} .* is (lost: .*|back)$")
                nodes[0].kill()
                nodes[0].finish()


REASON = why_not()


@unittest.skipIf(REASON, REASON)
class SeveralHosts(MeshTest):
    """Four nodes, each on its own host, which find their ranks by their addresses."""

    def test_four(self):
        for family in ("ipv4", "ipv6"):
            with self.subTest(family), Hosts(4) as hosts:
                cluster = ",".join(getattr(hosts[number], family) for number in range(4))
                nodes = [hosts.run(number, [MESH, f"--cluster={cluster}", "--device=soft0", "--op=send", "--total=300K",
                                            "--verify", f"--json={self.json}"], stdout=-1, stderr=-1, text=True)
                         for number in range(4)]
                # wait for all: a failing node makes others fail
                said = [node.communicate(timeout=60 * SLOW) for node in nodes]
                self.assertEqual([(node.returncode, err) for node, (_, err) in zip(nodes, said)], [(0, "")] * 4)
                for rank, (out, _) in enumerate(said):
                    self.assertIn(f"node {rank} of 4, ", out)
                self.assert_exact(4, 300 << 10, "send", 4096)

    def test_hosts_whose_own_name_is_on_the_loopback_interface(self):
        """Like many installations: /etc/hosts has 127.0.1.1 for the host's own name. Other hosts know its real
        address."""
        names = ("nodea", "nodeb", "nodec")
        with Hosts(3) as hosts:
            nodes = []
            for own, name in enumerate(names):
                table = os.path.join(self.folder, name)
                with open(table, "w", encoding="ascii") as file:
                    for other, other_name in enumerate(names):
                        file.write(f"{'127.0.1.1' if other == own else hosts[other].ipv4} {other_name}\n")
                # Affects only this process: ip-netns(8) gives it mounts of its own.
                with_table = ["sh", "-ec", f"mount --bind {table} /etc/hosts; exec \"$@\"", "sh"]
                nodes.append(hosts.run(own, [*with_table, MESH, f"--cluster={','.join(names)}", "--device=soft0", "--total=300K",
                                             "--verify", "--connect-timeout=30"], stdout=-1, stderr=-1, text=True))
            said = [node.communicate(timeout=60 * SLOW) for node in nodes]
            self.assertEqual([(node.returncode, err) for node, (_, err) in zip(nodes, said)], [(0, "")] * 3)

    def test_a_host_that_is_cut_off(self):
        with Hosts(4) as hosts:
            cluster = ",".join(hosts[number].ipv4 for number in range(4))
            nodes = [hosts.run(number, [MESH, f"--cluster={cluster}", "--device=soft0", "--duration=8",
                                        "--silent-peer-after=3", "--on-failure=continue"], stdout=-1, stderr=-1, text=True)
                     for number in range(4)]
            deadline = time.monotonic() + 30 * SLOW
            pid = nodes[2].pid
            while Deaths.traffic_ticks(pid) < 10:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            hosts.link(2, "down")
            for rank, node in enumerate(nodes):
                out, err = node.communicate(timeout=60 * SLOW)
                self.assertEqual(node.returncode, 1 if rank == 2 else 0, out + err)
                self.assertIn("no other node is left" if rank == 2 else "node 2 (10.77.0.3:2020) is lost", err)


class Errors(MeshTest):
    def test_a_report_that_cannot_be_written(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([MESH, "--local=2", "--device=soft0", "--duration=0.1"], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=60 * SLOW, check=False)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "mesh_comm_service: cannot write to standard output: No space left on device\n"))

    def assert_refused(self, cases, *flags):
        for arguments, parts in cases:
            with self.subTest(arguments):
                self.assert_one_line(self.run_program(MESH, "--device=soft0", *flags, *arguments), *parts)

    def test_arguments(self):
        self.assert_refused((
            (["--bogus"], ["bogus"]),
            (["extra"], ["extra"]),
            (["--local=1"], ["--local=1", "2 to 1024"]),
            (["--local=2000"], ["--local=2000"]),
            (["--local=2", "--rank=1"], ["--local", "remove --cluster"]),
            (["--local=2", "--cluster=a,b"], ["--local", "remove --cluster"]),
            (["--local=2", "--op=fetch_add"], ["--op=fetch_add", "send, write, write_imm and read"]),
            (["--local=2", "--size=0"], ["--size", "smallest size is 1 byte"]),
            (["--local=2", "--size=2G"], ["--size=2G", "1 to 1G"]),
            (["--local=2", "--total=much"], ["--total", '"much"']),
            (["--local=2", "--total=1M", "--duration=1"], ["--total", "--duration"]),
            (["--local=2", "--duration=0"], ["--duration=0"]),
            (["--local=2", "--duration=nan"], ["--duration=nan"]),
            (["--local=2", "--queue-depth=-1"], ["--queue-depth=-1"]),
            (["--local=2", "--queue-depth=5000"], ["--queue-depth=5000", "1 to 4096"]),
            (["--local=2", "--polling=never"], ["--polling=never"]),
            (["--local=2", "--threads=none"], ["--threads=none: possible are per-qp, shared-cq and sharded"]),
            (["--local=2", "--threads=foo"], ["--threads=foo: possible are per-qp, shared-cq and sharded"]),
            (["--local=2", "--threads=sharded", "--shards=0"], ["--shards=0: possible are 1 to 256"]),
            (["--local=2", "--shards=2"], ["--shards=2: works only with --threads=sharded, not with --threads=shared-cq"]),
            (["--local=8", "--size=1G", "--queue-depth=4096"], ["--size=1G", "8 nodes need .* GiB", "GiB available"]),
            (["--cluster=127.0.0.1,192.0.2.2", "--rank=0", "--size=1G", "--queue-depth=4096"], ["a node needs 4097 GiB"]),
            (["--local=2", "--on-failure=panic"], ["--on-failure=panic", "stop and continue"]),
            (["--local=2", "--role=server"], ["--role"]),
            (["--local=2", "--json=/no/such/folder/x"], ["/no/such/folder"]),
            (["--local=2", "--heatmap=/no/such/folder/x"], ["/no/such/folder"]),
            (["--cluster=127.0.0.1"], ["--cluster", "1 node"]),
            (["--cluster=127.0.0.1,"], ["--cluster", "the host is missing"]),
            (["--cluster=127.0.0.1:5,127.0.0.1:5"], ["in the list twice"]),
            (["--cluster=127.0.0.1:1,127.0.0.1:2"], ["nodes 0 .* and 1 .* both on this host", "--rank"]),
            (["--cluster=203.0.113.1,203.0.113.2"], ["none of the nodes has an address of this host"]),
            (["--cluster=127.0.0.1,192.0.2.2", "--rank=2"], ["--rank=2", "0 to 1"]),
            (["--cluster=127.0.0.1,192.0.2.2", "--port=0"], ["--port=0"]),
            (["--cluster=a,b", "--hostfile=c"], ["not both"]),
            (["--hostfile=/no/such/file"], ["cannot read /no/such/file .No such file or directory"]),
            (["--hostfile=/dev/null"], ["/dev/null: it contains no nodes"]),
            (["--hostfile=/dev/zero"], ["/dev/zero is longer than 1M"]),
        ))

    def test_no_nodes(self):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
        self.assert_one_line(self.run_program(MESH, "--device=soft0", env=environment), "--local=N", "--cluster", "srun")

    def test_devices(self):
        self.assert_one_line(self.run_program(MESH, "--local=4", "--device=mlx9_9"), "mlx9_9", "soft0")
        self.assert_refused(((["--gid-index=200"], ["200"]),), "--local=4")

    def test_few_descriptors(self):
        """The soft limit is raised. If the hard limit is too low, the run does not start."""
        flags = ("--local=16", "--device=soft0", "--total=4K", "--threads=per-qp", "--polling=epoll")
        if SLOW == 1:  # UndefinedBehaviorSanitizer opens pipes itself to check addresses, and takes a failure for a bad one
            self.assert_success(self.run_program("prlimit", "--nofile=32:1024", MESH, *flags))
        self.assert_one_line(self.run_program("prlimit", "--nofile=32:128", MESH, *flags),
                             "16 nodes: a process needs 320 file descriptors, but may open at most 128 .ulimit -Hn.", "--threads=shared-cq")
        others = "".join(f",192.0.2.{i}" for i in range(1, 11))
        self.assert_one_line(self.run_program("prlimit", "--nofile=128", MESH, f"--cluster=127.0.0.1{others}", "--rank=0",
                                              "--device=soft0"), "11 nodes: a process needs 154 ")

    def test_a_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            self.assert_refused((([f"--cluster=127.0.0.1:{port},127.0.0.1:1", "--rank=0"], [str(port), "in use"]),))

    def test_a_node_that_never_starts(self):
        node, = self.start_cluster(2, "--connect-timeout=0.5", start=[0])
        self.assert_one_line(node.finish(), "node 0: node 1 ", "cannot connect to it", self.cluster.split(",")[1])

    def test_a_node_with_other_options_is_replaced(self):
        """Nodes with correct options wait for the correct node, whichever of the two connects first."""
        for _ in range(5):
            nodes = self.start_cluster(3, "--total=64K", "--connect-timeout=60", start=[0, 1])
            self.wait_until_connected(0, 1)
            self.flags = ("--total=64K", "--size=64", "--connect-timeout=60")
            status, out, err = self.start_node(2).finish()
            self.assertEqual(status, 1, out + err)
            self.assertIn("--size", err)
            self.flags = ("--total=64K", "--connect-timeout=60")
            nodes.append(self.start_node(2))
            for node in nodes:
                status, out, err = node.finish()
                self.assertEqual(status, 0, out + err)

    def test_nodes_with_different_options(self):
        """With two nodes, neither can know which one has the wrong options."""
        first = self.start_cluster(2, "--total=1M", "--connect-timeout=3", start=[0])[0]
        self.flags = ("--total=2M", "--connect-timeout=3")
        second = self.start_node(1)
        for node in (first, second):
            status, out, err = node.finish()
            self.assertEqual(status, 1, out + err)
            # A node whose connection was refused reports the other node as lost.
            self.assertRegex(err, "^mesh_comm_service: node .*--total=.*--total=.*start all nodes with the same")
            self.assertRegex(err.splitlines()[-1], "^mesh_comm_service: node .: node . .*is lost: cannot connect to it")

    def test_an_unknown_client_has_no_effect(self):
        """Waiting nodes refuse a node of another mesh, report it, and continue to wait."""
        first = self.start_cluster(2, "--total=4K", "--connect-timeout=60", start=[0])[0]
        mine = self.cluster
        self.cluster = f"{mine.split(',')[0]},127.0.0.1:{hold_ports(self)[0]},192.0.2.1"
        unknown = self.start_node(1)
        self.assert_one_line(unknown.finish(), "cannot connect to it", "2 nodes", "3")
        self.cluster = mine
        second = self.start_node(1)
        self.assert_success(second.finish())
        status, out, err = first.finish()
        self.assertEqual(status, 0, out + err)
        self.assertRegex(err, r"^mesh_comm_service: node 0: refused 127\.0\.0\.1:\d+ .*nodes.*: start all nodes with the same options\n$")

    def test_two_processes_as_one_node(self):
        """The first process stays; the second one gets an error."""
        nodes = self.start_cluster(3, "--duration=2", "--connect-timeout=60", "--on-failure=continue", start=[0, 1])
        self.wait_until_connected(0, 1)
        second = self.start(MESH, f"--cluster={self.cluster.split(',')[0]},127.0.0.1:{hold_ports(self)[0]},192.0.2.1", "--rank=1",
                            "--device=soft0", "--duration=2", "--connect-timeout=60")
        self.assert_one_line(second.finish(), "cannot connect to it", "node 1 is already connected", f"pid {nodes[1].pid}")
        nodes.append(self.start_node(2))
        for node in nodes:
            self.assert_success(node.finish())

    def test_lists_in_another_order(self):
        nodes = self.start_cluster(3, "--total=4K", "--connect-timeout=3", start=[0, 1])
        one, other, third = self.cluster.split(",")
        self.cluster = ",".join((other, one, third))
        nodes.append(self.start_node(2))
        results = [node.finish() for node in nodes]
        self.assertTrue(any("give the same list to all nodes" in result[2] for result in results), results)
        for status, _, err in results:
            self.assertEqual(status, 1)
            for line in err.splitlines():
                self.assertRegex(line, "^mesh_comm_service: node ")

    def test_help(self):
        out = self.assert_success(self.run_program(MESH, "--help"))
        self.assertEqual(self.run_program(MESH, "-h"), (0, out, ""))
        for text in ("usage: mesh_comm_service", "--cluster=LIST", "--on-failure=stop|continue", "--heatmap=FILE",
                     "(default adaptive)", "(default shared-cq)"):
            self.assertIn(text, " ".join(out.split()))
        for text in ("none:", "--role", "client:"):  # options that this program does not have
            self.assertNotIn(text, out)


if __name__ == "__main__":
    os.environ.pop("RCL_MAX_VLOG_LEVEL", None)
    unittest.main()
