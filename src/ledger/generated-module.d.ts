/**
 * Type of dist/ledger/generated-module.js, which scripts/build-module.mjs makes of the text in
 * quota-module.ts; quota-batch.ts alone imports it. Any thread. test/unit/ledger/quota-batch.test.ts runs
 * the module.
 */

/** The WebAssembly module, as base64. */
export const QUOTA_MODULE_BYTES: string;
