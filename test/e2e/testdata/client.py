"""An application that uses pylibmc, and so libmemcached's own ring.

    client.py fill  SERVER… < objects    stores them
    client.py check SERVER… < objects    reads each, prints a report as JSON

Objects are lines of JSON: {"key": …, "file": the path of its value, "ttl": s}.
Servers are host:port, in ring order; their names must be those that every
client uses, since the ring hashes them.
"""

import json
import sys

import pylibmc


def main():
    command, servers = sys.argv[1], sys.argv[2:]
    client = pylibmc.Client(
        servers, behaviors={"ketama_weighted": True, "tcp_nodelay": True}
    )
    report = {"objects": 0, "found": 0, "missing": 0, "wrong": 0, "examples": []}
    for line in sys.stdin:
        wanted = json.loads(line)
        with open(wanted["file"], "rb") as file:
            value = file.read()
        report["objects"] += 1
        if command == "fill":
            if not client.set(wanted["key"], value, time=wanted["ttl"]):
                sys.exit("could not store " + wanted["key"])
            continue
        found = client.get(wanted["key"])
        outcome = "missing" if found is None else "found" if found == value else "wrong"
        report[outcome] += 1
        if outcome != "found" and len(report["examples"]) < 10:
            report["examples"].append(outcome + " " + wanted["key"])
    json.dump(report, sys.stdout)


main()
