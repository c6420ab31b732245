/**
 * The Lua scripts by which a node enters a partition, says that it has reported all, leaves, and says that
 * the server's clock was set. See valkey-scripts.ts for what all scripts have in common. Main thread.
 *
 * Must hold: an empty server that a node remembers has lost its data: nothing is granted for a QUARANTINE_MS.
 * Test: unit/sharing/valkey-loss (restarted empty: nothing for a window).
 */
import { scriptOf } from './valkey-client.js';
import { FORMAT, LUA_PRELUDE } from './valkey-lua.js';
import { MARKS_LUA } from './valkey-marks.js';
import { PAGE_SCOPES } from './valkey-scripts.js';

/**
 * A node enters the partition.
 *
 *     KEYS     meta, nodes, awaited, held
 *     ARGV[3]  [incarnation, time, remembered epoch or '', new epoch, equal shares, known places,
 *              heard [number, server, how long ago (ms)], promised [term, server]]
 *     reply    [status, now ms, epoch, whether the host has reported, scopes to void]
 *              status: ok; evicts, with the policy in place of the epoch; former, with the place of a node of
 *              a former version there; term, with [term, server] at the end
 */
export const ENTER_SCRIPT = scriptOf(`${LUA_PRELUDE}${MARKS_LUA}
local incarnation, remembered, known, heard = head[1], head[3], head[6], head[7]
local now = now_ms(head[2], KEYS[1])
-- If what was counted were evicted, limits would be granted twice.
local policy = info_of('memory', 'maxmemory_policy')
if policy ~= 'noeviction' and info_of('memory', 'maxmemory') ~= '0' then return pack({'evicts', now, policy}) end
local s = state_of(now)
if not s then
  -- Empty: a new installation, unless this host knows better.
  local is_new = remembered == ''
  s = {epoch = head[4], run = server_id(), term = head[8][1] + 1, till = is_new and 0 or now + QUARANTINE,
    lost = is_new and 0 or now, places = 0, checking = 0, grown = false, witnessed = 0}
  call('HSET', KEYS[1], 'epoch', s.epoch, 'run', s.run, 'checked', now, 'term', s.term, 'born', now,
    'until', s.till, 'lost', s.lost, 'fresh', is_new and '1' or '0')
end
-- Nodes of a former version count stocks elsewhere: all of them must have ended. Their counts are taken over.
if call('HGET', KEYS[1], 'format') ~= '${FORMAT}' then
  local all = call('HGETALL', KEYS[2])
  for i = 1, #all, 2 do
    if all[i] ~= place and now - cmsgpack.unpack(all[i + 1])[3] < SILENT then
      return pack({'former', now, all[i]})
    end
  end
  call('HSET', KEYS[1], 'format', '${FORMAT}')
end
if not has_promised(s, now, head[8]) then return pack({'term', now, s.epoch, false, {s.term, s.run}}) end
-- A host that was forgotten and comes back is known again.
local was_gone = call('HDEL', KEYS[1], 'gone:' .. host) == 1
if remembered ~= '' and remembered ~= s.epoch and call('HGET', KEYS[1], 'fresh') == '1' then
  -- New hosts took it for a new server, and it was not.
  s.lost, s.till = now, now + QUARANTINE
  call('HSET', KEYS[1], 'until', s.till, 'lost', now, 'fresh', '0')
end
if remembered ~= '' and remembered ~= s.epoch and s.lost > 0 then
  for _, other in ipairs(known) do
    local n = node_of(KEYS[2], other)
    if not is_gone(KEYS[1], other) and (not n or n[4] ~= s.epoch) then call('SADD', KEYS[3], other) end
  end
end
local node = node_of(KEYS[2], place)
local is_same = node and node[1] == incarnation
local is_lacking = heard[1] > 0 and not was_gone
if is_same then is_lacking = not has_heard(node, heard) elseif node and node[13] == incarnation then is_lacking = false end
-- Nobody knows what a life heard that has ended while the server was away.
local is_mute = s.checking > 0 and not is_same and call('SISMEMBER', KEYS[3], place) == 1
local is_losing = s.checking == 0 and (now < s.till or call('SCARD', KEYS[3]) > 0)
if is_mute or (is_lacking and not is_losing) then
  lose(s, now, now + QUARANTINE)
elseif is_lacking then
  -- It may have been granted permits elsewhere until then.
  s.till = max(s.till, now + QUARANTINE - heard[3])
  call('HSET', KEYS[1], 'until', s.till)
end
local back = node and node[5] or 0
if node and head[5] > 0 and now - node[3] > SILENT then back = now end
if is_same then
  node[3], node[5] = now, back
else
  local former, version, joined = node and node[1] or '', node and node[11] or 0, node and node[12] or 0
  if not node then
    s.places = call('HINCRBY', KEYS[1], 'places', 1)
    -- The first of an empty list: if its join is lost, the list is empty, which is a loss. As an awaited one.
    local is_known = call('HLEN', KEYS[2]) == 0 or call('SISMEMBER', KEYS[3], place) == 1
    if s.grown and not is_known then version, joined = s.places, now end
  end
  node = {incarnation, 0, now, '', back, 1, head[5], 0, '', 0, version, joined, former, 0}
end
node[14] = 0
-- What the node reports from now on takes the place of what it has heard.
if is_lacking or not is_same then node[8], node[9], node[10] = heard[1], heard[2], 0 end
call('HSET', KEYS[2], place, pack(node))
local void = {}
if node[6] == 1 then void = call('SRANDMEMBER', KEYS[4], ${PAGE_SCOPES}) end
return pack({'ok', now, s.epoch, call('HGET', KEYS[1], 'host:' .. host) == s.epoch, void})
`);

/**
 * Says that all has been reported.
 *
 *     KEYS     meta, nodes, awaited
 *     ARGV[3]  [incarnation, epoch, pages reported since the node entered]
 *     reply    [version of the list of nodes, places]; false if another life or another epoch has come, or
 *              another server that has not all of the pages
 */
export const REPORTED_SCRIPT = scriptOf(`${LUA_PRELUDE}
local node = own_node()
if not node or node[14] ~= head[3] or call('HGET', KEYS[1], 'epoch') ~= head[2] then return pack(false) end
node[4], node[6] = head[2], 0
call('HSET', KEYS[2], place, pack(node))
call('HSET', KEYS[1], 'host:' .. host, head[2])
call('SREM', KEYS[3], place)
return pack({tonumber(call('HGET', KEYS[1], 'places') or 0), call('HKEYS', KEYS[2])})
`);

/**
 * Ends the node. KEYS: meta, nodes, awaited. ARGV[3]: [incarnation, whether it stays awaited if it is].
 * Reply: whether this life was known, and has ended.
 */
export const LEAVE_SCRIPT = scriptOf(`${LUA_PRELUDE}
if not own_node() or (head[2] and call('SISMEMBER', KEYS[3], place) == 1) then return pack(false) end
call('HDEL', KEYS[2], place)
call('HINCRBY', KEYS[1], 'places', 1)
call('SREM', KEYS[3], place)
return pack(true)
`);

/** The server's clock was set forward: nothing is granted for a window. KEYS: meta. ARGV[3]: [time]. */
export const DISTRUST_SCRIPT = scriptOf(`${LUA_PRELUDE}
call('HSET', KEYS[1], 'until', now_ms(head[1], KEYS[1]) + QUARANTINE)
return pack(true)
`);
