/** Last build step: what neither tsc nor build-generated.js does. Run from the package's root. */
import { chmodSync, copyFileSync, writeFileSync } from 'node:fs';
import { settingsSchemaText } from '../dist/config/schema.js';

// tsc does not copy a declaration that is written by hand.
copyFileSync('src/protocol/generated.d.ts', 'dist/protocol/generated.d.ts');

// For editors: the package's path of it stays the same, whatever moves inside.
writeFileSync('dist/tollgate.schema.json', settingsSchemaText());

// The console's page, bundled.
await import('./build-console.mjs');

// Last: from here on the entries are bundles.
await import('./bundle.mjs');

// The package's `bin`: npm sets its mode on installing, a clone needs it too.
chmodSync('dist/cli/main.js', 0o755);
