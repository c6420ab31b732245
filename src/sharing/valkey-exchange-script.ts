/**
 * The script of an exchange: one call carries the asks of a node to one partition, and does to its keys what MemoryAuthority
 * does to its objects. Main thread.
 *
 * KEYS: meta, nodes, awaited, held of the node; then for each ask the subject's two hashes.
 * ARGV: place, host, packed [incarnation, sequence, sent at (ms of the server's clock) or 0, time instead of the server's or 0, equal shares or 0, expiry ms],
 *       packed asks (see valkey-codec.ts), each [subject, minute, day, slots, money, inherited] with false where one is left out.
 * Answer: packed [status, now ms, epoch, ms to wait, answers, version of the list of nodes]. Status: ok, unknown (node: join), old (sequence), aged (or the clock
 * was set forward), report (join again, with all that is held), quarantine (wait; in the place of answers some of the places that have to report).
 */
import { LUA_PRELUDE } from './valkey-lua.js';
import { scriptOf } from './valkey-client.js';
import { DAY_AND_SLOTS_LUA, MONEY_LUA } from './valkey-stock-lua.js';

/** The minute: buckets by tick of expiry, ascending, as one flat list of tick and count. */
const MINUTE = `
local function weigh(list, tick)
  local weighing, unexpired, kept = 0, 0, {}
  for i = 1, #list, 2 do
    if list[i] + WEIGHING >= tick and list[i + 1] > 0 then
      kept[#kept + 1] = list[i]
      kept[#kept + 1] = list[i + 1]
      weighing = weighing + list[i + 1]
      if list[i] >= tick then unexpired = unexpired + list[i + 1] end
    end
  end
  return kept, weighing, unexpired
end
local function put(list, tick, count)
  for i = 1, #list, 2 do
    if list[i] == tick then
      list[i + 1] = max(0, list[i + 1] + count)
      return
    end
    if list[i] > tick then
      if count > 0 then
        table.insert(list, i, count)
        table.insert(list, i, tick)
      end
      return
    end
  end
  if count > 0 then
    list[#list + 1] = tick
    list[#list + 1] = count
  end
end
local function count_at(list, tick)
  for i = 1, #list, 2 do if list[i] == tick then return list[i + 1] end end
  return 0
end
local function free_in(list, weighing, limit, now)
  if weighing < limit then return 0 end
  for i = 1, #list, 2 do
    weighing = weighing - list[i + 1]
    if weighing < limit then return (list[i] + WEIGHING + 1) * TICK - now end
  end
  return 0
end
local function answer_minute(list, n, ask, now, holders, incarnation)
  local limit, least, most, forMs, returned, is_stand_by, order =
    ask[1], ask[2], ask[3], ask[4], ask[5], ask[6], ask[7]
  local own, last_grant = n[5], n[6]
  local tick = floor(now / TICK)
  -- The node has not heard of it, and so has not used it; what it returned with that ask was taken then.
  if order and last_grant and last_grant[1] == incarnation and last_grant[2] > order[2] then
    returned = {last_grant[3], last_grant[4]}
  end
  for i = 1, #returned, 2 do
    -- Never more than the node was lent: what is not there is of a bucket that weighs no more.
    local count = min(returned[i + 1], count_at(own, returned[i]))
    put(list, returned[i], -count)
    put(own, returned[i], -count)
  end
  limit = limit - holders(limit)
  local all, weighing, unexpired = weigh(list, tick)
  local mine, _, own_unexpired = weigh(own, tick)
  local granted = share_of(limit - weighing, least, most)
  weighing = weighing + granted
  local last = tick + SHORT
  if is_stand_by or weighing * QUIET <= limit then last = tick + min(LONG, max(SHORT, ceil(forMs / TICK))) end
  put(all, last, granted)
  put(mine, last, granted)
  local reply = {granted, max(0, limit - weighing), unexpired > own_unexpired, last, (last + 1) * TICK - now,
    free_in(all, weighing, limit, now)}
  n[5] = mine
  if order then n[6] = {incarnation, order[1], last, granted} end
  return reply, all
end
`;

const EXCHANGE = `
local place, host = ARGV[1], ARGV[2]
local head = cmsgpack.unpack(ARGV[3])
local incarnation, sequence, expiry = head[1], head[2], head[6]
local now = now_ms(head[4])
local epoch, till, lost, places = epoch_of(KEYS[1], KEYS[2], KEYS[3], now)
if not epoch then return pack({'unknown', now, '', 0}) end
local node = node_of(KEYS[2], place)
if not node or node[1] ~= incarnation then return pack({'unknown', now, epoch, 0}) end
if sequence <= node[2] then return pack({'old', now, epoch, 0}) end
if head[3] > 0 and now - head[3] > AGE then return pack({'aged', now, epoch, 0}) end
if head[5] > 0 and now - node[3] > SILENT then node[5] = now end
node[2], node[3] = sequence, now
call('HSET', KEYS[2], place, pack(node))
if node[4] ~= epoch then return pack({'report', now, epoch, max(0, till - now)}) end
if call('SCARD', KEYS[3]) > 0 then
  if now > lost + expiry then drop_silent_awaited(KEYS[1], KEYS[3], epoch) end
  return pack({'quarantine', now, epoch, max(TICK, till - now), call('SRANDMEMBER', KEYS[3], 3)})
end
if now < till then return pack({'quarantine', now, epoch, max(0, till - now)}) end

-- Permits that silent nodes may be giving themselves, as equal shares: held back until they have spoken for a window again.
local silent = -1
local function holders(limit)
  if head[5] == 0 then return 0 end
  if silent < 0 then
    silent = 0
    local all = call('HVALS', KEYS[2])
    for i = 1, #all do
      local n = cmsgpack.unpack(all[i])
      local quiet = now - n[3]
      local may = (quiet > SILENT and quiet <= expiry + QUARANTINE) or now - n[5] < QUARANTINE
      if may and n[7] > 0 then silent = silent + 1 end
    end
  end
  return min(limit, silent * floor(limit / head[5]))
end

local asks = cmsgpack.unpack(ARGV[4])
local answers = {}
for i = 1, #asks do
  local ask, key = asks[i], KEYS[3 + 2 * i]
  local subject, minute, day, slots, money = ask[1], ask[2], ask[3], ask[4], ask[5]
  local answer = {false, false, false, false}
  local held_before, holds = false, false
  if minute or day or slots then
    local got = call('HMGET', key, 'm', 'd', 'n:' .. place)
    local list = unpack_or(got[1], {})
    local d = unpack_or(got[2], {0, 0, 0, 0, 0, 0})
    local n = unpack_or(got[3], {0, 0, 0, 0, {}})
    -- A key that rotation has made begins with what the one before had used: day, calls, permits of the minute, when.
    local inherited = ask[6]
    if inherited and not got[2] then
      d[1], d[2] = inherited[1], inherited[2]
      put(list, floor(inherited[4] / TICK), inherited[3])
    end
    held_before = n[2] + n[3] + n[4] > 0
    if minute then answer[1], list = answer_minute(list, n, minute, now, holders, incarnation) end
    if day then answer[2] = answer_day(d, n, day, now) end
    if slots then
      if slots[3] > 0 and slots[1] - d[5] + n[4] - slots[2] < slots[3] then drop_silent_slots(key, d, place, now, expiry) end
      answer[3] = answer_slots(d, n, slots)
    end
    holds = n[2] + n[3] + n[4] > 0
    call('HSET', key, 'm', pack(list), 'd', pack(d), 'n:' .. place, pack(n))
    expire_subject(key, d, now)
  end
  if money then
    local has, had
    answer[4], has, had = answer_money(KEYS[4 + 2 * i], place, host, money)
    holds, held_before = holds or has, held_before or had
  end
  -- Left in the set until the node's end where only some resources were asked for: it may hold others.
  if holds and not held_before then call('SADD', KEYS[4], subject) end
  answers[i] = answer
end
return pack({'ok', now, epoch, 0, answers, places})
`;

export const EXCHANGE_SCRIPT = scriptOf(LUA_PRELUDE + DAY_AND_SLOTS_LUA + MINUTE + MONEY_LUA + EXCHANGE);
