// The paths of `testbed::http2`, by Node.js: DIRECTORY PORT STREAMS WINDOW TABLE, the last three empty for the defaults.
'use strict';
const fs = require('fs');
const http2 = require('http2');

const [directory, port, streams, window, table] = process.argv.slice(2);
const LARGE_BYTES = 300000;

const settings = {};
if (streams) settings.maxConcurrentStreams = Number(streams);
if (window) settings.initialWindowSize = Number(window);
if (table) settings.headerTableSize = Number(table);

const read = (name) => fs.readFileSync(`${directory}/${name}`);
const server = http2.createSecureServer({ key: read('key.pem'), cert: read('certificate.pem'), settings });

server.on('session', (session) => session.on('error', () => {}));

server.on('stream', (stream, headers) => {
  stream.on('error', () => {});
  const path = headers[':path'];
  fs.writeSync(1, `request: ${path}\n`);
  const echo = { ':status': 200, 'x-path': path };
  for (const name of ['x-number', 'x-token']) {
    if (headers[name] !== undefined) echo[name] = headers[name];
  }
  if (path.startsWith('/early/')) {
    stream.respond(echo, { endStream: true });
    return;
  }
  let length = 0;
  let hash = 0x811c9dc5;
  stream.on('data', (piece) => {
    length += piece.length;
    for (const byte of piece) hash = Math.imul(hash ^ byte, 0x01000193);
  });
  stream.on('end', () => {
    echo['x-length'] = length;
    echo['x-hash'] = (hash >>> 0).toString(16).padStart(8, '0');
    answer(stream, path, echo);
  });
});

function answer(stream, path, echo) {
  if (stream.destroyed) return;
  if (path.startsWith('/held/')) return;
  if (path.startsWith('/large/')) {
    stream.respond({ ...echo, ':status': 400 });
    stream.end(Buffer.alloc(LARGE_BYTES, 'large '));
  } else if (path.startsWith('/trailers/')) {
    stream.additionalHeaders({ ':status': 103, link: '</style.css>; rel=preload' });
    stream.additionalHeaders({ ':status': 103, link: '</script.js>; rel=preload' });
    stream.respond({ ...echo, ':status': 400 }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'x-end': 'yes' }));
    stream.end(path);
  } else {
    stream.respond(echo, { endStream: true });
  }
}

server.listen(Number(port), '127.0.0.1');
