/**
 * Anthropic's Messages API as a Provider (provider.ts): path, headers, versions; and bodies of passed calls
 * in the form of a cloud. provider-client.ts calls ANTHROPIC, vertex/ and bedrock/ `cloudBodyOf` and
 * `knownBetasOf`. The other files of this folder translate, for the clouds too. Upstream worker; `write` also
 * on counter threads.
 *
 * Follows platform.claude.com, pages "API overview", "Versions", "Beta headers", "Claude on Vertex AI" and
 * "Claude on Amazon Bedrock", 2026-11.
 *
 * Must hold: `headersOf` compares all that headers are made of before it reuses them
 * (test/unit/providers/anthropic/request.test.ts). In a cloud's body all members but REMOVED_MEMBERS and
 * `alsoRemoved` stay byte for byte as the caller wrote them
 * (test/unit/providers/bedrock/claude.test.ts).
 */
import { DOOR_PATHS } from '../../core/door-names.js';
import { exactJsonText } from '../../core/exact-json.js';
import { JsonReader } from '../../protocol/json-reader.js';
import { authorizationOf, type Provider, type ProviderCall, type ProviderSettings } from '../provider.js';
import { readAnthropicError } from './errors.js';
import { writeMessages } from './request.js';
import { readMessage } from './response.js';
import { MessageStream } from './stream.js';

export const ANTHROPIC: Provider = {
  write(call) {
    const { settings, model } = call;
    return {
      path: `${settings.basePath}/v1/messages`,
      body: exactJsonText({ model, ...writeMessages(call) }),
    };
  },
  headers: (call) => headersOf(call, call.settings.betas),
  readResponse: readMessage,
  openStream: (call) => new MessageStream(call),
  readError: readAnthropicError,
  writePassed(call, body, { door, betas: callersBetas }) {
    const { basePath, betas } = call.settings;
    const headers = headersOf(call, mergedBetas(betas, callersBetas));
    return { path: `${basePath}${DOOR_PATHS[door]}`, headers, body };
  },
};

/**
 * The headers of each upstream's last call, which are mostly those of the next: the HTTP client writes the
 * headers of one list object only once. A settings object never changes.
 */
const LAST_HEADERS = new WeakMap<ProviderSettings, LastHeaders>();

/** Headers, and what they were made of besides the settings. */
interface LastHeaders {
  /** The value of `anthropic-beta`; empty without the header. */
  readonly betaHeader: string;
  readonly kind: string | undefined;
  readonly secret: string | undefined;
  readonly headers: readonly string[];
}

function headersOf({ settings, credential }: ProviderCall, betas: readonly string[]): readonly string[] {
  const betaHeader = betas.length === 0 ? '' : betas.join(',');
  const kind = credential?.kind;
  let secret: string | undefined;
  if (credential?.kind === 'key') secret = credential.key;
  else if (credential?.kind === 'bearer') secret = credential.token;
  const lastHeaders = LAST_HEADERS.get(settings);
  if (lastHeaders?.betaHeader === betaHeader && lastHeaders.kind === kind && lastHeaders.secret === secret)
    return lastHeaders.headers;
  const headers = ['anthropic-version', settings.apiVersion];
  if (betaHeader !== '') headers.push('anthropic-beta', betaHeader);
  headers.push(...authorizationOf(credential, 'x-api-key'));
  LAST_HEADERS.set(settings, { betaHeader, kind, secret, headers });
  return headers;
}

/** The beta names of the settings and those of the caller's `anthropic-beta` header, each once. */
function mergedBetas(settingsBetas: readonly string[], callersBetas: string): readonly string[] {
  if (callersBetas === '') return settingsBetas;
  const names = callersBetas.split(',').map((name) => name.trim());
  return [...new Set([...settingsBetas, ...names.filter((name) => name !== '')])];
}

/**
 * Members that cloudBodyOf always removes: clouds reject `model`, and the other two it writes itself. What a
 * caller wrote there is dropped, or the body would have the member twice.
 */
const REMOVED_MEMBERS = ['model', 'anthropic_version', 'anthropic_beta'] as const;

interface CloudBody {
  readonly model: string;
  readonly body: string;
}

interface CloudForm {
  /** The member `anthropic_version`. */
  readonly version: string;
  /** Of the settings: together with `callersBetas` the member `anthropic_beta`. */
  readonly betas: readonly string[];
  /** A result of `knownBetasOf`. */
  readonly callersBetas: string;
  readonly alsoRemoved?: string;
  /**
   * A member to add unless the body has it, such as `max_tokens`. `jsonOf` gets the other members, each as
   * `"name":value`, and returns the JSON text of the new member's value.
   */
  readonly added?: readonly [name: string, jsonOf: (otherMembers: readonly string[]) => string];
}

/** The body of a passed call in the form of a cloud. The door has checked `body`. */
export function cloudBodyOf(
  body: string | Uint8Array,
  { version, betas, callersBetas, alsoRemoved, added }: CloudForm,
): CloudBody {
  const { model, otherMembers, names } = membersOf(body, alsoRemoved);
  const allBetas = mergedBetas(betas, callersBetas);
  const firstMembers = [`"anthropic_version":${JSON.stringify(version)}`];
  if (allBetas.length > 0) firstMembers.push(`"anthropic_beta":${JSON.stringify(allBetas)}`);
  if (added !== undefined && !names.includes(added[0]))
    firstMembers.push(`"${added[0]}":${added[1](otherMembers)}`);
  return { model, body: `{${[...firstMembers, ...otherMembers].join(',')}}` };
}

/**
 * The caller's `anthropic-beta` header without the names that a cloud lacks; spaces around names stay.
 * Bedrock and Vertex reject the whole request for such a name, and coding agents send names that only
 * Anthropic's own service has. Operators add newer names with the setting `betas`.
 */
export function knownBetasOf(callersBetas: string, isKnown: (name: string) => boolean): string {
  return callersBetas
    .split(',')
    .filter((name) => isKnown(name.trim()))
    .join(',');
}

/** The value of the last `model`, the texts `"name":value` of the other members, and their names. */
function membersOf(
  body: string | Uint8Array,
  alsoRemoved: string | undefined,
): { model: string; otherMembers: string[]; names: string[] } {
  const reader = new JsonReader(typeof body === 'string' ? Buffer.from(body) : body);
  let model = '';
  const otherMembers: string[] = [];
  const names: string[] = [];
  reader.skipSpace();
  // False for `{}`, which has no member to read. The door rejects it.
  if (!reader.openObject()) return { model, otherMembers, names };
  do {
    const start = reader.position;
    reader.skipString();
    const name = reader.decoded(start, reader.position);
    reader.skipColon();
    const valueStart = reader.position;
    reader.skipValue();
    if (name === 'model') model = reader.decoded(valueStart, reader.position);
    if (name === alsoRemoved || (REMOVED_MEMBERS as readonly string[]).includes(name)) continue;
    names.push(name);
    otherMembers.push(reader.bytes.toString('utf8', start, reader.position));
  } while (reader.moreMembers());
  return { model, otherMembers, names };
}
