#!/usr/bin/env python3
"""Stands in for Okapi: plays recorded check-outs to the sidecar, over and over, and exposes Okapi's own metrics.

    gateway.py --sidecar http://127.0.0.1:8071 --recordings tests/golden [--metrics 127.0.0.1:9930] [--users 4] [--okapi-cache 20]

Only for looking at the board and the alerts with something in them. It keeps a token cache as Okapi does (per tenant, method,
path and token; an expired entry is neither hit nor miss) with a shorter life, so that both caches have something to do. Now
and then it plays a change of a user or of permissions, and one of the odd calls that the sidecar passes through.
"""

import argparse
import http.client
import http.server
import itertools
import json
import pathlib
import random
import threading
import time
import urllib.parse

MODULE = "mod-authtoken-2.17.0"
# Changes of one user; the others void a whole tenant and come one time in twenty.
OF_A_USER = {"grant by user id", "revoke by user id, query first", "update user"}
OF_A_TENANT = {"create permission set", "change permission set", "enable a module"}
# Not played: it would make the auth module forget everything once a second.
LEFT_OUT = {"refresh header"}


class Metrics:
    """Okapi's counters and its timer, in the form that its Prometheus end has."""

    def __init__(self):
        self.lock, self.counters = threading.Lock(), {}

    def add(self, name, value=1.0, **labels):
        key = (name, tuple(sorted(labels.items())))
        with self.lock:
            self.counters[key] = self.counters.get(key, 0.0) + value

    def text(self):
        lines, last = [], None
        with self.lock:
            samples = sorted(self.counters.items())
        for (name, labels), value in samples:
            family = name.removesuffix("_count").removesuffix("_sum")
            if family != last:
                lines += [f"# HELP {family} ", f"# TYPE {family} {'summary' if family != name else 'counter'}"]
                last = family
            lines.append(f"{name}{{{','.join(f'{label}={json.dumps(text)}' for label, text in labels)}}} {value}")
        return "\n".join(lines) + "\n"


class Recording:
    """One recorded filter call; what is in it is sent as it was, but for Host."""

    def __init__(self, exchange):
        self.scenario = exchange["scenario"]
        self.method, self.target, _ = exchange["request"]["start_line"].split(" ")
        self.headers = [(name, value) for name, value in exchange["request"]["headers"] if name.lower() not in ("host", "content-length", "transfer-encoding", "expect", "connection")]
        self.plain = not exchange["request"]["body"]
        self.status = exchange["answer"]["start_line"].split(" ")[1]
        named = {name.lower(): value for name, value in self.headers}
        self.tenant, self.token = named.get("x-okapi-tenant", ""), named.get("x-okapi-token", "")
        self.path = self.target.split("?")[0]

    @staticmethod
    def read(path):
        found = []
        for line in path.read_text().splitlines():
            try:
                found.append(Recording(json.loads(line)))
            except ValueError:
                continue  # a request line that was odd on purpose
        return [recording for recording in found if recording.plain]


class Gateway:
    """What Okapi does around an auth call: look into its own cache, else ask, and count both."""

    def __init__(self, sidecar, cache_seconds):
        address = urllib.parse.urlsplit(sidecar)
        self.host, self.port = address.hostname, address.port
        self.life, self.cache, self.metrics = cache_seconds, {}, Metrics()

    def play(self, connection, recording):
        """One auth call; returns the connection to go on with, None after trouble."""
        labels = {"tenant": recording.tenant, "method": recording.method, "url": recording.path, "userId": "null"}
        key = (recording.tenant, recording.method, recording.path, recording.token)
        if recording.token:
            until = self.cache.get(key)
            if until is not None and until >= time.monotonic():
                self.metrics.add("org_folio_okapi_tokenCache_hits_total", **labels)
                return connection
            self.metrics.add(f"org_folio_okapi_tokenCache_{'misses' if until is None else 'expired'}_total", **labels)
        began = time.monotonic()
        try:
            connection = connection or http.client.HTTPConnection(self.host, self.port, timeout=30)
            connection.putrequest(recording.method, recording.target, skip_accept_encoding=True)
            for name, value in recording.headers:
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException, ValueError, UnicodeError):
            if connection is not None:
                connection.close()
            time.sleep(0.5)
            return None
        timer = {"tenant": recording.tenant, "method": recording.method, "url": recording.path, "module": MODULE, "phase": "auth", "code": str(answer.status)}
        self.metrics.add("org_folio_okapi_http_client_responseTime_seconds_count", **timer)
        self.metrics.add("org_folio_okapi_http_client_responseTime_seconds_sum", time.monotonic() - began, **timer)
        if recording.token and answer.status < 300:
            self.cache[key] = time.monotonic() + self.life
            self.metrics.add("org_folio_okapi_tokenCache_cached_total", **labels)
        if answer.getheader("Connection", "").lower() == "close":
            connection.close()
            return None
        return connection


def user(gateway, recordings, pause):
    """A librarian at a desk: one check-out after another, each its own path as item ids differ."""
    connection = None
    while True:
        for recording in recordings:
            connection = gateway.play(connection, recording)
        time.sleep(pause * random.uniform(0.5, 1.5))


def aside(gateway, recordings, pause):
    """Whatever is not a check-out, one call at a time."""
    connection = None
    for recording in itertools.cycle(recordings):
        time.sleep(pause)
        connection = gateway.play(connection, recording)


def changes(recordings):
    """Nineteen changes of a user, then one of a tenant."""
    of_users = itertools.cycle([r for r in recordings if r.scenario in OF_A_USER])
    of_tenants = itertools.cycle([r for r in recordings if r.scenario in OF_A_TENANT])
    return [next(of_tenants if number % 20 == 19 else of_users) for number in range(60)]


def serve_metrics(address, metrics):
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = metrics.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    host, port = address.rsplit(":", 1)
    http.server.ThreadingHTTPServer((host, int(port)), Answer).serve_forever()


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("--sidecar", default="http://127.0.0.1:8071", help="where auth calls go")
    arguments.add_argument("--recordings", type=pathlib.Path, required=True, help="folder with check-out.ndjson, filter.ndjson and events.ndjson")
    arguments.add_argument("--metrics", default="127.0.0.1:9930", help="where Okapi's metrics are served")
    arguments.add_argument("--users", type=int, default=4)
    arguments.add_argument("--pause", type=float, default=1.0, help="seconds between two check-outs of a user")
    arguments.add_argument("--okapi-cache", type=float, default=20.0, help="life of an entry in the gateway's own cache, seconds (Okapi: 180)")
    arguments.add_argument("--event-every", type=float, default=20.0, help="seconds between two changes")
    given = arguments.parse_args()

    gateway = Gateway(given.sidecar, given.okapi_cache)
    check_out = [r for r in Recording.read(given.recordings / "check-out.ndjson") if r.status == "202"]
    odd = [r for r in Recording.read(given.recordings / "filter.ndjson") if r.scenario not in LEFT_OUT]
    events = changes(Recording.read(given.recordings / "events.ndjson"))
    work = [(user, (gateway, check_out, given.pause))] * given.users
    work += [(aside, (gateway, odd, 1.0)), (aside, (gateway, events, given.event_every))]
    for function, call in work:
        threading.Thread(target=function, args=call, daemon=True).start()
    serve_metrics(given.metrics, gateway.metrics)


if __name__ == "__main__":
    main()
