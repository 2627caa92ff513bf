import java.net.InetSocketAddress;
import java.util.*;
import net.spy.memcached.*;

/** An application of spymemcached: Application HOST:PORT TEXT|BINARY [a dead member's KEY, and a living one's]. */
public class Application {
  static void check(boolean ok, String what) {
    if (!ok) {
      System.err.println(what);
      System.exit(1);
    }
  }

  public static void main(String[] args) throws Exception {
    Thread.setDefaultUncaughtExceptionHandler((t, e) -> check(false, e.toString())); // the library's thread would run on
    System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
    java.util.logging.Logger.getLogger("net.spy").setLevel(java.util.logging.Level.OFF);
    MemcachedClient c = new MemcachedClient(
        new ConnectionFactoryBuilder().setOpTimeout(20000).setProtocol(ConnectionFactoryBuilder.Protocol.valueOf(args[1])).build(), AddrUtil.getAddresses(args[0]));
    if (args.length > 2) {
      check(c.set(args[3], 100, "x").get(), "set");
      for (int i = 0; i < 20; i++) { // an error would be thrown, and close the connection for seconds
        check(!c.set(args[2], 100, "x").get() && !c.add(args[2], 100, "x").get() && !c.delete(args[2]).get(), "a dead member's key");
        check(c.get(args[2]) == null && c.get(args[3]).equals("x"), "get");
      }
      c.shutdown();
      return;
    }
    Map<String, Object> want = new HashMap<>();
    for (int i = 0; i < 300; i++) {
      want.put("m" + i, "value " + i);
      check(c.set("m" + i, 100, "value " + i).get(), "set");
    }
    List<String> keys = new ArrayList<>(want.keySet());
    keys.add("nothing");
    check(c.getBulk(keys).equals(want), "getBulk");
    check(!c.add("m0", 100, "x").get() && c.replace("m0", 100, "7").get(), "add, replace");
    check(c.incr("m0", 5) == 12 && c.decr("m0", 2) == 10, "incr, decr");
    CASValue<Object> v = c.gets("m1");
    check(c.cas("m1", v.getCas(), "new") == CASResponse.OK && c.get("m1").equals("new"), "cas");
    check(c.cas("m1", v.getCas(), "newer") == CASResponse.EXISTS, "cas again");
    check(c.append(0, "m1", "er").get() && c.get("m1").equals("newer"), "append");
    check(c.touch("m1", 100).get(), "touch");
    check(c.delete("m1").get() && c.get("m1") == null, "delete");
    check(c.getVersions().size() == 1 && c.getStats().size() == 1, "versions, stats");
    check(c.flush().get() && c.get("m2") == null, "flush");
    c.shutdown();
  }
}
