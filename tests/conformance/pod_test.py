#!/usr/bin/env python3
"""Programs in two pods, without a cluster: each has nothing but the files of the package softrdma and the program's own,
and the rights of a container without privileges. Also checks the recipes in packaging/.

usage: pod_test.py [TEST...]

RDMACOMM_BIN names the folder of the programs in the build folder. Needs root for the namespaces; without root those tests are skipped.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from foreign_programs_test import ForeignProgramTest  # noqa: E402
from held_ports import hold_ports  # noqa: E402
from hosts import Hosts, why_not  # noqa: E402
from listening import listens, listens_by_cm  # noqa: E402

BIN = os.environ.get("RDMACOMM_BIN", os.path.join(TOP, "build", "dev", "bin"))
BUILD = os.path.dirname(BIN)
RECIPES = os.path.join(TOP, "packaging")
PROGRAMS = ("sh", "cat", "sleep", "cp", "ls", "ib_write_bw", "ib_send_lat", "ib_read_bw", "rping", "ibv_devinfo")


def manifests(name):
    with open(os.path.join(RECIPES, "kubernetes", name), encoding="utf-8") as file:
        return list(yaml.safe_load_all(file))


def pod_specs(name):
    for manifest in manifests(name):
        if manifest["kind"] == "Pod":
            yield manifest["spec"]
        elif manifest["kind"] == "Job":
            yield manifest["spec"]["template"]["spec"]


class Pod:
    """A root folder with the package and programs."""

    def __init__(self, root):
        self.root = root
        for folder in ("dev", "proc", "sys", "usr/bin", "shared", "etc"):
            os.makedirs(os.path.join(root, folder))
        os.symlink("usr/bin", os.path.join(root, "bin"))
        subprocess.run(["cmake", "--install", BUILD, "--component", "softrdma", "--prefix",
                        os.path.join(root, "opt", "softrdma")], check=True, stdout=subprocess.DEVNULL)
        for program in PROGRAMS:
            path = shutil.which(program)
            shutil.copy(os.path.realpath(path), os.path.join(root, "usr/bin", program))
            self._copy_libraries(path)
        self._copy(*glob.glob("/lib/*/libgcc_s.so.1"))
        # As the init container does.
        (spec, *_) = pod_specs("two-pods.yaml")
        self.lay_out = spec["initContainers"][0]["command"]
        assert self.lay_out == ["cp", "-R", "/opt/softrdma", "/shared"], self.lay_out
        subprocess.run([*self.lay_out[:2], root + self.lay_out[2], root + self.lay_out[3]], check=True)

    def _copy_libraries(self, program):
        listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            self._copy(library)

    def _copy(self, file):
        to = self.root + file
        os.makedirs(os.path.dirname(to), exist_ok=True)
        if not os.path.exists(to):
            shutil.copy(os.path.realpath(file), to)


class TwoPods(ForeignProgramTest):
    pod_options = ()

    @classmethod
    def setUpClass(cls):
        reason = why_not(loss=True)
        if reason:
            raise unittest.SkipTest(reason)
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="softrdma-pod."))
        os.chmod(cls.folder, 0o755)
        cls.pod = Pod(os.path.join(cls.folder, "root"))

    def setUp(self):
        self.hosts = self.enterContext(Hosts(2))

    def start_in_pod(self, host, *command):
        process = subprocess.Popen(["ip", "netns", "exec", self.hosts[host].namespace,
                                    os.path.join(BIN, "pod_run"), *self.pod_options, self.pod.root, *command],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    def wait_for(self, server, port, by_cm=False):
        """Until the server listens at the port, by TCP or by rdma_cm."""
        while not (listens_by_cm if by_cm else listens)(port, server.pid):
            self.assertIsNone(server.poll(), "it ended before it listened")

    def run_both(self, server, client, by_cm=False):
        (port,) = hold_ports(self)
        run = "/shared/softrdma/bin/softdev-run"
        listening = self.start_in_pod(0, run, *server, "-p", str(port))
        self.wait_for(listening, port, by_cm)
        out = self.output(self.start_in_pod(1, run, *client, "-p", str(port)))
        return out, self.output(listening)

    def test_rights(self):
        """The rights that the test takes away are really gone."""
        out = self.output(self.start_in_pod(0, "sh", "-c", "cat /proc/self/status; ls /shared /dev; "
                                     "(: > /etc/file) 2>&1; (: > /file) 2>&1; cat /proc/self/mounts"))
        for line in ("Uid:\t1000\t1000\t1000\t1000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000",
                     "NoNewPrivs:\t1", "Seccomp:\t2"):
            self.assertIn(line, out)
        self.assertEqual(out.count("Read-only file system"), 2, out)
        self.assertIn("size=65536k", out)

    def test_devinfo(self):
        out = self.output(self.start_in_pod(0, "/shared/softrdma/bin/softdev-run", "ibv_devinfo"))
        self.assertIn("PORT_ACTIVE", out)

    def test_perftest(self):
        for loss in (0, 1):
            self.hosts.loss(loss)
            for program in ("ib_write_bw", "ib_send_lat", "ib_read_bw"):
                with self.subTest(program, loss=loss):
                    common = (program, "-d", "soft0", "-F", "-n", "200")
                    self.run_both(common, (*common, self.hosts[0].ipv4))

    def test_perftest_by_rdma_cm(self):
        common = ("ib_write_bw", "-R", "-d", "soft0", "-F", "-n", "200")
        self.run_both(common, (*common, self.hosts[0].ipv4), by_cm=True)

    def test_perftest_with_users_of_the_host(self):
        """Both pods then have the same user."""
        self.pod_options = ("--host-users",)
        common = ("--stats", "ib_write_bw", "-d", "soft0", "-F", "-n", "200")
        for way in ((), ("-R",)):
            with self.subTest(way):
                out, _ = self.run_both((*common, *way), (*common, *way, self.hosts[0].ipv4), by_cm=bool(way))
                self.assertRegex(out, r"requests over TCP: 2\d\d")

    def test_rping(self):
        for loss in (0, 1):
            self.hosts.loss(loss)
            with self.subTest(loss=loss):
                common = ("rping", "-a", self.hosts[0].ipv4, "-C", "20", "-V")
                self.run_both((*common, "-s"), (*common, "-c"), by_cm=True)

    def test_two_programs_in_one_pod(self):
        """Through /dev/shm of 64 MiB, with messages of 8 MiB."""
        (port,) = hold_ports(self)
        both = f"ib_write_bw -d soft0 -F -n 50 -s 8388608 -p {port}"
        self.output(self.start_in_pod(0, "/shared/softrdma/bin/softdev-run", "--memlock=off", "sh", "-c",
                               f"{both} & sleep 1; {both} 127.0.0.1 && wait"))

    def test_the_recipes_commands(self):
        """The commands of the manifests, with the server's address in the place of its name."""
        server, client = ([container] for spec in pod_specs("two-pods.yaml") for container in spec["containers"])
        (port,) = hold_ports(self)
        listening = self.start_in_pod(0, *server[0]["command"], "-p", str(port))
        self.wait_for(listening, port)
        command = [self.hosts[0].ipv4 if word == "rdma-server" else word for word in client[0]["command"]]
        self.output(self.start_in_pod(1, *command, "-p", str(port)))
        self.output(listening)
        (spec,) = pod_specs("pod-with-resource.yaml")
        self.output(self.start_in_pod(0, *spec["containers"][0]["command"]))


class Recipes(unittest.TestCase):
    def test_no_pod_has_privileges(self):
        for name in ("two-pods.yaml", "pod-with-resource.yaml"):
            for spec in pod_specs(name):
                self.assertTrue(spec["securityContext"]["runAsNonRoot"])
                self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                self.assertFalse({"hostNetwork", "hostPID", "hostIPC"} & set(spec))
                self.assertEqual(spec["volumes"], [{"name": "softrdma", "emptyDir": {}}])
                for container in (*spec["initContainers"], *spec["containers"]):
                    context = container["securityContext"]
                    self.assertEqual(context, {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                               "capabilities": {"drop": ["ALL"]}})
                    self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, {"softrdma"})

    def test_the_resource_is_what_is_advertised(self):
        (spec,) = pod_specs("pod-with-resource.yaml")
        self.assertEqual(spec["containers"][0]["resources"], {"limits": {"rdma/soft0": 1}})
        with open(os.path.join(RECIPES, "kubernetes", "advertise"), encoding="utf-8") as script:
            self.assertIn("/status/capacity/rdma~1soft0", script.read())

    def test_advertise(self):
        """With a kubectl that prints its arguments."""
        with tempfile.TemporaryDirectory() as folder:
            kubectl = os.path.join(folder, "kubectl")
            with open(kubectl, "w", encoding="utf-8") as script:
                script.write('#!/bin/sh\n[ "$1" = get ] && echo node/one node/two || echo "$*"\n')
            os.chmod(kubectl, 0o755)
            run = subprocess.run([os.path.join(RECIPES, "kubernetes", "advertise"), "--count", "7"], check=True,
                                 capture_output=True, text=True, env={"PATH": folder + ":/usr/bin:/bin"})
            patch = '[{"op": "add", "path": "/status/capacity/rdma~1soft0", "value": "7"}]'
            self.assertEqual(run.stdout.splitlines(),
                             [f"patch node {node} --subresource=status --type=json --patch={patch}"
                              for node in ("one", "two")])
            wrong = subprocess.run([os.path.join(RECIPES, "kubernetes", "advertise"), "--count", "many"], check=False,
                                   capture_output=True, text=True)
            self.assertEqual((wrong.returncode, wrong.stderr), (1, "advertise: --count wants a number\n"))

    def test_the_action_installs_what_the_image_does(self):
        with open(os.path.join(RECIPES, "github-action", "action.yml"), encoding="utf-8") as file:
            action = yaml.safe_load(file)
        with open(os.path.join(RECIPES, "Dockerfile"), encoding="utf-8") as file:
            image = file.read()
        self.assertEqual(action["runs"]["using"], "composite")
        (step,) = action["runs"]["steps"]
        for option in ("-DRDMACOMM_BUILD_TESTS=OFF", "-DRDMACOMM_BUILD_PROGRAMS=OFF", "--target softrdma",
                       "--component softrdma"):
            self.assertIn(option, step["run"])
            self.assertIn(option, image)
        subprocess.run(["sh", "-n"], input=step["run"], check=True, text=True)


class Package(unittest.TestCase):
    def test_it_needs_the_c_library_only(self):
        with tempfile.TemporaryDirectory() as prefix:
            subprocess.run(["cmake", "--install", BUILD, "--component", "softrdma", "--prefix", prefix], check=True,
                           stdout=subprocess.DEVNULL)
            files = sorted(os.path.relpath(os.path.join(folder, name), prefix)
                           for folder, _, names in os.walk(prefix) for name in names)
            self.assertEqual(files, ["bin/softdev-run", "lib/softrdma/librdmacomm_check.so",
                                     "lib/softrdma/librdmacomm_own_memory.so",
                                     "lib/softrdma/librdmacomm_softdev_preload.so", "share/doc/softrdma/copyright",
                                     "share/man/man1/softdev-run.1"])
            for library in files[1:4]:
                dynamic = subprocess.run(["readelf", "--dynamic", os.path.join(prefix, library)], check=True,
                                         capture_output=True, text=True).stdout
                symbols = subprocess.run(["objdump", "-T", os.path.join(prefix, library)], check=True, capture_output=True,
                                         text=True).stdout
                newest = max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", symbols))
                self.assertLessEqual(newest, 34, "as cmake/SoftrdmaPackage.cmake says")
                self.assertLessEqual(set(re.findall(r"NEEDED.*\[(.*)\]", dynamic)),
                                     {"libc.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}, library)
            # By a symbolic link, as in /usr/local/bin.
            link = os.path.join(prefix, "link")
            os.symlink("bin/softdev-run", link)
            out = subprocess.run([link, "ibv_devices"], check=True, capture_output=True, text=True).stdout
            self.assertIn("soft0", out)

    def test_debian_package(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", folder], check=True,
                           stdout=subprocess.DEVNULL)
            (package,) = glob.glob(os.path.join(folder, "softrdma_*.deb"))
            (archive,) = glob.glob(os.path.join(folder, "softrdma_*.tar.gz"))
            fields = subprocess.run(["dpkg-deb", "--field", package], check=True, capture_output=True, text=True).stdout
            self.assertIn("Package: softrdma\n", fields)
            self.assertRegex(fields, r"Depends: libc6 \(>= 2\.\d+\), libgcc-s1\n")
            for unpack in (["dpkg-deb", "--extract", package, folder + "/deb"],
                           ["tar", "--extract", "--one-top-level=" + folder + "/tar", "--file", archive]):
                subprocess.run(unpack, check=True)
            for launcher in glob.glob(folder + "/*/**/softdev-run", recursive=True):
                with self.subTest(launcher):
                    out = subprocess.run([launcher, "ibv_devices"], check=True, capture_output=True, text=True).stdout
                    self.assertIn("soft0", out)

    def test_the_man_page_has_all_options(self):
        usage = subprocess.run([os.path.join(BIN, "softdev-run"), "--help"], check=True, capture_output=True,
                               text=True).stdout
        with open(os.path.join(TOP, "tools", "softdev_run", "softdev-run.1"), encoding="utf-8") as file:
            page = file.read().replace("\\-", "-")
        options = re.findall(r"(?m)^  (--[a-z-]+)", usage)
        self.assertGreaterEqual(len(options), 7)
        for option in options:
            self.assertRegex(page, rf"(?m)^\.BI? {option}( |$)")


if __name__ == "__main__":
    unittest.main()
