/**
 * AWS credentials by the default provider chain of the AWS SDK: environment, SSO, web identity, shared files
 * with `profile`, a process, the container's endpoint (ECS, EKS Pod Identity), the instance's metadata.
 * Follows https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html (2026-11).
 * source-loader.ts loads this file when an upstream of Bedrock has no key. Main thread of a gateway
 * process, and commands.
 *
 * Must hold: a source returns no cached credential
 * (test/unit/providers/credentials/credential-source.test.ts). The patterns of `awsErrorOf` are messages of
 * the AWS SDK: look at them after an update of the package.
 */
import { defaultProvider } from '@aws-sdk/credential-provider-node';
import { CredentialError, credentialErrorOf, type CredentialSource } from './credential-source.js';
import type { CredentialSpec } from './credential-spec.js';

/** `env`: only AWS_PROFILE is read of it, for advice; the SDK reads the process's environment itself. */
export function awsSource(
  { profile }: CredentialSpec & { kind: 'aws' },
  env: NodeJS.ProcessEnv,
): CredentialSource {
  return async () => {
    try {
      // A new chain each time, because a chain caches its result and what it read of the shared files.
      const provide = defaultProvider({ ignoreCache: true, ...(profile === undefined ? {} : { profile }) });
      const { accessKeyId, secretAccessKey, sessionToken, expiration } = await provide();
      if (!isText(accessKeyId) || !isText(secretAccessKey))
        throw new CredentialError('the credentials have no access key', ADVICE);
      return {
        credential: { kind: 'aws', accessKeyId, secretAccessKey, sessionToken },
        expiresMs: expiration === undefined ? undefined : expiration.getTime(),
      };
    } catch (error) {
      throw awsErrorOf(error, profile ?? env.AWS_PROFILE);
    }
  };
}

const ADVICE = 'see that the role or user of these credentials exists, and may be used from here';

const isText = (value: unknown): boolean => typeof value === 'string' && value !== '';

/** The error for operators, with advice by the SDK's message. `profile`: undefined if none is set. */
function awsErrorOf(error: unknown, profile: string | undefined): CredentialError {
  const text = error instanceof Error ? error.message : String(error);
  const foundNone = /Could not load credentials from any providers/i.test(text);
  if (foundNone && profile === undefined)
    return new CredentialError(
      'no credentials of AWS were found',
      'set key (an API key of Bedrock), profile, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run with a role of AWS',
    );
  if (foundNone || /Could not resolve credentials using profile|Profile .{0,200} (not|could)/i.test(text))
    return credentialErrorOf(
      error,
      `see that the profile ${profile ?? 'default'} is in ~/.aws/credentials or ~/.aws/config of the user that runs the gateway`,
    );
  if (/sso|token is expired|aws sso login/i.test(text))
    return credentialErrorOf(error, 'run `aws sso login` for this profile; for a server use a role');
  if (/SignatureDoesNotMatch|RequestExpired|skew/i.test(text))
    return credentialErrorOf(error, 'the clock of this machine is wrong: see that it is set by NTP');
  return credentialErrorOf(error, ADVICE);
}
