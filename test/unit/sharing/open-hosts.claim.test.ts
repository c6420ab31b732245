/** Of hosts that want to tell the same, the first one does, also after a crash; without the server all do. */
import t from 'tap';
import { claimOf } from '#src/sharing/open-hosts.js';
import { ValkeyError, type ValkeyArgument } from '#src/sharing/valkey-client.js';

void t.test('who claims first has it', async (t) => {
  const held = new Map<string, string>();
  const sent: (readonly ValkeyArgument[])[] = [];
  let broken: Error | undefined;
  const client = {
    command: (_key: string | undefined, args: readonly ValkeyArgument[]) => {
      sent.push(args);
      if (broken !== undefined) return Promise.reject(broken);
      const [name, key, value] = args as readonly string[];
      if (name === 'GET') return Promise.resolve(held.get(key!) ?? null);
      if (held.has(key!)) return Promise.resolve(null);
      held.set(key!, value!);
      return Promise.resolve('OK');
    },
  };
  const claim = (host: string, key = '{tollgate:0}:claim:msg_1'): Promise<boolean> =>
    claimOf(client, key, host, 1_000.5);
  t.ok(await claim('one'));
  t.same(sent, [['SET', '{tollgate:0}:claim:msg_1', 'one', 'NX', 'PX', '1001']]);
  t.notOk(await claim('two'));
  t.ok(await claim('one'), 'it claims again after a crash');
  t.ok(await claim('two', '{tollgate:0}:claim:msg_2'));
  broken = new ValkeyError('offline', 'no connection');
  t.ok(await claim('two'), 'told twice rather than never');
  broken = new TypeError('a bug');
  await t.rejects(claim('two'), TypeError);
});
