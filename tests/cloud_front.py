#!/usr/bin/env python3
"""Stands before an emulator of a cloud and makes it what a test needs. Standard library only.

    tests/cloud_front.py PORT EMULATOR_PORT [--gcs] [--trouble N]

--gcs: fake-gcs-server knows of Google's XML interface only reading, deleting and a listing without pages. What Larder's client
uses beside them is turned into requests of the JSON interface, which the emulator has in full, conditions included: PUT with
`x-goog-if-generation-match` becomes an upload with `ifGenerationMatch`, and `list-type=2` becomes a listing by pages.

--trouble N: of N requests one is answered 503, one 429, and one is carried out and its answer lost.
"""

import http.client
import http.server
import json
import sys
import threading
import urllib.parse
from xml.sax.saxutils import escape

HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


class Front(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    count = 0
    lock = threading.Lock()
    local = threading.local()

    def ask(self, method, path, headers, body):
        """One request to the emulator: status, headers, body."""
        for attempt in range(2):
            link = getattr(self.local, "link", None)
            if link is None:
                link = self.local.link = http.client.HTTPConnection("127.0.0.1", emulator)
            try:
                link.request(method, path, body=body, headers=headers)
                answer = link.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            except (ConnectionError, http.client.HTTPException):
                # An idle connection that the emulator has closed. Only where nothing was answered yet.
                link.close()
                self.local.link = None
                if attempt:
                    raise

    def reply(self, status, headers, body):
        self.send_response_only(status)
        length = len(body)
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            if name.lower() not in HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def failure(self, status, code):
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>Said by the test.</Message></Error>"
        self.reply(status, [("Content-Type", "application/xml")], text.encode())

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.lock:
            Front.count += 1
            turn = Front.count % trouble if trouble else -1
        if turn == 1:
            return self.failure(503, "ServerBusy")
        if turn == 2:
            return self.failure(429, "TooManyRequests")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        bucket, _, name = url.path[1:].partition("/")
        if gcs and self.command == "PUT" and name:
            answer = self.put(bucket, urllib.parse.unquote(name), headers, body)
        elif gcs and self.command == "GET" and query.get("list-type") == "2":
            answer = self.list(bucket, query)
        else:
            answer = self.ask(self.command, self.path, headers, body)
        if turn == 0:
            self.close_connection = True
            return None
        return self.reply(*answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    def put(self, bucket, name, headers, body):
        query = {"uploadType": "media", "name": name}
        condition = self.headers.get("x-goog-if-generation-match")
        if condition is not None:
            query["ifGenerationMatch"] = condition
        path = f"/upload/storage/v1/b/{bucket}/o?{urllib.parse.urlencode(query)}"
        status, _, answer = self.ask("POST", path, headers, body)
        if status != 200:
            code = {404: "NoSuchBucket", 412: "PreconditionFailed"}.get(status, "Other")
            return status, [], f"<Error><Code>{code}</Code></Error>".encode()
        made = json.loads(answer)
        return 200, [("ETag", f'"{made["etag"]}"'), ("x-goog-generation", made["generation"])], b""

    def list(self, bucket, query):
        asked = {"prefix": query.get("prefix", ""), "maxResults": min(1000, int(query.get("max-keys", 1000)))}
        after = query.get("start-after")
        if "continuation-token" in query:
            asked["pageToken"] = query["continuation-token"]
        elif after is not None:
            asked["startOffset"] = after
        path = f"/storage/v1/b/{bucket}/o?{urllib.parse.urlencode(asked)}"
        status, _, answer = self.ask("GET", path, {}, None)
        if status != 200:
            return status, [], b"<Error><Code>NoSuchBucket</Code></Error>" if status == 404 else b""
        page = json.loads(answer)
        truncated = "true" if page.get("nextPageToken") else "false"
        parts = [
            "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult>"
            f"<Prefix>{escape(asked['prefix'])}</Prefix><IsTruncated>{truncated}</IsTruncated>"
        ]
        for item in page.get("items", []):
            # The one interface begins at the name, the other after it.
            if item["name"] != after:
                parts.append(
                    f"<Contents><Key>{escape(item['name'])}</Key><Size>{item['size']}</Size>"
                    f"<LastModified>{item['updated']}</LastModified><ETag>{escape(item['etag'])}</ETag></Contents>"
                )
        if page.get("nextPageToken"):
            parts.append(f"<NextContinuationToken>{escape(page['nextPageToken'])}</NextContinuationToken>")
        return 200, [("Content-Type", "application/xml")], ("".join(parts) + "</ListBucketResult>").encode()

    def log_message(self, *_):
        pass


port, emulator = int(sys.argv[1]), int(sys.argv[2])
gcs = "--gcs" in sys.argv
trouble = int(sys.argv[sys.argv.index("--trouble") + 1]) if "--trouble" in sys.argv else 0


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


Server(("127.0.0.1", port), Front).serve_forever()
