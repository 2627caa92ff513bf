# peer.py's protocol, answered by Dalli.
require 'base64'
require 'dalli'

lines = $stdin.binmode.read.split("\n", -1)
ending = lines.index('')
keys = lines[(ending + 1)..].reject(&:empty?).map { |line| Base64.decode64(line) }

# Stores the keys in the running servers, under a namespace.
def store(namespace, servers, keys)
  client = Dalli::Client.new(servers, namespace: namespace)
  keys.each { |key| client.set(key.force_encoding('UTF-8'), '1', 0, raw: true) or raise "not stored: #{key}" }
end

# Prints the index of each key's server.
def ask(servers, keys)
  servers = servers.map { |s| Dalli::Protocol::Binary.new(s) }
  # No server is asked, so each is as good as connected.
  servers.each { |s| s.define_singleton_method(:alive?) { true } }
  index = servers.each_with_index.to_h.compare_by_identity
  ring = Dalli::Ring.new(servers, threadsafe: false)
  puts keys.map { |key| index[ring.server_for_key(key)] }.join(' ')
end

lines[1...ending].each do |line|
  from, to, *servers = line.split
  some = keys[from.to_i...to.to_i]
  ARGV[0] == 'store' ? store(ARGV[1], servers, some) : ask(servers, some)
end
