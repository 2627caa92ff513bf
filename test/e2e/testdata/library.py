"""A client library of Python's behind a pipe.

    library.py pylibmc|pymemcache [FILE]

FILE has the servers, one a line, and is read again whenever it has changed. A request is a line of JSON, and so is its answer:

    {"do": "use", "servers": ["host:port", ...]}    a list of servers from now on
    {"do": "get", "key": ...}                       {"value": ...}, null for a miss
    {"do": "set", "key": ..., "value": ...}
    {"do": "delete", "key": ...}                    of what isn't there, too

One that failed is answered with {"error": ...}.
"""

import json
import os
import sys


def pylibmc(servers):
    import pylibmc

    return pylibmc.Client(
        servers,
        behaviors={
            "ketama_weighted": True, "tcp_nodelay": True,
            # Milliseconds. A server that is gone refuses nothing; one that is there may be slow.
            "connect_timeout": 5000, "_poll_timeout": 600_000, "retry_timeout": 1,
        },
    )


def pymemcache(servers):
    from pymemcache.client.hash import HashClient

    # A server that fails keeps its keys: with the defaults, the other servers
    # would get them for a minute. And a write is done when it is answered.
    return HashClient(
        servers, connect_timeout=5, timeout=600, no_delay=True,
        retry_attempts=sys.maxsize, retry_timeout=0, default_noreply=False,
    )


def answer(client, request):
    do, key = request["do"], request.get("key")
    if do == "get":
        value = client.get(key)
        return {"value": value.decode() if value is not None else None}
    if do == "set":
        if not client.set(key, request["value"].encode()):
            return {"error": "not stored"}
    elif do == "delete":
        client.delete(key)
    return {}


def version(path):
    status = os.stat(path)
    return status.st_ino, status.st_mtime_ns


def main():
    connect, client = globals()[sys.argv[1]], None
    path, read = sys.argv[2] if len(sys.argv) > 2 else None, None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if path and read != (now := version(path)):
                with open(path) as file:
                    client = connect(file.read().split())
                read = now
            if request["do"] == "use":
                client = connect(request["servers"])
            reply = answer(client, request)
        except Exception as e:  # any exception of the library
            reply = {"error": repr(e)}
        print(json.dumps(reply), flush=True)


main()
