/**
 * The credentials of a worker's upstreams, which the main thread renews. upstream-task.ts makes a table for
 * its worker, gateway/upstream-probe.ts in the main thread; ProviderClient reads it. Upstream worker.
 *
 * Must hold: no listener, no log and no caller gets a token, not even in a provider's message. Each
 * generation (credential-spec.ts) that a provider rejects is reported once. A rejection of a call that began
 * with an earlier generation is not reported (test/unit/upstream/credential-table.test.ts).
 */
import { type CredentialRecord, secretsOfCredential } from '../providers/credentials/credential-spec.js';
import type { Credential, Credentials } from '../providers/provider.js';
import { SecretFragments } from './secret-fragments.js';

/** Replaces a provider's message that repeats a token in a spelling that cannot be cut out. */
const HIDDEN = 'the message of the provider is not shown: it repeats a credential';

export class CredentialTable implements Credentials {
  /** By the credential's position in the settings. */
  readonly #records = new Map<number, CredentialRecord>();
  /** By position: the last generation that was rejected and reported. */
  readonly #reported = new Map<number, number>();
  /** By credential; made when a provider first reports an error of a call with the credential. */
  readonly #fragments = new WeakMap<Credential, SecretFragments>();
  readonly #onRejected: (position: number, generation: number) => void;

  /** `onRejected` is called once for each generation that a provider rejects. */
  constructor(
    records: readonly CredentialRecord[],
    onRejected: (position: number, generation: number) => void,
  ) {
    this.#onRejected = onRejected;
    this.replace(records);
  }

  /** Replaces the records of these positions. Returns those that have a credential now and had none. */
  replace(records: readonly CredentialRecord[]): number[] {
    const filled: number[] = [];
    for (const record of records) {
      const { position, credential } = record;
      if (credential !== undefined && this.credentialAt(position) === undefined) filled.push(position);
      // The keeper may have dropped the credential: if it is named again, its generations begin with 0 again.
      if (credential === undefined) this.#reported.delete(position);
      this.#records.set(position, record);
    }
    return filled;
  }

  credentialAt(position: number): Credential | undefined {
    return this.#records.get(position)?.credential;
  }

  /** A provider has rejected a call with `credential`, which may have been renewed since the call began. */
  rejected(position: number, credential: Credential): void {
    const record = this.#records.get(position);
    if (record?.credential !== credential || this.#reported.get(position) === record.generation) return;
    this.#reported.set(position, record.generation);
    this.#onRejected(position, record.generation);
  }

  /** `text` without fragments of the credential; HIDDEN if they cannot be cut out. */
  withoutSecrets(credential: Credential, text: string): string {
    let fragments = this.#fragments.get(credential);
    if (fragments === undefined) {
      fragments = new SecretFragments(secretsOfCredential(credential));
      this.#fragments.set(credential, fragments);
    }
    return fragments.cleaned(text) ?? HIDDEN;
  }
}
