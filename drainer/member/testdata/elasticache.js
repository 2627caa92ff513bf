// A peer of TestARealClientFollows: memcached-elasticache (npm install memcached-elasticache,
// then NODE_PATH=node_modules). It asks every second; its default is every minute.
const Memcached = require('memcached-elasticache');
const client = new Memcached(process.argv[2], { autoDiscoverInterval: 1000 });
client.on('autoDiscoverFailure', (err) => process.stderr.write(`${err}\n`));
client.once('autoDiscover', () => {
  const keys = require('readline').createInterface({ input: process.stdin });
  keys.on('line', (key) => client.set(key, '1', 0, (err) => process.stdout.write(err ? `${err}\n` : 'stored\n')));
  keys.on('close', () => process.exit(0));
});
