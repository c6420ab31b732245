import t from 'tap';
import { tokenPriceOf } from '#src/registry/catalog.js';
import { viewOfModel } from '#src/admin/routes.js';
import { picoUnitsPerToken } from '#src/core/money.js';

void t.test('prices are shown as the settings give them', (t) => {
  const shown = ['0.15', '0.075', '0.000001', '10000.00'].map((price) => {
    const picoUnits = picoUnitsPerToken(price)!;
    const model = {
      id: 'm',
      aliases: [],
      ownedBy: 'x',
      createdSeconds: 1,
      price: tokenPriceOf({ inputPicoUnits: picoUnits, outputPicoUnits: picoUnits }),
      outputTokensMax: 1,
      serves: ['chat' as const],
      mediaPartTokens: 0,
      passMembers: [],
      fallbacks: [],
    };
    return (viewOfModel(model, [model]) as { price: { input: string } }).price.input;
  });
  t.same(shown, ['0.15', '0.075', '0.000001', '10000.00']);
  t.end();
});
