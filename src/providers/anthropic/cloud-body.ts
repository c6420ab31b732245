/**
 * The body of a request to Messages as clouds that serve Claude want it: the model is in the path, versions
 * are in the body. All other members stay as they are written. Vertex and Bedrock use it. Upstream worker.
 */
import { JsonReader } from '../../protocol/json-reader.js';
import { mergedBetas } from './anthropic.js';

/** Members that the gateway writes, or that a cloud does not take. */
const OWN_MEMBERS = ['model', 'anthropic_version', 'anthropic_beta'] as const;

export interface CloudBody {
  /** The value of `model`. */
  readonly model: string;
  readonly body: string;
}

/**
 * `body` was checked when it came. `betas`: of the settings. `given`: the caller's header. `without`: a
 * further member that is taken out. `more`: a member that is added unless it is there, with its JSON.
 */
export function cloudBodyOf(
  body: string | Uint8Array,
  version: string,
  betas: readonly string[],
  given: string,
  without?: string,
  more?: readonly [name: string, json: string],
): CloudBody {
  const { model, others, names } = membersOf(body, without);
  const merged = mergedBetas(betas, given);
  const added = [`"anthropic_version":${JSON.stringify(version)}`];
  if (merged.length > 0) added.push(`"anthropic_beta":${JSON.stringify(merged)}`);
  if (more !== undefined && !names.includes(more[0])) added.push(`"${more[0]}":${more[1]}`);
  return { model, body: `{${[...added, ...others].join(',')}}` };
}

/** The value of `model`, and the other members as they are written. */
function membersOf(
  body: string | Uint8Array,
  without: string | undefined,
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
    if (name === without || (OWN_MEMBERS as readonly string[]).includes(name)) continue;
    names.push(name);
    others.push(reader.bytes.toString('utf8', start, reader.at));
  } while (reader.moreMembers());
  return { model, others, names };
}
