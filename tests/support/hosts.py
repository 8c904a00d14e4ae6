"""Several hosts on this machine: network namespaces joined by a cable, which can be made slow, lossy, or cut.

    reason = why_not(loss=True)              "" if hosts can be made: needs root, ip, and for loss or rate nft or tc
    with Hosts(2) as hosts:
        server = hosts.run(0, ["iperf3", "--server", "--one-off"])
        client = hosts.run(1, ["iperf3", "--client", hosts[0].ipv4])

Two hosts are joined by a veth pair; more than two by a bridge, which is in a namespace of its own. Each host has one
interface besides lo. Both are up. The interface has an IPv4, an IPv6 and a link-local address that can be used at once
(no duplicate address detection). At the end, even after an exception, the programs that run() started are killed and
the namespaces are removed. If this process itself is killed, the next process that makes hosts removes them.
"""

import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess

INTERFACE = "eth0"
_PREFIX = "rdmacomm"
_count = itertools.count()

_LOSS_TABLE = """
table inet rdmacomm_loss {{
  chain input {{
    type filter hook input priority 0
    iifname "{interface}" numgen random mod 100000 < {share} counter drop
  }}
}}
"""


def why_not(*, loss=False, rate=False):
    """The reason why hosts cannot be made here (with loss() and rate() if requested); "" if they can."""
    if os.geteuid() != 0:
        return "network namespaces want root"
    tools = ["ip", "unshare"] + ["nft"] * loss + ["tc"] * rate
    for tool in tools:
        if shutil.which(tool) is None:
            return f"there is no program {tool}"
    trials = ["ip link add probe0 type veth peer name probe1"]
    if loss:
        trials.append("nft -f -")
    if rate:
        trials.append("tc qdisc add dev lo root tbf rate 1gbit burst 128k latency 10ms")
    done = subprocess.run(["unshare", "--net", "sh", "-ec", "\n".join(trials)], text=True, capture_output=True,
                          input=_LOSS_TABLE.format(interface=INTERFACE, share=1), check=False)
    return "" if done.returncode == 0 else "the kernel does not let us: " + done.stderr.strip()


def _command(*arguments, **options):
    done = subprocess.run(arguments, text=True, capture_output=True, check=False, **options)
    if done.returncode != 0:
        raise OSError(f"{' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _remove_stale():
    """Namespaces whose creator was killed."""
    for line in _command("ip", "netns", "list").splitlines():
        found = re.match(rf"({_PREFIX}-(\d+)-\S+)", line)
        if found and not os.path.exists("/proc/" + found.group(2)):
            subprocess.run(["ip", "netns", "del", found.group(1)], capture_output=True, check=False)


class Host:
    """One host. `index` is unique, and used for its interface."""

    def __init__(self, number, namespace):
        self.namespace = namespace
        self.index = 101 + number
        self.ipv4 = f"10.77.0.{number + 1}"
        self.ipv6 = f"fd00:77::{number + 1:x}"

    def command(self, *arguments, **options):
        """Runs a short program on this host, which must succeed. Returns its output."""
        return _command("ip", "netns", "exec", self.namespace, *arguments, **options)

    @property
    def link_local(self):
        """Its fe80:: address, without the interface."""
        shown = json.loads(self.command("ip", "-json", "-6", "address", "show", "dev", INTERFACE, "scope", "link"))
        addresses = [address for one in shown for address in one.get("addr_info", ())]
        return next(one["local"] for one in addresses if one)  # ip prints {} for addresses that it omits


class Hosts:
    """`count` hosts, 2 to 200, numbered from 0. A context manager."""

    def __init__(self, count=2):
        name = f"{_PREFIX}-{os.getpid()}-{next(_count)}"
        self._hosts = [Host(number, f"{name}-{number}") for number in range(count)]
        self._switch = f"{name}-switch" if count > 2 else None
        self._stack = contextlib.ExitStack()

    def __getitem__(self, number):
        return self._hosts[number]

    def __len__(self):
        return len(self._hosts)

    def __enter__(self):
        _remove_stale()
        with contextlib.ExitStack() as stack:
            for namespace in [host.namespace for host in self._hosts] + ([self._switch] if self._switch else []):
                _command("ip", "netns", "add", namespace)
                stack.callback(_command, "ip", "netns", "del", namespace)
            self._join()
            for host in self._hosts:
                self._configure(host)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _join(self):
        end = ("type", "veth", "peer", "name")
        if self._switch is None:
            one, other = self._hosts
            _command("ip", "link", "add", INTERFACE, "netns", one.namespace, "index", str(one.index), *end, INTERFACE,
                     "netns", other.namespace, "index", str(other.index))
            return
        _command("ip", "-n", self._switch, "link", "add", "bridge", "up", "type", "bridge")
        for host in self._hosts:
            port = f"port{host.index}"
            _command("ip", "link", "add", INTERFACE, "netns", host.namespace, "index", str(host.index), *end, port,
                     "netns", self._switch)
            _command("ip", "-n", self._switch, "link", "set", port, "master", "bridge", "up")

    def _configure(self, host):
        # Addresses can be used at once, and remain when the link goes down.
        settings = ("default/accept_dad=0", "all/accept_dad=0", "default/keep_addr_on_down=1", "all/keep_addr_on_down=1")
        host.command("sh", "-ec", "".join(
            "echo {1} >/proc/sys/net/ipv6/conf/{0}\n".format(*setting.split("=")) for setting in settings))
        host.command("sh", "-ec", f"echo 0 >/proc/sys/net/ipv6/conf/{INTERFACE}/accept_dad")
        _command("ip", "-n", host.namespace, "link", "set", "lo", "up")
        _command("ip", "-n", host.namespace, "link", "set", INTERFACE, "up")
        _command("ip", "-n", host.namespace, "address", "add", host.ipv4 + "/24", "dev", INTERFACE)
        _command("ip", "-n", host.namespace, "address", "add", host.ipv6 + "/64", "dev", INTERFACE, "nodad")

    def run(self, number, arguments, **options):
        """Starts a program on a host. Options as for Popen. Programs that still run at the end are killed."""
        process = subprocess.Popen(["ip", "netns", "exec", self[number].namespace, *arguments], **options)
        self._stack.callback(self._end, process)
        return process

    @staticmethod
    def _end(process):
        if process.poll() is None:
            process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        process.wait()

    def loss(self, percent):
        """Makes each host drop `percent` of the packets that it receives. 0: none, as at the start.

        From then on packets have the MTU's size. Before, the hosts hand each other up to 64 KiB in one piece.
        """
        for host in self._hosts:
            _command("ip", "-n", host.namespace, "link", "set", INTERFACE, "gso_max_segs", "1" if percent else "65535")
            host.command("nft", "flush", "ruleset")
            if percent:
                table = _LOSS_TABLE.format(interface=INTERFACE, share=round(percent * 1000))
                host.command("nft", "-f", "-", input=table)

    def lost(self, number):
        """Number of packets that this host has dropped since loss()."""
        found = re.search(r"counter packets (\d+)", self[number].command("nft", "list", "ruleset"))
        return int(found.group(1)) if found else 0

    def rate(self, rate, burst="256kb", latency="50ms"):
        """Limits each host's sending rate, in tc's notation ("1gbit"). None: unlimited, as at the start."""
        for host in self._hosts:
            qdisc = json.loads(host.command("tc", "-json", "qdisc", "show", "dev", INTERFACE))
            if any(one["kind"] == "tbf" for one in qdisc):
                host.command("tc", "qdisc", "del", "dev", INTERFACE, "root")
            if rate is not None:
                host.command("tc", "qdisc", "add", "dev", INTERFACE, "root", "tbf", "rate", rate, "burst", burst,
                             "latency", latency)

    def mtu(self, size):
        """Sets the packet size, 1280 to 65535 bytes. 1500 at the start."""
        for host in self._hosts:
            _command("ip", "-n", host.namespace, "link", "set", INTERFACE, "mtu", str(size))
            if self._switch is not None:
                _command("ip", "-n", self._switch, "link", "set", f"port{host.index}", "mtu", str(size))

    def link(self, number, state):
        """Sets a host's interface "down" or "up". It keeps its addresses and routes."""
        _command("ip", "-n", self[number].namespace, "link", "set", INTERFACE, state)
