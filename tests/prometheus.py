#!/usr/bin/env python3
"""Asks a Prometheus for what it has: see tests/prometheus.sh.

    tests/prometheus.py URL expressions FOLDER   each expression of the dashboard and of the alerts has an answer
    tests/prometheus.py URL quiet                all targets answer, and no alert fires
    tests/prometheus.py URL fires ALERT
    tests/prometheus.py URL calm ALERT
"""
import json
import pathlib
import re
import sys
import time
import urllib.parse
import urllib.request

SECONDS = 60
# Nothing in the test writes them: unread files, cold storage, workers of a fleet.
ABSENT = re.compile(r"larder_fleet_|cold_unused")


def ask(url, path, **query):
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
        found = json.load(answer)
    assert found["status"] == "success", found
    return found["data"]


def until(holds, what):
    for _ in range(10 * SECONDS):
        if holds():
            return
        time.sleep(0.1)
    sys.exit(f"not within {SECONDS} s: {what}")


def firing(url):
    return {alert["labels"]["alertname"] for alert in ask(url, "alerts")["alerts"] if alert["state"] == "firing"}


def targets_are_up(url):
    targets = ask(url, "targets")["activeTargets"]
    return targets and all(target["health"] == "up" for target in targets)


def expressions(url, folder):
    """Those of the dashboard, and the left sides of the comparisons of alerts: both have samples at any time."""
    dashboard = json.loads((folder / "grafana.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"].replace("$instance", ".*")
    for rule in (rule for group in ask(url, "rules")["groups"] for rule in group["rules"]):
        # The names of the alert, each alone.
        yield from re.findall(r"\blarder_\w+", rule["query"])


def main():
    url, command, *rest = sys.argv[1:]
    until(lambda: targets_are_up(url) or command not in ("expressions", "quiet"), "all targets are up")
    if command == "expressions":
        count = 0
        for expression in dict.fromkeys(expressions(url, pathlib.Path(rest[0]))):
            ask(url, "query", query=expression)
            if not ABSENT.search(expression):
                until(lambda: ask(url, "query", query=expression)["result"], f"{expression} has an answer")
                count += 1
        print(f"{count} expressions have answers")
    elif command == "quiet":
        # Alerts are looked at every second. On a busy machine, a target may be late once.
        since = time.monotonic()

        def quiet_for_a_while():
            nonlocal since
            if fires := firing(url):
                print(f"still firing: {fires}")
                since = time.monotonic()
            return time.monotonic() - since > 5

        until(quiet_for_a_while, "no alert fires")
    elif command == "fires":
        until(lambda: rest[0] in firing(url), f"{rest[0]} fires")
    else:
        until(lambda: rest[0] not in firing(url), f"{rest[0]} does not fire")


if __name__ == "__main__":
    main()
