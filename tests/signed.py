#!/usr/bin/env python3
"""One request to a server that speaks S3, signed (version 4): METHOD URL [-s SERVICE] [-H NAME:VALUE]... [-d BODY], whoever AWS_* say.

Prints what the server answers, and ends with 1 unless it did what was asked. For what no verb of ours does: buckets, rights, versions."""
import argparse, datetime, hashlib, hmac, os, sys, urllib.error, urllib.parse, urllib.request

arguments = argparse.ArgumentParser()
arguments.add_argument("method")
arguments.add_argument("url")
arguments.add_argument("-s", "--service", default="s3")
arguments.add_argument("-H", "--header", action="append", default=[])
arguments.add_argument("-d", "--data", default="")
args = arguments.parse_args()

url, body = urllib.parse.urlsplit(args.url), args.data.encode()
now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
headers = {"host": url.netloc, "x-amz-date": now, "x-amz-content-sha256": hashlib.sha256(body).hexdigest()}
headers.update((name.lower(), value) for name, value in (header.split(":", 1) for header in args.header))
if token := os.environ.get("AWS_SESSION_TOKEN"):
    headers["x-amz-security-token"] = token
names = ";".join(sorted(headers))
query = "&".join(sorted(f"{urllib.parse.quote(name, safe='')}={urllib.parse.quote(value, safe='')}"
                        for name, value in urllib.parse.parse_qsl(url.query, keep_blank_values=True)))
lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
request = "\n".join([args.method, urllib.parse.quote(url.path), query, lines, names, headers["x-amz-content-sha256"]])
scope = f"{now[:8]}/us-east-1/{args.service}/aws4_request"
text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
key = ("AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"]).encode()
for part in scope.split("/"):
    key = hmac.digest(key, part.encode(), "sha256")
signature = hmac.new(key, text.encode(), "sha256").hexdigest()
headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={os.environ['AWS_ACCESS_KEY_ID']}/{scope}, "
                            f"SignedHeaders={names}, Signature={signature}")
target = urllib.parse.urlunsplit((url.scheme, url.netloc, url.path, query, ""))
asked = urllib.request.Request(target, data=body or None, headers=headers, method=args.method)
try:
    print(urllib.request.urlopen(asked, timeout=30).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
    sys.exit(1)
