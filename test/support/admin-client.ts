/**
 * The admin interface as tests use it: accounts, keys, credit.
 */
import type { AccountView, GroupView, QuotasView } from '#src/admin/views.js';
import { request, type Answer } from './http.js';

export type { AccountView };

export interface Customer {
  readonly accountId: string;
  readonly keyId: string;
  readonly key: string;
}

export interface UsageRow {
  /** Those that failed too. */
  readonly calls: number;
  readonly estimated_calls: number;
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly cost: string;
}

export class AdminClient {
  readonly port: number;
  readonly token: string;
  #accounts = 0;
  #groups = 0;

  constructor(port: number, token: string) {
    this.port = port;
    this.token = token;
  }

  /** Any request with the token; what it answers, good or bad. */
  send(method: string, path: string, body?: object): Promise<Answer> {
    return request({
      port: this.port,
      method,
      path,
      body,
      headers: { authorization: `Bearer ${this.token}` },
    });
  }

  /** An account with one key, which has `limits`. Names are made up. */
  async customer(
    options: { plan?: string; credit?: string; group?: string; limits?: object } = {},
  ): Promise<Customer> {
    this.#accounts += 1;
    const account = await this.#done('POST', '/admin/v1/accounts', {
      name: `customer-${this.#accounts}`,
      plan: options.plan ?? 'ample',
      credit: options.credit ?? '100.00',
      ...(options.group === undefined ? {} : { group: options.group }),
    });
    const accountId = (account as { id: string }).id;
    const keyOf = { account: accountId, name: 'test', ...options.limits };
    const made = await this.#done('POST', '/admin/v1/keys', keyOf);
    const { id, key } = made as { id: string; key: string };
    return { accountId, keyId: id, key };
  }

  /** A group with quotas, perhaps in a `parent`. Returns its name, which is made up. */
  async group(fields: { parent?: string; [quota: string]: unknown }): Promise<string> {
    this.#groups += 1;
    const name = `group-${this.#groups}`;
    await this.#done('POST', '/admin/v1/groups', { name, ...fields });
    return name;
  }

  /** What the books have of an account's calls of one model. */
  async usageOf(accountId: string): Promise<UsageRow | undefined> {
    const { data } = (await this.#done('GET', `/admin/v1/usage?account=${accountId}&by=model`)) as {
      data: readonly UsageRow[];
    };
    return data[0];
  }

  /** What is used of the quotas of a group. */
  async groupQuotas(group: string): Promise<QuotasView> {
    return ((await this.#done('GET', `/admin/v1/groups/${group}`)) as GroupView).quotas;
  }

  async account(accountId: string): Promise<AccountView> {
    return (await this.#done('GET', `/admin/v1/accounts/${accountId}`)) as AccountView;
  }

  async credit(accountId: string, amount: string): Promise<void> {
    await this.#done('POST', `/admin/v1/accounts/${accountId}/credit`, { amount });
  }

  async disableKey(keyId: string): Promise<void> {
    await this.#done('POST', `/admin/v1/keys/${keyId}/disable`, {});
  }

  async #done(method: string, path: string, body?: object): Promise<unknown> {
    const answer = await this.send(method, path, body);
    if (answer.status < 200 || answer.status > 299) {
      throw new Error(`${method} ${path} answered ${answer.status}: ${answer.body}`);
    }
    return answer.json();
  }
}
