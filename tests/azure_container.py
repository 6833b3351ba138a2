#!/usr/bin/env python3
"""Makes a container on Azure Blob Storage or an emulator, and prints a SAS for it. Standard library only.

    tests/azure_container.py ENDPOINT ACCOUNT KEY CONTAINER

The SAS is the container's, good for a day, and is for reading, creating, deleting and listing: not for replacing anything.
"""

import base64
import hashlib
import hmac
import sys
import urllib.parse
import urllib.request
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

endpoint, account, key, container = sys.argv[1:]
VERSION = "2023-11-03"


def signed(text):
    return base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()


now = datetime.now(timezone.utc)
url = f"{endpoint}/{container}?restype=container"
headers = {"x-ms-date": format_datetime(now, usegmt=True), "x-ms-version": VERSION}
lines = ["PUT"] + [""] * 11 + [f"{name}:{value}" for name, value in sorted(headers.items())]
lines += [f"/{account}{urllib.parse.urlsplit(url).path}", "restype:container"]
headers["Authorization"] = f"SharedKey {account}:{signed(chr(10).join(lines))}"
# Without a body there is no length either, and none is signed.
urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers={**headers, "Content-Length": "0"})).read()

until = (now + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
rights = "rcdl"
text = [rights, "", until, f"/blob/{account}/{container}", "", "", "https,http", VERSION, "c", "", "", "", "", "", "", ""]
sas = {"sp": rights, "se": until, "spr": "https,http", "sv": VERSION, "sr": "c", "sig": signed("\n".join(text))}
print(urllib.parse.urlencode(sas))
