/**
 * A step of the build, after tsc: writes dist/ledger/generated-module.js, the bytes of the WebAssembly module
 * whose text is in src/ledger/quota-module.ts. Throws if the text is wrong. Run from the package's root.
 */
import { copyFileSync, writeFileSync } from 'node:fs';
import openWabt from 'wabt';
import { quotaModuleText } from '../dist/ledger/quota-module.js';

const FEATURES = { threads: true, sat_float_to_int: true };

// tsc does not copy a declaration that is written by hand.
copyFileSync('src/ledger/generated-module.d.ts', 'dist/ledger/generated-module.d.ts');

const wabt = await openWabt();
const module = wabt.parseWat('src/ledger/quota-module.ts', quotaModuleText(), FEATURES);
module.validate(FEATURES);
const base64 = Buffer.from(module.toBinary({}).buffer).toString('base64');
writeFileSync(
  'dist/ledger/generated-module.js',
  `// Made by scripts/build-module.mjs; do not edit.\nexport const QUOTA_MODULE_BYTES = '${base64}';\n`,
);
