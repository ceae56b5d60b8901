"""Address: the port a viewer gets, and how a person reaches it."""

from __future__ import annotations

import contextlib
import errno
import getpass
import os
import socket
import sys
from collections.abc import Mapping
from typing import Final

from ms_summary_bridge.errors import UsageError

__all__ = ["choose_port", "describe_tunnel", "url_of"]

_TRIED: Final = 20
_HIGHEST: Final = 65535
_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where one of this machine asks  # nosec B104


def choose_port(host: str, wanted: int) -> int:
    """Returns the port that is wanted (0 for any) to listen at an address if it is free, else the next free one.

    Raises:
        UsageError: Nobody can listen at that address, or at that port.
    """
    if wanted:
        for port in range(wanted, min(wanted + _TRIED, _HIGHEST + 1)):
            if _is_free(host, port):
                return port
    return _any_port(host)


def _sockets(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[object, ...]]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:  # gaierror is one
        raise UsageError(f"--host {host}: no such address: {error.strerror or error}") from error
    return [(family, address) for family, _, _, _, address in found]


def _is_free(host: str, port: int) -> bool:
    if not all(_can_bind(host, family, address) for family, address in _sockets(host, port)):
        return False
    # MindInsight refuses a port that anybody listens at, at whatever address.
    for family, wildcard in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # nobody listens  # nosec B104
        with contextlib.suppress(UsageError):
            if not _can_bind(wildcard, family, (wildcard, port)):
                return False
    return True


def _can_bind(host: str, family: socket.AddressFamily, address: tuple[object, ...]) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the viewers do
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise UsageError(f"--host {host} --port {address[1]}: {error.strerror or error}") from error
    return True


def _any_port(host: str) -> int:
    family, address = _sockets(host, 0)[0]
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
            port: int = probe.getsockname()[1]
            return port
    except OSError as error:
        raise UsageError(f"--host {host}: {error.strerror or error}") from error


def url_of(host: str, port: int) -> str:
    """Returns the address at which a browser on this machine finds the viewer."""
    host = _ANY.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def describe_tunnel(host: str, port: int, environment: Mapping[str, str] = os.environ) -> str:
    """Returns the `ssh` command by which another machine reaches the viewer; nothing where a browser can be here."""
    connection = environment.get("SSH_CONNECTION", "").split()
    has_display = any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")) or sys.platform == "darwin"
    if has_display and not connection:
        return ""
    # The address and the port of this machine as the one in front of it knows them.
    server, ssh_port = connection[2:4] if len(connection) == 4 else (socket.gethostname(), "22")
    option = "" if ssh_port == "22" else f"-p {ssh_port} "
    host = _ANY.get(host, host)
    inner = f"[{host}]" if ":" in host else host
    return f"ssh {option}-N -L {port}:{inner}:{port} {_user()}@{server}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as containers have them
        return "USER"
