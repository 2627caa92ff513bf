import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.*;
import net.spy.memcached.*;
import net.spy.memcached.compat.log.*;
import net.spy.memcached.util.*;

/** peer.py's protocol, answered by spymemcached. A host is NAME or NAME/ADDRESS. */
public class Peer {
  /** EVCache's names, in spymemcached's locator, on which it builds. */
  static class EVCacheNames extends DefaultKetamaNodeLocatorConfiguration {
    @Override
    public String getKeyForNode(MemcachedNode node, int repetition) {
      InetSocketAddress a = (InetSocketAddress) node.getSocketAddress();
      return a.getHostName() + '/' + a.getAddress().getHostAddress() + ":11211-" + repetition;
    }
  }

  static NodeLocator locator(String client, List<MemcachedNode> nodes) {
    HashAlgorithm md5 = DefaultHashAlgorithm.KETAMA_HASH;
    switch (client) {
      case "spymemcached":
        return new ArrayModNodeLocator(nodes, DefaultConnectionFactory.DEFAULT_HASH);
      case "spymemcached-ketama":
        return new KetamaNodeLocator(nodes, md5);
      case "spymemcached-ketama-names":
        return new KetamaNodeLocator(nodes, md5, KetamaNodeKeyFormatter.Format.LIBMEMCACHED,
            new HashMap<InetSocketAddress, Integer>());
      default:
        return new KetamaNodeLocator(nodes, md5, new EVCacheNames());
    }
  }

  static int made;

  /** A node that knows its address and nothing else; a name without one gets some. */
  static MemcachedNode node(String server) throws Exception {
    String[] hostPort = server.split(":"), nameAddress = hostPort[0].split("/");
    made++;
    byte[] ip = nameAddress.length == 2
        ? InetAddress.getByName(nameAddress[1]).getAddress()
        : new byte[] {10, (byte) (made >> 16), (byte) (made >> 8), (byte) made};
    InetAddress host = InetAddress.getByAddress(nameAddress[0], ip);
    SocketAddress address = new InetSocketAddress(host, Integer.parseInt(hostPort[1]));
    return (MemcachedNode) java.lang.reflect.Proxy.newProxyInstance(Peer.class.getClassLoader(),
        new Class<?>[] {MemcachedNode.class}, (self, method, args) -> {
          switch (method.getName()) {
            case "getSocketAddress": return address;
            case "hashCode": return System.identityHashCode(self);
            case "equals": return self == args[0];
            default: return address.toString();
          }
        });
  }

  public static void main(String[] args) throws Exception {
    System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
    java.util.logging.Logger.getLogger("net.spy").setLevel(java.util.logging.Level.OFF);
    Scanner in = new Scanner(System.in, "ISO-8859-1");
    String client = in.nextLine();
    List<String> lists = new ArrayList<>();
    for (String line = in.nextLine(); !line.isEmpty(); line = in.nextLine()) {
      lists.add(line);
    }
    List<String> keys = new ArrayList<>();
    while (in.hasNextLine()) {
      keys.add(new String(Base64.getDecoder().decode(in.nextLine()), StandardCharsets.UTF_8));
    }
    for (String list : lists) {
      List<MemcachedNode> nodes = new ArrayList<>();
      Map<SocketAddress, Integer> index = new HashMap<>();
      String[] fields = list.split(" ");
      for (int i = 2; i < fields.length; i++) {
        MemcachedNode node = node(fields[i]);
        index.put(node.getSocketAddress(), nodes.size());
        nodes.add(node);
      }
      NodeLocator locator = locator(client, nodes);
      StringBuilder out = new StringBuilder();
      for (String key : keys.subList(Integer.parseInt(fields[0]), Integer.parseInt(fields[1]))) {
        out.append(index.get(locator.getPrimary(key).getSocketAddress())).append(' ');
      }
      System.out.println(out);
    }
  }
}
