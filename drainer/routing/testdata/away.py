"""Stores keys by a library while one of two servers is away, with and without the setting of docs/clients.md."""
import sys

library, *servers = sys.argv[1:]
keys = ["key-%d" % i for i in range(200)]


def stored(client):
    def store(key):
        try:
            return bool(client.set(key, "value"))
        except Exception:
            return False
    return [key for key in keys if store(key)]


def clients():
    if library == "pymemcache":
        from pymemcache.client.hash import HashClient
        yield HashClient(servers, ignore_exc=True, retry_attempts=0, default_noreply=False)
        yield HashClient(servers, retry_attempts=sys.maxsize, retry_timeout=0, default_noreply=False)
    else:
        import memcache
        yield memcache.Client(servers)
        memcache.Client._SERVER_RETRIES = 1
        yield memcache.Client(servers)


without, having = (stored(client) for client in clients())
if len(without) < len(keys) * 3 // 4:
    sys.exit("without the setting, %d of %d keys are stored: it would not be needed" % (len(without), len(keys)))
if not len(keys) // 4 < len(having) < len(keys) * 3 // 4:
    sys.exit("with the setting, %d of %d keys are stored" % (len(having), len(keys)))
