"""An application of a library: libraries.py LIBRARY HOST:PORT. It ends with 0 if what it
stores is what it reads."""
import sys


def pylibmc(host, port, binary=False):
    import pylibmc

    c = pylibmc.Client(["%s:%d" % (host, port)], binary=binary, behaviors={"cas": True, "tcp_nodelay": True})
    assert c.set("py", {"a": [1, 2]}, time=100)
    assert c.get("py") == {"a": [1, 2]}
    many = {"m%d" % i: "v%d" % i * i for i in range(300)}
    assert c.set_multi(many) == []
    assert c.get_multi(list(many) + ["nothing"]) == many
    assert c.add("py", 1) is False and c.replace("py", 2)
    assert c.incr("py", 5) == 7 and c.decr("py") == 6
    value, cas = c.gets("py")
    assert value == 6 and c.cas("py", 9, cas) and c.get("py") == 9
    assert c.set("text", "b") and c.append("text", "c") and c.prepend("text", "a") and c.get("text") == "abc"
    assert c.delete("py") and c.get("py") is None and not c.delete("py")
    assert c.delete_multi(list(many))
    large = b"x" * 900000
    assert c.set("large", large) and c.get("large") == large


def pymemcache(host, port):
    from pymemcache.client.base import Client

    c = Client((host, port), default_noreply=False, timeout=20)
    assert c.set("py", "1", expire=100) and c.get("py") == b"1"
    many = {"m%d" % i: b"v%d" % i * i for i in range(300)}
    assert c.set_many(many) == []
    assert c.get_many(list(many) + ["nothing"]) == many
    assert c.add("py", "2") is False and c.replace("py", "2")
    assert c.incr("py", 5) == 7 and c.decr("py", 1) == 6
    value, cas = c.gets("py")
    assert value == b"6" and c.cas("py", "9", cas) and c.cas("py", "10", cas) is False
    assert c.append("py", "!") and c.prepend("py", "?") and c.get("py") == b"?9!"
    assert c.touch("py", 100) and c.delete("py") and c.get("py") is None
    c.set("quiet", "x", noreply=True)
    assert c.get("quiet") == b"x"
    c.set_many(many, noreply=True)
    c.delete_many(list(many), noreply=True)
    assert c.get_many(list(many)) == {}
    large = b"x" * 900000
    assert c.set("large", large) and c.get("large") == large
    assert c.version() and c.stats()[b"pid"] and c.flush_all() and c.get("large") is None
    c.quit()


def memcache(host, port):
    import memcache

    c = memcache.Client(["%s:%d" % (host, port)], cache_cas=True)
    assert c.set("py", {"a": 1}, time=100) and c.get("py") == {"a": 1}
    many = {"m%d" % i: "v%d" % i * i for i in range(300)}
    assert c.set_multi(many) == []
    assert c.get_multi(list(many) + ["nothing"]) == many
    assert not c.add("py", 1) and c.replace("py", 2)
    assert c.incr("py", 5) == 7 and c.decr("py") == 6
    assert c.gets("py") == 6 and c.cas("py", 9) and c.get("py") == 9
    assert c.touch("py", 100) and c.delete("py") and c.get("py") is None
    assert c.delete_multi(list(many)) == 1
    assert c.get_stats()[0][1]["pid"]
    large = "x" * 900000
    assert c.set("large", large) and c.get("large") == large


host, port = sys.argv[2].rsplit(":", 1)
{"pylibmc": pylibmc, "pylibmc-binary": lambda host, port: pylibmc(host, port, True), "pymemcache": pymemcache, "python-memcached": memcache}[sys.argv[1]](host, int(port))
