/**
 * The Lua that grants money, which valkey-scripts.ts puts after LUA_PRELUDE. The scripts run at the server;
 * this file only makes their text, on the main thread.
 *
 * Must hold: all rows of a scope are read before one is written, so that a damaged row leaves the others as
 * they are (test/unit/sharing/valkey-damage.test.ts). The replies are those of `ScopeGrants` in
 * scope-grants.ts (valkey-coordinator.test.ts compares both by random asks).
 */

/**
 * Grants of money. Each amount is two numbers, high and low (valkey-lua.ts). The fields of a scope's hash of
 * money, and of an ask (`encodeAsk` in valkey-codec.ts):
 *
 *     a    of all nodes: [1, 2] credited, [3] the version of credited, [4, 5] spent, [6, 7] outstanding
 *     h:H  [1, 2] spent by host H, [3] the version of that amount
 *     n:P  [1, 2] outstanding of the node at P
 *     u    if there, why it is not known what remains: a host could not report what it has spent
 *     ask  [1, 2] outstanding, [3, 4] least, [5, 6] most, [7] spent by the host, [8] credited; the last two
 *          are [high, low, version], or false if the host does not report them
 *
 * Every ask reports what its host's copy of the registry has as credited, and the newest version counts. Of
 * what a host has spent the newest version counts, too; the amount may also become less.
 */
export const MONEY_LUA = `
-- Returns a, what the host has spent, what the node has outstanding, and whether that is stored.
local function read_money(key, place, host)
  local got = call('HMGET', key, 'a', 'h:' .. host, 'n:' .. place, 'u')
  assert(not got[4], got[4])
  local a, known = unpack_or(got[1], {0, 0, -1, 0, 0, 0, 0}), unpack_or(got[2], {0, 0, -1})
  local own = unpack_or(got[3], {0, 0})
  assert_whole(a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7], 'a')
  assert_whole(known[1] + known[2] + known[3] + own[1] + own[2], place)
  return a, known, own, got[3] and true or false
end
-- Returns [granted high, low, remaining high, low, whether others hold some], then whether the node now holds
-- money, and whether it did before.
local function answer_money(key, place, host, ask)
  local a, known, own, had = read_money(key, place, host)
  local spent, credited, is_later = ask[7], ask[8], false
  if credited and credited[3] > a[3] then a[1], a[2], a[3] = credited[1], credited[2], credited[3] end
  if spent and spent[3] > known[3] then
    a[4], a[5] = sub(a[4], a[5], known[1], known[2])
    a[4], a[5] = add(a[4], a[5], spent[1], spent[2])
    is_later = true
  end
  a[6], a[7] = sub(a[6], a[7], own[1], own[2])
  local elsewhere = is_positive(a[6], a[7])
  a[6], a[7] = add(a[6], a[7], ask[1], ask[2])
  local lh, ll = sub(a[1], a[2], a[4], a[5])
  lh, ll = sub(lh, ll, a[6], a[7])
  local gh, gl = 0, 0
  if is_positive(ask[5], ask[6]) and is_positive(lh, ll) and not less(lh, ll, ask[3], ask[4]) then
    gh, gl = share_up(lh, ll)
    if less(gh, gl, ask[3], ask[4]) then gh, gl = ask[3], ask[4] end
    if less(ask[5], ask[6], gh, gl) then gh, gl = ask[5], ask[6] end
  end
  a[6], a[7] = add(a[6], a[7], gh, gl)
  lh, ll = sub(lh, ll, gh, gl)
  if lh < 0 then lh, ll = 0, 0 end
  local nh, nl = add(ask[1], ask[2], gh, gl)
  local holds = is_positive(nh, nl)
  if is_later then call('HSET', key, 'h:' .. host, pack(spent)) end
  call('HSET', key, 'a', pack(a))
  if holds then call('HSET', key, 'n:' .. place, pack({nh, nl}))
  elseif had then call('HDEL', key, 'n:' .. place) end
  return {gh, gl, lh, ll, elsewhere}, holds, had
end
`;
