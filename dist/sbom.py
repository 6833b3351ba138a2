#!/usr/bin/env python3
"""Prints the components of the program as CycloneDX: each crate that is linked or that builds it, with version and licence.

    dist/sbom.py --version VERSION --created SECONDS

From `cargo metadata --locked`, without dependencies of tests. Standard library only.
"""
import argparse
import json
import subprocess
import time


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--version", required=True)
    arguments.add_argument("--created", required=True, type=int)
    arguments = arguments.parse_args()
    host = next(line.split()[1] for line in subprocess.check_output(["rustc", "-vV"], text=True).splitlines()
                if line.startswith("host:"))
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host]
    metadata = json.loads(subprocess.check_output(command))
    packages = {package["id"]: package for package in metadata["packages"]}
    needs = {node["id"]: [need["pkg"] for need in node["deps"] if any(kind["kind"] != "dev" for kind in need["dep_kinds"])]
             for node in metadata["resolve"]["nodes"]}
    program = next(id for id, package in packages.items() if package["name"] == "larder")
    seen, waiting = {program}, [program]
    while waiting:
        new = [id for id in needs[waiting.pop()] if id not in seen]
        seen.update(new)
        waiting.extend(new)

    def component(package):
        purl = f"pkg:cargo/{package['name']}@{package['version']}"
        found = {"type": "library", "bom-ref": purl, "name": package["name"], "version": package["version"], "purl": purl}
        if package["license"]:
            found["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        return found

    components = sorted((component(packages[id]) for id in seen - {program}), key=lambda found: found["bom-ref"])
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(arguments.created))
    print(json.dumps({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"timestamp": created,
                     "component": {"type": "application", "name": "larder", "version": arguments.version,
                                   "licenses": [{"expression": "Apache-2.0 OR MIT"}]}},
        "components": components,
    }, indent=1, sort_keys=True))


main()
