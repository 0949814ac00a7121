"""Stands in for mod-authtoken while the image is tried: 200 to its health route, 202 after 1.5 s to all else."""

import http.server
import sys
import time


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        health = self.path == "/admin/health"
        if not health:
            time.sleep(1.5)
        self.send_response(200 if health else 202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
