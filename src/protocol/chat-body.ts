/**
 * Changes to a request's body on its way upstream. It is spliced and never written anew, so that what the client sent stays
 * byte for byte as it was everywhere else. Pure; any thread.
 *
 * Where to splice was seen when the body was read: to look for it again would cost a listener 10 to 60 ms of a body of 10 MB.
 */
import type { ChatCall } from './chat-call.js';
import type { Span } from './chat-scan.js';

/** Put in for `[start, end)` of a text, or of its bytes. */
export interface Splice {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** A body and where the model's name stands in it, with its quotes. */
export type ModelBody = Pick<ChatCall, 'body' | 'modelStart' | 'modelEnd'>;

/** The body with the upstream's own name of the model. Costs a copy of the body where the result is written. */
export function withModelName(call: ModelBody, name: string): string {
  return call.body.slice(0, call.modelStart) + JSON.stringify(name) + call.body.slice(call.modelEnd);
}

/** The call under the model's name `id`, for one that names it by an alias. Costs a copy of the body. */
export function withModelId(call: ChatCall, id: string): ChatCall {
  const name = { start: call.modelStart, end: call.modelEnd, text: JSON.stringify(id) };
  return { ...spliced(call, [name]), model: id };
}

/**
 * The call with at most `value` output tokens, for an account that can afford no more: lowers the field that the client used (both,
 * if it used both), or adds `max_tokens` where it gave none. `value` is an integer from 0. Costs a copy of the body.
 */
export function withOutputTokensMax(call: ChatCall, value: number): ChatCall {
  const text = String(value);
  const fields = [call.maxTokens, call.maxCompletionTokens].filter(({ end }) => end > 0);
  // NaN of a null.
  const given = fields.map((span) => Number(textAt(call, span)));
  const outputTokensMax = Math.min(call.outputTokensMax ?? value, value);
  if (given.some((asked) => !Number.isNaN(asked))) {
    const tooHigh = fields.filter((_, index) => given[index]! > value).sort((a, b) => a.start - b.start);
    const lowered =
      tooHigh.length === 0
        ? call
        : spliced(
            call,
            tooHigh.map((span) => ({ ...span, text })),
          );
    return { ...lowered, outputTokensMax };
  }
  const [unset] = fields;
  if (unset !== undefined) return { ...spliced(call, [{ ...unset, text }]), outputTokensMax };
  const { bodyEnd } = call;
  const member = spliced(call, [{ start: bodyEnd, end: bodyEnd, text: `,"max_tokens":${text}` }]);
  const maxTokens = { start: member.bodyEnd - text.length, end: member.bodyEnd };
  return { ...member, maxTokens, outputTokensMax };
}

function textAt({ body, largeBody }: ChatCall, { start, end }: Span): string {
  if (largeBody === undefined) return body.slice(start, end);
  return Buffer.from(largeBody.buffer, largeBody.byteOffset + start, end - start).toString('latin1');
}

/** The call with `splices` made in its body, which stand in their order: each at a value, or before the brace at the body's end. */
function spliced(call: ChatCall, splices: readonly Splice[]): ChatCall {
  const { body, largeBody } = call;
  const growths = splices.map(({ start, end, text }) =>
    largeBody === undefined ? text.length - (end - start) : Buffer.byteLength(text) - (end - start),
  );
  const sum = growths.reduce((left, right) => left + right, 0);
  const moved = ({ start, end }: Span): Span => {
    if (end === 0) return { start, end };
    let shift = 0;
    let growth = 0;
    for (const [index, splice] of splices.entries()) {
      if (splice.start < start) shift += growths[index]!;
      else if (splice.start === start) growth = growths[index]!;
    }
    return { start: start + shift, end: end + shift + growth };
  };
  const model = moved({ start: call.modelStart, end: call.modelEnd });
  return {
    ...call,
    body: largeBody === undefined ? splicedText(body, splices) : '',
    largeBody: largeBody && splicedBytes(largeBody, splices, sum),
    modelStart: model.start,
    modelEnd: model.end,
    maxTokens: moved(call.maxTokens),
    maxCompletionTokens: moved(call.maxCompletionTokens),
    bodyEnd: call.bodyEnd + sum,
  };
}

/** The text with `splices` made, which stand in their order. */
export function splicedText(text: string, splices: readonly Splice[]): string {
  let result = '';
  let at = 0;
  for (const splice of splices) {
    result += text.slice(at, splice.start) + splice.text;
    at = splice.end;
  }
  return result + text.slice(at);
}

/** The same with bytes, in memory of its own, which may be transferred; `growth` is how much longer the result is. */
export function splicedBytes(bytes: Uint8Array, splices: readonly Splice[], growth: number): Buffer {
  const copy = Buffer.allocUnsafeSlow(bytes.length + growth);
  let from = 0;
  let to = 0;
  for (const splice of splices) {
    copy.set(bytes.subarray(from, splice.start), to);
    to += splice.start - from;
    to += copy.write(splice.text, to);
    from = splice.end;
  }
  copy.set(bytes.subarray(from), to);
  return copy;
}
