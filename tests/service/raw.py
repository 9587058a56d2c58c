"""Calls as bytes on a socket, for what no client would send."""

import contextlib
import socket
import urllib.parse


@contextlib.contextmanager
def connected(address, timeout=10):
    """A socket to a server."""
    parsed = urllib.parse.urlsplit(address)
    with socket.create_connection((parsed.hostname, parsed.port), timeout) as connection:
        yield connection


def read_all(connection):
    """All that the server sends until it hangs up."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def status_of(answer):
    """The status of an answer in bytes."""
    return int(answer.split(b" ", 2)[1])


def post(path, token, *headers, body=b""):
    """A call in bytes."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body
