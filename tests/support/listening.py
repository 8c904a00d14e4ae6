"""Finds out whether a server listens, without a connection: the server would take it for a client."""

import re

_LISTEN = "0A"
# A port of rdma_cm on soft0 is the name of a UNIX socket, also before it listens. The number: it accepts connections.
_CM_LISTENER = re.compile(r" 00010000 .*@rdmacomm/soft0/cm/\d+/(\d+)/")


def listens(port, process="self"):
    """Whether a socket listens on TCP port `port` in the network namespace of process number `process`."""
    wanted = f":{port:04X}"
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{process}/net/{table}", encoding="ascii") as file:
                fields = [line.split() for line in file.read().splitlines()[1:]]
        except OSError:
            return False  # the process has ended
        if any(one[1].endswith(wanted) and one[3] == _LISTEN for one in fields):
            return True
    return False


def listens_by_cm(port, process="self"):
    """The same for a port of rdma_cm on soft0."""
    try:
        with open(f"/proc/{process}/net/unix", encoding="utf-8", errors="replace") as file:
            return str(port) in _CM_LISTENER.findall(file.read())
    except OSError:
        return False
