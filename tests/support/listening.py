"""Finds out whether a server listens, without a connection: the server would take it for a client."""

_LISTEN = "0A"


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
