// memcached-elasticache behind a pipe, as test/e2e/testdata/library.py has it. The library asks the
// address in the argument every second; its default is every minute. It connects as often as by default, since the name of
// a member that joins may not be known yet, and keeps a connection longer: an answer after `idle` is lost.
const Memcached = require('memcached-elasticache');

const client = new Memcached(process.argv[2], {
  autoDiscoverInterval: 1000, timeout: 60000, idle: 60000, retry: 500, failures: 1000,
});
client.on('autoDiscoverFailure', (err) => process.stderr.write(`${err}\n`));
// Until it has the list, it takes the address for a member's.
client.once('autoDiscover', () => {
  const requests = require('readline').createInterface({ input: process.stdin });
  const answer = (err, value) =>
    process.stdout.write(`${JSON.stringify(err ? { error: String(err) } : { value: value === undefined ? null : value })}\n`);
  requests.on('line', (line) => {
    const r = JSON.parse(line);
    switch (r.do) {
      case 'get': return client.get(r.key, answer);
      case 'set': return client.set(r.key, r.value, 0, (err) => answer(err, null));
      default: return answer('it only gets and sets');
    }
  });
  requests.on('close', () => process.exit(0));
});
