/**
 * The registry on the server that hosts share, as typed calls and their scripts. The server runs a script as
 * a whole, so a registry has one history. open-hosts.ts makes a RegistryServer; registry-log.ts and
 * registry-reseed.ts call it. Main thread. Every call may reject with ValkeyError. `registryKeys` in
 * valkey-codec.ts says what is in the keys.
 *
 * Each script names its KEYS and ARGV first, in the order in which its caller gives them. A row at the server
 * is two texts: its name, for example `["accounts","acct_…"]`, and its value as JSON.
 *
 * Must hold: a change is appended only to the version and the id that it was made of, and the rows of a
 * seeding count only all at once. Tests: test/unit/sharing/registry-log.test.ts, registry-reseed.test.ts (a
 * server that loses rows in mid-seed gets no registry without them).
 */
import { isPosition, type RegistryPosition, type RegistryRow } from '../store/registry-copy.js';
import { scriptOf, type ValkeyClient, ValkeyError, type ValkeyReply } from './valkey-client.js';
import { registryKeys } from './valkey-codec.js';

export interface ServerChange {
  readonly version: number;
  readonly id: string;
  /** Id of the change before it. */
  readonly after: string;
  readonly rows: readonly RegistryRow[];
}

/** A row as the scripts take and return it; false in place of the value if the row is removed. */
type RowArguments = readonly [name: string, value: string | false];

function argumentsOf({ table, key, value }: RegistryRow): RowArguments {
  return [JSON.stringify([table, key]), value === null ? false : JSON.stringify(value)];
}

/** Does not check the contents: store/registry-copy.ts does when it takes the row. */
function rowOf([name, value]: RowArguments): RegistryRow {
  return readRecord(name, () => {
    const [table, key] = JSON.parse(name) as [RegistryRow['table'], RegistryRow['key']];
    return { table, key, value: value === false ? null : (JSON.parse(value) as unknown) };
  });
}

/** Returns what `read` returns for the server's record `name`. If `read` throws, throws a ValkeyError. */
function readRecord<Result>(name: string, read: () => Result): Result {
  try {
    return read();
  } catch (error) {
    if (error instanceof ValkeyError) throw error;
    throw new ValkeyError('refused', `record ${name} at the sharing server is damaged (${String(error)})`);
  }
}

/** Parses an entry of the log as APPEND writes it: `['version-0', ['id', id, 'after', id, 'rows', rows]]`. */
function changeOf(entry: ValkeyReply): ServerChange {
  const [entryId, fields] = listOf(entry);
  const [, id, , after, , rows] = listOf(fields).map(textOf);
  const name = textOf(entryId);
  return {
    version: Number(name.split('-', 1)[0]),
    id: id ?? '',
    after: after ?? '',
    rows: readRecord(name, () => (JSON.parse(rows ?? '[]') as RowArguments[]).map(rowOf)),
  };
}

/** Parses the changes up to the first that cannot be read. `name`: the key of their log at the server. */
function readableOf(entries: readonly ValkeyReply[], name: string): Omit<ServerRegistry, 'position'> {
  const changes: ServerChange[] = [];
  for (const entry of entries) {
    try {
      changes.push(changeOf(entry));
    } catch (error) {
      if (!(error instanceof ValkeyError)) throw error;
      return { changes, damage: `${name}: ${error.message}` };
    }
  }
  return { changes };
}

function listOf(reply: ValkeyReply | undefined): ValkeyReply[] {
  if (Array.isArray(reply)) return reply;
  throw unexpected(reply);
}

function textOf(reply: ValkeyReply | undefined): string {
  if (typeof reply === 'string') return reply;
  throw unexpected(reply);
}

/** The fields of a hash, which the server sends as name, value, name, value. */
function pairsOf(reply: ValkeyReply | undefined): (readonly [string, string])[] {
  const texts = listOf(reply).map(textOf);
  return texts.flatMap((name, index) => (index % 2 === 0 ? [[name, texts[index + 1]!] as const] : []));
}

function unexpected(reply: unknown): ValkeyError {
  return new ValkeyError('refused', `the sharing server replied ${String(reply).slice(0, 100)}`);
}

/**
 * How many changes the server keeps, about, for hosts that follow. A host that missed more downloads all
 * rows, which takes seconds.
 */
const LOG_ENTRIES_MAX = 10_000;

/** The most changes in one reply: some MB, if they are bulk creations. */
const ENTRIES_PER_PULL = 50;

/**
 * Appends a change if it follows the last change, whose id is `last`. Replies 'done', or 'behind' if others
 * were quicker, or 'other' if the server has another registry or none.
 */
const APPEND = scriptOf(`
local state, log, all_rows = unpack(KEYS)
local epoch, version, last, id, rows = unpack(ARGV)
local now = redis.call('HMGET', state, 'epoch', 'version', 'last')
if now[1] ~= epoch then return 'other' end
if now[2] ~= version or now[3] ~= last then return 'behind' end
version = string.format('%d', tonumber(version) + 1)
redis.call('XADD', log, 'MAXLEN', '~', '${LOG_ENTRIES_MAX}', version .. '-0', 'id', id, 'after', last, 'rows', rows)
redis.call('HSET', state, 'version', version, 'last', id)
for _, row in ipairs(cjson.decode(rows)) do
  if row[2] then redis.call('HSET', all_rows, row[1], row[2]) else redis.call('HDEL', all_rows, row[1]) end
end
return 'done'
`);

/**
 * Reads the changes after the asker's version. Replies epoch, version, id of the last change, history, and
 * the changes, of which there are none if the asker's epoch is another; an empty list if there is no
 * registry.
 */
const PULL = scriptOf(`
local state, log = unpack(KEYS)
local epoch, version = unpack(ARGV)
local now = redis.call('HMGET', state, 'epoch', 'version', 'last', 'history')
if not now[1] then return {} end
local changes = {}
-- A damaged version counts as 0 here: the host that gets the reply checks it.
if now[1] == epoch and (tonumber(now[2]) or 0) > tonumber(version) then
  local first = string.format('%d', tonumber(version) + 1)
  changes = redis.call('XRANGE', log, first .. '-0', '+', 'COUNT', '${ENTRIES_PER_PULL}')
end
return {now[1], now[2], now[3], now[4], changes}
`);

/**
 * Puts rows of a new epoch on the server, which count only after FINISH_SEED, and renews the permission to
 * seed. Rows and permission expire together if the host ends or loses the server. Further ARGV: of each row
 * its name and its value. Replies 'done', or 'late' if the host has no permission any more.
 */
const PUT_ROWS = scriptOf(`
local seeder, rows = unpack(KEYS)
local host, batch_ms = unpack(ARGV)
if redis.call('GET', seeder) ~= host then return 'late' end
redis.call('PEXPIRE', seeder, batch_ms)
redis.call('HSET', rows, unpack(ARGV, 3))
redis.call('PEXPIRE', rows, batch_ms)
return 'done'
`);

/**
 * Ends a seeding: from now on its rows count, and expire no more; those of the epoch before are removed,
 * which is empty for none. Replies 'done', or why not: 'late' (no permission any more), 'other' (the server
 * has another registry), 'lost' (rows are missing, as at a replica that was promoted meanwhile).
 */
const FINISH_SEED = scriptOf(`
local state, seeder, candidates, rows, rows_before, log_before = unpack(KEYS)
local host, epoch_before, version_before, epoch, version, last, history, row_count = unpack(ARGV)
local now = redis.call('HMGET', state, 'epoch', 'version')
if redis.call('GET', seeder) ~= host then return 'late' end
if (now[1] or '') ~= epoch_before or (now[2] or '') ~= version_before then return 'other' end
if redis.call('HLEN', rows) ~= tonumber(row_count) then return 'lost' end
redis.call('PERSIST', rows)
redis.call('HSET', state, 'epoch', epoch, 'version', version, 'last', last, 'history', history)
redis.call('DEL', seeder, candidates)
redis.call('UNLINK', rows_before, log_before)
return 'done'
`);

/**
 * Reports how new a copy is, and asks for permission to seed if `wants` is '1'. Replies the time in ms,
 * whether the host may seed, and all candidates as `rank at-ms`, by host.
 */
const REPORT_COPY = scriptOf(`
local candidates, seeder = unpack(KEYS)
local host, rank, kept_ms, wants, batch_ms = unpack(ARGV)
local time = redis.call('TIME')
local now = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HSET', candidates, host, rank .. ' ' .. now)
redis.call('PEXPIRE', candidates, kept_ms)
local may = 'no'
local holder = redis.call('GET', seeder)
if wants == '1' and (not holder or holder == host) then
  redis.call('SET', seeder, host, 'PX', batch_ms)
  may = 'yes'
end
return {now, may, redis.call('HGETALL', candidates)}
`);

export interface ServerRegistry {
  readonly position: RegistryPosition;
  /** The first changes after the asker's version, oldest first; none if the asker has another epoch. */
  readonly changes: readonly ServerChange[];
  /** Why the change after `changes` cannot be read. A host that needs it downloads all rows. */
  readonly damage?: string | undefined;
}

/** How new a host's copy is, as the host has reported. */
interface Candidate {
  readonly host: string;
  /** `rankOf` of registry-reseed.ts. */
  readonly rank: string;
  /** How long ago the host has reported last. */
  readonly ageMs: number;
}

/** A change with thousands of rows takes the server some 100 ms. */
const APPEND_DEADLINE_MS = 5_000;
/** A reply may have some MB. */
const PULL_DEADLINE_MS = 5_000;
/** The longest wait for changes. Then the state is read, because the server may have been restarted. */
const WAIT_MS = 800;
const WAIT_DEADLINE_MS = 3_000;
/** After so long without a report of any host all candidates are forgotten. */
const CANDIDATES_KEPT_MS = 60_000;
/** How long a batch of a seeding may take. Each batch renews the permission to seed. */
const SEED_BATCH_MS_MAX = 30_000;

interface RegistryServerOptions {
  readonly client: ValkeyClient;
  /** Used by `wait` alone: commands that are sent after a waiting one would wait too. */
  readonly waiter: ValkeyClient;
  readonly namespace: string;
}

export class RegistryServer {
  readonly #options: RegistryServerOptions;
  readonly #client: ValkeyClient;
  readonly #keys: ReturnType<typeof registryKeys>;

  constructor(options: RegistryServerOptions) {
    this.#options = options;
    this.#client = options.client;
    this.#keys = registryKeys(options.namespace);
  }

  /** Reads the registry's position, and the changes after `from`. Undefined if the server has no registry. */
  async pull(from: RegistryPosition | undefined): Promise<ServerRegistry | undefined> {
    const { state, logOf } = this.#keys;
    const epoch = from?.epoch ?? '';
    const reply = await this.#client.run(PULL, [state, logOf(epoch)], [epoch, String(from?.version ?? 0)], {
      deadlineMs: PULL_DEADLINE_MS,
    });
    const [epochText, version, lastId, history, changes] = listOf(reply);
    if (epochText === undefined) return undefined;
    const position = readRecord(state, () => {
      const parsed = {
        epoch: textOf(epochText),
        version: Number(version),
        lastId: textOf(lastId),
        history: JSON.parse(textOf(history)) as unknown,
      };
      // The scripts compare the version as text, and write no '' or '07'.
      if (!isPosition(parsed) || String(parsed.version) !== textOf(version))
        throw new Error('it is no position');
      return parsed;
    });
    return { position, ...readableOf(listOf(changes), logOf(epoch)) };
  }

  /** Resolves when there may be something after `from`, or after some 800 ms. */
  async wait({ epoch, version }: RegistryPosition): Promise<void> {
    const key = this.#keys.logOf(epoch);
    await this.#options.waiter.command(
      key,
      ['XREAD', 'COUNT', '1', 'BLOCK', String(WAIT_MS), 'STREAMS', key, `${version}-0`],
      { deadlineMs: WAIT_DEADLINE_MS },
    );
  }

  /** Appends the change `id`. `behind`: another came first. `other`: another registry is there, or none. */
  async append(
    from: RegistryPosition,
    id: string,
    rows: readonly RegistryRow[],
  ): Promise<'done' | 'behind' | 'other'> {
    const { state, logOf, rowsOf } = this.#keys;
    const reply = await this.#client.run(
      APPEND,
      [state, logOf(from.epoch), rowsOf(from.epoch)],
      [from.epoch, String(from.version), from.lastId, id, JSON.stringify(rows.map(argumentsOf))],
      { deadlineMs: APPEND_DEADLINE_MS },
    );
    if (reply === 'done' || reply === 'behind' || reply === 'other') return reply;
    throw unexpected(reply);
  }

  /** Reports how new this host's copy is. With `wantsToSeed` asks for permission to seed: `may`. */
  async reportCopy(
    { host, rank }: Pick<Candidate, 'host' | 'rank'>,
    { wantsToSeed }: { readonly wantsToSeed: boolean },
  ): Promise<{ readonly may: boolean; readonly candidates: readonly Candidate[] }> {
    const { candidates, seeder } = this.#keys;
    const reply = await this.#client.run(
      REPORT_COPY,
      [candidates, seeder],
      [host, rank, String(CANDIDATES_KEPT_MS), wantsToSeed ? '1' : '0', String(SEED_BATCH_MS_MAX)],
    );
    const [nowMs, may, reportsByHost] = listOf(reply);
    return {
      may: may === 'yes',
      candidates: pairsOf(reportsByHost).map(([candidate, report]) => {
        const [rankOfCopy = '', atMs = '0'] = report.split(' ');
        return { host: candidate, rank: rankOfCopy, ageMs: Number(nowMs) - Number(atMs) };
      }),
    };
  }

  /** Puts rows of an epoch that does not count yet. Resolves with false if the host may not seed any more. */
  async putRows(host: string, epoch: string, rows: readonly RegistryRow[]): Promise<boolean> {
    const { seeder, rowsOf } = this.#keys;
    const fields = rows.map(argumentsOf).flatMap(([row, value]) => [row, String(value)]);
    const reply = await this.#client.run(
      PUT_ROWS,
      [seeder, rowsOf(epoch)],
      [host, String(SEED_BATCH_MS_MAX), ...fields],
      { deadlineMs: APPEND_DEADLINE_MS },
    );
    return reply === 'done';
  }

  /**
   * Makes `next`, of which `rowCount` rows were put, the server's registry. Returns false if the server has
   * another registry than `before`, or lacks rows, or another host has the permission to seed.
   */
  async finishSeed(
    host: string,
    before: RegistryPosition | undefined,
    next: RegistryPosition,
    rowCount: number,
  ): Promise<boolean> {
    const { state, seeder, candidates, rowsOf, logOf } = this.#keys;
    const formerEpoch = before?.epoch ?? '';
    const reply = await this.#client.run(
      FINISH_SEED,
      [state, seeder, candidates, rowsOf(next.epoch), rowsOf(formerEpoch), logOf(formerEpoch)],
      [
        host,
        formerEpoch,
        before === undefined ? '' : String(before.version),
        next.epoch,
        String(next.version),
        next.lastId,
        JSON.stringify(next.history),
        String(rowCount),
      ],
    );
    return reply === 'done';
  }

  /** Removes the rows of an epoch that does not count. */
  async dropEpoch(epoch: string): Promise<void> {
    const key = this.#keys.rowsOf(epoch);
    await this.#client.command(key, ['UNLINK', key]);
  }

  /**
   * Reads all rows, or those of `table`, in batches of about `count` or less. They come in no order, some of
   * them twice, and some as a change meanwhile has made them.
   */
  async *rows(epoch: string, count: number, table?: RegistryRow['table']): AsyncGenerator<RegistryRow[]> {
    const key = this.#keys.rowsOf(epoch);
    // A row's name begins with its table, as `argumentsOf` writes it. The [ is escaped, because it has a
    // meaning in patterns.
    const match = table === undefined ? [] : ['MATCH', `\\[${JSON.stringify(table)},*`];
    let cursor = '0';
    do {
      const args = ['HSCAN', key, cursor, 'COUNT', String(count), ...match];
      const reply = await this.#client.command(key, args, { deadlineMs: PULL_DEADLINE_MS });
      const [nextCursor, fields] = listOf(reply);
      yield pairsOf(fields).map(rowOf);
      cursor = textOf(nextCursor);
    } while (cursor !== '0');
  }
}
