// peer.py's protocol, answered by memjs. NODE_PATH has to lead to it.
const memjs = require('memjs')
const lines = require('fs').readFileSync(0, 'latin1').split('\n')
const end = lines.indexOf('')
const keys = lines.slice(end + 1).filter(Boolean).map(line => Buffer.from(line, 'base64').toString('utf8'))
for (const list of lines.slice(1, end)) {
  const [from, to, ...servers] = list.split(' ')
  const client = memjs.Client.create(servers.join(','))
  const index = new Map(client.servers.map((server, i) => [server, i]))
  console.log(keys.slice(from, to).map(key => index.get(client.server(key))).join(' '))
}
