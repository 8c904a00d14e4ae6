"""Ports for servers that are to be told theirs: others that look for a free port at the same time are not given the same one."""

import contextlib
import socket


def hold_ports(test, count=1, *, in_a_row=False):
    """
    `count` ports on which nobody listens, held until the TestCase `test` ends: the system gives them to nobody who asks for any
    port. A server that sets SO_REUSEADDR, as servers do, can listen at them. in_a_row: each is the one before it plus 1.
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
