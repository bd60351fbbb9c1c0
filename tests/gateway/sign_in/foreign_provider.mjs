// A provider of OpenID Connect that others wrote and had certified, with five clients of ours: `console` signs people
// in with a code and PKCE, as do `page` and `editor`, `cli` with a code on another device, `robot` is a program with a
// secret. Argument: JSON with the port, the audience, the address that codes go back to, for how many seconds tokens are
// valid, and
//   servers   addresses of MCP servers, whose clients may register themselves
//   pairwise  whether everybody has another `sub` at each client; `oid` is the same everywhere
//   logout    the address that is told when somebody's session ends: of `console` with `sub` alone, of `editor` with
//             `sid` as well, and of `page` with the `sid` that its access tokens have, too
//   offline   whether refresh tokens need `offline_access`, and then outlive the session
// POST /test/rotate gives it another key.
import { createServer } from 'node:http';
import { createHash, generateKeyPairSync, randomUUID } from 'node:crypto';
import { Provider, errors } from 'oidc-provider';

const { port, audience, redirect, seconds, servers, pairwise, logout, offline } = JSON.parse(process.argv[2]);
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
const subjects = pairwise ? { subject_type: 'pairwise' } : {};
const forPeople = { ...open, ...subjects, redirect_uris: [redirect], grant_types: ['authorization_code', 'refresh_token'] };
const told = logout ? { backchannel_logout_uri: logout } : {};
const toldSession = logout ? { ...told, backchannel_logout_session_required: true } : {};
const clients = [
  { client_id: 'console', ...forPeople, ...told },
  { client_id: 'page', ...forPeople, ...toldSession },
  { client_id: 'editor', ...forPeople, ...toldSession },
  // A `sub` of its own is for clients with an address.
  ...(pairwise ? [] : [
    { client_id: 'cli', ...open, redirect_uris: [], response_types: [],
      grant_types: ['urn:ietf:params:oauth:grant-type:device_code', 'refresh_token'] },
    { client_id: 'robot', client_secret: 'robot-secret', redirect_uris: [], response_types: [],
      grant_types: ['client_credentials'], ...signed },
  ]),
];

const hashed = (...words) => createHash('sha256').update(words.join(' ')).digest('hex').slice(0, 32);

function claimsOf(context, token) {
  const claims = { preferred_username: token.accountId, groups: ['staff'] };
  if (pairwise) claims.oid = hashed('oid', token.accountId);
  const { AuthorizationCode: code, RefreshToken: refresh } = context.oidc.entities;
  const sid = code?.sid ?? refresh?.sid;
  return token.clientId === 'page' && sid ? { ...claims, sid } : claims;
}

const enabled = { enabled: true };
function makeProvider(keys) {
  return new Provider(issuer, {
    adapter: Storage, clients, jwks: { keys }, cookies: { keys: ['only for tests'] },
    clientBasedCORS: () => true, pkce: { required: () => true }, rotateRefreshToken: true, clientDefaults: signed,
    scopes: ['openid', ...(offline ? ['offline_access'] : []), 'moot:read', 'moot:call'],
    issueRefreshToken: async (_, client, source) =>
      client.grantTypeAllowed('refresh_token') && (!offline || source.scopes.has('offline_access')),
    subjectTypes: pairwise ? ['pairwise'] : ['public'],
    // Each application is a sector of its own.
    pairwiseIdentifier: (_, account, client) => hashed(client.clientId, account),
    // Without its guard against addresses of this machine.
    fetch: (address, { dispatcher, ...options }) => fetch(address, options),
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    extraTokenClaims: claimsOf,
    features: {
      devInteractions: enabled, deviceFlow: enabled, clientCredentials: enabled, revocation: enabled, registration: { enabled: servers.length > 0 },
      backchannelLogout: { enabled: Boolean(logout) },
      resourceIndicators: {
        ...enabled, defaultResource: () => audience, useGrantedResource: () => true,
        getResourceServerInfo: (_, resource) => {
          if (resource !== audience && !servers.includes(resource)) throw new errors.InvalidTarget();
          const scope = resource === audience ? '' : 'moot:read moot:call';
          return { scope, audience: resource, accessTokenTTL: seconds, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'ES256' } } };
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
}).listen(port, '127.0.0.1', () => console.log('ready', issuer));
