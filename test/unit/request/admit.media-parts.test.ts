/** What a call holds for parts that are not text: `media_part_tokens` of each model that may answer. */
import t from 'tap';
import { decimalOf } from '#src/core/money.js';
import { asPicoUnits } from '#src/core/units.js';
import { NO_QUOTAS } from '#src/core/quotas.js';
import { admit } from '#src/request/admit.js';
import type { CallContext, ListenerContext } from '#src/request/context.js';
import { ModelAccess } from '#src/request/model-access.js';
import { CATALOG, chatCall, knownCaller, openHouse, type House } from './support.js';

const IMAGE = { type: 'image_url', image_url: { url: 'https://x.example/1' } };
const CALL = chatCall({ messages: [{ role: 'user', content: [IMAGE, IMAGE] }], max_tokens: 10 });
/** Of each of the two images. */
const TOKENS = 3_000;
/** Millionths of a unit: a token of the prompt costs 1, of the output 2. */
const held = (images: number, output = 10): string =>
  decimalOf(asPicoUnits(BigInt(CALL.bodyBytes + images * TOKENS + 2 * output) * 1_000_000n));
const heldBy = ({ listener, account }: House): string => decimalOf(listener.ledger.snapshot(account).held);

/** `tokens` of the models, as they stand in the catalogue; each has the next as its fallback. */
function mediaHouse(tokens: readonly number[], options: Parameters<typeof openHouse>[0] = {}): House {
  const house = openHouse(options);
  const models = CATALOG.models.map((model, index) => ({
    ...model,
    mediaPartTokens: tokens[index] ?? 0,
    fallbacks: tokens.length > 1 && index === 0 ? [2] : [],
  }));
  const plans = CATALOG.plans.map((plan) => ({ ...plan, modelIndices: [0, 1, 2] }));
  const catalog = { models, plans };
  const listener: ListenerContext = { ...house.listener, catalog, access: new ModelAccess(catalog) };
  return { ...house, listener };
}

function limited(house: House, tokensPerMinute: number): CallContext {
  return knownCaller(house, {
    quotas: { ...NO_QUOTAS, requestsPerMinute: 2, callsPerDay: 3, tokensPerMinute },
  });
}

void t.test('the hold has the tokens of each part', (t) => {
  for (const [tokens, images] of [
    [[0], 0],
    [[TOKENS], 2],
    [[0, 0, TOKENS], 2],
    [[TOKENS, 0, 2 * TOKENS], 4],
  ] as const) {
    const house = mediaHouse(tokens);
    t.equal(admit(knownCaller(house), CALL, house.listener), undefined);
    t.equal(heldBy(house), held(images), `${tokens.join()}: the dearest of the models that may answer`);
  }
  t.end();
});

void t.test('who cannot pay for the images is told so', (t) => {
  const house = mediaHouse([TOKENS], { credit: '0.005' });
  const refused = admit(knownCaller(house), CALL, house.listener);
  t.match(refused, {
    code: 'insufficient_quota',
    message: /or send fewer images, documents, sounds and videos\.$/,
  });
  t.equal(heldBy(house), '0.00');
  const text = chatCall({ max_tokens: 10 });
  t.equal(admit(knownCaller(house), text, house.listener), undefined, 'a call of text alone is admitted');
  t.end();
});

void t.test('with low_balance clamp the output gets what the images leave', (t) => {
  const prompt = CALL.bodyBytes + 2 * TOKENS;
  const house = mediaHouse([TOKENS], {
    credit: `0.${String(prompt + 2 * 4 + 1).padStart(6, '0')}`,
    lowBalance: 'clamp',
  });
  const context = knownCaller(house);
  t.equal(admit(context, CALL, house.listener), undefined);
  t.equal(context.admission?.call.outputTokensMax, 4);
  t.equal(heldBy(house), held(2, 4));
  const poor = mediaHouse([TOKENS], { credit: '0.005', lowBalance: 'clamp' });
  t.match(admit(knownCaller(poor), CALL, poor.listener), { code: 'insufficient_quota' });
  t.end();
});

void t.test('quotas of tokens hold them, and what never fits gets 400', (t) => {
  const need = CALL.bodyBytes + 2 * TOKENS + 10;
  const fits = mediaHouse([TOKENS]);
  t.equal(admit(limited(fits, need), CALL, fits.listener), undefined);
  t.equal(admit(limited(fits, need), CALL, fits.listener)?.code, 'rate_limit_exceeded', 'all are held');
  const house = mediaHouse([TOKENS]);
  t.match(admit(limited(house, need - 3), CALL, house.listener), {
    code: 'invalid_parameters',
    detail: 'beyond_quota',
    message: new RegExp(`use up to ${need} tokens .*Set max_tokens to at most 7\\.$`),
  });
  t.match(admit(limited(house, TOKENS), CALL, house.listener), {
    message: /Shorten the messages, or send fewer images, documents, sounds and videos\.$/,
  });
  t.equal(heldBy(house), '0.00');
  t.end();
});
