/**
 * The Lua that grants money, which valkey-scripts.ts puts after LUA_PRELUDE. The scripts run at the server;
 * this file only makes their text, on the main thread.
 *
 * Must hold: all rows of a scope are read before one is written, so that a damaged row leaves the others as
 * they are (test/unit/sharing/valkey-damage.test.ts). The replies are those of `ScopeGrants` in
 * scope-grants.ts: change both together (valkey-coordinator.test.ts compares them by random asks).
 */

/**
 * The fields of the hash T:m:S, the money of one scope, and the ask for money as `encodeAsk` in
 * valkey-codec.ts writes it. An amount takes two items, its high and its low part (valkey-lua.ts):
 *
 *     a    of all nodes: [1, 2] credited, [3] the version of credited, [4, 5] spent, [6, 7] outstanding
 *     h:H  [1, 2] spent by host H, [3] the version of that amount
 *     n:P  [1, 2] outstanding of the node at P
 *     u    why it is not known what remains; absent if it is known
 *     ask  [1, 2] outstanding, [3, 4] least, [5, 6] most, [7] spent by the host, [8] credited; the last two
 *          are [high, low, version], or false if the host does not report them
 *
 * Of what hosts report as credited, and of what a host reports as spent, the newest version counts, also if
 * its amount is smaller. Version -1, of a hash without the field, is older than any.
 */
export const MONEY_LUA = `
-- Returns a, h: of the host, n: of the place, and whether the last one is stored. Throws if u is there.
local function read_money(key, place, host)
  local rows = call('HMGET', key, 'a', 'h:' .. host, 'n:' .. place, 'u')
  assert(not rows[4], rows[4])
  local total, by_host = unpack_or(rows[1], {0, 0, -1, 0, 0, 0, 0}), unpack_or(rows[2], {0, 0, -1})
  local own = unpack_or(rows[3], {0, 0})
  assert_whole(total[1] + total[2] + total[3] + total[4] + total[5] + total[6] + total[7], 'a')
  assert_whole(by_host[1] + by_host[2] + by_host[3] + own[1] + own[2], place)
  return total, by_host, own, rows[3] and true or false
end
-- Records what the ask reports and grants what it wants. Returns [granted high, low, remaining high, low,
-- whether others hold some], then whether the node now holds money, and whether it did before.
local function grant_money(key, place, host, ask)
  local total, by_host, own, had = read_money(key, place, host)
  local spent, credited, is_newer = ask[7], ask[8], false
  if credited and credited[3] > total[3] then
    total[1], total[2], total[3] = credited[1], credited[2], credited[3]
  end
  if spent and spent[3] > by_host[3] then
    total[4], total[5] = sub(total[4], total[5], by_host[1], by_host[2])
    total[4], total[5] = add(total[4], total[5], spent[1], spent[2])
    is_newer = true
  end
  -- What the node reports replaces what it had outstanding.
  total[6], total[7] = sub(total[6], total[7], own[1], own[2])
  local held_by_others = is_positive(total[6], total[7])
  total[6], total[7] = add(total[6], total[7], ask[1], ask[2])
  -- What remains. Below 0 while nodes report after a loss of data, because reports name no credit.
  local left_high, left_low = sub(total[1], total[2], total[4], total[5])
  left_high, left_low = sub(left_high, left_low, total[6], total[7])
  -- As stockShareOf in grant-policy.ts.
  local high, low = 0, 0
  if is_positive(ask[5], ask[6]) and is_positive(left_high, left_low)
    and not less(left_high, left_low, ask[3], ask[4]) then
    high, low = share_up(left_high, left_low)
    if less(high, low, ask[3], ask[4]) then high, low = ask[3], ask[4] end
    if less(ask[5], ask[6], high, low) then high, low = ask[5], ask[6] end
  end
  total[6], total[7] = add(total[6], total[7], high, low)
  left_high, left_low = sub(left_high, left_low, high, low)
  if left_high < 0 then left_high, left_low = 0, 0 end
  local own_high, own_low = add(ask[1], ask[2], high, low)
  local holds = is_positive(own_high, own_low)
  if is_newer then call('HSET', key, 'h:' .. host, pack(spent)) end
  call('HSET', key, 'a', pack(total))
  if holds then call('HSET', key, 'n:' .. place, pack({own_high, own_low}))
  elseif had then call('HDEL', key, 'n:' .. place) end
  return {high, low, left_high, left_low, held_by_others}, holds, had
end
`;
