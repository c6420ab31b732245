/**
 * The admin interface as tests use it: accounts, keys, credit.
 */
import type { AccountView } from '#src/admin/views.js';
import { request, type Answer } from './http.js';

export type { AccountView };

export interface Customer {
  readonly accountId: string;
  readonly keyId: string;
  readonly key: string;
}

export class AdminClient {
  readonly port: number;
  readonly token: string;
  #accounts = 0;

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

  /** An account with one key. Names are made up. */
  async customer(options: { plan?: string; credit?: string } = {}): Promise<Customer> {
    this.#accounts += 1;
    const account = await this.#done('POST', '/admin/v1/accounts', {
      name: `customer-${this.#accounts}`,
      plan: options.plan ?? 'ample',
      credit: options.credit ?? '100.00',
    });
    const accountId = (account as { id: string }).id;
    const made = await this.#done('POST', '/admin/v1/keys', { account: accountId, name: 'test' });
    const { id, key } = made as { id: string; key: string };
    return { accountId, keyId: id, key };
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
