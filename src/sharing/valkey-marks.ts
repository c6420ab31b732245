/**
 * Checks that a server that was restarted, or that took over, has lost nothing. MARKS_LUA stands after
 * LUA_PRELUDE in ENTER_SCRIPT (valkey-life-scripts.ts), EXCHANGE_SCRIPT (valkey-exchange.ts) and
 * FORGET_SCRIPT (host-directory.ts), which run at the server; this file only makes its text, on the main
 * thread. docs/sharing.md ("The server blinks") says what a mark, a term and a check are, and has the proof.
 *
 * Every exchange carries the mark that its node has heard last (`heard`), and the term that its place has
 * promised, which the place's host keeps on disk. A place that joins is granted nothing until a _witness_, a
 * place that was there before, has heard a reply after the join.
 *
 * An epoch has _grown_ when it is older than a quarantine. Before that a restart is not checked: it counts as
 * a loss, and joins need no witness.
 *
 * The time of the scripts goes on where the former server's stopped; otherwise permits would weigh too
 * briefly. Every exchange carries the least that the former server's clock can show by now. The smallest
 * difference to this server's clock is added to `skew`. valkey-lua.ts lists the fields of T:meta and T:nodes.
 *
 * Must hold: a server that lacks anything a node has heard grants nothing for a quarantine. Tests:
 * test/unit/sharing/valkey-marks.test.ts (without any one rule two nodes hold a permit),
 * valkey-blink.test.ts.
 */
import type { PromisedTerm } from './sharing-memory.js';

/** The last exchange whose reply this life has heard, and the id of its server. Sequence 0: none. */
export interface Mark {
  readonly sequence: number;
  readonly server: string;
}

/** The reply of ENTER_SCRIPT or EXCHANGE_SCRIPT if the place has to promise a term first. */
export interface WantsTerm {
  readonly status: 'term';
  readonly wanted: PromisedTerm;
}

export function wantsTerm(reply: { readonly status: string }): reply is WantsTerm {
  return reply.status === 'term';
}

export const MARKS_LUA = `
-- In ms. If the clocks of the two servers differ by more, the check ends as if data were lost.
local SKEW_MAX = 1000
-- The id of the server that runs this script: 16 digits.
local function server_id()
  -- The second changes when a replica is made the master, also if the same process was the master before.
  local ids = info_of('server', 'run_id') .. info_of('replication', 'master_replid2')
  return string.sub(redis.sha1hex(ids), 1, 16)
end

-- Begins a new epoch, because data may be lost: every node has to report, and nothing is granted before till.
-- s, here and below, is the state of the partition as state_of returns it: fields of T:meta by their names,
-- but till for until, which is a word of Lua, and ahead = nil if no place has shown its mark yet.
local function lose(s, now, till)
  s.epoch, s.till, s.lost, s.checking = redis.sha1hex(s.epoch .. s.run .. s.term .. now), till, now, 0
  call('HSET', META, 'epoch', s.epoch, 'until', till, 'lost', now, 'checking', 0)
  for _, listed in ipairs(call('HKEYS', NODES)) do call('SADD', AWAITED, listed) end
end

-- Begins a later term than heard_term and the server's own, and in it a check. If the epoch has not grown, or
-- a loss is not yet mended, or no place is on the list, data counts as lost instead.
local function begin_term(s, now, heard_term)
  s.term = max(s.term, heard_term) + 1
  call('HSET', META, 'term', s.term, 'run', s.run)
  local is_whole = s.checking > 0 or (now >= s.till and call('SCARD', AWAITED) == 0)
  local places = call('HKEYS', NODES)
  if not (s.grown and is_whole and #places > 0) then return lose(s, now, now + QUARANTINE) end
  s.checking, s.ahead = now, nil
  call('HSET', META, 'checking', now)
  call('HDEL', META, 'ahead')
  for _, listed in ipairs(places) do call('SADD', AWAITED, listed) end
end

-- Returns the state of the partition; nil if T:meta is empty, or damaged or no hash: then deletes it.
-- Once in CHECK ms looks which server runs it, and writes the time: so a server that cannot write fails here.
local function state_of(now)
  local m = redis.pcall('HMGET', META, 'epoch', 'run', 'checked', 'until', 'lost', 'places', 'term', 'checking',
    'grown', 'born', 'witnessed', 'ahead', 'skew')
  if m.err and not is_of_wrong_type(m) then error(m) end
  if not (m[1] or m.err) then return nil end
  local is_damaged = m.err
  -- From the third on they are numbers; from the sixth on they may be absent, as in an earlier version.
  for field = 3, 13 do is_damaged = is_damaged or not tonumber(m[field] or (field > 5 and 0)) end
  if is_damaged then
    -- As docs/sharing.md mends it by hand: the list of nodes goes too, the rows of scopes stay.
    redis.log(redis.LOG_WARNING, 'tollgate: ' .. META .. ' is damaged, and counts as lost')
    call('DEL', META, NODES)
    return nil
  end
  local s = {epoch = m[1], run = m[2], till = tonumber(m[4]), lost = tonumber(m[5]),
    places = tonumber(m[6] or 0), term = tonumber(m[7] or 0), checking = tonumber(m[8] or 0),
    grown = m[9] == '1', witnessed = tonumber(m[11] or 0), ahead = tonumber(m[12])}
  local checked, born = tonumber(m[3]), m[10] and tonumber(m[10])
  local age = now - checked
  if age >= 0 and age < CHECK then return s end
  call('HSET', META, 'checked', now)
  local run = server_id()
  if run ~= s.run then
    s.run = run
    begin_term(s, now, 0)
  elseif not s.grown and now - (born or now) >= QUARANTINE then
    s.grown = true
    call('HSET', META, 'grown', 1)
  elseif not born then
    -- Written by an earlier version: it grows from now on.
    call('HSET', META, 'born', now)
  end
  return s
end

-- Whether the place has promised this server's term. If it has promised this or a later term to another
-- server, other places may have too, so this server begins a term above that.
local function has_promised(s, now)
  local promised = head.promised
  if promised.term == s.term and promised.server == s.run then return true end
  if promised.term >= s.term then begin_term(s, now, promised.term) end
  return false
end

-- Whether this server has all that the node has heard: heard is a Mark.
local function has_heard(node, heard)
  return node[MARK] > heard.sequence or (node[MARK] == heard.sequence and node[MARK_SERVER] == heard.server)
end

-- Called during a check when the place has shown its mark in this term. sent_at is the least that the former
-- server's clock can have shown then, or 0 if the node does not know. Returns whether the check is over and
-- has found no loss. If it has found one, s.checking is 0.
local function is_checked(s, now, sent_at)
  if sent_at > 0 then
    s.ahead = min(s.ahead or now - sent_at, now - sent_at)
    call('HSET', META, 'ahead', s.ahead)
  end
  call('SREM', AWAITED, place)
  if call('SCARD', AWAITED) == 0 and s.ahead and math.abs(s.ahead) <= SKEW_MAX then
    s.checking = 0
    call('HSET', META, 'checking', 0)
    call('HINCRBY', META, 'skew', s.ahead)
    return true
  end
  if call('SCARD', AWAITED) == 0 then lose(s, now, now + QUARANTINE) end
  -- A place that was silent for so long has to report what it holds. No permit from before weighs any more.
  if s.checking > 0 and now >= s.checking + QUARANTINE then lose(s, now, now) end
  return false
end

-- A node that has heard its mark knows the list of nodes as of then, and so witnesses all joins up to then.
local function witness(s, node, heard)
  if node[JOIN_VERSION] > 0 or node[MARK] ~= heard.sequence or node[MARK_VERSION] <= s.witnessed then return end
  s.witnessed = node[MARK_VERSION]
  call('HSET', META, 'witnessed', node[MARK_VERSION])
end

-- Whether a witness has heard of the node's join, or the join is older than a quarantine.
local function is_witnessed(s, node, now)
  if node[JOIN_VERSION] > s.witnessed and now < node[JOINED] + QUARANTINE then return false end
  node[JOIN_VERSION] = 0
  return true
end
`;
