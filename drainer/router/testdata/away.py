"""An application that reads while members come and go: away.py LIBRARY HOST:PORT KEY…. For each line
of its input, it says in JSON what one read of all keys has found, and a read of each key."""
import json
import sys


def pylibmc(address, binary):
    import pylibmc

    c = pylibmc.Client([address], binary=binary, behaviors={"receive_timeout": 120000000})
    return c.get_multi, c.get


def pymemcache(address):
    from pymemcache.client.base import Client

    host, port = address.split(":")
    c = Client((host, int(port)), timeout=120)
    return c.get_many, c.get


def memcache(address):
    import memcache

    c = memcache.Client([address], socket_timeout=120)
    return c.get_multi, c.get


def text(value):
    return value.decode() if isinstance(value, bytes) else value


library, address, keys = sys.argv[1], sys.argv[2], sys.argv[3:]
if library == "pymemcache":
    many, one = pymemcache(address)
elif library == "python-memcached":
    many, one = memcache(address)
else:
    many, one = pylibmc(address, library == "pylibmc-binary")
for _ in sys.stdin:
    said = {"many": {}, "one": {}, "error": ""}
    try:
        said["many"] = {key: text(value) for key, value in many(keys).items()}
        for key in keys:
            value = one(key)
            if value is not None:
                said["one"][key] = text(value)
    except Exception as e:
        said["error"] = repr(e)
    print(json.dumps(said), flush=True)
