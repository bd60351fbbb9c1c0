// A provider of OpenID Connect that others wrote and had certified, with four clients of ours: `console` signs people
// in with a code and PKCE, as does `editor`, `cli` with a code on another device, `robot` is a program with a secret.
// Arguments: the port, the audience, the address that codes go back to, for how many seconds tokens are valid, and
// addresses of MCP servers, whose clients may register themselves. POST /test/rotate gives it another key.
import { createServer } from 'node:http';
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { Provider, errors } from 'oidc-provider';

const [port, audience, redirect, seconds, ...servers] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const store = new Map();
const names = new Map();

// What was granted outlives another key: all adapters keep it in one place.
class Storage {
  constructor(kind) { this.kind = kind; }
  path(id) { return `${this.kind}/${id}`; }
  async upsert(id, value) {
    store.set(this.path(id), value);
    if (value.uid) names.set(`uid/${value.uid}`, id);
    if (value.userCode) names.set(`code/${value.userCode}`, id);
  }
  async find(id) { return store.get(this.path(id)); }
  async findByUid(uid) { return this.find(names.get(`uid/${uid}`)); }
  async findByUserCode(code) { return this.find(names.get(`code/${code}`)); }
  async consume(id) { store.get(this.path(id)).consumed = Math.floor(Date.now() / 1000); }
  async destroy(id) { store.delete(this.path(id)); }
  async revokeByGrantId(grant) {
    for (const [path, value] of store) if (value?.grantId === grant) store.delete(path);
  }
}

function newKey() {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), use: 'sig', alg: 'ES256' };
}

const signed = { id_token_signed_response_alg: 'ES256' };
const open = { token_endpoint_auth_method: 'none', application_type: 'native', ...signed };
const clients = [
  { client_id: 'console', ...open, redirect_uris: [redirect], grant_types: ['authorization_code', 'refresh_token'] },
  { client_id: 'editor', ...open, redirect_uris: [redirect], grant_types: ['authorization_code', 'refresh_token'] },
  { client_id: 'cli', ...open, redirect_uris: [], response_types: [],
    grant_types: ['urn:ietf:params:oauth:grant-type:device_code', 'refresh_token'] },
  { client_id: 'robot', client_secret: 'robot-secret', redirect_uris: [], response_types: [],
    grant_types: ['client_credentials'], ...signed },
];

const enabled = { enabled: true };
function makeProvider(keys) {
  return new Provider(issuer, {
    adapter: Storage, clients, jwks: { keys }, cookies: { keys: ['only for tests'] },
    clientBasedCORS: () => true, pkce: { required: () => true }, rotateRefreshToken: true, scopes: ['openid', 'offline_access', 'moot:read', 'moot:call'], clientDefaults: signed,
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    extraTokenClaims: (_, token) => ({ preferred_username: token.accountId, groups: ['staff'] }),
    features: {
      devInteractions: enabled, deviceFlow: enabled, clientCredentials: enabled, revocation: enabled, registration: { enabled: servers.length > 0 },
      resourceIndicators: {
        ...enabled, defaultResource: () => audience, useGrantedResource: () => true,
        getResourceServerInfo: (_, resource) => {
          if (resource !== audience && !servers.includes(resource)) throw new errors.InvalidTarget();
          const scope = resource === audience ? '' : 'moot:read moot:call';
          return { scope, audience: resource, accessTokenTTL: Number(seconds), accessTokenFormat: 'jwt', jwt: { sign: { alg: 'ES256' } } };
        },
      },
    },
  });
}

let keys = [newKey()];
let answer = makeProvider(keys).callback();
createServer((request, response) => {
  if (request.url === '/test/rotate') {
    keys = [newKey()];
    answer = makeProvider(keys).callback();
    response.end();
  } else {
    answer(request, response);
  }
}).listen(Number(port), '127.0.0.1', () => console.log('ready', issuer));
