/**
 * The scripts of an operator's look at the hosts of one partition, and of forgetting one. Main thread. The keys are those of
 * valkey-lua.ts: meta, nodes, awaited, held of the place; ARGV[1] is the place, ARGV[2] its host.
 */
import { scriptOf } from './valkey-client.js';
import { LUA_PRELUDE } from './valkey-lua.js';
import { PAGE_SUBJECTS } from './valkey-node-scripts.js';

/** ARGV[3]: packed [time instead of the server's or 0]. Answer: packed [now, [place, last seen] of each node, places that are awaited]. */
export const HOSTS_SCRIPT = scriptOf(`${LUA_PRELUDE}
local rows, all = {}, call('HGETALL', KEYS[2])
for i = 1, #all, 2 do rows[#rows + 1] = {all[i], cmsgpack.unpack(all[i + 1])[3]} end
return pack({now_ms(cmsgpack.unpack(ARGV[3])[1]), rows, call('SMEMBERS', KEYS[3])})
`);

/**
 * Makes a last life of a place that is silent, whose leases can then be freed, and notes that its host is gone. ARGV[3]: packed
 * [incarnation, time instead of the server's or 0]. Answer: packed [status, ms, subjects to free]. Status: ok, alive (seen so long ago),
 * early (after a loss it has so long to come back).
 */
export const FORGET_SCRIPT = scriptOf(`${LUA_PRELUDE}
local place, host = ARGV[1], ARGV[2]
local head = cmsgpack.unpack(ARGV[3])
local now = now_ms(head[2])
local node = node_of(KEYS[2], place)
if node and now - node[3] < SILENT then return pack({'alive', now - node[3], {}}) end
local till = tonumber(call('HGET', KEYS[1], 'until') or 0)
if now < till then return pack({'early', till - now, {}}) end
if not node then call('HINCRBY', KEYS[1], 'places', 1) end
call('HSET', KEYS[2], place, pack({head[1], 0, node and node[3] or 0, '', 0, 1, 0}))
call('HSET', KEYS[1], 'gone:' .. host, now)
return pack({'ok', 0, call('SRANDMEMBER', KEYS[4], ${PAGE_SUBJECTS})})
`);
