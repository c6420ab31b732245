/**
 * Writes a call into the ring as a plain one, from the numbers of an EndedCall: for tests of what reads it.
 * A listener does so from what it has at hand (request/recorded-call.ts), which
 * test/unit/request/recorded-call.test.ts compares.
 */
import type { EndedCall } from '#src/telemetry/call-ring-layout.js';
import * as layout from '#src/telemetry/call-ring-layout.js';
import type { CallRingWriter } from '#src/telemetry/call-ring-writer.js';

const microsOf = (ms: number): number => Math.round(ms * 1_000);

/** The call went well at its only attempt, was charged and has no text. */
export function appendPlain(writer: CallRingWriter, call: EndedCall): void {
  const { usage, quotas, attempts } = call;
  const first64 = writer.beginPlain(quotas!.others);
  if (first64 === -1) return;
  const { floats, ints } = writer;
  floats[first64 + layout.PLAIN_REQUEST] = call.request;
  floats[first64 + layout.PLAIN_ENDED_MS] = call.endedMs;
  writer.amounts[first64 + layout.PLAIN_CHARGED] = usage!.charged;
  floats[first64 + layout.PLAIN_BALANCE] = quotas!.balance;
  const first32 = first64 << 1;
  const fields: readonly (readonly [number, number])[] = [
    [layout.PLAIN_ACCOUNT, call.account!],
    [layout.PLAIN_KEY, call.key!],
    [layout.PLAIN_MODEL, call.model!],
    [layout.PLAIN_ANSWERED, usage!.answered],
    [layout.PLAIN_UPSTREAM, call.upstream!],
    [
      layout.PLAIN_FLAGS,
      layout.STORED |
        (call.stream ? layout.STREAM : 0) |
        (call.begun ? layout.BEGUN : 0) |
        (call.cache === 'miss' ? layout.CACHE_MISS : 0) |
        (call.door << layout.DOOR_SHIFT) |
        (usage!.source << layout.SOURCE_SHIFT),
    ],
    [layout.PLAIN_QUEUED_MS, call.queuedMs],
    [layout.PLAIN_PROMPT, usage!.promptTokens],
    [layout.PLAIN_CACHED, usage!.cachedTokens],
    [layout.PLAIN_COMPLETION, usage!.completionTokens],
    [layout.PLAIN_CACHE_WRITE, usage!.cacheWriteTokens],
    [layout.PLAIN_CACHE_WRITE_1H, usage!.cacheWrite1hTokens],
    [layout.PLAIN_REASONING, usage!.reasoningTokens],
    [layout.PLAIN_DURATION, microsOf(call.durationMs)],
    [
      layout.PLAIN_FIRST_TOKEN,
      call.firstTokenMs === undefined ? layout.NOTHING : microsOf(call.firstTokenMs),
    ],
    [layout.PLAIN_ADMITTED, microsOf(call.admittedMs!)],
    [layout.PLAIN_ATTEMPT_START, microsOf(attempts[0]!.startMs)],
    [layout.PLAIN_ATTEMPT_US, microsOf(attempts[0]!.durationMs)],
    [layout.PLAIN_IN_FLIGHT, quotas!.inFlight],
    [layout.PLAIN_PER_DAY, quotas!.perDay],
    [layout.PLAIN_MINUTE, quotas!.minute ?? layout.NOTHING],
  ];
  for (const [field, value] of fields) ints[first32 + field] = value;
  writer.publish();
}
