/**
 * The licence of each package that is delivered, as its own licence file has it. What a package's
 * package.json says is taken, unless it is known to be wrong; then the licence file must still be the one
 * that is named here.
 *
 * usage: node scripts/licences.mjs BILL      corrects the licences of a CycloneDX bill of materials
 */
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** By the package's own name: the true identifier (SPDX) and the words of its licence file that show it. */
const CORRECTIONS = {
  // Its package.json says ISC, npm's default; its LICENSE is that of µWebSockets.js.
  uwebsockets: { license: 'Apache-2.0', words: /Apache License\s+Version 2\.0/ },
};

/**
 * Name, version, licence and, if it has a licence file, text of the package in `folder`. Throws if it is not
 * the one it is known by.
 */
export function licenceOf(folder) {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  const text = file === undefined ? undefined : readFileSync(join(folder, file), 'utf8').trim();
  const correction = CORRECTIONS[name];
  if (correction !== undefined && !correction.words.test(text ?? '')) {
    throw new Error(`${folder}: its licence is not ${correction.license} any more; mend CORRECTIONS`);
  }
  return { name, version, license: correction?.license ?? license, text };
}

/** Corrects a bill in place: components that CORRECTIONS names. */
function correctBill(path) {
  const bill = JSON.parse(readFileSync(path, 'utf8'));
  for (const component of bill.components) {
    // An alias stands under its alias; the address of the package has its own name.
    const name = /^pkg:npm\/([^@]+)@/.exec(component.purl ?? '')?.[1] ?? component.name;
    const correction = CORRECTIONS[name];
    if (correction !== undefined) component.licenses = [{ license: { id: correction.license } }];
  }
  writeFileSync(path, `${JSON.stringify(bill, null, 2)}\n`);
}

if (process.argv[1] === new URL(import.meta.url).pathname) correctBill(process.argv[2]);
