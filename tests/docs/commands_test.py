#!/usr/bin/env python3
"""The commands in the documents are run: here, or by a test that is named here.

A command is a line of an indented or ```console block with the name of a program or script of this project. SCENES has the commands that
run together, unchanged except for SHORTER. They run on four hosts, which are network namespaces, as node1 to node4. HOST is node2. The
steps by which a reader makes a program of their own, in README.md and docs/tutorial.md, run in a folder of their own. tutorial_test.py
runs the ```console blocks of docs/tutorial.md.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from documents import DOCUMENTS, ROOT, blocks_of, fenced, indented
from hosts import Hosts, why_not  # noqa: E402  pylint: disable=wrong-import-position
from listening import listens  # noqa: E402  pylint: disable=wrong-import-position

BIN = os.environ.get("RDMACOMM_BIN", "")
BUILD = pathlib.Path(BIN).parent
SLOW = float(os.environ.get("RDMACOMM_SLOWNESS", "1"))
REASON = why_not() if BIN else "RDMACOMM_BIN does not name the folder of the programs"
if SLOW > 1:
    REASON = "the tests of the programs run them with sanitizers"
SECONDS = 60 * SLOW

# The languages of fenced blocks. A block without one is an output, a text or a drawing.
LANGUAGES = {"", "console", "cpp", "cmake"}
PROGRAMS = {"ping_pong_test", "lat_bw_benchmark", "mesh_comm_service", "rdma_send", "rdma_recv", "rdma_copy", "softdev-run", "ctest", "cmake",
            "contract_tests", "channel_tests", "fuzz_handshake", "demo.sh", "test.sh", "fuzz.sh", "docs.sh"}
PATHS = (".ci/run", "tests/kernel_vm/run", "build/")

# Texts of the documents, and the texts that are run instead: paths that a test must not write to, and times.
SHORTER = (("/data", "data"), ("--duration=10", "--duration=1"), ("PROGRAM...", "ibv_devinfo -d {}"))

# The commands that run elsewhere: by a ctest test, by .ci/run (a part of its text), or by a class below. "not run": by no test.
ELSEWHERE = {
    "scripts/demo.sh": ("ci", "check demo "),
    "scripts/test.sh": ("ci", "check tests 2400 scripts/test.sh"),
    "scripts/docs.sh --check": ("ci", "scripts/docs.sh --check"),
    "scripts/fuzz.sh": ("ci", "scripts/fuzz.sh --seconds=60"),
    "cmake --preset release -DRDMACOMM_BUILD_BENCH=OFF": ("ci", "check demo "),
    "cmake --build --preset release": ("ci", "check demo "),
    "cmake --build --preset dev": ("ci", "check tests "),
    "tests/kernel_vm/run": ("ci", "check kernel-vm 1800 tests/kernel_vm/run"),
    "cmake --install build/release --prefix ~/rdmacomm-installed --component rdmacomm": ("class", "OwnProgram"),
    "cmake -S ~/hello -B ~/hello/build -DCMAKE_PREFIX_PATH=$HOME/rdmacomm-installed": ("class", "OwnProgram"),
    "cmake --build ~/hello/build": ("class", "OwnProgram"),
    "cmake -S . -B build -DCMAKE_PREFIX_PATH=$HOME/rdmacomm-installed": ("class", "OwnProgram"),
    "cmake --build build": ("class", "OwnProgram"),
    "cmake -S . -B build/release -G Ninja -DCMAKE_BUILD_TYPE=Release": ("ci", "release() { build release"),
    "cmake --build build/release --target softrdma": ("ci", "release() { build release"),
    "cmake --install build/release --component softrdma --prefix /usr/local": ("ctest", "conformance.pods.Package"),
    "cpack --config build/release/CPackConfig.cmake": ("ctest", "conformance.pods.Package"),
    "docker run --rm softrdma softdev-run ibv_devinfo": ("not run", "it needs Docker; conformance.pods.TwoPods does the same without"),
    "softdev-run ib_write_bw -d soft0 &": ("ctest", "conformance.pods.TwoPods"),
    "softdev-run ib_write_bw -d soft0 localhost": ("ctest", "conformance.pods.TwoPods"),
    "build/release/bin/01_hello": ("ctest", "docs.tutorial"),
    "softdev-run --check --check-suppressions=FILE PROGRAM...": ("ctest", "check.Process"),
    "softdev-run ls -l /dev/infiniband /sys/class/infiniband": ("ctest", "conformance.files.Shell"),
    "softdev-run ibstat": ("ctest", "conformance.files.Diagnostics"),
    "softdev-run --devices eth0,eth1 PROGRAM...": ("ctest", "conformance.rails.Rails"),
    "softdev-run --devices eth0,eth1 ib_write_bw -d soft1 -x 3": ("ctest", "conformance.rails.Rails"),
    "softdev-run ucx_info -d": ("ctest", "conformance.files.Ucx"),
    "softdev-run mpirun -np 4 PROGRAM": ("ctest", "conformance.files.Mpi"),
    'softdev-run --faults="at 100 fail RETRY_EXC_ERR" ib_write_bw -d soft0 HOST': ("ctest", "conformance.faults.Perftest"),
    "softdev-run --faults=@plan.faults PROGRAM...": ("ctest", "conformance.faults.Launcher"),
    "build/release/bin/01_hello 127.0.0.1:41273": ("ctest", "docs.tutorial"),
    ".ci/run": ("not run", "it is what runs the tests"),
    "scripts/test.sh --vm": ("not run", ".ci/run does both of its parts"),
    "scripts/fuzz.sh --executions=10000000 handshake": ("not run", "it takes minutes; scripts/fuzz.sh runs the same target"),
    "build/fuzz/bin/fuzz_handshake FILE": ("not run", "it needs an input that has failed; fuzz.corpus runs the inputs that have"),
    "tests/kernel_vm/run --device=siw --kernel=6.12": ("not run", "it downloads another kernel"),
    "tests/kernel_vm/run -- ibv_devinfo -v": ("not run", "it boots a virtual machine; tests/kernel_vm/run boots the same"),
    "tests/kernel_vm/run -- bash": ("not run", "it is for a person at a terminal"),
    "tests/kernel_vm/run -- tests/kernel_vm/suite.py --only=programs rxe": ("not run", "tests/kernel_vm/run runs the whole suite"),
    "srun --nodes=16 mesh_comm_service --heatmap=mesh.svg --json=mesh.json": ("not run", "it needs Slurm; programs.mesh_* set its variables"),
}

# Commands that run at the same time: the number of the node, and the command. Commands with "&" before them are servers. They are ended
# with SIGINT when the others have ended. Commands with "+" before them are in no document.
SCENES = [
    [(1, "build/release/bin/ping_pong_test")],
    [(2, "build/release/bin/ping_pong_test --role=server"), (1, "build/release/bin/ping_pong_test --role=client --server=HOST")],
    [(1, "build/release/bin/lat_bw_benchmark --ops=write --sizes=8,64K,1M")],
    [(1, "build/release/bin/mesh_comm_service --local=8 --duration=1")],
    [(1, "build/release/bin/mesh_comm_service --local=8 --heatmap=mesh.svg"), (1, "+grep -q '</svg>' mesh.svg")],
    [(2, "build/release/bin/rdma_recv > copy"), (1, "build/release/bin/rdma_send HOST < file"), (1, "+cmp file ../node2/copy")],
    [(2, "&build/release/bin/rdma_copy --serve --root=/data --listen=::"), (1, "build/release/bin/rdma_copy -ra tree/ HOST:backup"),
     (1, "+diff -r tree ../node2/data/backup")],
    [(2, "&build/release/bin/softdev-run ib_write_bw -d soft0 -x 3"), (1, "+build/release/bin/softdev-run ib_write_bw -d soft0 -x 3 HOST")],
    [(2, "&softdev-run ib_write_bw -d soft0 -x 3"), (1, "+softdev-run ib_write_bw -d soft0 -x 3 HOST")],
    [(1, "softdev-run ibv_devinfo -v")],
    [(1, "softdev-run --devices eth0,lo ibv_devinfo -v")],
    [(1, "softdev-run --names mlx5_0 PROGRAM...")],
    [(1, "softdev-run --late 1 PROGRAM...")],
    [(1, "softdev-run --check PROGRAM...")],
    [(1, "softdev-run --check --check-log=report.%p PROGRAM...")],
    [(1, "softdev-run --stats PROGRAM...")],
    [(1, "softdev-run --faults=help")],
    [(1, "FLAGS_iterations=50 FLAGS_polling=adaptive ping_pong_test --fromenv=polling,iterations")],
    [(1, "FLAGS_iterations=50 ping_pong_test --tryfromenv=polling,iterations")],
    [(1, "mesh_comm_service --local=8 --verify --total=64M")],
    [(node, "mesh_comm_service --cluster=node1,node2,node3 --op=read --duration=10") for node in (1, 2, 3)],
    [(node, "mesh_comm_service --cluster node1 node2 node3 --op=read --duration=10") for node in (1, 2, 3)],
    [(2, "rdma_recv > copy"), (1, "rdma_send node2 < file"), (1, "+cmp file ../node2/copy")],
    [(1, "tar c tree | rdma_send node2 node3 node4 --stats"), *((node, "+rdma_recv | tar x") for node in (2, 3, 4)),
     *((1, f"+diff -r tree ../node{node}/tree") for node in (2, 3, 4))],
    [(3, "rdma_recv > copy"), (2, "rdma_recv --forward=node3 > copy"), (1, "rdma_send node2 < file"),
     (1, "+cmp file ../node2/copy"), (1, "+cmp file ../node3/copy")],
    [(3, "rdma_recv > copy"), (4, "rdma_recv > copy"), (2, "rdma_recv --forward=node3,node4 --no-output"), (1, "rdma_send node2 < file"),
     (1, "+cmp file ../node3/copy"), (1, "+cmp file ../node4/copy")],
    [(2, "rdma_recv --fsync > copy"), (1, "rdma_send node2 < file"), (1, "+cmp file ../node2/copy")],
    [(2, "rdma_recv --timeout=30 -v -p 2021 | zstd -d | tar x"), (1, "+tar c tree | zstd | rdma_send node2:2021"),
     (1, "+diff -r tree ../node2/tree")],
    [(2, "&rdma_copy --serve --root=/data --listen=0.0.0.0"), (1, "rdma_copy -ra tree node2:"), (1, "rdma_copy node2:tree/file ."),
     (1, "rdma_copy -ra tree/ node2:backup"), (1, "rdma_copy -ra --resume tree/ node2:backup"), (1, "rdma_copy -a --delta image node2:image"),
     (1, "rdma_copy -ran tree/ node2:backup"), (1, "rdma_copy --bwlimit=10M --json big node2:"), (1, "+diff -r tree ../node2/data/tree"),
     (1, "+cmp image ../node2/data/image"), (1, "+cmp big ../node2/data/big")],
    [(2, "&+rdma_copy --serve --root=data --listen=0.0.0.0 --port=2021"),
     (1, "rdma_copy a b c node2:2021:folder/"), (1, "+cmp c ../node2/data/folder/c")],
]


def plain(command):
    return command.lstrip("&+")


def commands_in(text):
    """The commands of a document, without the remarks after them. Blocks that tutorial_test.py runs are left out."""
    lines = []
    for language, words, block in fenced(text):
        lines += [line[2:] for line in block.splitlines() if language == "console" and not words and line.startswith("$ ")]
    for block in indented(text):
        lines += [line.strip() for line in block.replace("\\\n", " ").splitlines()]
    commands = []
    for line in lines:
        command = re.split(r" {2,}|\s#\s", line)[0]
        words = command.split()
        if words[:2] == ["sudo", "apt-get"]:
            continue  # tutorial_test.py compares its packages
        if any(word.rpartition("/")[2] in PROGRAMS or word.startswith(PATHS) for word in words):
            commands.append(command)
    return commands


def documented():
    """{command: a document that has it}"""
    return {command: path.relative_to(ROOT).as_posix() for path in DOCUMENTS for command in commands_in(path.read_text(encoding="utf-8"))}


def is_selection(command):
    """Whether a command runs some of the tests. Only its selection is checked here, because ctest runs the tests."""
    return re.search(r"\bctest --preset dev|/\w+_tests --gtest_filter=", command) is not None


def is_in_this_build(text, listed):
    """False for the conformance tests in a build with sanitizers, which has none of them."""
    return "conformance." not in text or "conformance.Devices" in listed


class Documented(unittest.TestCase):
    def test_each_command_is_run_somewhere(self):
        run = {plain(command) for scene in SCENES for _, command in scene} | set(ELSEWHERE)
        for command, document in documented().items():
            with self.subTest(document=document, command=command):
                self.assertTrue(command in run or is_selection(command), "it is run nowhere: add it to SCENES, or to ELSEWHERE with the test that runs it")

    def test_each_scene_is_in_a_document(self):
        found = documented()
        self.assertGreater(len(found), 40)
        for command in [command.lstrip("&") for scene in SCENES for _, command in scene] + list(ELSEWHERE):
            with self.subTest(command):
                self.assertTrue(command.startswith("+") or command in found, "no document has it: remove it")

    def test_each_of_them_is_run_there(self):
        ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
        listed = subprocess.run(["ctest", "--test-dir", BUILD, "-N"], capture_output=True, text=True, check=True).stdout if BIN else None
        for command, (by, name) in ELSEWHERE.items():
            with self.subTest(command):
                if by == "ci":
                    self.assertIn(name, ci)
                elif by == "class":
                    self.assertIn(name, globals())
                elif by == "ctest" and listed is not None and is_in_this_build(name, listed):
                    self.assertRegex(listed, rf"Test +#\d+: {re.escape(name)}\n")
                else:
                    self.assertIn(by, ("ctest", "not run"))

    def test_fenced_blocks_have_a_known_language(self):
        for path in DOCUMENTS:
            text = path.read_text(encoding="utf-8")
            self.assertNotIn("\n~~~", text, "fenced blocks begin with ```")
            for language, _, block in fenced(text):
                with self.subTest(document=path.name, block=block[:60]):
                    self.assertIn(language, LANGUAGES, "commands are in indented or ```console blocks, which tests read")
                    if not language:
                        words = [line.split()[0].rpartition("/")[2] for line in block.splitlines() if line.split()]
                        commands = [word for word in words if word in PROGRAMS and f"{word}\n" not in block]
                        self.assertEqual(commands, [], "commands are in indented or ```console blocks, which tests read")

    def test_a_command_is_told_from_other_text(self):
        text = ("a\n\n    rdma_send HOST < file     # a remark\n    FLAGS_a=1 ping_pong_test --b  x\n    ping_pong_test: wrong\n\n"
                "```console\n$ softdev-run a\nrdma_send\n```\n```\nrdma_recv\n```\n")
        self.assertEqual(commands_in(text), ["softdev-run a", "rdma_send HOST < file", "FLAGS_a=1 ping_pong_test --b"])


@unittest.skipUnless(BIN, "RDMACOMM_BIN does not name the folder of the programs")
class Selections(unittest.TestCase):
    def test_each_selects_tests(self):
        found = [command for command in documented() if is_selection(command)]
        self.assertGreater(len(found), 5)
        listed = subprocess.run(["ctest", "--test-dir", BUILD, "-N"], capture_output=True, text=True, check=True).stdout
        for command in found:
            if not is_in_this_build(command, listed):
                continue
            with self.subTest(command):
                if "--gtest_filter" in command:
                    command = command.replace("build/dev/", f"{BUILD}/") + " --gtest_list_tests"
                else:
                    command = command.replace("ctest --preset dev", f"ctest --test-dir {BUILD} -N")
                shown = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, timeout=SECONDS)
                self.assertEqual(shown.returncode, 0, shown.stderr)
                self.assertRegex(shown.stdout, r"(?m)Total Tests: [1-9]|^  \w+")


@unittest.skipUnless(BIN and SLOW == 1, "needs the programs, built without sanitizers")
class OwnProgram(unittest.TestCase):
    """The steps of README.md, "Write your own program", and of docs/tutorial.md: install the library, build projects with it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        (self.home / "rdmacomm/build").mkdir(parents=True)
        (self.home / "rdmacomm/build/release").symlink_to(BUILD)
        (self.home / "rdmacomm/example").symlink_to(ROOT / "example")
        self.options = {"shell": True, "cwd": self.home / "rdmacomm", "env": os.environ | {"HOME": folder.name}, "text": True,
                        "executable": "/bin/bash"}

    def take(self, steps):
        built = subprocess.run(f"set -e\n{steps}", capture_output=True, timeout=5 * SECONDS, check=False, **self.options)
        self.assertEqual(built.returncode, 0, built.stdout + built.stderr)

    def serve(self, command):
        server = subprocess.Popen(f"exec {command}", stdout=subprocess.PIPE, **self.options)
        self.addCleanup(lambda: (server.kill(), server.communicate()))
        return server, re.fullmatch(r"listening on port (\d+)\n", server.stdout.readline())[1]

    def test_the_steps_of_the_readme(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        self.take(next(block for block in indented(readme) if "cmake --install" in block))
        programs = re.findall(r"^ {4}(~/hello/build/hello)(?: (127\.0\.0\.1:)\d+)? +# .*?((?:listening|notified).*)", readme, re.M)
        self.assertEqual(len(programs), 2)
        server, port = self.serve(programs[0][0])
        subprocess.run(f"{programs[1][0]} {programs[1][1]}{port}", timeout=SECONDS, check=True, **self.options)
        self.assertEqual(server.communicate(timeout=SECONDS)[0], programs[1][2] + "\n")

    def test_the_steps_of_the_tutorial(self):
        tutorial = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
        blocks = indented(tutorial)
        self.assertRegex(blocks[0], "apt-get install")  # tutorial_test.py compares the packages
        self.assertRegex(blocks[-2], "^kill -KILL ")  # and kills that server
        addition = blocks_of("cmake", tutorial)[-1]
        steps = [*blocks[1:-2], blocks[-1], f"cat >>CMakeLists.txt <<'END'\n{addition}END\n", "cmake --build build\n"]
        self.take("".join(steps))
        for program in ("hello", "echo"):
            server, port = self.serve(f"~/hello/build/{program}")
            subprocess.run(f"echo a | ~/hello/build/{program} 127.0.0.1:{port}", timeout=SECONDS, check=True, **self.options)
            server.send_signal(signal.SIGINT)


@unittest.skipIf(REASON, REASON)
class Scenes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = cls.enterClassContext(Hosts(4))
        cls.top = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        table = "127.0.0.1 localhost\n" + "".join(f"{cls.hosts[number].ipv4} node{number + 1}\n" for number in range(4))
        (cls.top / "hosts").write_text(table + f"{cls.hosts[1].ipv4} HOST\n", encoding="ascii")

    def setUp(self):
        for number in range(1, 5):
            shutil.rmtree(self.top / f"node{number}", ignore_errors=True)
            folder = self.top / f"node{number}"
            (folder / "data/folder").mkdir(parents=True)
            (folder / "build/release").mkdir(parents=True)
            (folder / "build/release/bin").symlink_to(BIN)
        folder = self.top / "node1"
        (folder / "tree/deep").mkdir(parents=True)
        for name, size in (("file", 3 << 20), ("tree/file", 5000), ("tree/deep/file", 0), ("image", 1 << 20), ("big", 1 << 20),
                           ("a", 10), ("b", 20), ("c", 30)):
            (folder / name).write_bytes(os.urandom(size))

    def start(self, node, command):
        if "+" not in command[:2]:
            for old, new in SHORTER:
                command = command.replace(old, new.format("mlx5_0" if "mlx5_0" in command else "soft0"))
        command = plain(command)
        # ip-netns(8) gives each command mounts of its own.
        script = f"mount --bind {self.top}/hosts /etc/hosts; set -o pipefail; {command}"
        return self.hosts.run(node - 1, ["bash", "-ec", script], cwd=self.top / f"node{node}", text=True, start_new_session=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"})

    def finish(self, started):
        """Waits for a command, which must succeed."""
        command, process = started
        said, _ = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 0, f"{command}: {said}")
        return said

    def end(self, process, number):
        """Ends a command and its children, if it still runs."""
        if process.poll() is None:
            os.killpg(process.pid, number)
        process.communicate(timeout=SECONDS)

    def wait_for_port(self, process, port):
        deadline = time.monotonic() + SECONDS
        while not listens(port, process.pid):
            self.assertLess(time.monotonic(), deadline, f"nothing listens at port {port}")
            self.assertIsNone(process.poll(), "the server has ended")
            time.sleep(0.02)

    def play(self, scene):
        """Runs the commands of a scene. A command that is no part of a connection waits for those before it."""
        running = []
        with contextlib.ExitStack() as stack:
            for node, command in scene:
                if not re.search(r"rdma_recv|rdma_send|--cluster|--role|ib_write_bw", command):
                    for started in running:
                        self.finish(started)
                    running = []
                process = self.start(node, command)
                stack.callback(self.end, process, signal.SIGKILL)
                if command.startswith("&"):
                    stack.callback(self.end, process, signal.SIGINT)
                    self.wait_for_port(process, 18515 if "ib_write_bw" in command else 2021 if "2021" in command else 2020)
                else:
                    running.append((command, process))
            for started in running:
                self.finish(started)

    def test_all(self):
        for scene in SCENES:
            with self.subTest(scene[0][1]):
                self.setUp()
                self.play(scene)

    def test_the_flag_file_of_the_configuration_page(self):
        page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
        flags = re.search(r"this file `([\w.]+)`:\n\n```\n(.*?)```\n\n`(ping_pong_test [^`]+)`.*?\n\n```\n(.*?)```", page, re.S)
        (self.top / "node1" / flags[1]).write_text(flags[2], encoding="utf-8")
        self.assertIn(flags[4], self.finish((flags[3], self.start(1, flags[3]))))


if __name__ == "__main__":
    unittest.main()
