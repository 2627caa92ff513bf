// An application of memjs, which speaks the binary protocol: memjs.js MODULES HOST:PORT [USER PASSWORD].
// It ends with 0 if what it stores is what it reads.
const assert = require('assert');
const [modules, address, username, password] = process.argv.slice(2);
const memjs = require(`${modules}/memjs`);

const refused = async (promise) => {
  const value = await promise.catch(() => 'refused');
  assert(value === 'refused' || value === false || value === null, String(value));
};

(async () => {
  const c = memjs.Client.create(address, { timeout: 20, conntimeout: 20, retries: 1, username, password });
  const text = async (key) => { const { value } = await c.get(key); return value && value.toString(); };
  assert(await c.set('js', 'a', { expires: 100 }) && await text('js') === 'a');
  const keys = Array.from({ length: 300 }, (_, i) => `m${i}`);
  await Promise.all(keys.map((key, i) => c.set(key, `v${i}`.repeat(i))));
  (await Promise.all(keys.map(text))).forEach((value, i) => assert.strictEqual(value || '', `v${i}`.repeat(i)));
  assert.strictEqual(await text('nothing'), null);
  assert.strictEqual(await c.add('js', 'b'), false);
  assert(await c.replace('js', 'c') && await c.append('js', 'd') && await text('js') === 'cd');
  assert.strictEqual(await c.replace('nothing', 'c'), false);
  assert.strictEqual((await c.increment('n', 5, { initial: 7 })).value, 7);
  assert.strictEqual((await c.increment('n', 5, { initial: 7 })).value, 12);
  assert.strictEqual((await c.decrement('n', 2, { initial: 7 })).value, 10);
  await refused(c.increment('js', 1, { initial: 7 }));
  assert(await c.touch('js', 100) && await c.delete('js') && await text('js') === null);
  assert.strictEqual(await c.delete('js'), false);
  const key = 'a key of two lines\n é';
  assert(await c.set(key, key) && await text(key) === key);
  const large = Buffer.alloc(900000, '\r\n\x80x');
  assert(await c.set('large', large) && large.equals((await c.get('large')).value));
  const stats = await new Promise((resolve, reject) => c.stats((err, _, all) => (err ? reject(err) : resolve(all))));
  assert(stats.pid, JSON.stringify(stats));
  if (username) {
    const stranger = memjs.Client.create(address, { timeout: 20, conntimeout: 20, retries: 1, username, password: 'wrong' });
    await assert.rejects(stranger.get('n'));
    stranger.close();
  }
  assert((await c.flush()) && await text('m7') === null);
  c.quit();
})().catch((err) => { console.error(err); process.exit(1); });
