#!/usr/bin/env python3
"""Boots the virtual machine once, runs one command in it, and ends with its exit status.

Used by tests/kernel_vm/run, whose --help explains the command's environment and the exit statuses. The guest's files
are in guest/: init mounts, main makes the devices and runs the command. This program only knows of them by the files in
the results folder: up, log, dmesg, status; and console, which QEMU writes.
"""

import argparse
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE.parent.parent / "build/kernel_vm/results"
KEPT_RESULTS = 20
BOOT_SECONDS = 120
TIMED_OUT, NO_GUEST, INTERRUPTED = 124, 125, 130
SHELLS = ("sh", "bash", "dash", "zsh")
PASSED_ON = re.compile(r"RDMACOMM_|GTEST_|[A-Z]+SAN_OPTIONS$|GLOG_|RCL_MAX_VLOG_LEVEL$")
MACHINE = ["-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35", "-accel", "tcg,thread=multi",
           "-cpu", "max", "-smp", "2", "-m", "1024", "-no-reboot"]
# Skips checks of hardware that does not exist. A panic ends the machine.
KERNEL = ("console=ttyS0 loglevel=4 panic=-1 mitigations=off nokaslr no_timer_check tsc=reliable cryptomgr.notests "
          "audit=0 apparmor=0 random.trust_cpu=on")


def tell(text):
    print(f"kernel_vm: {text}", file=sys.stderr, flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel-folder", required=True, type=pathlib.Path, help="what tests/kernel_vm/prepare has made")
    parser.add_argument("--devices", default="rxe", help="kinds of devices to make a pair of: rxe, siw or 'rxe siw'")
    parser.add_argument("--timeout", type=int, help="seconds for the command; 600 by default, 14400 on a terminal")
    parser.add_argument("--results", type=pathlib.Path, help="folder for log, console, dmesg and status")
    parser.add_argument("command", nargs="+")
    parser.add_argument("--grace", type=int, default=30, help="seconds for the guest to end what is late and write dmesg")
    options = parser.parse_args()
    options.terminal = sys.stdin.isatty() and os.path.basename(options.command[0]) in SHELLS and len(options.command) == 1
    if options.timeout is None:
        options.timeout = 14400 if options.terminal else 600
    return options


def make_results_folder(wanted):
    """Creates the results folder, or empties it. In the default place only the newest ones are kept."""
    if wanted is None:
        wanted = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        for old in sorted(RESULTS.glob("*-*"))[:1 - KEPT_RESULTS]:
            shutil.rmtree(old, ignore_errors=True)
    wanted = wanted.resolve()
    wanted.mkdir(parents=True, exist_ok=True)
    for name in ("up", "log", "dmesg", "status", "console", "console.1", "job"):
        (wanted / name).unlink(missing_ok=True)
    return wanted


def write_job(results, options):
    """The script that guest/init continues with: the command's folder and environment."""
    lines = ["export PATH=" + shlex.quote(f"{HERE}/guest:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
             "export HOME=/root LANG=C.UTF-8 TERM=" + shlex.quote(os.environ.get("TERM", "dumb"))]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in os.environ.items() if PASSED_ON.match(name)]
    lines += [f"cd {shlex.quote(os.getcwd())}"]
    if options.terminal:
        size = os.get_terminal_size()
        lines += [f"stty rows {size.lines} cols {size.columns} </dev/ttyS1"]
    output = "terminal" if options.terminal else "log"
    words = [str(HERE / "guest/main"), options.devices, str(options.timeout), output, *options.command]
    lines += ["exec bash " + shlex.join(words)]
    (results / "job").write_text("\n".join(lines) + "\n", encoding="utf-8")


class Machine:
    """One QEMU process. It ends with this process at the latest, even if this one is killed."""

    def __init__(self, kernel_folder, results, terminal):
        khz = subprocess.run([kernel_folder / "tsc_khz"], check=True, capture_output=True, text=True).stdout.strip()
        self.results = results
        self.stderr = open(results / "qemu", "w+b")
        # Its own session keeps it from Ctrl-C, which this program handles. On a terminal it must stay in the
        # foreground.
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "qemu-system-x86_64", *MACHINE,
             "-kernel", kernel_folder / "vmlinux", "-initrd", kernel_folder / "initramfs",
             "-append", f"{KERNEL} tsc_early_khz={khz}",
             *self._share("host", "/", "readonly=on,multidevs=remap"), *self._share("results", results, "multidevs=remap"),
             "-serial", f"file:{results}/console", *self._terminal(terminal)],
            stdin=None if terminal else subprocess.DEVNULL, stdout=None if terminal else self.stderr,
            stderr=self.stderr, start_new_session=not terminal)

    @staticmethod
    def _share(tag, folder, options):
        folder = str(folder).replace(",", ",,")
        return ["-fsdev", f"local,id={tag},path={folder},security_model=none,{options}",
                "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]

    @staticmethod
    def _terminal(terminal):
        return ["-chardev", "stdio,id=terminal,mux=on,signal=off", "-serial", "chardev:terminal"] if terminal else []

    def runs(self):
        return self.process.poll() is None

    def end(self):
        """Ends QEMU. Asks it to end first, so that it restores the terminal."""
        self.process.terminate()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.stderr.close()

    def wait_for(self, name, seconds, meanwhile=lambda: None):
        """Waits for the guest's file `name`. Returns whether it exists before the timeout, or the end of QEMU."""
        deadline = time.monotonic() + seconds
        while not (self.results / name).exists():
            if not self.runs():
                return (self.results / name).exists()
            if time.monotonic() > deadline:
                return False
            meanwhile()
            time.sleep(0.05)
        return True


class Follower:
    """Copies text that is added to a file to standard output."""

    def __init__(self, path):
        self.path = path
        self.file = None

    def copy(self):
        if self.file is None and self.path.exists():
            self.file = open(self.path, "rb")
        if self.file:
            sys.stdout.buffer.write(self.file.read())
            sys.stdout.buffer.flush()


def panic_of(results):
    """The reason of a kernel panic, from the console; empty if there was none."""
    console = (results / "console").read_text(errors="replace") if (results / "console").exists() else ""
    lines = [line for line in console.splitlines() if re.search(r"Kernel panic|BUG:|Oops:|RIP: 0010|^guest: |^init: ", line)]
    return "; ".join(lines[:4])


def boot(options, results):
    """Starts a machine. Returns it when its guest is up, or None after two failed attempts."""
    for attempt in (1, 2):
        machine = Machine(options.kernel_folder, results, options.terminal)
        try:
            if machine.wait_for("up", BOOT_SECONDS):
                return machine
            ended = not machine.runs()
        except BaseException:
            machine.end()
            raise
        machine.end()
        said = (results / "qemu").read_text(errors="replace").strip()
        why = panic_of(results) or said or ("QEMU ended" if ended else f"no output from the guest for {BOOT_SECONDS} s")
        tell(f"the guest did not come up (attempt {attempt} of 2): {why}")
        if (results / "console").exists():
            os.replace(results / "console", results / f"console.{attempt}")
    return None


def warnings_of(results):
    """The kernel's complaints about itself: information for the reader, not a test failure."""
    dmesg = (results / "dmesg").read_text(errors="replace") if (results / "dmesg").exists() else ""
    return [line for line in dmesg.splitlines() if re.search(r"WARNING: |BUG: |Oops: |blocked for more than|soft lockup|rcu.*stall", line)]


def command_status(machine, options, results):
    follower = Follower(results / "log")
    done = machine.wait_for("status", options.timeout + options.grace, follower.copy)
    died = not done and not machine.runs()
    machine.end()
    follower.copy()
    if died:
        tell(f"the guest died while the command ran: {panic_of(results) or 'the console does not say why'}")
        return NO_GUEST
    status = int((results / "status").read_text()) if done else TIMED_OUT
    if not done:
        tell(f"the guest gave no answer within {options.timeout} s and {options.grace} s more")
    elif status == TIMED_OUT:
        tell(f"the command ended with 124: it had {options.timeout} s (--timeout)")
    for line in warnings_of(results)[:5]:
        tell(f"the kernel complains: {line}")
    return status


def interrupted(number, _frame):
    raise SystemExit(INTERRUPTED if number == signal.SIGINT else 128 + number)


def main():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    options = arguments()
    results = make_results_folder(options.results)
    write_job(results, options)
    began = time.monotonic()
    machine = None
    try:
        machine = boot(options, results)
        if machine is None:
            tell(f"no guest came up; what it said is in {results}")
            return NO_GUEST
        came_up = time.monotonic() - began
        status = command_status(machine, options, results)
        tell(f"exit status {status} after {time.monotonic() - began:.0f} s ({came_up:.0f} s to boot); log, console, dmesg: {results}")
        return status
    finally:
        if machine:
            machine.end()


if __name__ == "__main__":
    sys.exit(main())
