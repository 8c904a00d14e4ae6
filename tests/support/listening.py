"""Whether a server listens yet. Connecting to find out would be taken for its client."""

_LISTEN = "0A"


def listens(port, process="self"):
    """Whether anybody listens at TCP port `port` in the network namespace that process number `process` is in."""
    wanted = f":{port:04X}"
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{process}/net/{table}", encoding="ascii") as file:
                fields = [line.split() for line in file.read().splitlines()[1:]]
        except OSError:
            return False  # it has ended
        if any(one[1].endswith(wanted) and one[3] == _LISTEN for one in fields):
            return True
    return False
