/**
 * The Lua scripts for the life of a node at one partition of the server: it enters, says that it has reported
 * all, leaves, or says that the server's clock was set forward. valkey-partition.ts runs all four;
 * host-directory.ts runs LEAVE_SCRIPT for a host that an operator forgets. The server runs each script
 * atomically; this file makes their text on the main thread.
 *
 * valkey-lua.ts says what KEYS and ARGV are and what the keys hold. Of its LUA_PRELUDE are `head`, `place`,
 * `host`, the constants (SILENT, QUARANTINE), the numbers of a node's fields (INCARNATION to PAGES), and
 * `node_in`, `node_of`, `own_node`, `is_gone`, `info_of` and `now_ms`. Of valkey-marks.ts are `state_of`,
 * `server_id`, `has_promised`, `has_heard` and `lose`; there is also what a term, a mark and a witness are.
 *
 * A life _enters_, as often as it has to. A place _joins_ when it comes onto the list of nodes.
 *
 * Must hold: a server that was emptied grants nothing for QUARANTINE_MS once a host enters that remembers an
 * epoch of the server, nor before all places that this host remembers have reported
 * (test/unit/sharing/valkey-loss.test.ts). A server that lacks anything a life has heard begins a new epoch,
 * unless it awaits reports of a loss already (test/unit/sharing/valkey-blink.test.ts, valkey-marks.test.ts).
 * Nodes of another format, or of another number of partitions, are not there at the same time
 * (test/unit/sharing/valkey-coordinator.test.ts).
 */
import { scriptOf } from './valkey-client.js';
import { FORMAT, LUA_PRELUDE } from './valkey-lua.js';
import { MARKS_LUA } from './valkey-marks.js';
import { PAGE_SCOPES } from './valkey-scripts.js';

/**
 * A life of a node enters the partition. ValkeyPartition runs it when a life begins, and again if the server
 * replies that it has lost data or does not know the life.
 *
 *     KEYS     meta, nodes, awaited, held
 *     ARGV[3]  [incarnation, time, epoch that the host remembers or '', name of the epoch that begins if the
 *              server is empty, equal shares, places that the host remembers, heard [number, server, how long
 *              ago (ms)], promised [term, server], number of partitions]. `heard` is the last reply that this
 *              life has heard; number 0: none
 *     reply    [status, now ms, epoch, whether the host has reported what it spent, scopes to free]
 *              status: ok; evicts, with the policy in place of the epoch; former, with the place of a node of
 *              a former version in place of the epoch; parted, with the place of a node of another number of
 *              partitions and that number in place of the scopes; term, with [term, server] there
 *
 * What the server may have lost of what this life, or the life before it, has heard; and what follows:
 *
 *     nothing   This life has heard nothing yet, or the server has its mark, or the server knows that this
 *               life was replaced or forgotten (it may still run, and enters again).
 *     lacking   This life has heard a reply, and the server lacks its mark: the server lost what it granted
 *               then. If the server knows of no loss, this is one: `lose`. If it awaits reports already, the
 *               quarantine is extended, because permits of that reply may weigh for longer.
 *     mute      The server checks whether it has lost something and awaits the mark of this place, but
 *               another life of the place has come. What the former life heard is not known: `lose`.
 *
 * `lose` begins a new epoch, whose name it makes itself: every place is awaited, and nothing is granted for
 * QUARANTINE.
 *
 * The steps: check that the server evicts nothing; set up an empty server; check the format, the number of
 * partitions, then the promise; begin the quarantine that a host without memory did not begin; await the
 * places that the host knows; decide what is lost; write the node; reply what is to be freed. Checks may
 * change the state of the partition, but the node is not written before all of them have passed.
 */
export const ENTER_SCRIPT = scriptOf(`${LUA_PRELUDE}${MARKS_LUA}
local incarnation, time, remembered, new_epoch = head[1], head[2], head[3], head[4]
local equal_shares, known_places, heard, promised, partitions = head[5], head[6], head[7], head[8], head[9]
local heard_number, heard_server, heard_ago = heard[1], heard[2], heard[3]
local now = now_ms(time, KEYS[1])
-- If what was counted were evicted, limits would be granted twice.
local policy = info_of('memory', 'maxmemory_policy')
if policy ~= 'noeviction' and info_of('memory', 'maxmemory') ~= '0' then
  return pack({'evicts', now, policy})
end
-- The state of the partition: fields of T:meta, which valkey-lua.ts explains. s.places is not a list but the
-- version of the list of nodes, and s.till is the field until, which is a word of Lua.
local s = state_of(now)
if not s then
  -- Empty. A host that remembers no epoch takes it for a new server, which may grant at once. A host that
  -- remembers one knows that the server has lost its data.
  local is_new = remembered == ''
  s = {epoch = new_epoch, run = server_id(), term = promised[1] + 1, till = is_new and 0 or now + QUARANTINE,
    lost = is_new and 0 or now, places = 0, checking = 0, grown = false, witnessed = 0}
  call('HSET', KEYS[1], 'epoch', s.epoch, 'run', s.run, 'checked', now, 'term', s.term, 'born', now,
    'until', s.till, 'lost', s.lost, 'fresh', is_new and '1' or '0')
end
-- The place of another node that was heard lately; nil if there is none.
local function heard_other()
  local all = call('HGETALL', KEYS[2])
  for i = 1, #all, 2 do
    local n = node_in(all[i + 1])
    if all[i] ~= place and n and now - n[HEARD_AT] < SILENT then return all[i] end
  end
end
-- Nodes of a former version count stocks elsewhere: all of them must have ended. Their counts are taken over.
if call('HGET', KEYS[1], 'format') ~= '${FORMAT}' then
  local other = heard_other()
  if other then return pack({'former', now, other}) end
  call('HSET', KEYS[1], 'format', '${FORMAT}')
end
-- Nodes of another number of partitions have most scopes in other partitions, where their limits are granted
-- once more: all of these nodes must have ended. What hosts have spent of the scopes that are here from now
-- on is in other partitions, so hosts have to report it. (A former version did not write the number.)
local partitions_before = tonumber(call('HGET', KEYS[1], 'partitions'))
if partitions_before ~= partitions then
  local other = partitions_before and heard_other()
  if other then return pack({'parted', now, other, false, partitions_before}) end
  call('HSET', KEYS[1], 'partitions', partitions)
  if partitions_before then lose(s, now, now + QUARANTINE) end
end
if not has_promised(s, now, promised) then return pack({'term', now, s.epoch, false, {s.term, s.run}}) end
-- A host that an operator forgot, and that comes back, is known again. What it held was freed when forgotten.
local was_gone = call('HDEL', KEYS[1], 'gone:' .. host) == 1
if remembered ~= '' and remembered ~= s.epoch and call('HGET', KEYS[1], 'fresh') == '1' then
  -- A host without memory came first after a loss and took the server for a new one (fresh = 1), so there
  -- was no quarantine. This host knows another epoch: the quarantine begins now.
  s.lost, s.till = now, now + QUARANTINE
  call('HSET', KEYS[1], 'until', s.till, 'lost', now, 'fresh', '0')
end
-- Data was lost, maybe also the list of nodes. The host names the places it knows. Each that has not reported
-- in this epoch becomes awaited: the server grants nothing before all awaited places have reported.
if remembered ~= '' and remembered ~= s.epoch and s.lost > 0 then
  for _, other in ipairs(known_places) do
    local n = node_of(KEYS[2], other)
    if not is_gone(KEYS[1], other) and (not n or n[EPOCH] ~= s.epoch) then call('SADD', KEYS[3], other) end
  end
end
local node = node_of(KEYS[2], place)
local is_same = node and node[INCARNATION] == incarnation
local is_replaced = node and node[FORMER] == incarnation
-- Which case of the table it is. If the server has no record of this life, it lacks all that the life heard.
local is_lacking = heard_number > 0 and not was_gone
if is_same then is_lacking = not has_heard(node, heard) elseif is_replaced then is_lacking = false end
local is_mute = s.checking > 0 and not is_same and call('SISMEMBER', KEYS[3], place) == 1
-- Whether a loss is being mended already: in a quarantine, or while places have to report.
local is_mending = s.checking == 0 and (now < s.till or call('SCARD', KEYS[3]) > 0)
if is_mute or (is_lacking and not is_mending) then
  lose(s, now, now + QUARANTINE)
elseif is_lacking then
  -- Until its last reply, heard_ago ms ago, this life may have been granted permits by another server.
  s.till = max(s.till, now + QUARANTINE - heard_ago)
  call('HSET', KEYS[1], 'until', s.till)
end
-- A node that was silent comes back now. Its equal share is still held back for a QUARANTINE (held_back of
-- EXCHANGE_SCRIPT), because the node may have used it meanwhile.
local back = node and node[BACK] or 0
if node and equal_shares > 0 and now - node[HEARD_AT] > SILENT then back = now end
if is_same then
  node[HEARD_AT], node[BACK] = now, back
else
  -- The place joins, or has a node of an earlier life, whose join this life takes over.
  local former, join_version, joined = '', 0, 0
  if node then former, join_version, joined = node[INCARNATION], node[JOIN_VERSION], node[JOINED] end
  if not node then
    s.places = call('HINCRBY', KEYS[1], 'places', 1)
    -- A new place is granted nothing until another node has heard of its join (a witness), or a server that
    -- lost the join would not be noticed. Two kinds of places need no witness: if the join of the first place
    -- of an empty list is lost, the list is empty again, which is a loss; and an awaited place is still
    -- awaited by a server without its join.
    local needs_witness = call('HLEN', KEYS[2]) > 0 and call('SISMEMBER', KEYS[3], place) == 0
    if s.grown and needs_witness then join_version, joined = s.places, now end
  end
  -- The leases of earlier lives are still to be freed: 1. But a life that has heard a reply has freed them
  -- before that reply. If the server has no record of this life and still has rows of its place, these rows
  -- are the life's own: its report replaces them. If they were freed first, its use would count twice.
  local unfreed = (not node and heard_number > 0 and not was_gone) and 0 or 1
  node = {}
  node[INCARNATION], node[FORMER], node[SEQUENCE], node[HEARD_AT] = incarnation, former, 0, now
  node[EPOCH], node[BACK], node[UNFREED], node[EQUAL_SHARES] = '', back, unfreed, equal_shares
  node[JOIN_VERSION], node[JOINED] = join_version, joined
end
node[PAGES] = 0
-- From here on the node reports all that it holds, so its mark is right again once it has reported.
if is_lacking or not is_same then
  node[MARK], node[MARK_SERVER], node[MARK_VERSION] = heard_number, heard_server, 0
end
call('HSET', KEYS[2], place, pack(node))
if equal_shares > 0 then call('HSET', KEYS[1], 'shares', 1) end
local to_free = {}
if node[UNFREED] == 1 then to_free = call('SRANDMEMBER', KEYS[4], ${PAGE_SCOPES}) end
return pack({'ok', now, s.epoch, call('HGET', KEYS[1], 'host:' .. host) == s.epoch, to_free})
`);

/**
 * Says that the node has reported all that it holds, and its host what it has spent. ValkeyPartition runs it
 * after the reports, and when the list of nodes has changed, to remember the new list.
 *
 *     KEYS     meta, nodes, awaited
 *     ARGV[3]  [incarnation, epoch, pages reported since the node entered]
 *     reply    [version of the list of nodes, all places of the list]; false if another life or another epoch
 *              has come, or the server has counted other pages: a server that took over may lack some
 */
export const REPORTED_SCRIPT = scriptOf(`${LUA_PRELUDE}
local epoch, pages = head[2], head[3]
local node = own_node()
if not node or node[PAGES] ~= pages or call('HGET', KEYS[1], 'epoch') ~= epoch then return pack(false) end
node[EPOCH], node[UNFREED] = epoch, 0
call('HSET', KEYS[2], place, pack(node))
call('HSET', KEYS[1], 'host:' .. host, epoch)
call('SREM', KEYS[3], place)
return pack({tonumber(call('HGET', KEYS[1], 'places') or 0), call('HKEYS', KEYS[2])})
`);

/**
 * Ends the node, whose leases must have been freed before. A node that ends by itself stays if its place is
 * awaited: the node has not reported, so its next life has to. A place that an operator forgets is awaited no
 * more.
 *
 *     KEYS     meta, nodes, awaited
 *     ARGV[3]  [incarnation, whether the node stays if its place is awaited]
 *     reply    whether this life was known, and has ended
 */
export const LEAVE_SCRIPT = scriptOf(`${LUA_PRELUDE}
local stays_if_awaited = head[2]
if not own_node() then return pack(false) end
if stays_if_awaited and call('SISMEMBER', KEYS[3], place) == 1 then return pack(false) end
call('HDEL', KEYS[2], place)
call('HINCRBY', KEYS[1], 'places', 1)
call('SREM', KEYS[3], place)
return pack(true)
`);

/**
 * The server's clock was set forward, so permits seem expired to the server that are not: nothing is granted
 * for a QUARANTINE. The node that has noticed the step runs this script. KEYS: meta. ARGV[3]: [time].
 */
export const DISTRUST_SCRIPT = scriptOf(`${LUA_PRELUDE}
call('HSET', KEYS[1], 'until', now_ms(head[1], KEYS[1]) + QUARANTINE)
return pack(true)
`);
