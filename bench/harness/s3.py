"""A MinIO server for runs with `--store s3`, and the few signed requests the harness itself needs.

The server counts requests by kind; the harness reads the counters before and after a command, so that every tool's requests
are counted the same way, whatever the tool itself says.
"""

import datetime
import hashlib
import hmac
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree

from tools.base import Store

ACCESS, SECRET, REGION = "benchaccess", "benchsecret", "us-east-1"
# MinIO keeps its answer to a scrape for a while; only an answer younger than the command's end counts it.
METRICS_CACHE_SECONDS = 11


class Server:
    """MinIO on a free local port with its data in a folder, stopped by `close`."""

    def __init__(self, folder):
        program = shutil.which("minio")
        if program is None:
            raise SystemExit("--store s3 needs the program minio; see bench/install-peers.sh")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{port}"
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "MINIO_ROOT_USER": ACCESS,
            "MINIO_ROOT_PASSWORD": SECRET,
            "MINIO_PROMETHEUS_AUTH_TYPE": "public",
            "MINIO_BROWSER": "off",
        }
        self.log = open(folder.parent / "minio.log", "wb")
        arguments = [program, "server", str(folder), "--address", f"127.0.0.1:{port}", "--quiet"]
        self.process = subprocess.Popen(arguments, env=env, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(self.endpoint + "/minio/health/live", timeout=2):
                    return
            except OSError:
                time.sleep(0.2)
        self.close()
        raise SystemExit(f"minio did not start: see {self.log.name}")

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def store(self, bucket):
        """A fresh, empty bucket."""
        self.request("PUT", "/" + bucket)
        return Store("s3", endpoint=self.endpoint, bucket=bucket, access_key=ACCESS, secret_key=SECRET)

    def drop(self, bucket):
        """Forgets a bucket with all it holds, behind the server's back: thousands of deletes would only take time."""
        shutil.rmtree(self.folder / bucket, ignore_errors=True)

    def size(self, bucket):
        """(bytes, objects) of a bucket."""
        total = count = 0
        token = None
        while True:
            query = {"list-type": "2", **({"continuation-token": token} if token else {})}
            answer = ElementTree.fromstring(self.request("GET", "/" + bucket, query))
            space = {"s3": answer.tag.partition("}")[0].lstrip("{")}
            for item in answer.findall("s3:Contents", space):
                total += int(item.findtext("s3:Size", "0", space))
                count += 1
            token = answer.findtext("s3:NextContinuationToken", None, space)
            if not token:
                return total, count

    def requests(self):
        """Requests served so far, by kind, as an answer made after this call began."""
        time.sleep(METRICS_CACHE_SECONDS)
        with urllib.request.urlopen(self.endpoint + "/minio/v2/metrics/cluster", timeout=20) as answer:
            text = answer.read().decode()
        found = re.findall(r'^minio_s3_requests_total\{api="([^"]+)"[^}]*\} ([0-9.e+]+)$', text, re.M)
        return {api: int(float(count)) for api, count in found}

    def request(self, method, path, query=None):
        """One request with AWS signature version 4 and an empty body."""
        query = query or {}
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        host = self.endpoint.partition("//")[2]
        empty = hashlib.sha256(b"").hexdigest()
        listed = "&".join(f"{quote(key)}={quote(value)}" for key, value in sorted(query.items()))
        headers = f"host:{host}\nx-amz-content-sha256:{empty}\nx-amz-date:{now}\n"
        names = "host;x-amz-content-sha256;x-amz-date"
        canonical = f"{method}\n{path}\n{listed}\n{headers}\n{names}\n{empty}"
        scope = f"{now[:8]}/{REGION}/s3/aws4_request"
        to_sign = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{SECRET}".encode()
        for part in (now[:8], REGION, "s3", "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
        request = urllib.request.Request(f"{self.endpoint}{path}?{listed}", method=method)
        request.add_header("x-amz-date", now)
        request.add_header("x-amz-content-sha256", empty)
        request.add_header("Authorization", f"AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, SignedHeaders={names}, Signature={signature}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()


def quote(word):
    return urllib.parse.quote(word, safe="-_.~")
