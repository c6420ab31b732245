/**
 * Changes to a request's text on its way upstream. The text is spliced and never written anew, so that what the client sent stays
 * byte for byte as it was everywhere else. Pure; any thread.
 */
import { OUTPUT_TOKENS_FIELDS, type ChatCall } from './chat-call.js';
import { MemberCursor } from './member-scan.js';

/** Put in for `[start, end)` of a text, or of its bytes. */
export interface Splice {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** A body and where the model's name stands in it, with its quotes. */
export type ModelBody = Pick<ChatCall, 'body' | 'modelStart' | 'modelEnd'>;

/** The body with `splice` made, and the span of the model's name where it stands then. `splice` does not touch that span. */
function spliced(from: ModelBody, splice: Splice): ModelBody {
  const { body, modelStart, modelEnd } = from;
  const shift = splice.start < modelStart ? splice.text.length - (splice.end - splice.start) : 0;
  return {
    body: body.slice(0, splice.start) + splice.text + body.slice(splice.end),
    modelStart: modelStart + shift,
    modelEnd: modelEnd + shift,
  };
}

/** The body with the upstream's own name of the model. Costs a copy of the body where the result is written. */
export function withModelName(call: ModelBody, name: string): string {
  return call.body.slice(0, call.modelStart) + JSON.stringify(name) + call.body.slice(call.modelEnd);
}

/** The call under the model's name `id`, for one that names it by an alias. Costs a copy of the body. */
export function withModelId(call: ChatCall, id: string): ChatCall {
  const { largeBody, modelStart, modelEnd } = call;
  if (largeBody === undefined) {
    const body = withModelName(call, id);
    return { ...call, model: id, body, modelEnd: modelEnd + body.length - call.body.length };
  }
  const name = Buffer.from(JSON.stringify(id));
  // A buffer of its own: it is transferred to a worker.
  const renamed = new Uint8Array(largeBody.length - (modelEnd - modelStart) + name.length);
  renamed.set(largeBody.subarray(0, modelStart));
  renamed.set(name, modelStart);
  renamed.set(largeBody.subarray(modelEnd), modelStart + name.length);
  return { ...call, model: id, largeBody: renamed, modelEnd: modelStart + name.length };
}

/**
 * The call with at most `value` output tokens, for an account that can afford no more: lowers the field that the client used (both,
 * if it used both), or adds `max_tokens` where it gave none. `value` is an integer from 0. Scans the body once.
 */
export function withOutputTokensMax(call: ChatCall, value: number): ChatCall {
  const { largeBody } = call;
  if (largeBody === undefined) return lowered(call, value);
  // Read as Latin-1 each byte is a character, so places in the text are places in the bytes; what is looked for is ASCII.
  const { buffer, byteOffset, length } = largeBody;
  const body = Buffer.from(buffer, byteOffset, length).toString('latin1');
  const changed = lowered({ ...call, body }, value);
  return { ...changed, body: '', largeBody: new Uint8Array(Buffer.from(changed.body, 'latin1')) };
}

function lowered(call: ChatCall, value: number): ChatCall {
  const text = String(value);
  const members = new MemberCursor(call.body, call.body.indexOf('{'));
  const splices: Splice[] = [];
  let unset: Splice | undefined;
  let isGiven = false;
  while (members.next()) {
    if (!OUTPUT_TOKENS_FIELDS.some((field) => members.isNamed(field))) continue;
    const splice = { start: members.valueStart, end: members.valueEnd, text };
    const given = JSON.parse(call.body.slice(splice.start, splice.end)) as number | null;
    if (given === null) {
      unset ??= splice;
      continue;
    }
    isGiven = true;
    if (given > value) splices.push(splice);
  }
  if (!isGiven)
    splices.push(unset ?? { start: members.end, end: members.end, text: `,"max_tokens":${text}` });
  // From the back, so that the spans before stay true.
  const changed = splices.reduceRight<ModelBody>((from, splice) => spliced(from, splice), call);
  return {
    ...call,
    body: changed.body,
    modelStart: changed.modelStart,
    modelEnd: changed.modelEnd,
    outputTokensMax: Math.min(call.outputTokensMax ?? value, value),
  };
}
