import t from 'tap';
import { tokenPriceOf } from '#src/registry/catalog.js';
import { viewOfModel } from '#src/admin/routes.js';
import { picoUnitsPerToken } from '#src/core/money.js';

const modelOf = (price: ReturnType<typeof tokenPriceOf>) => ({
  id: 'm',
  aliases: [],
  ownedBy: 'x',
  createdSeconds: 1,
  price,
  outputTokensMax: 1,
  serves: ['chat' as const],
  mediaPartTokens: 0,
  passMembers: [],
  fallbacks: [],
});

void t.test('prices are shown as the settings give them', (t) => {
  const shown = ['0.15', '0.075', '0.000001', '10000.00'].map((price) => {
    const picoUnits = picoUnitsPerToken(price)!;
    const model = modelOf(tokenPriceOf({ inputPicoUnits: picoUnits, outputPicoUnits: picoUnits }));
    return (viewOfModel(model, [model]) as { price: { input: string } }).price.input;
  });
  t.same(shown, ['0.15', '0.075', '0.000001', '10000.00']);
  t.end();
});

void t.test('long prices are shown with all of their parts', (t) => {
  const at = (input: string, output: string) => ({
    inputPicoUnits: picoUnitsPerToken(input)!,
    outputPicoUnits: picoUnitsPerToken(output)!,
  });
  const cachedInputPicoUnits = picoUnitsPerToken('0.5')!;
  const long = [{ ...at('2', '3'), cachedInputPicoUnits, aboveTokens: 200_000 }];
  const model = modelOf(tokenPriceOf({ ...at('1', '2'), long }));
  t.same(viewOfModel(model, [model]).price.long, [
    {
      above: 200_000,
      input: '2.00',
      cached_input: '0.50',
      cache_write: '2.00',
      cache_write_1h: '2.00',
      output: '3.00',
      reasoning: '3.00',
    },
  ]);
  t.end();
});
