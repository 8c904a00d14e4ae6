"""Ports for servers that need fixed port numbers: other programs that look for a free port do not get the same one."""

import contextlib
import socket


def hold_ports(test, count=1, *, in_a_row=False):
    """
    `count` ports on which no process listens, held until the TestCase `test` ends: the system does not assign them to
    sockets that ask for any port. A server that sets SO_REUSEADDR, as servers do, can listen on them. in_a_row: the
    port numbers are consecutive.
    """
    for _ in range(1000):
        with contextlib.ExitStack() as held:
            try:
                first = _hold(held, 0)
                ports = [first] + [_hold(held, first + more if in_a_row else 0) for more in range(1, count)]
            except (OSError, OverflowError):
                if not in_a_row:
                    raise
                continue
            test.addCleanup(held.pop_all().close)
            return ports
    raise AssertionError(f"no {count} free ports in a row")


def _hold(held, port):
    one = held.enter_context(socket.socket())
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", port))
    return one.getsockname()[1]
