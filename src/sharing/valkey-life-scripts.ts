/**
 * The Lua scripts for the life of a node at one partition of the server: it enters, says that it has reported
 * all, leaves, or says that the server's clock was set forward. valkey-partition.ts runs all four;
 * host-directory.ts runs LEAVE_SCRIPT for a host that an operator forgets.
 *
 * valkey-lua.ts says what the keys hold, and its LUA_PRELUDE has the names that scripts begin with. Of
 * valkey-marks.ts are `state_of`, `server_id`, `has_promised`, `has_heard` and `lose`; there is also what a
 * term, a mark and a witness are.
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
import { CoordinatorLost } from './coordinator.js';
import type { PromisedTerm } from './sharing-memory.js';
import { FORMAT, type LifeHead, nodeScript } from './valkey-lua.js';
import { type Mark, MARKS_LUA, type WantsTerm } from './valkey-marks.js';
import { PAGE_SCOPES } from './valkey-scripts.js';

interface EnterHead extends LifeHead {
  readonly remembered: string; // the epoch that the host remembers; empty if none
  readonly places: readonly string[]; // the places that the host remembers
  readonly newEpoch: string; // the name of the epoch that begins if the server is empty
  /** How many shares there are; unlike in an exchange 0 if this node has none (`held_back`). */
  readonly equalShares: number;
  readonly heard: Mark & { readonly agoMs: number }; // `agoMs`: how long ago the reply came
  readonly promised: PromisedTerm;
  readonly partitions: number; // how many partitions there are
}

/** Why a node may not enter. `place`: of a node that still runs, and does not fit this one. */
type NotEntered =
  /** The server evicts keys, by this `maxmemory-policy`. */
  | { readonly status: 'evicts'; readonly policy: string }
  /** The node is of a former version. */
  | { readonly status: 'former'; readonly place: string }
  /** The node has so many partitions. */
  | { readonly status: 'parted'; readonly place: string; readonly partitions: number };

type Entered =
  | NotEntered
  | WantsTerm
  | {
      readonly status: 'ok';
      readonly nowMs: number;
      readonly epoch: string;
      readonly hostReported: boolean; // whether the host has reported what it spent
      /** A page of scopes of which earlier lives of the place hold something. */
      readonly toFree: readonly string[];
    };

/**
 * A life of a node enters the partition. ValkeyPartition runs it when a life begins, and again if the server
 * replies that it has lost data or does not know the life.
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
 * Checks may change the state of the partition, but the node is not written before all of them have passed.
 */
export const ENTER_SCRIPT = nodeScript<EnterHead, never, Entered>(
  MARKS_LUA,
  `
local incarnation, remembered, heard = head.incarnation, head.remembered, head.heard
local equal_shares, partitions = head.equalShares, head.partitions
local now = now_ms()
-- If what was counted were evicted, limits would be granted twice.
local policy = info_of('memory', 'maxmemory_policy')
if policy ~= 'noeviction' and info_of('memory', 'maxmemory') ~= '0' then
  return pack({status = 'evicts', policy = policy})
end
-- The state of the partition: fields of T:meta, which valkey-lua.ts explains. s.places is not a list but the
-- version of the list of nodes, and s.till is the field until, which is a word of Lua.
local s = state_of(now)
if not s then
  -- Empty. A host that remembers no epoch takes it for a new server, which may grant at once. A host that
  -- remembers one knows that the server has lost its data.
  local is_new = remembered == ''
  s = {epoch = head.newEpoch, run = server_id(), term = head.promised.term + 1, till = is_new and 0 or now + QUARANTINE,
    lost = is_new and 0 or now, places = 0, checking = 0, grown = false, witnessed = 0}
  call('HSET', META, 'epoch', s.epoch, 'run', s.run, 'checked', now, 'term', s.term, 'born', now,
    'until', s.till, 'lost', s.lost, 'fresh', is_new and '1' or '0')
end
-- The place of another node that was heard lately; nil if there is none.
local function heard_other()
  local all = call('HGETALL', NODES)
  for i = 1, #all, 2 do
    local n = node_in(all[i + 1])
    if all[i] ~= place and n and now - n[HEARD_AT] < SILENT then return all[i] end
  end
end
-- Nodes of a former version count stocks elsewhere: all of them must have ended. Their counts are taken over.
if call('HGET', META, 'format') ~= '${FORMAT}' then
  local other = heard_other()
  if other then return pack({status = 'former', place = other}) end
  call('HSET', META, 'format', '${FORMAT}')
end
-- Nodes of another number of partitions have most scopes in other partitions, where their limits are granted
-- once more: all of these nodes must have ended. What hosts have spent of the scopes that are here from now
-- on is in other partitions, so hosts have to report it. (A former version did not write the number.)
local partitions_before = tonumber(call('HGET', META, 'partitions'))
if partitions_before ~= partitions then
  local other = partitions_before and heard_other()
  if other then return pack({status = 'parted', place = other, partitions = partitions_before}) end
  call('HSET', META, 'partitions', partitions)
  if partitions_before then lose(s, now, now + QUARANTINE) end
end
if not has_promised(s, now) then return pack({status = 'term', wanted = {term = s.term, server = s.run}}) end
-- A host that an operator forgot, and that comes back, is known again. What it held was freed when forgotten.
-- It has several places, of which the first to come back removes gone. (A former version did not write ended.)
local was_gone = call('HDEL', META, 'gone:' .. host) == 1
local was_ended = call('HDEL', META, 'ended:' .. place) == 1 or was_gone
if remembered ~= '' and remembered ~= s.epoch and call('HGET', META, 'fresh') == '1' then
  -- A host without memory came first after a loss and took the server for a new one (fresh = 1), so there
  -- was no quarantine. This host knows another epoch: the quarantine begins now.
  s.lost, s.till = now, now + QUARANTINE
  call('HSET', META, 'until', s.till, 'lost', now, 'fresh', '0')
end
-- Data was lost, maybe also the list of nodes. The host names the places it knows. Each that has not reported
-- in this epoch becomes awaited: the server grants nothing before all awaited places have reported.
if remembered ~= '' and remembered ~= s.epoch and s.lost > 0 then
  for _, other in ipairs(head.places) do
    local n = node_of(other)
    if not is_gone(other) and (not n or n[EPOCH] ~= s.epoch) then call('SADD', AWAITED, other) end
  end
end
local node = node_of(place)
local is_same = node and node[INCARNATION] == incarnation
local is_replaced = node and node[FORMER] == incarnation
-- Which case of the table it is. If the server has no record of this life, it lacks all that the life heard.
local is_lacking = heard.sequence > 0 and not was_ended
if is_same then is_lacking = not has_heard(node, heard) elseif is_replaced then is_lacking = false end
local is_mute = s.checking > 0 and not is_same and call('SISMEMBER', AWAITED, place) == 1
-- Whether a loss is being mended already: in a quarantine, or while places have to report.
local is_mending = s.checking == 0 and (now < s.till or call('SCARD', AWAITED) > 0)
if is_mute or (is_lacking and not is_mending) then
  lose(s, now, now + QUARANTINE)
elseif is_lacking then
  -- Until its last reply, heard.agoMs ago, this life may have been granted permits by another server.
  s.till = max(s.till, now + QUARANTINE - heard.agoMs)
  call('HSET', META, 'until', s.till)
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
    s.places = call('HINCRBY', META, 'places', 1)
    -- A new place is granted nothing until another node has heard of its join (a witness), or a server that
    -- lost the join would not be noticed. Two kinds of places need no witness: if the join of the first place
    -- of an empty list is lost, the list is empty again, which is a loss; and an awaited place is still
    -- awaited by a server without its join.
    local needs_witness = call('HLEN', NODES) > 0 and call('SISMEMBER', AWAITED, place) == 0
    if s.grown and needs_witness then join_version, joined = s.places, now end
  end
  -- The leases of earlier lives are still to be freed: 1. But a life that has heard a reply has freed them
  -- before that reply. If the server has no record of this life and still has rows of its place, these rows
  -- are the life's own: its report replaces them. If they were freed first, its use would count twice.
  local unfreed = (not node and heard.sequence > 0 and not was_ended) and 0 or 1
  node = {}
  node[INCARNATION], node[FORMER], node[SEQUENCE], node[HEARD_AT] = incarnation, former, 0, now
  node[EPOCH], node[BACK], node[UNFREED], node[EQUAL_SHARES] = '', back, unfreed, equal_shares
  node[JOIN_VERSION], node[JOINED] = join_version, joined
end
node[PAGES] = 0
-- From here on the node reports all that it holds, so its mark is right again once it has reported.
if is_lacking or not is_same then
  node[MARK], node[MARK_SERVER], node[MARK_VERSION] = heard.sequence, heard.server, 0
end
call('HSET', NODES, place, pack(node))
if equal_shares > 0 then call('HSET', META, 'shares', 1) end
local to_free = {}
if node[UNFREED] == 1 then to_free = call('SRANDMEMBER', HELD, ${PAGE_SCOPES}) end
local host_reported = call('HGET', META, 'host:' .. host) == s.epoch
return pack({status = 'ok', nowMs = now, epoch = s.epoch, hostReported = host_reported, toFree = to_free})
`,
);

/** The error for a node that may not enter, whose host has so many `partitions`. */
export function notEntered(entered: NotEntered, partitions: number): CoordinatorLost {
  switch (entered.status) {
    case 'evicts':
      return new CoordinatorLost(
        'failing',
        `the server evicts keys (maxmemory-policy ${entered.policy}), want noeviction: ` +
          'what is evicted would be given twice',
      );
    case 'former':
      return new CoordinatorLost(
        'failing',
        `${entered.place} (host:process) is of another version and still uses the server: stop all its gateways first`,
      );
    case 'parted':
      return new CoordinatorLost(
        'failing',
        `${entered.place} (host:process) has sharing.partitions ${entered.partitions}, and this host ${partitions}: ` +
          'want the same on all hosts',
      );
  }
}

/**
 * Says that the node has reported all that it holds, and its host what it has spent. ValkeyPartition runs it
 * after the reports, and when the list of nodes has changed, to remember the new list. Replies
 * with the version of the list of nodes, and all places of the list; with false if another life or another
 * epoch has come, or the server has counted other pages: a server that took over may lack some.
 */
export const REPORTED_SCRIPT = nodeScript<
  /** `pages`: how many the node has reported since it entered. */
  LifeHead & { readonly epoch: string; readonly pages: number },
  never,
  false | { readonly version: number; readonly places: readonly string[] }
>(`
local epoch = head.epoch
local node = own_node()
if not node or node[PAGES] ~= head.pages or call('HGET', META, 'epoch') ~= epoch then return pack(false) end
node[EPOCH], node[UNFREED] = epoch, 0
call('HSET', NODES, place, pack(node))
call('HSET', META, 'host:' .. host, epoch)
call('SREM', AWAITED, place)
return pack({version = tonumber(call('HGET', META, 'places') or 0), places = call('HKEYS', NODES)})
`);

/**
 * Ends the node, whose leases must have been freed before. A node that ends by itself stays if its place is
 * awaited: the node has not reported, so its next life has to. A place that an operator forgets is awaited no
 * more. Replies whether this life was known, and has ended.
 */
export const LEAVE_SCRIPT = nodeScript<LifeHead & { readonly staysIfAwaited: boolean }, never, boolean>(`
if not own_node() then return pack(false) end
if head.staysIfAwaited and call('SISMEMBER', AWAITED, place) == 1 then return pack(false) end
call('HDEL', NODES, place)
call('HINCRBY', META, 'places', 1)
call('SREM', AWAITED, place)
return pack(true)
`);

/**
 * The server's clock was set forward, so permits seem expired to the server that are not: nothing is granted
 * for a QUARANTINE. The node that has noticed the step runs this script.
 */
export const DISTRUST_SCRIPT = nodeScript<object, never, boolean>(`
call('HSET', META, 'until', now_ms() + QUARANTINE)
return pack(true)
`);
