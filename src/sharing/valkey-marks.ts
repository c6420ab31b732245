/**
 * How a server that was restarted, or that took over, shows that it has lost nothing: Lua that stands after
 * LUA_PRELUDE in the scripts of entering (valkey-life-scripts.ts), exchanging (valkey-scripts.ts) and
 * forgetting (host-directory.ts). docs/sharing.md has the proof. The scripts run at the server; this file
 * only makes their text, on the main thread.
 *
 * A node numbers its exchanges, over all servers. The last number that a server carried out, with the
 * server's id, is the node's mark there. The node remembers the mark of the last reply that it heard, and
 * every exchange carries this mark. A server whose mark is older, or has another id, lacks something the node
 * was granted.
 *
 * A server that finds itself with another id than the server that wrote last begins a check: it raises the
 * term and grants nothing until every place of its list has promised that term and shown its mark. Every
 * exchange carries the term that its place has promised, which the place's host keeps on disk. A server
 * carries out only an exchange that promises the server's own term. A server that hears of a term that is not
 * below its own raises its term above, and checks. So of two servers at most one grants, whatever each of
 * them believes.
 *
 * A place that joins is granted nothing until a _witness_, a place that was there before, has heard a reply
 * after the join. If the join is lost, the witness's mark shows so; without a witness nothing would show it.
 *
 * An epoch that is not older than a quarantine has not grown: then a restart is not checked, but counts as a
 * loss, and joins need no witness.
 *
 * The time goes on where the former server's stopped; otherwise permits would weigh too briefly. Every
 * exchange carries the least that the former clock showed, and the smallest difference becomes the skew of
 * this server's clock. valkey-lua.ts lists the fields of T:meta and T:nodes for all this.
 *
 * Must hold: a server that lacks anything a node has heard grants nothing for a window. Tests:
 * test/unit/sharing/valkey-marks.test.ts (without any one rule two nodes hold a permit),
 * valkey-blink.test.ts.
 */
export const MARKS_LUA = `
-- A server whose clock differs by more is not checked.
local SKEW_MAX = 1000
local function server_id()
  local info = call('INFO', 'server', 'replication')
  -- The second changes when a replica is made the master, also if the same process was the master before.
  local run = string.match(info, 'run_id:([^\\r\\n]*)') or ''
  local former = string.match(info, 'master_replid2:([^\\r\\n]*)') or ''
  return string.sub(redis.sha1hex(run .. former), 1, 16)
end

-- Data may be lost: every node reports in a new epoch, and nothing is granted before till.
local function lose(s, now, till)
  s.epoch, s.till, s.lost, s.checking = redis.sha1hex(s.epoch .. s.run .. s.term .. now), till, now, 0
  call('HSET', KEYS[1], 'epoch', s.epoch, 'until', till, 'lost', now, 'checking', 0)
  for _, place in ipairs(call('HKEYS', KEYS[2])) do call('SADD', KEYS[3], place) end
end

-- Begins a term above all that was heard of, and a check.
local function begin_term(s, now, above)
  s.term = max(s.term, above) + 1
  call('HSET', KEYS[1], 'term', s.term, 'run', s.run)
  local is_whole = s.checking > 0 or (now >= s.till and call('SCARD', KEYS[3]) == 0)
  local places = call('HKEYS', KEYS[2])
  if not (s.grown and is_whole and #places > 0) then return lose(s, now, now + QUARANTINE) end
  s.checking, s.ahead = now, nil
  call('HSET', KEYS[1], 'checking', now)
  call('HDEL', KEYS[1], 'ahead')
  for _, place in ipairs(places) do call('SADD', KEYS[3], place) end
end

-- Returns the state of the partition; nil if it is empty, or could not be read and is empty now. It writes, so
-- that a server that cannot write fails here.
local function state_of(now)
  local m = call('HMGET', KEYS[1], 'epoch', 'run', 'checked', 'until', 'lost', 'places', 'term', 'checking',
    'grown', 'born', 'witnessed', 'ahead', 'skew')
  if not m[1] then return nil end
  for at = 3, 13 do
    local is_number = m[at] and tonumber(m[at]) or (not m[at] and at > 5)
    if not is_number then
      -- As docs/sharing.md mends it by hand: the list of nodes is of no use without it, the rows of scopes stay.
      redis.log(redis.LOG_WARNING, 'tollgate: ' .. KEYS[1] .. ' is damaged, and counts as lost')
      call('DEL', KEYS[1], KEYS[2])
      return nil
    end
  end
  local s = {epoch = m[1], run = m[2], till = tonumber(m[4]), lost = tonumber(m[5]), places = tonumber(m[6] or 0),
    term = tonumber(m[7] or 0), checking = tonumber(m[8] or 0), grown = m[9] == '1', witnessed = tonumber(m[11] or 0),
    ahead = tonumber(m[12])}
  local age = now - tonumber(m[3])
  if age >= 0 and age < CHECK then return s end
  call('HSET', KEYS[1], 'checked', now)
  local run = server_id()
  if run ~= s.run then
    s.run = run
    begin_term(s, now, 0)
  elseif not s.grown and now - tonumber(m[10] or now) >= QUARANTINE then
    s.grown = true
    call('HSET', KEYS[1], 'grown', 1)
  elseif not m[10] then
    -- Written by an earlier version: it grows from now on.
    call('HSET', KEYS[1], 'born', now)
  end
  return s
end

-- Whether the place promised this server's term. If it promised a later one, so may others have.
local function has_promised(s, now, promised)
  if promised[1] == s.term and promised[2] == s.run then return true end
  if promised[1] >= s.term then begin_term(s, now, promised[1]) end
  return false
end

-- Whether this server has all that the node has heard; heard is [number, server].
local function has_heard(node, heard)
  return node[MARK] > heard[1] or (node[MARK] == heard[1] and node[MARK_SERVER] == heard[2])
end

-- The place has shown its mark in this term; sent is when it said so by the former clock, or 0. Returns whether
-- the check is over.
local function is_checked(s, now, place, sent)
  if sent > 0 then
    s.ahead = min(s.ahead or now - sent, now - sent)
    call('HSET', KEYS[1], 'ahead', s.ahead)
  end
  call('SREM', KEYS[3], place)
  if call('SCARD', KEYS[3]) == 0 and s.ahead and math.abs(s.ahead) <= SKEW_MAX then
    s.checking = 0
    call('HSET', KEYS[1], 'checking', 0)
    call('HINCRBY', KEYS[1], 'skew', s.ahead)
    return true
  end
  if call('SCARD', KEYS[3]) == 0 then lose(s, now, now + QUARANTINE) end
  -- Whoever is silent for so long has to report what it holds, and no permit from before has weight any more.
  if s.checking > 0 and now >= s.checking + QUARANTINE then lose(s, now, now) end
  return false
end

-- A node that has heard its mark has heard of the list of nodes as of then.
local function witness(s, node, heard)
  if node[JOIN_VERSION] > 0 or node[MARK] ~= heard[1] or node[MARK_VERSION] <= s.witnessed then return end
  s.witnessed = node[MARK_VERSION]
  call('HSET', KEYS[1], 'witnessed', node[MARK_VERSION])
end

-- Whether another one has heard of the node's join.
local function is_witnessed(s, node, now)
  if node[JOIN_VERSION] > s.witnessed and now < node[JOINED] + QUARANTINE then return false end
  node[JOIN_VERSION] = 0
  return true
end
`;
