# An application of Dalli before 3.2, which speaks the binary protocol: dalli.rb HOST:PORT [USER PASSWORD].
# It ends with 0 if what it stores is what it reads.
require "dalli"

def check(what, ok)
  abort what unless ok
end

Dalli.logger.level = Logger::FATAL
address, username, password = ARGV
options = { socket_timeout: 20, socket_max_failures: 0 }
options.update(username: username, password: password) if username
c = Dalli::Client.new(address, options.merge(serializer: Marshal))

check "set", c.set("rb", { "a" => [1, 2] }, 100) && c.get("rb") == { "a" => [1, 2] }
many = (0...300).to_h { |i| ["m#{i}", "v#{i}" * i] }
c.multi { many.each { |key, value| c.set(key, value) } }
check "get_multi", c.get_multi(*many.keys, "nothing") == many
check "get_multi_cas", c.get_multi_cas("m7", "nothing").transform_values(&:first) == { "m7" => many["m7"] }
check "add", c.add("rb", 1) == false && c.add("new", 1)
check "replace", c.replace("rb", 2) && c.replace("nothing", 2) == 0
check "incr", c.incr("n", 5, nil, 7) == 7 && c.incr("n", 5) == 12 && c.decr("n", 2) == 10
check "incr of nothing", c.incr("nothing", 1).nil?
check "cas", c.cas("rb") { |value| value + 1 } && c.get("rb") == 3
value, cas = c.get_cas("rb")
check "set_cas", value == 3 && c.set_cas("rb", 4, cas) && c.set_cas("rb", 5, cas) == false && c.get("rb") == 4
check "delete_cas", c.delete_cas("rb", cas) == false && c.get("rb") == 4
c.set("text", "b", 0, raw: true)
check "append", c.append("text", "c") && c.prepend("text", "a") && c.get("text", raw: true) == "abc"
check "gat", c.gat("rb", 100) == 4 && c.touch("rb", 100) && c.touch("nothing", 100).nil?
check "delete", c.delete("rb") && c.get("rb").nil? && c.delete("rb").nil?
large = "x\r\n\x80".b * 220_000
check "large", c.set("large", large, 0, raw: true) && c.get("large", raw: true).b == large
check "stats", c.stats.values.first["pid"] && c.version.values.first =~ /\A\d+\./ && c.reset_stats
if username
  stranger = Dalli::Client.new(address, options.merge(password: "wrong"))
  begin
    stranger.get("n")
    abort "a wrong password"
  rescue Dalli::DalliError
  end
end
check "flush", c.flush && c.get("m7").nil?
c.close
