/**
 * The body of a Messages request in the form that Google Cloud and Bedrock want: without `model`, which the
 * caller of this file puts into the path, and with `anthropic_version` and the betas as members.
 * vertex/vertex.ts and bedrock/claude.ts call it for passed calls. Upstream worker.
 *
 * Follows platform.claude.com, pages "Claude on Vertex AI" and "Claude on Amazon Bedrock", 2026-11.
 *
 * Must hold: all other members stay byte for byte as the caller wrote them
 * (test/unit/providers/bedrock/claude.test.ts).
 */
import { JsonReader } from '../../protocol/json-reader.js';
import { mergedBetas } from './anthropic.js';

/** The clouds refuse `model`. The others are written anew: callers send betas as a header. */
const OWN_MEMBERS = ['model', 'anthropic_version', 'anthropic_beta'] as const;

export interface CloudBody {
  /** The value of `model`. */
  readonly model: string;
  readonly body: string;
}

/**
 * `body` is a valid request: the door has checked it. `version`: the cloud's own, for `anthropic_version`.
 * `betas`: names of the settings. `callersBetas`: the caller's `anthropic-beta` header. `removed`: a
 * further member to take out. `added`: a member to add unless the body has it, with its JSON text.
 */
export function cloudBodyOf(
  body: string | Uint8Array,
  version: string,
  betas: readonly string[],
  callersBetas: string,
  removed?: string,
  added?: readonly [name: string, json: string],
): CloudBody {
  const { model, others, names } = membersOf(body, removed);
  const merged = mergedBetas(betas, callersBetas);
  const own = [`"anthropic_version":${JSON.stringify(version)}`];
  if (merged.length > 0) own.push(`"anthropic_beta":${JSON.stringify(merged)}`);
  if (added !== undefined && !names.includes(added[0])) own.push(`"${added[0]}":${added[1]}`);
  return { model, body: `{${[...own, ...others].join(',')}}` };
}

/** The value of `model`, the text of the other members with their names, and those names. */
function membersOf(
  body: string | Uint8Array,
  removed: string | undefined,
): { model: string; others: string[]; names: string[] } {
  const reader = new JsonReader(typeof body === 'string' ? Buffer.from(body) : body);
  let model = '';
  const others: string[] = [];
  const names: string[] = [];
  reader.space();
  if (!reader.openObject()) return { model, others, names };
  do {
    const start = reader.at;
    reader.skipString();
    const name = reader.decoded(start, reader.at);
    reader.colon();
    const valueStart = reader.at;
    reader.skipValue();
    if (name === 'model') model = reader.decoded(valueStart, reader.at);
    if (name === removed || (OWN_MEMBERS as readonly string[]).includes(name)) continue;
    names.push(name);
    others.push(reader.bytes.toString('utf8', start, reader.at));
  } while (reader.moreMembers());
  return { model, others, names };
}
