"""Answers which server a client library asks for a key, by asking the library.

Standard input: a line with the client's name; for each question a line of FROM,
TO and HOST:PORT…; an empty line; then one base64 key a line. Standard output:
for each question a line with the index of the server of each key from FROM to
before TO.

With the arguments "store" and PREFIX, the client stores the keys in the servers,
which have to run, as an application that sets that prefix would.
"""
import base64
import ctypes
import sys


class Libmemcached:
    """libmemcached itself, with pairs of memcached_behavior_t and a value."""

    def __init__(self, *behaviors):
        self.behaviors = behaviors
        self.lib = lib = ctypes.CDLL("libmemcached.so.11")
        handle, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
        lib.memcached_create.restype = handle
        lib.memcached_behavior_set.argtypes = [handle, ctypes.c_int, ctypes.c_uint64]
        lib.memcached_callback_set.argtypes = [handle, ctypes.c_int, text]
        lib.memcached_server_add.argtypes = [handle, text, ctypes.c_uint16]
        lib.memcached_generate_hash.argtypes = [handle, text, size]
        lib.memcached_generate_hash.restype = ctypes.c_uint32
        lib.memcached_set.argtypes = [handle, text, size, text, size, ctypes.c_long, ctypes.c_uint32]

    def connect(self, servers, prefix=None):
        mc = self.lib.memcached_create(None)
        for behavior, value in self.behaviors:
            assert self.lib.memcached_behavior_set(mc, behavior, value) == 0
        if prefix:
            assert self.lib.memcached_callback_set(mc, PREFIX_KEY, prefix) == 0
        for host, port in servers:
            assert self.lib.memcached_server_add(mc, host.encode(), port) == 0
        return mc

    def asker(self, servers):
        mc = self.connect(servers)
        return lambda key: self.lib.memcached_generate_hash(mc, key, len(key))

    def store(self, servers, prefix, keys):
        mc = self.connect(servers, prefix)
        for key in keys:
            assert self.lib.memcached_set(mc, key, len(key), b"1", 1, 0, 0) == 0, key


class Proxy:
    """XXH3 from libxxhash, and the jump hash as its paper prints it."""

    def asker(self, servers):
        lib = ctypes.CDLL("libxxhash.so.0")
        lib.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        lib.XXH3_64bits.restype = ctypes.c_uint64
        n = len(servers)

        def ask(key):
            h = lib.XXH3_64bits(key, len(key))
            b, j = -1, 0
            while j < n:
                b = j
                h = (h * 2862933555777941757 + 1) & 0xFFFFFFFFFFFFFFFF
                j = int((b + 1) * (float(1 << 31) / float((h >> 33) + 1)))
            return b

        return ask


class Pymemcache:
    """HashClient; it connects on the first command."""

    def __init__(self, as_bytes):
        self.as_bytes = as_bytes

    def client(self, servers, prefix=b""):
        from pymemcache.client.hash import HashClient

        return HashClient(servers, allow_unicode_keys=True, key_prefix=prefix)

    def key(self, key):
        if not self.as_bytes:
            try:
                return key.decode()
            except UnicodeDecodeError:
                pass  # the application must have given it as bytes
        return key

    def asker(self, servers):
        client = self.client(servers)
        index = {server: i for i, server in enumerate(servers)}
        return lambda key: index[client._get_client(self.key(key)).server]

    def store(self, servers, prefix, keys):
        client = self.client(servers, prefix)
        for key in keys:
            assert client.set(self.key(key), b"1", noreply=False), key


class PythonMemcached:
    """memcache.Client, which takes prefixes in its *_multi methods only."""

    def asker(self, servers):
        import memcache

        memcache._Host.connect = lambda host: True  # as good as connected
        client = memcache.Client(["%s:%d" % s for s in servers])
        index = {server: i for i, server in enumerate(client.servers)}
        return lambda key: index[client._get_server(key)[0]]

    def store(self, servers, prefix, keys):
        import memcache

        client = memcache.Client(["%s:%d" % s for s in servers])
        assert client.set_multi({key: b"1" for key in keys}, key_prefix=prefix) == []


# memcached_behavior_t and memcached_callback_t, in libmemcached's order.
KETAMA, KETAMA_WEIGHTED = 3, 16
PREFIX_KEY = 0

CLIENTS = {
    "libmemcached": lambda: Libmemcached(),
    "libmemcached-ketama": lambda: Libmemcached((KETAMA, 1)),
    "libmemcached-ketama-weighted": lambda: Libmemcached((KETAMA_WEIGHTED, 1)),
    "memcached-proxy": Proxy,
    "pymemcache": lambda: Pymemcache(False),
    "pymemcache-bytes": lambda: Pymemcache(True),
    "python-memcached": PythonMemcached,
}


def main():
    lines = sys.stdin.read().split("\n")
    end = lines.index("")
    client = CLIENTS[lines[0]]()
    keys = [base64.b64decode(line) for line in lines[end + 1:] if line]
    for line in lines[1:end]:
        start, stop, *servers = line.split()
        servers = [(host, int(port)) for host, port in (s.rsplit(":", 1) for s in servers)]
        some = keys[int(start):int(stop)]
        if sys.argv[1:2] == ["store"]:
            client.store(servers, sys.argv[2].encode(), some)
        else:
            print(" ".join(map(str, map(client.asker(servers), some))))


main()
