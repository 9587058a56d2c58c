"""A receiver of webhooks, and a process that dies between sending an event and noting that it was taken."""

import contextlib
import dataclasses
import http.server
import json
import os
import threading
import time

from unbayes.ledger import Ledger, signature_is_valid


@dataclasses.dataclass
class Got:
    """What came."""

    headers: dict
    body: bytes
    path: str

    @property
    def key(self):
        return self.headers["Unbayes-Event"]

    @property
    def event(self):
        return json.loads(self.body)

    def is_genuine(self, secret, now):
        timestamp, signature = self.headers["Unbayes-Timestamp"], self.headers["Unbayes-Signature"]
        return signature_is_valid(secret, timestamp, self.body, signature, now=now)


class Receiver:
    """A server on this machine: it answers what it was told to, one after the other, and then 204."""

    def __init__(self):
        self.got, self.answers, self.seconds = [], [], 0.0
        self.at_once, self.most_at_once, self._lock = 0, 0, threading.Lock()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with receiver._lock:
                    receiver.at_once += 1
                    receiver.most_at_once = max(receiver.most_at_once, receiver.at_once)
                time.sleep(receiver.seconds)
                with receiver._lock:
                    receiver.at_once -= 1
                    receiver.got.append(Got(dict(self.headers), body, self.path))
                    answer = receiver.answers.pop(0) if receiver.answers else 204
                if answer == "drip":
                    with contextlib.suppress(OSError):
                        for each in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000:
                            self.wfile.write(bytes([each]))
                            time.sleep(0.05)
                elif answer == "nonsense":
                    self.wfile.write(b"nonsense\r\n\r\n")
                else:
                    self.send_response(answer)
                    if 300 <= answer < 400:
                        self.send_header("Location", receiver.url + "/elsewhere")
                    self.send_header("Content-Length", "18")
                    self.end_headers()
                    self.wfile.write(b"kept-by-no-ledger!")

            do_GET = do_POST

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def keys(self):
        return [each.key for each in self.got]

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def die_after_sending(folder, clock):
    """Deliver, and be killed as soon as the receiver has taken an event."""
    from unbayes.ledger.hooks import Hooks

    Hooks._record = lambda *_: os._exit(9)
    with Ledger.open(folder, clock=clock) as ledger:
        ledger.hooks.deliver()
