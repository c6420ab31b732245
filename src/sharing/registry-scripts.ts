/**
 * What the server does with the registry that hosts share: each a whole, so that a registry has one history. Main thread.
 *
 * A row is two texts: which it is, `["accounts","acct_…"]`, and its value as JSON, or false where it is taken out.
 */
import { scriptOf } from './valkey-client.js';

/**
 * Changes that the server keeps for those who follow: a host that was away for more takes all rows anew, which it does within
 * seconds, so there is no need for many.
 */
export const LOG_ENTRIES_MAX = 10_000;

/** Changes of one reply: some MB at most, of bulk creations. */
export const ENTRIES_PER_PULL = 50;

/**
 * Appends a change where it follows the last one. KEYS: state, log, rows. ARGV: epoch, version and id of the last change, id of
 * this one, rows. Replies 'done', or 'behind' where others were quicker, or 'other' where the server has another registry, or none.
 */
export const APPEND = scriptOf(`
local state = redis.call('HMGET', KEYS[1], 'epoch', 'version', 'last')
if state[1] ~= ARGV[1] then return 'other' end
if state[2] ~= ARGV[2] or state[3] ~= ARGV[3] then return 'behind' end
local version = string.format('%d', tonumber(state[2]) + 1)
redis.call('XADD', KEYS[2], 'MAXLEN', '~', '${LOG_ENTRIES_MAX}', version .. '-0', 'id', ARGV[4], 'after', ARGV[3], 'rows', ARGV[5])
redis.call('HSET', KEYS[1], 'version', version, 'last', ARGV[4])
for _, row in ipairs(cjson.decode(ARGV[5])) do
  if row[2] then redis.call('HSET', KEYS[3], row[1], row[2]) else redis.call('HDEL', KEYS[3], row[1]) end
end
return 'done'
`);

/**
 * What came after a version. KEYS: state, log of the asker's epoch. ARGV: epoch and version of the asker. Replies epoch, version,
 * id of the last change, history, and the changes where the epoch is the asker's; nothing where there is no registry.
 */
export const PULL = scriptOf(`
local state = redis.call('HMGET', KEYS[1], 'epoch', 'version', 'last', 'history')
if not state[1] then return {} end
local changes = {}
if state[1] == ARGV[1] and tonumber(state[2]) > tonumber(ARGV[2]) then
  local first = string.format('%d', tonumber(ARGV[2]) + 1)
  changes = redis.call('XRANGE', KEYS[2], first .. '-0', '+', 'COUNT', '${ENTRIES_PER_PULL}')
end
return {state[1], state[2], state[3], state[4], changes}
`);

/**
 * Ends a seeding: the rows are there, now they count. KEYS: state, seeder, claims. ARGV: who seeds, epoch and version that the
 * server had (empty for none), then epoch, version, last id and history of what it has from now on.
 */
export const FINISH_SEED = scriptOf(`
local state = redis.call('HMGET', KEYS[1], 'epoch', 'version')
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 'late' end
if (state[1] or '') ~= ARGV[2] or (state[2] or '') ~= ARGV[3] then return 'other' end
redis.call('HSET', KEYS[1], 'epoch', ARGV[4], 'version', ARGV[5], 'last', ARGV[6], 'history', ARGV[7])
redis.call('DEL', KEYS[2], KEYS[3])
return 'done'
`);

/**
 * Takes part in finding the newest copy. KEYS: claims, seeder. ARGV: host, rank of its copy, milliseconds after which claims are
 * forgotten, whether it wants to seed ('1'), milliseconds that a batch of rows may take. Replies the time in ms, whether it may
 * seed, and all claims as `rank at-ms`, by host.
 */
export const CLAIM = scriptOf(`
local time = redis.call('TIME')
local now = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. now)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local may = 'no'
local holder = redis.call('GET', KEYS[2])
if ARGV[4] == '1' and (not holder or holder == ARGV[1]) then
  redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[5])
  may = 'yes'
end
return {now, may, redis.call('HGETALL', KEYS[1])}
`);
