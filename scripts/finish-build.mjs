/** Last build step: what neither tsc nor build-validators.js does. Run from the package's root. */
import { chmodSync, copyFileSync } from 'node:fs';

// tsc does not copy declarations that are written by hand.
const DECLARATION = 'protocol/generated-validators.d.ts';
copyFileSync(`src/${DECLARATION}`, `dist/${DECLARATION}`);

// The package's `bin`: npm sets its mode on installing, a clone needs it too.
chmodSync('dist/cli/main.js', 0o755);
