"""A real server on this machine's loopback, and callers of it."""

import contextlib
import socket
import threading
import time

import httpx
import uvicorn

from unbayes.service import create_app
from unbayes.service.server import Listening, server_config


@contextlib.contextmanager
def serving(ledger, settings=None, *, log=None):
    """The address of a server over a ledger, while the block runs."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(server_config(create_app(ledger, settings, log=log), Listening()))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive()


def caller(address, ledger, *scopes, name="tester"):
    """A client with a token of these scopes; of none, without a token."""
    headers = {"Authorization": f"Bearer {ledger.tokens.create(name, scopes)[1]}"} if scopes else {}
    return httpx.Client(base_url=address, headers=headers, timeout=30)
