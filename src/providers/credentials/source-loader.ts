/**
 * Makes the source of credentials for a spec. credential-keeper.ts and gateway/upstream-probe.ts call it.
 * Main thread of a gateway process, and commands. Its tests are those of the sources
 * (test/unit/providers/credentials/credential-source.test.ts).
 *
 * Must hold: the module of a cloud is loaded only when the settings need it, because its packages take 5 to
 * 20 MB of memory. So this file imports the three modules within the function, and no other file does.
 */
import type { CredentialSource } from './credential-source.js';
import type { CredentialSpec } from './credential-spec.js';

/** The source of the spec's cloud, which each renewal calls. */
export async function openSource(
  spec: CredentialSpec,
  env: NodeJS.ProcessEnv = process.env,
): Promise<CredentialSource> {
  switch (spec.kind) {
    case 'google':
      return (await import('./google-source.js')).googleSource(spec, env);
    case 'aws':
      return (await import('./aws-source.js')).awsSource(spec, env);
    case 'entra':
      return (await import('./entra-source.js')).entraSource(env);
  }
}
