/**
 * The audit of the marks that flushes of a group's gateways have left: none is newer than their number. Main thread of a
 * command.
 */
import type { AuditScope, Subject } from './audit-scope.js';
import { readFlush } from './flush-mark.js';

export function auditFlushes(scope: AuditScope): void {
  const { snapshot } = scope;
  const stored = snapshot.get('meta', 'books_version') ?? 0;
  const version = typeof stored === 'number' ? stored : 0;
  const ofVersion: Subject = { account: null, place: snapshot.place('meta', 'books_version') };
  if (typeof stored !== 'number') scope.differs(ofVersion, 'the number of flushes', 'damaged', 'a number');
  for (const { key: slot, value } of snapshot.rows('flushes')) {
    const flush = scope.read(readFlush, 'flushes', slot, value);
    if (flush === undefined || flush.sequence <= version) continue;
    const subject: Subject = { account: null, place: snapshot.place('flushes', slot) };
    scope.differs(subject, 'the number of the flush', flush.sequence, `at most that of all, ${version}`);
  }
}
