#!/usr/bin/env python3
"""An S3 server in memory that fails, lies and hangs as it is told. Standard library only.

    tests/faulty_s3.py PORT

It serves one bucket under any name and looks at no signature. `tests/lying_s3.py` uses it as a module; another program can run it and
control it by HTTP: `POST /_control` with {"rules": [...], "settings": {...}}, `GET /_log`, `GET /_keys`.

A rule is a dictionary. The first rule that fits a request decides what becomes of it.

    verb   list of GET, HEAD, PUT, DELETE, LIST; all when absent
    key    regular expression searched in the key, or in the prefix of a LIST
    skip   so many fitting requests pass first
    n      so many requests are met, then no more
    p      the chance that a fitting request is met; 1 when absent
    do     what happens:
        status      the answer is `code` with an error document of `error` and `message`
        raw         the answer is `code` with `body` and `headers`; nothing is done
        reset, close  the connection ends without an answer; nothing is done
        hang        no answer for `s` seconds; nothing is done
        delay       the request is done after `s` seconds
        lost        the request is done, and the connection ends without an answer
        lost_status the request is done, and the answer is `code` with `error`
        lost_hang   the request is done, and no answer comes for `s` seconds
        late        a PUT is done after `s` seconds, and the connection ends at once
        not_applied a PUT or DELETE is answered as done and is not
        cut         the body ends in its middle, where the header announced it whole
        short       the body ends in its middle, and so does the header
        flip        one bit of the body of a GET is wrong
        no_range    a range is answered with the whole object
        rate        the body comes at `rate` bytes a second
        hide        a LIST leaves out the keys in which `hide` is found

Settings: `page` (entries of one listing; 1000), `page_key` (only of prefixes in which it is found), `version` (2; 1 is the old listing,
without tokens), `delay` (seconds before each answer), `stale` (seconds that a listing lags behind), `order` ('', 'reverse', 'shuffle'),
`double` (each entry comes twice), `etag` (True), `conditional` (True; False overwrites what `If-None-Match: *` protects).
"""

import hashlib
import html
import json
import random
import re
import socket
import struct
import sys
import threading
import time
import urllib.parse
from datetime import datetime, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SETTINGS = {
    "page": 1000, "page_key": "", "version": 2, "delay": 0.0, "stale": 0.0, "order": "", "double": False,
    "etag": True, "conditional": True,
}


class Dropped(Exception):
    """The connection was ended on purpose."""


class Bucket:
    """Objects, rules and the log, shared by all connections."""

    def __init__(self):
        self.lock = threading.RLock()
        self.objects = {}  # key: (bytes, time of creation)
        self.deleted = {}  # key: (time of deletion, object)
        self.rules, self.settings, self.log = [], dict(SETTINGS), []

    def keys(self):
        with self.lock:
            return sorted(self.objects)

    def control(self, rules=None, **settings):
        """Sets rules again, changes settings."""
        unknown = settings.keys() - SETTINGS.keys()
        if unknown:
            raise ValueError(f"unknown settings {unknown}")
        with self.lock:
            if rules is not None:
                self.rules[:] = [dict(rule) for rule in rules]
            self.settings.update(settings)

    def heal(self):
        self.control([], **SETTINGS)

    def rule_for(self, verb, name):
        with self.lock:
            for rule in self.rules:
                if verb not in rule.get("verb", [verb]) or not re.search(rule.get("key", ""), name):
                    continue
                if rule.get("skip", 0) > 0:
                    rule["skip"] -= 1
                elif rule.get("n", 1) > 0 and random.random() < rule.get("p", 1):
                    if "n" in rule:
                        rule["n"] -= 1
                    rule["hits"] = rule.get("hits", 0) + 1
                    return rule
        return {}

    def create(self, key, body, only_if_absent):
        with self.lock:
            if only_if_absent and key in self.objects:
                return False
            self.objects[key] = (body, time.time())
            self.deleted.pop(key, None)
            return True

    def delete(self, key):
        with self.lock:
            if key in self.objects:
                self.deleted[key] = (time.time(), self.objects.pop(key))

    def listed(self):
        """Sizes and times of what a listing shows."""
        now, stale = time.time(), self.settings["stale"]
        with self.lock:
            shown = {key: found for key, found in self.objects.items() if now - found[1] >= stale or not stale}
            for key, (when, found) in self.deleted.items():
                if stale and now - when < stale:
                    shown.setdefault(key, found)
        return {key: (len(body), when) for key, (body, when) in shown.items()}


class Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def drop(self, reset=True):
        try:
            if reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        except OSError:
            pass
        self.close_connection = True
        raise Dropped

    def reply(self, status, body=b"", headers=None, sent=None):
        """Answers; `sent` is how much of the body really goes out."""
        self.status = status
        self.send_response_only(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if sent is not None:
            self.wfile.write(body[:sent])
            self.drop(reset=False)
        step = max(1, int(self.rule["rate"] * 0.1)) if self.rule.get("do") == "rate" else len(body)
        for start in range(0, len(body), max(1, step)):
            self.wfile.write(body[start:start + step])
            if step < len(body):
                time.sleep(0.1)

    def failure(self, status, code, message=None):
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message or code}</Message></Error>"
        self.reply(status, text.encode(), {"Content-Type": "application/xml"})

    def handle_any(self):
        if self.path.startswith("/_"):
            return self.handle_control()
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        key = urllib.parse.unquote(url.path).lstrip("/").partition("/")[2]
        verb = "LIST" if self.command == "GET" and "list-type" in query else self.command
        name = query.get("prefix", "") if verb == "LIST" else key
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        began, self.status, self.rule = time.time(), 0, self.bucket.rule_for(verb, name)
        try:
            time.sleep(self.bucket.settings["delay"])
            if not self.fail_before():
                {"GET": self.get, "HEAD": self.get, "PUT": self.put, "DELETE": self.remove, "LIST": self.list}[verb](
                    key, query, body
                )
        except Dropped:
            pass
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        finally:
            self.bucket.log.append((began, time.time() - began, verb, name, self.status, self.rule.get("do", "")))
        return None

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = handle_any

    def fail_before(self):
        rule = self.rule
        match rule.get("do"):
            case "status":
                self.failure(rule["code"], rule.get("error", "Error"), rule.get("message"))
            case "raw":
                self.reply(rule["code"], rule.get("body", "").encode(), rule.get("headers"))
            case "reset":
                self.drop()
            case "close":
                self.drop(reset=False)
            case "hang":
                time.sleep(rule.get("s", 3600))
                self.drop()
            case "delay":
                time.sleep(rule["s"])
                return False
            case _:
                return False
        return True

    def fail_after(self):
        """What goes wrong once a change is made. Whether it was answered."""
        rule = self.rule
        match rule.get("do"):
            case "lost":
                self.drop()
            case "lost_status":
                self.failure(rule["code"], rule.get("error", "InternalError"))
                return True
            case "lost_hang":
                time.sleep(rule.get("s", 3600))
                self.drop()
        return False

    def put(self, key, _, body):
        settings, do = self.bucket.settings, self.rule.get("do")
        only_if_absent = settings["conditional"] and self.headers.get("If-None-Match") == "*"
        if do == "late":
            threading.Timer(self.rule["s"], self.bucket.create, (key, body, True)).start()
            self.drop()
        if do != "not_applied" and not self.bucket.create(key, body, only_if_absent):
            return self.failure(412, "PreconditionFailed")
        if not self.fail_after():
            self.reply(200, b"", {"ETag": f'"{hashlib.md5(body).hexdigest()}"'} if settings["etag"] else {})
        return None

    def remove(self, key, _, __):
        if self.rule.get("do") != "not_applied":
            self.bucket.delete(key)
        if not self.fail_after():
            self.reply(204)

    def get(self, key, _, __):
        found = self.bucket.objects.get(key)
        if found is None:
            return self.failure(404, "NoSuchKey")
        body, when = found
        headers = {"Last-Modified": format_datetime(datetime.fromtimestamp(when, timezone.utc), usegmt=True)}
        if self.bucket.settings["etag"]:
            headers["ETag"] = f'"{hashlib.md5(body).hexdigest()}"'
        status, total, asked = 200, len(body), re.match(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        if asked and self.rule.get("do") != "no_range":
            first, last = asked.groups()
            start = int(first) if first else max(0, total - int(last))
            end = min(total, int(last) + 1) if first and last else total
            if start >= total:
                return self.failure(416, "InvalidRange")
            status, body = 206, body[start:end]
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{total}"
        if self.rule.get("do") == "flip" and body:
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 4]) + body[middle + 1:]
        return self.reply_in_part(status, body, headers)

    def reply_in_part(self, status, body, headers):
        match self.rule.get("do"):
            case "cut":
                self.reply(status, body, headers, sent=len(body) // 2)
            case "short":
                self.reply(status, body[:len(body) // 2], headers)
            case _:
                self.reply(status, body, headers)

    def list(self, _, query, __):
        settings, prefix = self.bucket.settings, query.get("prefix", "")
        after = query.get("continuation-token", query.get("start-after", ""))
        shown, hidden = self.bucket.listed(), self.rule.get("hide")
        names = sorted(name for name in shown if name.startswith(prefix) and name > after)
        if hidden:
            names = [name for name in names if not re.search(hidden, name)]
        size = settings["page"] if re.search(settings["page_key"], prefix) else 1000
        page, truncated = names[:size], len(names) > size
        last = page[-1] if page else ""
        if settings["order"] == "reverse":
            page.reverse()
        elif settings["order"] == "shuffle":
            random.shuffle(page)
        if settings["double"]:
            page = [name for name in page for _ in range(2)]
        parts = [
            "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>",
            f"<Name>bucket</Name><Prefix>{html.escape(prefix)}</Prefix><MaxKeys>1000</MaxKeys>",
            f"<IsTruncated>{str(truncated).lower()}</IsTruncated>",
        ]
        if settings["version"] == 1:
            parts.append("<Marker></Marker>")
        else:
            parts.append(f"<KeyCount>{len(page)}</KeyCount>")
            if truncated:
                parts.append(f"<NextContinuationToken>{html.escape(last)}</NextContinuationToken>")
        for name in page:
            length, when = shown[name]
            moment = datetime.fromtimestamp(when, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")
            parts.append(
                f"<Contents><Key>{html.escape(name)}</Key><LastModified>{moment}</LastModified><Size>{length}</Size></Contents>"
            )
        body = ("".join(parts) + "</ListBucketResult>").encode()
        self.reply_in_part(200, body, {"Content-Type": "application/xml"})

    def handle_control(self):
        self.rule = {}
        if self.path == "/_control":
            asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            self.bucket.control(asked.get("rules"), **asked.get("settings", {}))
            found = {"rules": self.bucket.rules, "settings": self.bucket.settings}
        else:
            found = {"/_log": self.bucket.log, "/_keys": self.bucket.keys()}.get(self.path)
        self.reply(200 if found is not None else 404, json.dumps(found).encode())


class Server(ThreadingHTTPServer):
    """Serves a bucket until the process ends; port 0 takes a free one."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port=0):
        self.bucket = Bucket()
        super().__init__(("127.0.0.1", port), type("Bound", (Connection,), {"bucket": self.bucket}))

    def start(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError, ValueError)):
            super().handle_error(request, client_address)


if __name__ == "__main__":
    Server(int(sys.argv[1])).serve_forever()
