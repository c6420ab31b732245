/**
 * Translates errors of Bedrock, in a response or a stream, into a ProviderFailure (provider.ts). bedrock.ts
 * calls `readError`, frames.ts `failureOf`. Pure; upstream worker.
 *
 * Must hold: no message has an ARN, account or key id of the operator (`withoutNames`), because callers read
 * messages (test/unit/providers/bedrock/errors.test.ts).
 *
 * Follows Amazon Bedrock API Reference, "Converse", "ConverseStream" and "Common Errors"; Amazon Bedrock User
 * Guide, "Troubleshooting Amazon Bedrock API Error Codes", 2026-11.
 */
import { membersOf, parsedJson } from '../../core/json.js';
import type { HeaderLookup } from '../../http1/http-client.js';
import { UNCOUNTED_STATUS, type ProviderFailure } from '../provider.js';

/**
 * Names of exceptions, by ProviderFailure.status: in lower case, because streams write them in camel case,
 * and without the `Exception` at their ends, which some errors lack.
 */
const NAMES: Readonly<Record<number, string>> = {
  400: 'validation serialization',
  403:
    'accessdenied expiredtoken incompletesignature invalidclienttokenid invalidsignature notauthorized ' +
    'missingauthenticationtoken optinrequired requestexpired unrecognizedclient',
  404: 'resourcenotfound',
  429: 'throttling toomanyrequests servicequotaexceeded',
  // Bedrock sends 429 for the first, but the model is still being loaded: no limit is exceeded.
  503: 'modelnotready serviceunavailable',
  // Bedrock sends 408, 424 and 500 for these.
  500: 'modeltimeout modelerror modelstreamerror internalserver internalfailure',
};
const STATUSES: ReadonlyMap<string, number> = new Map(
  Object.entries(NAMES).flatMap(([status, names]) =>
    names.split(' ').map((name) => [name, Number(status)] as const),
  ),
);

/** Texts of a ValidationException for a prompt that is too long. Each model has a text of its own. */
const TOO_LONG =
  /(?:input|prompt) is too long|too many (?:input )?tokens|maximum context|context (?:length|window|limit)|tokens exceed|exceed.{0,40}(?:maximum|limit).{0,40}tokens/i;
/** Texts of a ValidationException that the settings of the upstream cause, and not the request. */
const NO_SUCH_MODEL =
  /model identifier is invalid|on-demand throughput isn.t supported|model is not supported in this region/i;
/** Text of a ValidationException for a model whose tokens Bedrock cannot count. */
const CANNOT_COUNT = /support counting tokens/i;

/**
 * `name`: of the exception, as it came; empty if unknown. `status`: of the response; 500 in a stream, whose
 * response had a status of success.
 */
export function failureOf(name: string, message: string, status = 500): ProviderFailure {
  const statusByName = STATUSES.get(name.toLowerCase().replace(/exception$/, '')) ?? status;
  const publicMessage = withoutNames(message === '' ? `Bedrock answered with status ${status}` : message);
  if (statusByName === 400 && NO_SUCH_MODEL.test(message)) {
    return { status: 404, message: publicMessage, code: 'model_not_found' };
  }
  if (statusByName === 400 && CANNOT_COUNT.test(message))
    return { status: UNCOUNTED_STATUS, message: publicMessage };
  if (statusByName === 400 && TOO_LONG.test(message)) {
    return { status: 400, message: publicMessage, code: 'context_length_exceeded' };
  }
  if (statusByName === 404) return { status: 404, message: publicMessage, code: 'model_not_found' };
  // ProviderFailure (provider.ts) lists the statuses that have a meaning.
  const isListed = [400, 401, 403, 413, 429].includes(statusByName) || statusByName >= 500;
  return { status: isListed ? statusByName : 500, message: publicMessage };
}

/** Reads the error of a response whose status is not 2xx. `body` may be anything, also cut. Never throws. */
export function readError(status: number, header: HeaderLookup, body: string): ProviderFailure {
  const { message, Message, __type, code } = membersOf(parsedJson(body));
  const errorType = header('x-amzn-errortype') ?? __type ?? code;
  // `ValidationException:http://internal.amazon.com/…`, `com.amazon.coral.service#ValidationException`
  const name = typeof errorType === 'string' ? errorType.split(/[:,]/, 1)[0]!.split('#').at(-1)! : '';
  const text = typeof message === 'string' ? message : typeof Message === 'string' ? Message : '';
  return failureOf(name, text, status);
}

function withoutNames(message: string): string {
  return message
    .replace(/arn:aws[\w-]*:[^\s"'<>,;)\]}]*/g, 'a resource')
    .replace(/\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}/g, 'a key')
    .replace(/(?<![\w.-])\d{12}(?![\w-])/g, 'an account');
}
